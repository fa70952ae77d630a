"""Dealing work units out to processing blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning.blocks import assign_blocks
from dags_app.planning.specs import Generate, JobSpec, WorkUnitSpec
from outputs_app.values import OpenBlock

A, B = "/Prim/Era-v1/GEN-SIM", "/Prim/Era-v1/RECO"


def units(*sizes: dict[str, int]) -> list[WorkUnitSpec]:
    return [WorkUnitSpec(n, f"mg_{n:06d}", (), frozenset(), (), 1, size) for n, size in enumerate(sizes)]


def test_a_block_takes_units_until_the_next_one_would_pass_the_target() -> None:
    plan = assign_blocks(units({A: 4}, {A: 4}, {A: 2}, {A: 1}), known={}, target_bytes=10)
    assert [(a.dataset, a.block_index) for a in plan.assignments] == [(A, 0)] * 3 + [(A, 1)]
    assert [unit.block_index for unit in plan.units] == [0, 0, 0, 1]


def test_a_block_that_is_open_from_an_earlier_round_is_filled_first_and_ordinals_go_on() -> None:
    known = {A: OpenBlock(blocks=3, open_index=2, planned_bytes=7)}
    plan = assign_blocks(units({A: 3}, {A: 3}), known=known, target_bytes=10)
    assert [(a.dataset, a.block_index) for a in plan.assignments] == [(A, 2), (A, 3)]
    assert [unit.block_index for unit in plan.units] == [2, 3]


def test_a_block_ends_before_its_lumis_pass_the_limit_also_those_of_an_earlier_round() -> None:
    """Of generated events, of masks, and of whole files as the catalogue counts them."""
    jobs = (
        JobSpec(10, frozenset(), generate=Generate(1, 1, 10, 1, 4, 3)), JobSpec(10, frozenset(), mask={1: ((1, 3), (7, 7))}),
        JobSpec(10, frozenset(), file_lumis=4),
    )  # fmt: skip
    each = [replace(unit, jobs=(job,)) for unit, job in zip(units({A: 1}, {A: 1}, {A: 1}), jobs, strict=True)]
    known = {A: OpenBlock(blocks=1, open_index=0, planned_bytes=1, lumis=2)}
    for most, indexes in ((100, [0, 0, 0]), (14, [0, 0, 0]), (13, [0, 0, 1]), (8, [0, 1, 1]), (5, [1, 2, 3]), (1, [1, 2, 3])):
        plan = assign_blocks(each, known=known, target_bytes=1000, most_lumis=most)
        assert [a.block_index for a in plan.assignments] == indexes, most


def test_each_dataset_has_its_own_blocks_and_a_units_priority_follows_the_oldest() -> None:
    plan = assign_blocks(units({A: 9, B: 1}, {A: 9, B: 1}), known={}, target_bytes=10)
    assert [(a.unit_index, a.dataset, a.block_index) for a in plan.assignments] == [
        (0, A, 0),
        (0, B, 0),
        (1, A, 1),
        (1, B, 0),
    ]
    assert [unit.block_index for unit in plan.units] == [0, 0]


def test_a_dataset_whose_blocks_are_all_sealed_begins_the_next_one() -> None:
    known = {A: OpenBlock(blocks=3, open_index=None, planned_bytes=0)}
    assert [a.block_index for a in assign_blocks(units({A: 3}), known=known, target_bytes=10).assignments] == [3]


def test_a_unit_larger_than_a_block_has_a_block_of_its_own() -> None:
    plan = assign_blocks(units({A: 1}, {A: 50}, {A: 1}), known={}, target_bytes=10)
    assert [unit.block_index for unit in plan.units] == [0, 1, 2]


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 12), st.integers(1, 20))
def test_every_unit_is_in_one_block_and_no_block_passes_the_target(sizes: list[int], held: int, target: int) -> None:
    known = {A: OpenBlock(blocks=1, open_index=0, planned_bytes=held)}
    plan = assign_blocks(units(*({A: size} for size in sizes)), known=known, target_bytes=target)
    assert [a.unit_index for a in plan.assignments] == list(range(len(sizes)))
    members = Counter(a.block_index for a in plan.assignments)
    filled = Counter({0: held})
    for a in plan.assignments:
        filled[a.block_index] += a.bytes
    for index, total in filled.items():
        biggest = max((a.bytes for a in plan.assignments if a.block_index == index), default=0)
        assert total <= target or members[index] == 0 or total == biggest or (index == 0 and total == held)
    taken = [a.block_index for a in plan.assignments]
    assert taken == sorted(taken), "a block that was left takes no further unit"
    assert [unit.block_index for unit in plan.units] == sorted(unit.block_index for unit in plan.units)
