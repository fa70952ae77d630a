"""Dividing a step's work among processes: whatever it is and however many there are, everything is done exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract.documents import Generate, InputFile, JobDocument, Output, Step, UnitJob
from dags_app.payload.contract.step_profile import StepRun
from dags_app.payload.run.division import Division, Work, divide
from dags_app.payload.run.gathering import GatheredFile, in_order
from dags_app.payload.run.psets import _chained_tweak
from dags_app.payload.run.shares import Held, parts_of
from dags_app.payload.run.slot import Granted

STEP = Step(1, "Gen", "x.py", "CMSSW_1", (), "", 1, 0, None, None, True, ("out",), "")
JOB = UnitJob("proc_000000", 1, 0, (), None, None, (), None, None)
MANY = st.integers(1, 9)


def divided(work: Work, processes: int, step: Step = STEP, outputs: tuple[Output, ...] = ()) -> Division:
    job = JobDocument.__new__(JobDocument)
    object.__setattr__(job, "outputs", outputs)
    return divide(job, step, work, StepRun(processes, 1), Granted())


def jobs(work: UnitJob, processes: int) -> list[UnitJob]:
    found = divided(Work(work), processes)
    assert 1 <= len(found.works) <= processes
    assert bool(found.undivided) == (len(found.works) < processes)
    return [part.unit_job for part in found.works]


@given(st.integers(1, 2**40), st.integers(1, 300), st.integers(1, 60), MANY)
def test_generated_events_keep_their_numbers_and_lumis(first: int, events: int, per_lumi: int, processes: int) -> None:
    lumis = -(-events // per_lumi)
    whole = Generate(7, first, first + events - 1, 5, 4 + lumis, per_lumi)
    parts = [part.generate for part in jobs(JOB._replace(generate=whole, events=events), processes)]
    numbered = []
    for part in parts:
        assert part is not None and not part.problem()
        made = [(part.first_lumi + n // part.events_per_lumi, part.first_event + n) for n in range(part.events)]
        assert {(part.run, lumi) for lumi, _ in made} == part.lumis
        numbered += made
    assert numbered == [(5 + n // per_lumi, first + n) for n in range(events)]
    if lumis >= processes:
        cut = Counter(lumi for part in parts if part for lumi in part.lumis)
        assert set(cut.values()) == {1}, "whole lumis where there are enough"


LUMIS = st.sets(st.tuples(st.integers(1, 3), st.integers(1, 30)), min_size=1)


@given(LUMIS, MANY)
def test_a_mask_is_divided_into_whole_lumis(wanted: set[tuple[int, int]], processes: int) -> None:
    mask = tuple((run, lumi, lumi) for run, lumi in sorted(wanted))
    files = (InputFile("/store/a.root", 1, 10), InputFile("/store/b.root", 1, 10))
    parts = jobs(JOB._replace(mask=mask, files=files), processes)
    dealt = [lumi for part in parts for lumi in sorted(part.mask_lumis)]
    assert dealt == sorted(wanted)
    assert all(part.files == files for part in parts), "a lumi may lie in any of them"


@given(st.integers(0, 50), st.integers(1, 100), MANY)
def test_a_range_of_events_is_divided_into_ranges(first: int, events: int, processes: int) -> None:
    file = InputFile("/store/a.root", 1, 1000, first, first + events - 1)
    parts = [part.files for part in jobs(JOB._replace(files=(file,)), processes)]
    read = [number for (each,) in parts for number in range(each.first_event or 0, (each.last_event or 0) + 1)]
    assert read == list(range(first, first + events))


@pytest.mark.parametrize("last", [None, 0])
def test_a_file_without_events_is_read_by_one_process(last: int | None) -> None:
    files = (InputFile("/store/a.root", 1, 0, 0, last),)
    assert [part.files for part in jobs(JOB._replace(files=files), 3)] == [files]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), MANY)
def test_whole_files_stay_whole(events: list[int], processes: int) -> None:
    files = tuple(InputFile(f"/store/{number}.root", 1, each) for number, each in enumerate(events))
    parts = jobs(JOB._replace(files=files), processes)
    assert [file for part in parts for file in part.files] == list(files)
    assert all(part.files for part in parts)


#: Files as the lumi of each event, in order, and lumis without events.
FILES = st.lists(
    st.tuples(st.lists(st.integers(1, 6), max_size=12).map(sorted), st.sets(st.integers(1, 8), max_size=2)),
    min_size=1,
    max_size=5,
)
Rows = list[tuple[str, int]]


def made(files: list[tuple[list[int], set[int]]], known: bool) -> tuple[GatheredFile, ...]:
    found = []
    for number, (events, empty) in enumerate(files):
        counts = {**dict.fromkeys(empty, 0), **Counter(events)}
        lumis = {1: {lumi: count if known else None for lumi, count in counts.items()}}
        found.append(GatheredFile("n", f"/store/{number}.root", f"file:/{number}.root", len(events), lumis, ()))
    return tuple(found)


def read(files: list[tuple[list[int], set[int]]], sources: tuple[GatheredFile, ...]) -> tuple[Rows, set[tuple[str, int]]]:
    """(file, event) and (file, lumi) that cmsRun reads as it is told: it opens no file after the last event it wants."""
    tweak = _chained_tweak(sources)
    skip, left = tweak["skip_events"], tweak["max_events"]
    wanted = {lumi for text in tweak["lumis"] for lumi in range(int(text.split("-")[0][2:]), int(text.split("-")[1][2:]) + 1)}
    rows: Rows = []
    lumis = set()
    for source, name in zip(sources, tweak["files"], strict=True):
        assert left != 0, "a file that is never opened"
        events, empty = files[int(Path(source.url).stem)]
        assert name == source.url
        chosen = [number for number, lumi in enumerate(events) if not wanted or lumi in wanted]
        before, skip = min(skip, len(chosen)), max(0, skip - len(chosen))
        part = chosen[before : None if left < 0 else before + left]
        left = left if left < 0 else left - len(part)
        rows += [(source.lfn, number) for number in part]
        there = set(events) | empty if len(part) == len(chosen) else {events[number] for number in part}
        lumis |= {(source.lfn, lumi) for lumi in there if not wanted or lumi in wanted}
        given = source.events if source.part is None else source.part.events
        assert given is None or given == len(part), "what the check after the step asks for"
    return rows, lumis


@given(FILES, st.booleans(), MANY)
def test_files_of_an_earlier_step_are_read_once_with_all_their_lumis(
    files: list[tuple[list[int], set[int]]], known: bool, processes: int
) -> None:
    sources = made(files, known)
    works = divided(Work(JOB, sources), processes).works
    done = [read(files, work.sources) for work in works]
    assert sorted(row for rows, _ in done for row in rows) == [(s.lfn, n) for s in sources for n in range(s.events)]
    assert {pair for _, lumis in done for pair in lumis} == {(s.lfn, lumi) for s in sources for lumi in s.lumis[1]}
    if len(files) == processes:
        assert [work.sources for work in works] == [(source,) for source in sources], "a pipeline"


@given(FILES, st.booleans(), st.integers(1, 4), MANY)
def test_shares_of_several_files_are_divided_again(
    files: list[tuple[list[int], set[int]]], by_lumi: bool, shares: int, processes: int
) -> None:
    sources = made(files, known=True)
    held = [Held(source.events, source.lumis) for source in sources]
    rows: Rows = []
    for number in range(shares):
        parts = parts_of(held, number, shares, by_lumi=by_lumi)
        mine = [file._replace(part=part) for file, part in zip(sources, parts, strict=True) if part is None or not part.is_empty]
        if mine:
            for work in divided(Work(JOB, in_order(mine)), processes).works:
                rows += read(files, work.sources)[0]
    assert sorted(rows) == [(s.lfn, n) for s in sources for n in range(s.events)]


@given(FILES, st.integers(1, 5))
def test_shares_by_events_lose_no_lumi_that_a_filter_has_left_without_events(
    files: list[tuple[list[int], set[int]]], shares: int
) -> None:
    sources = made(files, known=True)
    held = [Held(source.events, source.lumis) for source in sources]
    lumis = set()
    for number in range(shares):
        parts = parts_of(held, number, shares, by_lumi=False)
        mine = [file._replace(part=part) for file, part in zip(sources, parts, strict=True) if part is None or not part.is_empty]
        lumis |= read(files, in_order(mine))[1] if mine else set()
    assert lumis == {(source.lfn, lumi) for source in sources for lumi in source.lumis[1]}


@given(FILES, st.booleans(), st.integers(1, 4), MANY)
def test_dividing_a_share_loses_no_lumi_that_the_share_has(
    files: list[tuple[list[int], set[int]]], known: bool, shares: int, processes: int
) -> None:
    sources = made(files, known)
    held = [Held(source.events, source.lumis) for source in sources]
    for number in range(shares):
        parts = parts_of(held, number, shares, by_lumi=False)
        mine = in_order(
            f._replace(part=part) for f, part in zip(sources, parts, strict=True) if part is None or not part.is_empty
        )
        if mine:
            works = divided(Work(JOB, mine), processes).works
            assert {pair for work in works for pair in read(files, work.sources)[1]} == read(files, mine)[1]


@pytest.mark.parametrize(
    ("run", "granted", "fit", "why"),
    [
        (StepRun(4, 2, 900), Granted(8, 3600), 4, ""),
        (StepRun(4, 2, 900), Granted(8, 3599), 3, "3 of 4 processes: the slot has 3599 MB, one takes 900 MB"),
        (StepRun(4, 2, 9000), Granted(8, 4000), 1, "1 of 4 processes: the slot has 4000 MB, one takes 9000 MB"),
        (StepRun(4, 8, 0), Granted(2, 10), 2, "2 of 4 processes: the slot has 2 cores"),
        (StepRun(4, 8, 5000), Granted(), 4, ""),
    ],
)
def test_no_more_processes_than_the_slot_has_room_for(run: StepRun, granted: Granted, fit: int, why: str) -> None:
    job = JobDocument.__new__(JobDocument)
    object.__setattr__(job, "outputs", ())
    work = Work(JOB._replace(generate=Generate(1, 1, 100, 1, 10, 10)))
    found = divide(job, STEP, work, run, granted)
    assert (len(found.works), found.undivided) == (fit, why)


DQM = Output("Dqm", "DQMoutput", "DQMIO", "", "", "", "dqmio")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (STEP._replace(output_modules=()), "no output module"),
        (STEP._replace(pileup=(None,), deterministic_pileup=True), "deterministic pileup"),
        (STEP._replace(input_step="Dqm", input_module="DQMoutput"), "DQMIO"),
    ],
)
def test_a_step_that_cannot_be_divided_says_why(step: Step, why: str) -> None:
    work = Work(JOB._replace(generate=Generate(1, 1, 100, 1, 10, 10)))
    found = divided(work, 2, step, (DQM,))
    assert found.works == (work,) and why in found.undivided
