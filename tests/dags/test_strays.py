"""Which DAGMan jobs in a queue must not run: never the one a live DAG is recorded with, always those of DAGs that have ended."""

from __future__ import annotations

import uuid

import pytest

from dags_app.models import DAGStatus
from dags_app.services.strays import strays_among
from tests.support.rows import dag_row, request_row, workflow_row
from wms2.adapters.types import DagmanAd, JobStatus

pytestmark = pytest.mark.django_db


def job(dag_id: object, cluster: int, fence: int, status: JobStatus = JobStatus.RUNNING) -> DagmanAd:
    return DagmanAd(
        cluster=cluster, parent_cluster=None, node="", dag_id=str(dag_id), request_name="r", fence=fence, job_status=status,
        hold_reason="", job_starts=1, queued_at_seconds=1, status_since_seconds=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "recorded", "cluster", "fence", "stray"),
    [
        (DAGStatus.RUNNING, "5", 5, 2, False),
        (DAGStatus.RUNNING, "5", 5, 1, False),  # an earlier attempt that was adopted
        (DAGStatus.RUNNING, "5", 4, 1, True),  # an earlier attempt that turned up beside it
        (DAGStatus.READY, "", 4, 1, False),  # may be adopted
        (DAGStatus.REMOVED, "5", 5, 2, True),
        (DAGStatus.COMPLETED, "5", 5, 2, True),
        (DAGStatus.REMOVED, "", 4, 1, True),  # discarded, and submitted after all
    ],
)
def test_a_job_is_astray_by_the_standing_of_its_dag(
    status: DAGStatus, recorded: str, cluster: int, fence: int, stray: bool
) -> None:
    dag = dag_row(workflow_row(request_row()), status, dagman_cluster_id=recorded, fence=2)
    found = strays_among([job(dag.pk, cluster, fence), job(uuid.uuid4(), 99, 1), job("of somebody else", 98, 1)])
    assert [(one.dag.pk, one.cluster, one.fence) for one in found] == ([(dag.pk, cluster, fence)] if stray else [])


def test_one_that_is_on_its_way_out_says_so() -> None:
    dag = dag_row(workflow_row(request_row()), DAGStatus.STOPPED, dagman_cluster_id="5", fence=1)
    (found,) = strays_among([job(dag.pk, 5, 1, JobStatus.REMOVED)])
    assert found.being_removed
