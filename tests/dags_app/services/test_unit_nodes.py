"""Which units of a DAG that runs are done: by what DAGMan wrote, as soon as it wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.counts import nodes_failed
from dags_app.dagman import NodeState
from dags_app.models import DAG, DAGStatus, WorkUnitState
from dags_app.payload.contract.layout import INNER_DAG, JOBSTATE_LOG, OUTER_DAG
from dags_app.services.lost_queue import lost_unit_nodes
from dags_app.services.units import unit_nodes, unit_nodes_now, units_failed_count
from requests_app.models import RequestStatus
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.scripted.dagman import write_status

pytestmark = pytest.mark.django_db
FIRST, SECOND, THIRD = "mg_000000", "mg_000001", "mg_000002"


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    return dag_row(
        workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, dagman_cluster_id="47", submit_dir=str(tmp_path),
        dag_file_path=str(tmp_path / OUTER_DAG),
    )  # fmt: skip


def log(dag: DAG, *done: str, cluster: int = 47) -> None:
    lines = [f"1 INTERNAL *** DAGMAN_STARTED {cluster}.0 ***", *(f"2 {name} JOB_SUCCESS 0 - - 1" for name in done)]
    (Path(dag.submit_dir) / JOBSTATE_LOG).write_text("\n".join(lines) + "\n")


def done_now(dag: DAG) -> tuple[str, ...] | None:
    nodes = unit_nodes_now(dag)
    return nodes and nodes.done


def test_a_unit_is_done_when_dagman_has_logged_it_before_status_file_and_schedd_tell(dag: DAG) -> None:
    assert done_now(dag) == ()
    log(dag, FIRST)
    assert done_now(dag) == (FIRST,)
    write_status(Path(dag.submit_dir), {FIRST: NodeState.SUBMITTED, SECOND: NodeState.SUBMITTED}, final=False)
    assert unit_nodes(dag) is not None and unit_nodes(dag).done == lost_unit_nodes(dag).done == (FIRST,)


def test_what_another_submission_has_logged_is_not_done_by_that(dag: DAG) -> None:
    log(dag, FIRST, cluster=46)
    assert done_now(dag) == ()


def test_where_the_schedd_counts_more_than_is_logged_and_accounted_the_status_file_tells(dag: DAG) -> None:
    log(dag, SECOND)
    dag.observed = {"nodes_done": 2}
    assert done_now(dag) is None, "and until it does nothing is concluded"
    write_status(Path(dag.submit_dir), {FIRST: NodeState.DONE, SECOND: NodeState.SUBMITTED, THIRD: NodeState.READY}, final=False)
    assert done_now(dag) == (FIRST, SECOND)
    unit_row(dag, name=FIRST, index=0, state=WorkUnitState.DONE, manifest_sha256="0" * 64, fence=1)
    unit_row(dag, name=THIRD, index=2, state=WorkUnitState.DONE, manifest_sha256="0" * 64, fence=1)
    assert done_now(dag) == (SECOND,), "of the others nothing is left to do"


def test_nodes_of_units_that_failed_are_kept_by_what_their_dagmans_left(dag: DAG) -> None:
    place = Path(dag.submit_dir)
    write_status(place, {FIRST: NodeState.ERROR, SECOND: NodeState.ERROR, THIRD: NodeState.SUBMITTED}, final=False)
    units_failed_count(dag, None)
    assert dag.failed_units == {}, "DAGMan's ad counts none yet"
    for name, done, failed in ((FIRST, 4, 2), (SECOND, 9, 1)):
        (place / name).mkdir()
        metrics = {
            "version": "23.9.6", "metrics_version": 1, "dagman_id": "9", "exitcode": 1, "DagStatus": 2, "rescue_dag_number": 0,
            "start_time": 1.0, "end_time": 2.0, "total_jobs": 11, "jobs_succeeded": done, "jobs_failed": failed,
            "dag_jobs_succeeded": 0, "dag_jobs_failed": 0,
        }  # fmt: skip
        (place / name / f"{INNER_DAG}.metrics").write_text(json.dumps(metrics))
    dag.observed = {"nodes_failed": 2, "inner_failed": 1}
    units_failed_count(dag, None)
    dag.refresh_from_db(fields=["failed_units"])
    assert dag.failed_units == {"units": 2, "done": 13, "failed": 3}
    assert nodes_failed(dag) == 4, "with the one of a unit that runs"
    dag.status = DAGStatus.PARTIAL
    assert nodes_failed(dag) == 3
