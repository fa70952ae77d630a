"""Where jobs that mix pileup may run, and the document that tells them what to mix."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dags_app.payload.contract import layout
from dags_app.payload.contract.documents import InputFile, Pileup
from dags_app.planning.dagfiles import render
from dags_app.planning.pileup import jobs_at, mixed_after, pileup_document, pileup_of, pileup_sites, sites_holding
from dags_app.planning.specs import DagSpec, JobSpec, PileupBlock, PileupDataset, SplittingAlgo, WorkflowSpec
from tests.support.planning import CERN, FNAL, PURDUE, dag_spec, generation_workflow, input_file, input_workflow, task_tree
from wms2.errors import PlanningRefused

PREMIX = "/Neutrino/Premix-v1/PREMIX"


def dataset(*blocks: tuple[tuple[str, ...], int], name: str = PREMIX) -> PileupDataset:
    """A dataset of blocks, each (sites, number of files)."""
    made = [
        PileupBlock(f"{name}#{n}", sites, 10 * files, tuple(f"/store/mc/{n}-{k}.root" for k in range(files)))
        for n, (sites, files) in enumerate(blocks)
    ]
    return PileupDataset(name, "mc", tuple(made))


def workflow(**changes: object) -> WorkflowSpec:
    return replace(generation_workflow(), site_whitelist=(FNAL, CERN), site_blacklist=(), **changes)  # type: ignore[arg-type]


def test_a_site_counts_by_its_share_of_the_files() -> None:
    spread = dataset(((FNAL, CERN), 6), ((FNAL,), 3), ((PURDUE,), 1))

    assert sites_holding(spread, least_fraction=0.2) == {FNAL: 0.9, CERN: 0.6}
    assert sites_holding(spread, least_fraction=0.1) == {FNAL: 0.9, CERN: 0.6, PURDUE: 0.1}


def test_jobs_go_where_all_pileup_is() -> None:
    here, there = dataset(((FNAL, PURDUE), 1)), dataset(((CERN, FNAL), 1), name="/Other/PU-v1/RAW")

    assert pileup_sites(workflow(), [here]) == {FNAL}
    assert pileup_sites(workflow(), [here, there]) == {FNAL}
    assert pileup_sites(workflow(), []) is None


def test_without_a_white_list_every_site_with_pileup_counts_but_the_black_ones() -> None:
    open_to_all = replace(workflow(), site_whitelist=(), site_blacklist=(CERN,))

    assert pileup_sites(open_to_all, [dataset(((FNAL, CERN, PURDUE), 1))]) == {FNAL, PURDUE}


def test_trusted_site_lists_let_pileup_be_read_from_elsewhere() -> None:
    trusting = workflow(trust_pileup_sitelists=True)

    assert pileup_sites(trusting, [dataset(((PURDUE,), 1))]) is None


@pytest.mark.parametrize("trusted", [False, True])
def test_pileup_on_no_disk_is_refused_with_what_to_do(trusted: bool) -> None:
    with pytest.raises(PlanningRefused, match=rf"pileup {PREMIX}: no file is on disk at any site; have Rucio place it"):
        pileup_sites(workflow(trust_pileup_sitelists=trusted), [dataset()])


def test_pileup_at_other_sites_is_refused_with_where_it_is() -> None:
    with pytest.raises(PlanningRefused, match=r"on disk at: T2_US_Purdue\); place it with Rucio, change SiteWhitelist"):
        pileup_sites(workflow(), [dataset(((PURDUE,), 1))])
    with pytest.raises(PlanningRefused, match=r"has 10% of it on disk \(on disk at: T2_US_Purdue\)"):
        pileup_sites(workflow(), [dataset(((PURDUE,), 19), ((FNAL,), 1))])
    spread = dataset(*(((site,), 1) for site in (FNAL, CERN, PURDUE)), *(((f"T2_XX_{number}",), 1) for number in range(8)))
    with pytest.raises(PlanningRefused, match=r"on disk at: T1_US_FNAL 9%, T2_CH_CERN 9%, T2_US_Purdue 9%\)"):
        pileup_sites(workflow(), [spread])


def test_two_samples_at_different_sites_are_refused_together() -> None:
    apart = [dataset(((FNAL,), 1)), dataset(((CERN,), 1), name="/Other/PU-v1/RAW")]

    with pytest.raises(PlanningRefused, match=r"no site of the request has all its pileup on disk"):
        pileup_sites(workflow(), apart)


def test_jobs_keep_the_sites_that_have_the_pileup() -> None:
    jobs = [JobSpec(events=1, sites=frozenset((FNAL, CERN))), JobSpec(events=2, sites=frozenset((CERN, PURDUE)))]

    assert [job.sites for job in jobs_at(jobs, frozenset((CERN,)))] == [{CERN}, {CERN}]
    assert list(jobs_at(jobs, None)) == jobs


def test_input_apart_from_its_pileup_is_refused_by_the_file() -> None:
    job = JobSpec(events=1, sites=frozenset((PURDUE,)), files=(InputFile("/store/data/one.root", 1, 1),))

    with pytest.raises(
        PlanningRefused, match=r"/store/data/one.root can be read at T2_US_Purdue, the pileup is on disk at T1_US_FNAL"
    ):
        list(jobs_at([job], frozenset((FNAL,))))


def test_the_document_has_every_block_with_its_sites_and_files() -> None:
    document = json.loads(pileup_document([dataset(((FNAL, CERN), 2)), dataset(((PURDUE,), 1), name="/Other/PU-v1/RAW")]))

    assert document == {
        "schema": "wms2.pileup/1",
        "datasets": {
            PREMIX: {
                "kind": "mc",
                "blocks": {
                    f"{PREMIX}#0": {"sites": [FNAL, CERN], "events": 20, "files": ["/store/mc/0-0.root", "/store/mc/0-1.root"]}
                },
            },
            "/Other/PU-v1/RAW": {
                "kind": "mc",
                "blocks": {"/Other/PU-v1/RAW#0": {"sites": [PURDUE], "events": 10, "files": ["/store/mc/0-0.root"]}},
            },
        },
    }


def mixing(workflow: WorkflowSpec, *names: str) -> WorkflowSpec:
    """The workflow with deterministic pileup in the steps of these names."""
    pileup = (Pileup("mc", PREMIX),)
    steps = tuple(
        replace(step, pileup=pileup, deterministic_pileup=True) if step.name in names else step for step in workflow.steps
    )
    return replace(workflow, steps=steps)


def places(spec: DagSpec) -> dict[str, list[int]]:
    """Of all jobs, by the letters before the node's number, the events of pileup that come before."""
    found: dict[str, list[int]] = {}
    for file in render(spec):
        for job in json.loads(file.text)["jobs"] if file.path.endswith(layout.UNIT_FILE) else ():
            if "mixed_before" in job:
                found.setdefault(job["node"].rpartition("_")[0], []).append(job["mixed_before"])
    return found


def test_each_job_over_input_begins_in_deterministic_pileup_where_the_one_before_it_ends() -> None:
    files = (input_file(1, events=250), input_file(2, events=0), input_file(3, events=120))
    workflow = input_workflow(SplittingAlgo.EVENT_BASED, events_per_job=100)
    spec = dag_spec(mixing(workflow, workflow.steps[0].name), files, jobs_per_work_unit=2)
    assert places(spec) == {"proc": [0, 100, 200, 300, 400, 500]}, "the number of the job times EventsPerJob, as WMCore counts"
    assert mixed_after(spec) == {1: 600}
    assert places(replace(spec, mixed_before={1: 600})) == {"proc": [600, 700, 800, 900, 1000, 1100]}

    by_file = input_workflow(SplittingAlgo.FILE_BASED, files_per_job=1)
    assert places(dag_spec(mixing(by_file, by_file.steps[0].name), files)) == {"proc": [0, 250, 251]}
    assert places(dag_spec(workflow, files)) == {}
    assert mixed_after(dag_spec(workflow, files)) == {}


def test_nodes_of_later_tasks_that_share_a_file_mix_other_events_and_generation_goes_by_its_numbers() -> None:
    spec = dag_spec(mixing(task_tree(), "GenSim", "Reco"), jobs_per_work_unit=5)
    found = places(spec)
    assert found.keys() == {"t4"}
    assert found["t4"] == sorted(set(found["t4"])) and len(found["t4"]) == sum(len(unit.levels[2].nodes) for unit in spec.units)


def test_the_document_can_be_read_back() -> None:
    found = (dataset(((FNAL, CERN), 2), ((PURDUE,), 1)), replace(dataset(((CERN,), 1), name="/Other/PU-v1/RAW"), kind="data"))
    assert pileup_of(pileup_document(found)) == found


def test_a_dag_with_pileup_has_the_document_and_gives_it_to_the_jobs() -> None:
    plain = dag_spec()
    first, *rest = plain.workflow.steps
    mixing = replace(first, pileup=(Pileup("mc", PREMIX),), deterministic_pileup=True)
    spec = replace(
        plain,
        pileup=(dataset(((FNAL,), 1)),),
        workflow=replace(plain.workflow, steps=(mixing, *rest), trust_pileup_sitelists=True),
    )
    files = {file.path: file for file in render(spec)}

    assert files[layout.PILEUP_FILE].mutable, "it is written anew with each submission"
    assert f"../{layout.PILEUP_FILE}" in files["proc.sub"].text
    assert layout.PILEUP_FILE not in files["merge.sub"].text
    job = json.loads(files[layout.JOB_FILE].text)
    assert job["trust_pileup_sitelists"] is True
    assert (job["steps"][0]["pileup"], job["steps"][0]["deterministic_pileup"]) == ([{"kind": "mc", "dataset": PREMIX}], True)
    assert "pileup" not in job["steps"][-1] or len(rest) == 0
    assert layout.PILEUP_FILE not in {file.path for file in render(plain)}
