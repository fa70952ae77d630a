"""What goes with lost merged files: exactly the files that hold pieces of the same work, and exactly these pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.manifest import Manifest, ManifestProblem
from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.closure import FILE_EVENTS, GENERATED, GENERATED_LUMIS, RUN_LUMIS, Piece, closure

INPUT = "/store/data/in.root"


@dataclass
class Job:
    """A job's share of a claim, in one of the ways of splitting."""

    generated: list[dict[str, int]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    lumis: dict[str, list[list[int]]] = field(default_factory=dict)
    claims: list[Piece] = field(default_factory=list)


def generated(number: int) -> Job:
    first, lumi = 100 * number + 1, 10 * number + 1
    made = {"run": 1, "first_event": first, "last_event": first + 99}
    claims = [Piece(GENERATED, "1", first, first + 99), Piece(GENERATED_LUMIS, "1", lumi, lumi + 9)]
    return Job([made], lumis={"1": [[lumi, lumi + 9]]}, claims=claims)


def part_of_a_file(number: int) -> Job:
    """Neighbours share a lumi, as parts of a file do, which is no shared piece."""
    first = 100 * number
    read = {"lfn": INPUT, "events": 100, "first_event": first, "last_event": first + 99}
    return Job(files=[read], lumis={"1": [[number + 1, number + 2]]}, claims=[Piece(FILE_EVENTS, INPUT, first, first + 99)])


def whole_file(number: int) -> Job:
    """Every third without events."""
    lfn, events = f"/store/data/{number}.root", 0 if number % 3 == 0 else 100
    return Job(
        files=[{"lfn": lfn, "events": events}],
        lumis={"1": [[number + 1, number + 1]]},
        claims=[Piece(FILE_EVENTS, lfn, 0, max(events, 1) - 1)],
    )


def masked_file(number: int) -> Job:
    """Claimed whole, of which less is read."""
    lfn = f"/store/data/{number}.root"
    read = {"lfn": lfn, "events": 37 * (number % 2)}
    return Job(files=[read], lumis={"1": [[number + 1, number + 1]]}, claims=[Piece(FILE_EVENTS, lfn, 0, 99)])


def some_lumis(number: int) -> Job:
    """All of one input file, every other lumi of two runs."""
    spans = [[2 * number + 1, 2 * number + 1]]
    claims = [Piece(RUN_LUMIS, run, *spans[0]) for run in ("1", "2")]
    return Job(files=[{"lfn": INPUT, "events": 10}], lumis={"1": spans, "2": spans}, claims=claims)


WAYS = (generated, part_of_a_file, whole_file, masked_file, some_lumis)


def manifest(jobs: Sequence[Job], outputs: Sequence[Sequence[Sequence[int]]], schema: str = "1.1") -> Manifest:
    """``outputs``: of each merged file of each output the jobs that it was made from; in shares where two files name one."""

    def merged(output: int, number: int, made_from: Sequence[int]) -> dict[str, Any]:
        mine = [jobs[index] for index in made_from]
        spans = [(int(run), a, b) for job in mine for run, pairs in job.lumis.items() for a, b in pairs]
        pieces = {
            "generated": [each for job in mine for each in job.generated],
            "files": [each for job in mine for each in job.files],
            "lumis": lumis.to_json(lumis.from_intervals(spans)),
            "shared": sum(index in other for index in made_from for other in outputs[output]) > len(made_from),
        }
        plain = {"size_bytes": 1, "adler32": "00000001", "events": 0, "lumis": {}}
        return {"lfn": lfn(output, number), **plain, **({"pieces": pieces} if schema != "1" else {})}

    stamps = dict.fromkeys(("request_name", "workflow_id", "dag_id", "unit", "site", "rse"), "x")
    return Manifest.model_validate(
        {
            "schema": f"wms2.manifest/{schema}", **stamps, "fence": 1,
            "jobs": [{"node": f"p{n}", "processed": {"events": 0, "lumis": job.lumis}} for n, job in enumerate(jobs)],
            "outputs": [
                {"dataset": f"/P/E-v1/T{n}", "module": "m", "step": "s",
                 "files": [merged(n, number, each) for number, each in enumerate(output)]}
                for n, output in enumerate(outputs)
            ],
        }
    )  # fmt: skip


def lfn(output: int, number: int) -> str:
    return f"/store/mc/{output}_{number}.root"


def names(outputs: Sequence[Sequence[Sequence[int]]]) -> dict[str, set[int]]:
    return {lfn(n, number): set(each) for n, output in enumerate(outputs) for number, each in enumerate(output)}


@st.composite
def merged_outputs(draw: st.DrawFn) -> tuple[list[Job], list[list[list[int]]]]:
    """Jobs of one way of splitting, dealt out to the merged files of up to three outputs; some in shares."""
    way, number = draw(st.sampled_from(WAYS)), draw(st.integers(1, 7))
    outputs = []
    for _ in range(draw(st.integers(1, 3))):
        order, files = draw(st.permutations(range(number))), []
        left = list(order)
        while left:
            size = draw(st.integers(1, len(left)))
            files.append(left[:size])
            left = left[size:]
        for job in draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)):
            if all(job not in file for file in files[1:]) and len(files) > 1:
                files[-1].append(job)  # a later task divided what this job left
        outputs.append(files)
    return [way(n) for n in range(number)], outputs


def smallest(held: dict[str, set[int]], lost: set[str]) -> set[str]:
    """By plain sets of jobs, as often as it takes."""
    inside = set(lost)
    while True:
        jobs = set().union(*(held[name] for name in inside))
        more = {name for name, mine in held.items() if mine & jobs}
        if more == inside:
            return inside
        inside = more


@given(merged_outputs(), st.data())
def test_what_goes_is_the_smallest_set_of_files_that_holds_their_jobs_whole(made: Any, data: st.DataObject) -> None:
    jobs, outputs = made
    held = names(outputs)
    lost = data.draw(st.sets(st.sampled_from(sorted(held)), min_size=1))
    claims = [piece for job in jobs for piece in job.claims]
    found = closure(manifest(jobs, outputs), lost=lost, kept=held.keys(), claims=claims)
    expected = smallest(held, lost)
    assert found.files.keys() == expected
    assert {name for name, by in found.files.items() if not by} == lost
    assert all(held[name] & held[by] for name, by in found.files.items() if by)
    taken = set().union(*(held[name] for name in expected))
    assert units(found.pieces) == units(piece for index in taken for piece in jobs[index].claims)
    assert found.lumis == len(units(Piece(0, run, a, b) for i in taken for run, spans in jobs[i].lumis.items() for a, b in spans))


@given(merged_outputs(), st.data())
def test_what_is_left_after_a_removal_can_be_removed_as_exactly(made: Any, data: st.DataObject) -> None:
    jobs, outputs = made
    held, reported = names(outputs), manifest(*made)
    claims, kept = [piece for job in jobs for piece in job.claims], set(held)
    while kept:
        found = closure(reported, lost={data.draw(st.sampled_from(sorted(kept)))}, kept=kept, claims=claims)
        assert units(found.pieces) <= units(claims)
        left = units(claims) - units(found.pieces)
        claims = [Piece(kind, of, at, at) for kind, of, at in sorted(left)]
        kept -= found.files.keys()
    assert not claims


def units(pieces: Any) -> set[tuple[int, str, int]]:
    return {(piece.kind, piece.of, at) for piece in pieces for at in range(piece.first, piece.last + 1)}


def test_kinds_are_those_of_claims() -> None:
    C = WorkUnitClaim
    kinds = (C.KIND_GENERATED, C.KIND_FILE_EVENTS, C.KIND_RUN_LUMIS, C.KIND_GENERATED_LUMIS)
    assert kinds == (GENERATED, FILE_EVENTS, RUN_LUMIS, GENERATED_LUMIS)


def test_of_a_manifest_that_tells_no_pieces_the_whole_unit_goes() -> None:
    jobs, outputs = [generated(0), generated(1)], [[[0], [1]], [[0, 1]]]
    claims = [piece for job in jobs for piece in job.claims]
    found = closure(manifest(jobs, outputs, "1"), lost={lfn(0, 1)}, kept=names(outputs).keys(), claims=claims)
    assert found.files == {lfn(0, 0): lfn(0, 1), lfn(0, 1): "", lfn(1, 0): lfn(0, 1)}
    assert found.pieces == tuple(claims)
    assert (found.lumis, found.events) == (20, 200)


def test_files_that_do_not_hold_what_is_claimed_are_not_cut() -> None:
    jobs, outputs = [generated(0), generated(1)], [[[0], [1]]]
    claims, all_ = [piece for job in jobs for piece in job.claims], names(outputs).keys()
    with pytest.raises(ManifestProblem, match="do not hold what the unit claims"):
        closure(manifest(jobs, outputs), lost={lfn(0, 0)}, kept={lfn(0, 0)}, claims=claims)
    with pytest.raises(ManifestProblem, match="does not claim"):
        closure(manifest(jobs, outputs), lost={lfn(0, 0)}, kept=all_, claims=[Piece(GENERATED, "2", 1, 200)])
    with pytest.raises(ManifestProblem, match="does not name"):
        closure(manifest(jobs, outputs), lost={"/store/mc/other.root"}, kept=all_, claims=claims)
