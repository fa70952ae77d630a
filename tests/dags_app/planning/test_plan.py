"""``plan``: one value in, one out, and no database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dags_app.planning.plan import Plan, PlanLimits, PlanningInput, WorkLeft, plan
from dags_app.planning.specs import (
    DagLimits,
    DagSpec,
    GenerationLeft,
    InputFileSpec,
    PileupBlock,
    PileupDataset,
    ResourceSpec,
    SplittingAlgo,
    WaitingFile,
    WorkflowSpec,
)
from tests.support.planning import CERN, FNAL, generation_workflow, input_file, input_workflow
from wms2.errors import PlanningRefused

ENDLESS = PlanLimits(max_jobs=None)


def planned(
    workflow: WorkflowSpec, work: WorkLeft, limits: PlanLimits = ENDLESS, *, pileup: Sequence[PileupDataset] = (),
) -> Plan:  # fmt: skip
    dag = DagSpec("dag", "workflow", "test", 3, workflow, (), DagLimits(), pileup=tuple(pileup))
    return plan(PlanningInput(dag, work, limits))


def lfns(made: Plan) -> list[str]:
    return [file.lfn for job in made.jobs for file in job.files]


def test_a_generation_goes_on_where_it_is_left_and_takes_numbers() -> None:
    spec = generation_workflow()
    made = planned(
        spec,
        WorkLeft(GenerationLeft(301, 7, 400)),
        PlanLimits(jobs_per_work_unit=2, max_jobs=None),
    )
    assert [(g.first_event, g.last_event, g.first_lumi, g.last_lumi) for g in made.generated] == [
        (301, 400, 7, 8), (401, 500, 9, 10), (501, 600, 11, 12), (601, 700, 13, 14),
    ]  # fmt: skip
    assert (made.dag.round_index, made.more, bool(made.left_out), made.too_long) == (3, False, False, None)


def test_files_are_read_no_further_than_one_dag_takes() -> None:
    read: list[str] = []

    def files() -> Iterator[InputFileSpec]:
        for number in range(1000):
            file = input_file(number)
            read.append(file.lfn)
            yield file

    limits = PlanLimits(jobs_per_work_unit=2, max_units=3, max_jobs=None)
    made = planned(input_workflow(files_per_job=1), WorkLeft(parts=(files(),)), limits)
    assert (len(made.dag.units), made.more) == (3, True)
    assert len(read) < 20


def test_fresh_files_come_first_and_those_that_wait_are_left_out_with_their_reason() -> None:
    fresh, tried = [input_file(5), WaitingFile("/store/data/0006.root", "on tape")], [input_file(1), input_file(2)]
    made = planned(input_workflow(files_per_job=1), WorkLeft(parts=(fresh, tried), waited=frozenset({input_file(2).lfn})))
    assert lfns(made) == [input_file(number).lfn for number in (5, 1, 2)]
    assert made.left_out.waiting == {"/store/data/0006.root": "on tape"}
    assert made.left_out.found == [input_file(2).lfn]


def test_lumis_that_only_lack_a_site_wait_and_are_not_refused() -> None:
    same = {1: ((1, 5),)}
    files = [input_file(1, ranges=same, locations=(FNAL,)), input_file(2, ranges=same, locations=(CERN,))]
    made = planned(input_workflow(SplittingAlgo.LUMI_BASED, lumis_per_job=5), WorkLeft(parts=(files,)))
    assert (made.dag.units, made.left_out.refused) == ((), [])
    assert len(made.left_out.lumis) == 5
    assert set(made.left_out.waiting) == {file.lfn for file in files}


def test_jobs_that_would_be_ended_are_told_and_what_is_left_out_is_not_lost_with_it() -> None:
    slow = input_workflow(files_per_job=1, resources=ResourceSpec(1, 2000, 9999.0, 1.0))
    made = planned(slow, WorkLeft(parts=([input_file(1), WaitingFile("/store/data/0002.root", "nowhere")],)))
    assert made.too_long is not None and "expected to take longer than 48 h" in made.too_long
    assert list(made.left_out.waiting) == ["/store/data/0002.root"]


def test_jobs_land_where_the_pileup_is_or_are_refused() -> None:
    premix = PileupDataset("/Neutrino/Premix/PREMIX", "mc", (PileupBlock("/b#1", (FNAL,), 10, ("/store/mc/p.root",)),))
    made = planned(input_workflow(files_per_job=1), WorkLeft(parts=([input_file(1)],)), pileup=[premix])
    assert [unit.sites for unit in made.dag.units] == [frozenset({FNAL})]
    with pytest.raises(PlanningRefused, match="input and pileup are at different sites"):
        planned(input_workflow(files_per_job=1), WorkLeft(parts=([input_file(1, locations=(CERN,))],)), pileup=[premix])


def test_the_same_input_gives_the_same_plan() -> None:
    files = tuple(input_file(number) for number in range(9))
    first, second = (planned(input_workflow(files_per_job=2), WorkLeft(parts=(files,))) for _ in range(2))
    assert (first.dag, first.left_out) == (second.dag, second.left_out)
