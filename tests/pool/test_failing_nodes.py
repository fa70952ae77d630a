"""Failing nodes on a real pool, each fault a unit of one DAG: what DAGMan does with the POST scripts' verdicts."""

from __future__ import annotations

import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dags_app.payload.build import payload_bytes
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.rules import Limits, RuleBook
from dags_app.planning.specs import DagLimits, ResourceSpec
from dags_app.planning.writer import Programs, write_dag_directory
from tests.pool import condor
from tests.pool.condor import RunningDag
from tests.pool.faulty_units import MEMORY_MB, NO_CPU_SECONDS, UNIT_FAULTS, Unit, UnitFault
from tests.pool.standin_payload import REAL
from tests.support.faults import fault
from tests.support.payload_workbench import shipped_rules
from tests.support.planning import dag_spec, input_file, input_workflow
from tests.support.side_by_side import PATIENCE

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.skipif(condor.missing() is not None, reason=str(condor.missing()))]

STAND_IN = Path(__file__).with_name("failing_payload.py")
FAST = DagLimits(cooloff_seconds=1)
LIMIT_SECONDS = 420.0
NewDag = Callable[..., RunningDag]


@pytest.fixture(name="new_dag", scope="module")
def _new_dag() -> Iterator[NewDag]:
    """Renders units of one job each, which has one input file; ``plans``: what is done to the nodes of each unit."""
    base = Path(condor.run("condor_config_val", "LOCAL_DIR").strip()) / "test-dags"
    base.mkdir(exist_ok=True)
    made: list[Path] = []

    def make(plans: list[dict[str, str]], *, same_error_units: int = 0, limits: DagLimits = FAST) -> RunningDag:
        resources = ResourceSpec(cores=1, memory_mb=MEMORY_MB, time_per_event_seconds=1.0, size_per_event_kb=1.0)
        workflow = input_workflow(files_per_job=1, resources=resources)
        files = tuple(input_file(number) for number in range(len(plans)))
        spec = dag_spec(workflow, files, jobs_per_work_unit=1, dag_id=str(uuid.uuid4()), limits=limits)
        stand_in = STAND_IN.read_text().replace("@DAG_DIRECTORY@", str(base / spec.dag_id)).replace("@PYTHON@", sys.executable)
        rules = json.dumps(to_json(RuleBook(shipped_rules(), Limits(1, 3000, same_error_units)))).encode()
        directory = write_dag_directory(spec, Programs(stand_in.encode(), b"sandbox", rules), parent=base).directory
        (directory / "bin" / REAL).write_bytes(payload_bytes())
        made.append(directory)
        dag = RunningDag(spec.dag_id, directory)
        for index, plan in enumerate(plans):
            for node, text in plan.items():
                dag.plan(f"mg_{index:06d}", node, text)
        return dag

    yield make
    for directory in made:
        shutil.rmtree(directory)


@pytest.fixture(name="faulty", scope="module")
def _faulty(new_dag: NewDag) -> RunningDag:
    """One DAG with every fault in a unit of its own, after its end."""
    limits = replace(FAST, max_merge_groups=len(UNIT_FAULTS), no_cpu_seconds=NO_CPU_SECONDS, held_seconds=1)
    dag = new_dag([each.plan for each in UNIT_FAULTS], limits=limits)
    units = {each.name: Unit(dag.directory, number) for number, each in enumerate(UNIT_FAULTS)}
    for each in UNIT_FAULTS:
        if each.before is not None:
            each.before(units[each.name])
    cluster = dag.submit(1)
    to_do = [each for each in UNIT_FAULTS if each.meanwhile is not None]
    deadline = time.monotonic() + LIMIT_SECONDS * PATIENCE
    while to_do:
        assert time.monotonic() < deadline, f"never came: {[each.name for each in to_do]}"
        to_do = [each for each in to_do if each.meanwhile is not None and not each.meanwhile(units[each.name])]
        time.sleep(0.3)
    condor.wait_gone(cluster, seconds=LIMIT_SECONDS)
    assert dag.outer(cluster)[:2] == (4, 1), "some units failed, so the DAG did, and by itself"
    return dag


@pytest.mark.xdist_group("one DAG with every fault")
@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(each, id=each.name, marks=fault(each.name, done=each.done, spec=each.spec, afterwards=each.afterwards))
        for each in UNIT_FAULTS
    ],
)
def test_each_fault_gets_its_own_remedy_and_the_rest_of_the_dag_goes_on(faulty: RunningDag, expected: UnitFault) -> None:
    expected.check(Unit(faulty.directory, UNIT_FAULTS.index(expected)))


@fault(
    "one error everywhere",
    done="eight units of one DAG fail with the same code, and nothing else has ended",
    spec="error-handling 2.5",
    afterwards="the third failure ends with 43, which stops both levels; five units never began",
)
def test_a_dag_that_fails_with_one_error_everywhere_stops_early_through_both_levels(new_dag: NewDag) -> None:
    dag = new_dag([{"proc_000000": "code 8009"}] * 8, same_error_units=3, limits=replace(FAST, max_merge_groups=1))
    cluster = dag.submit(1)
    condor.wait_gone(cluster, seconds=300)

    assert dag.outer(cluster) == (4, 1, 3), "aborted (DAG_Status 3)"
    units = [Unit(dag.directory, number) for number in range(8)]
    begun = [unit for unit in units if unit.starts()]
    assert len(begun) == 3
    actions = [unit.record()["classification"]["action"] for unit in begun]
    assert sorted(actions) == ["abort_dag", "permanent_failure", "permanent_failure"]
