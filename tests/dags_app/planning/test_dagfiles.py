"""The rendered DAG directory, whole files against ``golden/``, and what must not get into one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dags_app.payload.contract import documents as payload_documents
from dags_app.planning import lumis
from dags_app.planning.dagfiles import avoid_inc, credential_inc, fence_inc, group_dags, outer_dag, render
from dags_app.planning.specs import DagLimits, DagSpec, GenerationSpec, SplittingAlgo
from tests.support.planning import CERN, FNAL, dag_spec, generation_workflow, input_file, input_workflow, task_tree
from wms2.runtime.credentials import Credential

GOLDEN = Path(__file__).with_name("golden")


def generation() -> DagSpec:
    """Ten jobs in three units of a two-step chain."""
    return dag_spec(jobs_per_work_unit=4)


def file_based() -> DagSpec:
    """Files at two groups of sites under a lumi mask, with parents."""
    wanted = {"lumi_list": lumis.from_intervals([(1, 1, 13), (1, 22, 24)]), "include_parents": True}
    files = [
        input_file(n, locations=(FNAL,) if n == 2 else (FNAL, CERN), parents=("/store/data/parent.root",), events=n * 50)
        for n in range(4)
    ]
    return dag_spec(input_workflow(SplittingAlgo.FILE_BASED, files_per_job=2, wanted=wanted), tuple(files), round_index=3)


def chain_of_tasks() -> DagSpec:
    """Two units of four and one jobs: levels of nodes, two branches side by side, an output that is only handed on."""
    five_jobs = GenerationSpec(run=1, first_event=1, first_lumi=1, events=450, events_per_job=100, events_per_lumi=50)
    return dag_spec(task_tree(generation=five_jobs), jobs_per_work_unit=4)


@pytest.mark.parametrize("make", [generation, file_based, chain_of_tasks], ids=lambda make: make.__name__)
def test_every_rendered_file_is_the_golden_one(make: object) -> None:
    assert callable(make)
    place = GOLDEN / make.__name__
    rendered = {file.path: file.text for file in render(make())}
    if os.environ.get("WMS2_UPDATE_GOLDEN"):
        for path, text in rendered.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
    golden = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert rendered == golden, "if the change is meant, look at it after WMS2_UPDATE_GOLDEN=1 pytest"


@pytest.mark.parametrize("make", [generation, file_based, chain_of_tasks], ids=lambda make: make.__name__)
def test_the_payload_reads_what_the_planner_writes(make: object, tmp_path: Path) -> None:
    assert callable(make)
    spec: DagSpec = make()
    for file in render(spec):
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).write_text(file.text)
    job = payload_documents.read_job(tmp_path)
    assert [step.name for step in job.steps] == [step.name for step in spec.workflow.steps]
    for unit in spec.units:
        read = payload_documents.read_unit(tmp_path / unit.name)
        assert [each.events for each in read.jobs[: len(unit.jobs)]] == [each.events for each in unit.jobs]
        assert [(each.task, each.events) for each in read.jobs[len(unit.jobs) :]] == [
            (level.task, node.events) for level in unit.levels for node in level.nodes
        ]
        assert [bool(each.mask) for each in read.jobs[: len(unit.jobs)]] == [bool(each.mask) for each in unit.jobs]


def lines(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(word)]


@pytest.mark.parametrize(("groups", "limit", "each"), [(30, 5000, 1666), (2, 5000, 2500), (2, 1, 1)])
def test_processing_jobs_of_a_dag_are_divided_among_the_units_that_can_run_at_once(groups: int, limit: int, each: int) -> None:
    spec = replace(generation(), limits=DagLimits(max_merge_groups=groups, max_processing=limit))
    files = {file.path: file for file in render(spec)}
    assert files["limits.dag.inc"].text == f"MAXJOBS MergeGroup {min(groups, 3)}\n", "there are three units"
    assert files["units.dag.inc"].text == f"MAXJOBS Processing {each}\n"
    assert files["limits.dag.inc"].mutable and files["units.dag.inc"].mutable, "a rescue may have others"
    assert "INCLUDE limits.dag.inc" in outer_dag(spec).splitlines()
    assert all("INCLUDE ../units.dag.inc" in group.splitlines() for group in group_dags(spec))


def test_dagmans_of_units_look_at_their_logs_as_often_as_the_outer_one_and_write_their_ads_rarely() -> None:
    files = {file.path: file.text for file in render(dag_spec())}
    assert files["dagman.config"] == "DAGMAN_USER_LOG_SCAN_INTERVAL = 1\nDAGMAN_QUEUE_UPDATE_INTERVAL = 2\n"
    later_first = "DAGMAN_SUBMIT_DEPTH_FIRST = True\n"
    assert files["units.config"] == f"DAGMAN_USER_LOG_SCAN_INTERVAL = 1\nDAGMAN_QUEUE_UPDATE_INTERVAL = 60\n{later_first}"
    assert lines(files["workflow.dag"], "CONFIG") == ["CONFIG dagman.config"]
    assert lines(files["mg_000000/group.dag"], "CONFIG") == ["CONFIG ../units.config"]


def test_the_fence_is_included_last_at_both_levels() -> None:
    spec = dag_spec()
    assert outer_dag(spec).splitlines()[-1] == "INCLUDE fence.dag.inc"
    assert next(group_dags(spec)).splitlines()[-1] == "INCLUDE ../fence.dag.inc"
    assert fence_inc(7) == 'VARS ALL_NODES My.WMS2_Fence="7"\n'
    assert avoid_inc(frozenset({CERN, FNAL})) == f"DAG_AVOID = {FNAL},{CERN}\n"


@pytest.mark.parametrize(
    ("carried", "text"),
    [
        (None, ""),
        (Credential("jobs_proxy", "-", "/run/wms2/proxy"), "x509userproxy = /run/wms2/proxy\n"),
        (
            Credential("jobs_token", "-", "/run/wms2/token", is_token=True),
            ', /run/wms2/token\nenvironment = "BEARER_TOKEN_FILE=$$(CondorScratchDir)/token"\n',
        ),
    ],
)
def test_jobs_that_work_carry_what_a_file_names_that_changes_between_submissions(carried: Credential | None, text: str) -> None:
    files = {file.path: file for file in render(generation())}
    carrying = [path for path, file in files.items() if "include : ../credential.inc\n" in file.text]
    assert carrying == ["proc.sub", "merge.sub", "cleanup.sub"], "the landing job runs nothing"
    assert files["credential.inc"].mutable
    assert credential_inc(carried).removeprefix("CREDENTIAL_FILES =").lstrip("\n ") == text


@pytest.mark.parametrize("name", ['quote"', "dollar$(HOME)", "line\nqueue", "space name", "semi;colon"])
def test_names_that_could_change_a_dag_file_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in a DAG file"):
        list(render(dag_spec(replace(generation_workflow(), request_name=name))))
    with pytest.raises(ValueError, match="cannot stand in a DAG file"):
        list(render(dag_spec(generation_workflow(site_whitelist=(name,)))))


def test_a_site_name_with_a_comma_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a site name"):
        avoid_inc(frozenset({"T1_US_FNAL,T2_CH_CERN"}))


def test_a_dag_without_units_is_refused() -> None:
    with pytest.raises(ValueError, match="no work units"):
        list(render(dag_spec(units=())))


def paths(spec: DagSpec) -> Iterable[str]:
    return [file.path for file in render(spec)]


def test_a_unit_costs_two_files_and_one_submit_file_per_role_serves_all() -> None:
    spec = generation()
    assert [path for path in paths(spec) if path.endswith(".sub")] == ["landing.sub", "proc.sub", "merge.sub", "cleanup.sub"]
    assert [path for path in paths(spec) if path.startswith("mg_000001/")] == ["mg_000001/group.dag", "mg_000001/unit.json"]
