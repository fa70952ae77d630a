"""Dealing work units out to processing blocks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning.blocks import NewBlock, OpenBlock, assign_blocks
from dags_app.planning.specs import WorkUnitSpec

A, B = "/Prim/Era-v1/GEN-SIM", "/Prim/Era-v1/RECO"


def units(*sizes: dict[str, int]) -> list[WorkUnitSpec]:
    return [WorkUnitSpec(n, f"mg_{n:06d}", (), frozenset(), (), 1, size) for n, size in enumerate(sizes)]


def test_a_block_takes_units_until_the_next_one_would_pass_the_target() -> None:
    plan = assign_blocks(units({A: 4}, {A: 4}, {A: 2}, {A: 1}), open_blocks=[], block_counts={}, target_bytes=10)
    assert [a.block_key for a in plan.assignments] == ["new:" + A + ":0"] * 3 + ["new:" + A + ":1"]
    assert plan.new_blocks == (NewBlock(f"new:{A}:0", A, 0), NewBlock(f"new:{A}:1", A, 1))
    assert plan.sealed == (f"new:{A}:0",)
    assert [unit.block_index for unit in plan.units] == [0, 0, 0, 1]


def test_a_block_that_is_open_from_an_earlier_round_is_filled_first_and_ordinals_go_on() -> None:
    known = [OpenBlock("17", A, 2, 7)]
    plan = assign_blocks(units({A: 3}, {A: 3}), open_blocks=known, block_counts={A: 3}, target_bytes=10)
    assert [a.block_key for a in plan.assignments] == ["17", f"new:{A}:3"]
    assert plan.sealed == ("17",)
    assert [unit.block_index for unit in plan.units] == [2, 3]


def test_each_dataset_has_its_own_blocks_and_a_units_priority_follows_the_oldest() -> None:
    plan = assign_blocks(units({A: 9, B: 1}, {A: 9, B: 1}), open_blocks=[], block_counts={}, target_bytes=10)
    assert [(a.unit_index, a.dataset, a.block_key[-1]) for a in plan.assignments] == [
        (0, A, "0"),
        (0, B, "0"),
        (1, A, "1"),
        (1, B, "0"),
    ]
    assert [unit.block_index for unit in plan.units] == [0, 0]


def test_a_unit_larger_than_a_block_has_a_block_of_its_own() -> None:
    plan = assign_blocks(units({A: 1}, {A: 50}, {A: 1}), open_blocks=[], block_counts={}, target_bytes=10)
    assert [unit.block_index for unit in plan.units] == [0, 1, 2]


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 12), st.integers(1, 20))
def test_every_unit_is_in_one_block_and_no_block_passes_the_target(sizes: list[int], held: int, target: int) -> None:
    known = [OpenBlock("old", A, 0, held)]
    plan = assign_blocks(units(*({A: size} for size in sizes)), open_blocks=known, block_counts={A: 1}, target_bytes=target)
    assert [a.unit_index for a in plan.assignments] == list(range(len(sizes)))
    members = Counter(a.block_key for a in plan.assignments)
    filled = Counter({"old": held})
    for a in plan.assignments:
        filled[a.block_key] += a.bytes
    for key, total in filled.items():
        biggest = max((a.bytes for a in plan.assignments if a.block_key == key), default=0)
        assert total <= target or members[key] == 0 or total == biggest or (key == "old" and total == held)
    assert set(plan.sealed).isdisjoint({plan.assignments[-1].block_key} if plan.assignments else set())
    assert [unit.block_index for unit in plan.units] == sorted(unit.block_index for unit in plan.units)
