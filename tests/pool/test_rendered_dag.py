"""The rendered DAG on a real pool: sites, stamps, transfers, limits, and a second submission after a removal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dags_app.payload.build import payload_bytes
from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.layout import JOBSTATE_LOG
from dags_app.payload.contract.rules import Limits, RuleBook
from dags_app.planning.dagfiles import avoid_inc, credential_inc, limits_inc, units_limits_inc
from dags_app.planning.sizing import Sizes
from dags_app.planning.specs import DagLimits, GenerationSpec, ResourceSpec, WorkflowSpec
from dags_app.planning.writer import (
    Programs,
    changed_files,
    replace_file,
    write_dag_directory,
    write_fence,
)
from tests.pool import condor
from tests.pool.condor import RunningDag
from tests.pool.standin_payload import REAL
from tests.support.credentials import Authority, token, write
from tests.support.faults import fault
from tests.support.payload_workbench import shipped_rules
from tests.support.planning import CERN, FNAL, PURDUE, dag_spec, generation_workflow, task_tree
from tests.support.waiting import until
from wms2.runtime.credentials import Credential

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.skipif(condor.missing() is not None, reason=str(condor.missing()))]

STAND_IN = Path(__file__).with_name("standin_payload.py")
RULES = json.dumps(to_json(RuleBook(shipped_rules(), Limits(1, 3000, 0)))).encode()
FAST = DagLimits(cooloff_seconds=1)


@pytest.fixture
def new_dag() -> Iterator[Callable[[], RunningDag]]:
    """Renders 2 units of 2 jobs in the pool's own directory (never below /tmp, where DAGMan refuses its logs)."""
    base = Path(condor.run("condor_config_val", "LOCAL_DIR").strip()) / "test-dags"
    base.mkdir(exist_ok=True)
    made: list[Path] = []

    def make(chain: Callable[..., WorkflowSpec] = generation_workflow) -> RunningDag:
        generation = GenerationSpec(run=1, first_event=1, first_lumi=1, events=400, events_per_job=100, events_per_lumi=50)
        resources = ResourceSpec(cores=1, memory_mb=64, time_per_event_seconds=1.0, size_per_event_kb=1.0)
        workflow = chain(generation=generation, resources=resources)
        workflow = replace(workflow, tasks=tuple(replace(task, resources=resources) for task in workflow.tasks))
        spec = dag_spec(workflow, jobs_per_work_unit=2, dag_id=str(uuid.uuid4()), limits=FAST)
        stand_in = STAND_IN.read_text().replace("@DAG_DIRECTORY@", str(base / spec.dag_id)).replace("@PYTHON@", sys.executable)
        directory = write_dag_directory(spec, Programs(stand_in.encode(), b"sandbox", RULES), parent=base).directory
        (directory / "bin" / REAL).write_bytes(payload_bytes())
        condor.give(directory)
        made.append(directory)
        return RunningDag(spec.dag_id, directory)

    yield make
    for directory in made:
        shutil.rmtree(directory)


def test_all_units_run_to_the_end_pinned_to_the_site_they_landed_at(new_dag: Callable[[], RunningDag]) -> None:
    dag = new_dag()
    replace_file(dag.directory / layout.AVOID_INCLUDE, avoid_inc(frozenset([FNAL, CERN])))
    dag.plan("mg_000000", "proc_000001", "once exit 7")

    cluster = dag.submit(1, "-Priority", "110000")
    condor.wait_gone(cluster, seconds=180)

    assert dag.outer(cluster) == (4, 0, 0)
    assert sorted(dag.starts("mg_000000")) == ["cleanup", "merge", "proc_000000", "proc_000001", "proc_000001"]
    assert dag.starts("mg_000001")[-2:] == ["merge", "cleanup"]
    assert dag.sites("mg_000000") == dag.sites("mg_000001") == {PURDUE}
    assert (dag.directory / "mg_000000/site.inc").read_text() == f"ELECTED_SITE = {PURDUE}\n"
    assert changed_files(dag.directory) == []

    jobs = dag.ads("JobUniverse == 5")
    assert sorted(ad["WMS2_Role"] for ad in jobs) == ["cleanup"] * 2 + ["landing"] * 2 + ["merge"] * 2 + ["processing"] * 5
    for ad in jobs:
        ends_unit = ad["WMS2_Role"] in ("merge", "cleanup")
        assert (ad["WMS2_Instance"], ad["WMS2_Fence"]) == ("test-1", 1)
        assert (ad["JobPrio"], ad["PostJobPrio1"]) == (110_000, int(ends_unit)), "the request's priority alone, as WMCore's"
        assert ad["PostJobPrio2"] == -int(ad["WMS2_Unit"].removeprefix("mg_")), "then the order of units"
        assert ad["WMS2_Unit"] == Path(ad["Iwd"]).name
        assert ad["WMS2_Node"] == ad["DAGNodeName"]
    inner = dag.ads("JobUniverse == 7 && DAGNodeName =!= undefined")
    assert {(ad["WMS2_Unit"], ad["WMS2_Fence"], ad["ExitCode"]) for ad in inner} == {("mg_000000", 1, 0), ("mg_000001", 1, 0)}
    assert len(inner) == 2
    for log, interval in (("workflow.dag.dagman.out", 2), ("mg_000000/group.dag.dagman.out", 60)):
        said = (dag.directory / log).read_text()
        assert f"DAGMAN_QUEUE_UPDATE_INTERVAL setting: {interval}" in said
        assert "DAGMAN_USER_LOG_SCAN_INTERVAL setting: 1" in said

    retried = [ad for ad in jobs if (ad["WMS2_Unit"], ad["WMS2_Node"]) == ("mg_000000", "proc_000001")]
    assert [(ad["WMS2_Attempt"], ad["RequestMemory"], ad["ExitCode"]) for ad in retried] == [(0, 64, 7), (1, 77, 0)]
    assert {(ad["RequestDisk"], ad["MaxWallTimeMins"], ad["RequestCpus"]) for ad in retried} == {(524_388, 60, 1)}


@fault(
    "outer DAGMan removed",
    done="condor_rm of the DAG, then submitted again",
    spec="error-handling 7.3",
    afterwards="only what is left runs, under a new fence",
)
def test_a_second_submission_after_removal_runs_only_what_is_left_under_the_new_fence(new_dag: Callable[[], RunningDag]) -> None:
    dag = new_dag()
    dag.plan("mg_000001", "proc_000001", "once sleep 300")
    first = dag.submit(1)
    until(lambda: dag.starts("mg_000000")[-1:] == ["cleanup"], "the first unit is done", seconds=120)
    until((dag.directory / "mg_000001/proc_000000.attempts.jsonl").exists, "one job of the second unit is done", seconds=120)
    until(lambda: "proc_000001" in dag.starts("mg_000001"), "the other one runs", seconds=120)
    until(lambda: "mg_000000 JOB_SUCCESS" in (dag.directory / JOBSTATE_LOG).read_text(), "the outer DAGMan knows", seconds=120)
    condor.run("condor_rm", str(first))
    condor.wait_gone(first, seconds=60)
    assert dag.outer(first) == (3, None, 4)

    dag.plan("mg_000001", "proc_000001", "")
    write_fence(dag.directory, 2, Sizes({1: 96}))
    second = dag.submit(2)
    condor.wait_gone(second, seconds=180)

    assert dag.outer(second) == (4, 0, 0)
    assert sorted(dag.starts("mg_000000")) == ["cleanup", "merge", "proc_000000", "proc_000001"]
    assert sorted(dag.starts("mg_000001")) == ["cleanup", "merge", "proc_000000", "proc_000001", "proc_000001"]
    assert len(dag.sites("mg_000001")) == 1
    again = [(ad["WMS2_Unit"], ad["DAGNodeName"]) for ad in dag.ads("WMS2_Fence == 2 && DAGNodeName =!= undefined")]
    assert sorted(again) == [("mg_000001", name) for name in ("cleanup", "merge", "mg_000001", "proc_000001")]
    assert changed_files(dag.directory) == []
    asked = {ad["WMS2_Fence"]: ad["RequestMemory"] for ad in dag.ads('WMS2_Role == "processing"')}
    assert asked == {1: 64, 2: 96}, "what a submission brings holds for its jobs"


def test_a_rescue_runs_as_many_units_and_jobs_as_it_is_told_when_it_is_submitted(new_dag: Callable[[], RunningDag]) -> None:
    dag = new_dag()
    for unit in ("mg_000000", "mg_000001"):
        for node in ("proc_000000", "proc_000001"):
            dag.plan(unit, node, "sleep 300")

    def at_once(fence: int, units: int, jobs_in_unit: int) -> tuple[int, int]:
        """Units' DAGMans, and processing jobs, that are in the queue when no more come."""
        replace_file(dag.directory / layout.LIMITS_INCLUDE, limits_inc(units))
        replace_file(dag.directory / layout.UNITS_LIMITS_INCLUDE, units_limits_inc(jobs_in_unit))
        cluster = dag.submit(fence)
        until(lambda: len(queued(dag, "processing")) == units * jobs_in_unit, "the jobs are in the queue", seconds=120)
        time.sleep(5)  # DAGMan submits each second what it may
        found = len(queued(dag, "", f"DAGManJobId == {cluster}")), len(queued(dag, "processing"))
        condor.run("condor_rm", str(cluster))
        condor.wait_gone(cluster, seconds=60)
        until(lambda: not queued(dag, "processing"), "its jobs have gone", seconds=120)
        return found

    assert at_once(1, 1, 1) == (1, 1)
    assert at_once(2, 2, 2) == (2, 4)
    assert at_once(3, 1, 2) == (1, 2)
    assert changed_files(dag.directory) == []


def queued(dag: RunningDag, role: str, constraint: str = "true") -> list[str]:
    """Jobs of the DAG in the queue."""
    mine = f'WMS2_DagID == "{dag.dag_id}" && {constraint}' + (f' && WMS2_Role == "{role}"' if role else "")
    return condor.run("condor_q", "-all", "-nobatch", "-constraint", mine, "-af", "ClusterId").split()


def test_code_42_ends_only_its_unit_and_code_43_ends_everything(new_dag: Callable[[], RunningDag]) -> None:
    permanent, abort = new_dag(), new_dag()
    permanent.plan("mg_000000", "proc_000001", "exit 42")
    abort.plan("mg_000000", "proc_000001", "exit 43")
    for node in ("proc_000000", "proc_000001"):
        abort.plan("mg_000001", node, "sleep 300")
    clusters = permanent.submit(1), abort.submit(1)
    for cluster in clusters:
        condor.wait_gone(cluster, seconds=180)

    assert permanent.outer(clusters[0]) == (4, 1, 2)
    assert sorted(permanent.starts("mg_000000")) == ["proc_000000", "proc_000001"]
    assert permanent.starts("mg_000001")[-1] == "cleanup"

    assert abort.outer(clusters[1]) == (4, 1, 3)
    assert abort.starts("mg_000000").count("proc_000001") == 1
    assert "merge" not in abort.starts("mg_000001")
    assert {ad["JobStatus"] for ad in abort.ads('WMS2_Unit == "mg_000001" && WMS2_Role == "processing"')} == {3}


def test_a_unit_whose_site_is_at_fault_lands_elsewhere_and_starts_anew(new_dag: Callable[[], RunningDag]) -> None:
    dag = new_dag()
    dag.plan("mg_000000", "proc_000001", "first-site exit 75")
    cluster = dag.submit(1)
    condor.wait_gone(cluster, seconds=180)

    assert dag.outer(cluster) == (4, 0, 0)
    starts = [line.split() for line in (dag.directory / "mg_000000/starts.log").read_text().splitlines()]
    first, second = starts[0][2], starts[-1][2]
    assert first != second
    assert sorted((node, site) for node, _, site in starts) == sorted(
        [("proc_000000", first), ("proc_000001", first)]
        + [(node, second) for node in ("proc_000000", "proc_000001", "merge", "cleanup")]
    )
    assert sorted(dag.starts("mg_000001")) == ["cleanup", "merge", "proc_000000", "proc_000001"]
    inner = dag.ads('JobUniverse == 7 && DAGNodeName == "mg_000000"')
    assert [ad["ExitCode"] for ad in inner] == [1, 0]


def test_a_later_task_that_fails_fails_its_unit_and_a_rescue_goes_on_with_what_the_others_left(
    new_dag: Callable[..., RunningDag],
) -> None:
    dag = new_dag(task_tree)
    dag.plan("mg_000000", "t2_000000", "exit 42")
    first = dag.submit(1)
    condor.wait_gone(first, seconds=180)

    before = ["proc_000000", "proc_000001", "t2_000000", "t3_000000", "t3_000001"]
    whole = sorted([*before, "t4_000000", "t4_000001", "merge", "cleanup"])
    assert dag.outer(first)[:2] == (4, 1)
    assert sorted(dag.starts("mg_000000")) == before
    assert sorted(dag.starts("mg_000001")) == whole
    starts = dag.starts("mg_000001")
    for earlier, later in (("proc_000001", "t2_000000"), ("proc_000000", "t3_000000"), ("t2_000000", "t4_000000")):
        assert starts.index(earlier) < starts.index(later)
    assert starts[-2:] == ["merge", "cleanup"]

    dag.plan("mg_000000", "t2_000000", "")
    second = dag.submit(2)
    condor.wait_gone(second, seconds=180)
    assert dag.outer(second) == (4, 0, 0)
    again = dag.starts("mg_000000")[len(before) :]
    assert (again[0], sorted(again[1:-2]), again[-2:]) == ("t2_000000", ["t4_000000", "t4_000001"], ["merge", "cleanup"])
    assert len(dag.sites("mg_000000")) == 1
    assert sorted(dag.starts("mg_000001")) == whole, "nothing of the other unit ran again"


@pytest.mark.parametrize("kind", ["X509_USER_PROXY", "BEARER_TOKEN_FILE"])
def test_jobs_find_the_credential_that_is_there_when_they_start_and_running_ones_a_renewed_proxy(
    new_dag: Callable[[], RunningDag], kind: str
) -> None:
    dag, is_token = new_dag(), kind == "BEARER_TOKEN_FILE"
    place = dag.directory.with_name(f"credentials-{dag.dag_id}")
    place.mkdir()
    path, authority = place / "carried", Authority(place / "authority")

    def renew(name: str) -> str:
        """What jobs should find from now on."""
        if is_token:
            token(path, 3600, name)
        else:
            write(path, authority.proxy(name, 3600).read_text())
        condor.give(place)
        return hashlib.sha256(path.read_bytes().partition(b"-----END CERTIFICATE")[0]).hexdigest()

    try:
        carried = Credential("jobs", "-", str(path), is_token=is_token)
        replace_file(dag.directory / layout.CREDENTIAL_INCLUDE, credential_inc(carried))
        # in containers the payload finds it: test_credentials.py
        replace_file(dag.directory / layout.AVOID_INCLUDE, avoid_inc(frozenset([PURDUE])))
        waits = "file renewed" if is_token else "renewed"
        dag.plan("mg_000000", "proc_000000", f"credential\n{waits}\ncredential")
        for node in ("merge", "cleanup"):
            dag.plan("mg_000000", node, "credential")
        before, log = renew("before"), dag.directory / "mg_000000/credentials.log"
        cluster = dag.submit(1)
        until(log.exists, "a job has found it", seconds=120)
        after = renew("after")
        (dag.directory / "mg_000000/renewed").touch()

        def has_left() -> bool:
            """A renewed proxy is sent once: on a busy machine it needs another renewal to arrive."""
            if time.time() - path.stat().st_mtime > 10:
                os.utime(path)
            return not condor.queued(cluster)

        until(has_left, f"job {cluster} has left the queue", seconds=180)
        assert dag.outer(cluster) == (4, 0, 0)
        found = [tuple(line.split()) for line in log.read_text().splitlines()]
        while_it_ran = before if is_token else after
        assert found == [
            (node, kind, "True", "600", digest)
            for node, digest in zip(
                ("proc_000000", "proc_000000", "merge", "cleanup"), (before, while_it_ran, after, after), strict=True
            )
        ]
        key = path.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----\n")[2]
        secret = (key or path.read_bytes()).splitlines()[0]
        left = [file for file in dag.directory.rglob("*") if file.is_file() and secret in file.read_bytes()]
        assert left == [], "what jobs carry stays where it was"
    finally:
        shutil.rmtree(place)
