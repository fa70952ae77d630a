"""``unit.json``, which the planner puts together by hand, against the payload's own reader and writer."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.documents import Generate, InputFile, UnitJob, read_unit
from dags_app.planning import lumis
from dags_app.planning.documents import unit_document
from dags_app.planning.levels import level_plans, levels_of, node_name
from dags_app.planning.specs import JobSpec, WorkUnitSpec
from tests.support.planning import FNAL, task_tree

SITES = frozenset({FNAL})
NUMBERS = st.integers(0, 2**63)
RANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=5).map(
    lambda spans: lumis.from_intervals([(run, first, first + more) for run, first, more in spans])
)
FILES = st.builds(
    InputFile,
    st.text(min_size=1),
    NUMBERS,
    NUMBERS,
    st.none(),
    st.none(),
    st.lists(st.text(min_size=1), max_size=2).map(tuple),
)
EVENTS_OF_ONE = st.builds(
    lambda file, bounds: [file._replace(first_event=bounds[0], last_event=bounds[1])], FILES, st.tuples(NUMBERS, NUMBERS)
)
NUMBERED = st.integers(1, 2**63)


def generating(run: int, event: int, lumi: int, lumis_made: int, events_per_lumi: int) -> JobSpec:
    numbers = Generate(run, event, event + lumis_made * events_per_lumi - 1, lumi, lumi + lumis_made - 1, events_per_lumi)
    return JobSpec(numbers.events, SITES, numbers)


GENERATING = st.builds(generating, NUMBERED, NUMBERED, NUMBERED, st.integers(1, 9), st.integers(1, 9))
READING = st.builds(
    lambda files, mask: JobSpec(100, SITES, files=tuple(files), mask=mask),
    EVENTS_OF_ONE | st.lists(FILES, min_size=1, max_size=3),
    st.none() | RANGES,
)


@given(st.lists(GENERATING | READING, min_size=1, max_size=4), st.booleans(), st.dictionaries(st.integers(0, 3), NUMBERS))
def test_each_job_is_the_line_that_the_payload_would_write_of_it(jobs: list[JobSpec], chain: bool, mixed: dict[int, int]) -> None:
    levels = levels_of(level_plans(task_tree()), jobs) if chain else ()
    unit = WorkUnitSpec(3, "mg_000003", tuple(jobs), SITES, (), 1, {}, levels=levels)
    text = unit_document(unit, {node_name(index): before for index, before in mixed.items()})
    with TemporaryDirectory() as directory:
        (Path(directory) / layout.UNIT_FILE).write_text(text)
        read = read_unit(Path(directory))
    assert (read.unit, read.index, len(read.jobs)) == ("mg_000003", 3, unit.processing_nodes)
    assert [line.rstrip(",") for line in text.splitlines()[1:-1]] == [json.dumps(written(job, chain)) for job in read.jobs]
    for index, (job, found) in enumerate(zip(jobs, read.jobs, strict=False)):
        assert (found.generate, found.files, found.mixed_before) == (job.generate, job.files, mixed.get(index))
        assert found.mask == (None if job.mask is None else tuple(lumis.iterate(job.mask)))


def written(job: UnitJob, chain: bool) -> dict[str, object]:
    """Only a chain's jobs say of which task they are."""
    return {name: value for name, value in to_json(job).items() if chain or name != "task"}
