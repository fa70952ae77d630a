"""Failing nodes on a real pool, each fault a unit of one DAG: what DAGMan does with the POST scripts' verdicts."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dags_app.payload.build import payload_bytes
from dags_app.payload.rules import Limits, rules_document
from dags_app.planning.specs import DagLimits, GenerationSpec, ResourceSpec
from dags_app.planning.writer import Programs, write_dag_directory
from tests.payload.schemas import validate
from tests.payload.workbench import shipped_rules
from tests.planning.factories import dag_spec, generation_workflow
from tests.pool import condor
from tests.pool.standin_payload import REAL
from tests.pool.test_rendered_dag import RunningDag

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.skipif(condor.missing() is not None, reason=str(condor.missing()))]

STAND_IN = Path(__file__).with_name("failing_payload.py")
FAST = DagLimits(cooloff_seconds=1, status_interval_seconds=1, log_scan_interval_seconds=1)
MEMORY_MB = 64


@pytest.fixture
def new_dag() -> Iterator[Callable[..., RunningDag]]:
    """Renders units of one job each."""
    base = Path(condor.run("condor_config_val", "LOCAL_DIR").strip()) / "test-dags"
    base.mkdir(exist_ok=True)
    made: list[Path] = []

    def make(plans: list[str], *, same_error_units: int = 0, limits: DagLimits = FAST) -> RunningDag:
        generation = GenerationSpec(
            run=1, first_event=1, first_lumi=1, events=100 * len(plans), events_per_job=100, events_per_lumi=50
        )
        resources = ResourceSpec(cores=1, memory_mb=MEMORY_MB, time_per_event_seconds=1.0, size_per_event_kb=1.0)
        workflow = generation_workflow(generation=generation, resources=resources)
        spec = dag_spec(workflow, jobs_per_work_unit=1, dag_id=str(uuid.uuid4()), limits=limits)
        stand_in = STAND_IN.read_text().replace("@DAG_DIRECTORY@", str(base / spec.dag_id))
        rules = json.dumps(rules_document(shipped_rules(), Limits(1, 3000, same_error_units))).encode()
        directory = write_dag_directory(spec, Programs(stand_in.encode(), b"sandbox", rules), parent=base).directory
        (directory / "bin" / REAL).write_bytes(payload_bytes())
        condor.give(directory)
        made.append(directory)
        dag = RunningDag(spec.dag_id, directory)
        for index, plan in enumerate(plans):
            if plan:
                dag.plan(f"mg_{index:06d}", "proc_000000", plan)
        return dag

    yield make
    for directory in made:
        shutil.rmtree(directory)


def starts(dag: RunningDag, unit: int) -> list[tuple[str, int]]:
    """(site, memory) of each start of the unit's processing node."""
    lines = (dag.directory / f"mg_{unit:06d}/starts.log").read_text().splitlines()
    return [(line.split()[2], int(line.split()[3])) for line in lines if line.startswith("proc")]


def record(dag: RunningDag, unit: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dag.directory / f"mg_{unit:06d}/proc_000000.post.json").read_text())
    validate("post", found)
    return found


def done(dag: RunningDag, unit: int) -> bool:
    return (dag.directory / f"mg_{unit:06d}/merge_output.json").exists()


def test_each_fault_gets_its_own_remedy_and_the_rest_of_the_dag_goes_on(new_dag: Callable[..., RunningDag]) -> None:
    dag = new_dag(
        [
            "",
            "code 50660",
            "site:code 60311\nsite:code 60311",
            "code 65",
            "code 8001",
            "kill",
            "torn 0",
        ]
    )
    cluster = dag.submit(1)
    condor.wait_gone(cluster, seconds=300)

    assert dag.outer(cluster)[:2] == (4, 1), "one unit failed, so the DAG did"
    assert [done(dag, unit) for unit in range(7)] == [True, True, True, False, True, True, True]
    assert len(starts(dag, 0)) == 1
    assert [memory for _, memory in starts(dag, 1)] == [64, 96], "out of memory: more of it"
    sites = [site for site, _ in starts(dag, 2)]
    assert sites[0] == sites[1] != sites[2], "a fault of the site: once more there, then elsewhere"
    assert f"UNIT_AVOID = {sites[0]}\n" == (dag.directory / "mg_000002/avoid.inc").read_text()
    assert len(starts(dag, 3)) == 1, "permanent: not repeated"
    assert (record(dag, 3)["final"], record(dag, 3)["classification"]["category"]) == (True, "permanent")
    assert len(starts(dag, 4)) == 2
    assert [memory for _, memory in starts(dag, 5)] == [64, 96], "killed: once more, with more memory"
    assert len(starts(dag, 6)) == 2, "half a report is none"
    log = [json.loads(line) for line in (dag.directory / "failures.jsonl").read_text().splitlines()]
    for line in log:
        validate("failure", line)
    assert sorted((line["unit"], line["code"]) for line in log) == [
        ("mg_000001", 50660),
        ("mg_000002", 60311),
        ("mg_000002", 60311),
        ("mg_000003", 65),
        ("mg_000004", 8001),
        ("mg_000005", 137),
        ("mg_000006", 99303),
    ]


def test_a_dag_that_fails_with_one_error_everywhere_stops_early_through_both_levels(new_dag: Callable[..., RunningDag]) -> None:
    dag = new_dag(["code 8009"] * 8, same_error_units=3, limits=replace(FAST, max_merge_groups=1))
    cluster = dag.submit(1)
    condor.wait_gone(cluster, seconds=300)

    assert dag.outer(cluster) == (4, 1, 3), "aborted (DAG_Status 3)"
    begun = [unit for unit in range(8) if (dag.directory / f"mg_{unit:06d}/starts.log").exists()]
    assert len(begun) == 3
    actions = [record(dag, unit)["classification"]["action"] for unit in begun]
    assert sorted(actions) == ["abort_dag", "permanent_failure", "permanent_failure"]
