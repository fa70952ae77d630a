"""Workflows: the list, one, and where it stands as spec 7.2 writes it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus, FailureGroup, WorkUnit, WorkUnitState
from outputs_app.models import BlockWorkUnit, OutputDataset, ProcessingBlock
from requests_app.limits import limit_set
from requests_app.models import Request, RequestStatus, Workflow, WorkflowStatus
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, round_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db
S = RequestStatus
DONE = {"state": WorkUnitState.DONE, "manifest_sha256": "a", "fence": 1}


def status_detail(client: APIClient, workflow: Workflow) -> dict[str, Any]:
    response = client.get(f"/api/v1/workflows/{workflow.pk}/status")
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def running(units: int = 4, done: int = 1, *, hours: float = 2.0, **fields: Any) -> tuple[Workflow, DAG]:
    """An active workflow of 800 events a unit whose DAG was submitted ``hours`` ago; ``done`` units came since."""
    workflow = workflow_row(request_row(S.ACTIVE), status=WorkflowStatus.ACTIVE, requested_events=800 * units, **fields)
    begun = timezone.now() - timedelta(hours=hours)
    dag = dag_row(
        workflow, total_work_units=units, total_nodes=11 * units, submitted_at=begun, nodes_running=2, nodes_idle=1,
        node_counts={"Processing": 8 * units, "Merge": units, "Cleanup": units, "Landing": units},
    )  # fmt: skip
    for index in range(units):
        unit_row(dag, index, events=800, **({**DONE, "done_at": begun + timedelta(minutes=30)} if index < done else {}))
    return workflow, dag


def with_block(dag: DAG) -> str:
    """All the DAG's units in one block; returns its dataset."""
    dataset = OutputDataset.objects.get(workflow=dag.workflow)
    units = list(WorkUnit.objects.filter(dag=dag))
    block = ProcessingBlock.objects.create(
        workflow=dag.workflow, dataset=dataset, block_index=0, dataset_name=dataset.name, dbs_block_name="/a/b/c#1",
        total_work_units=len(units),
    )  # fmt: skip
    for unit in units:
        BlockWorkUnit.objects.create(block=block, unit=unit, dataset=dataset, done=unit.state == WorkUnitState.DONE)
    return dataset.name


def test_the_standing_has_the_dag_the_blocks_and_the_progress(reader: APIClient) -> None:
    workflow, dag = running()
    dataset = with_block(dag)

    body = status_detail(reader, workflow)

    assert (body["workflow_id"], body["request_name"], body["status"]) == (str(workflow.pk), workflow.request_id, "active")
    assert {k: body["dag"][k] for k in ("id", "status", "total_nodes", "nodes_running", "nodes_idle", "nodes_done")} == {
        "id": str(dag.pk), "status": "running", "total_nodes": 44, "nodes_running": 2, "nodes_idle": 1, "nodes_done": 11,
    }  # fmt: skip
    assert body["dag"]["node_counts"]["Processing"] == 32
    assert body["dag"]["work_units"]["done"] == 1
    assert [(b["dataset_name"], b["block_index"], b["status"], b["work_units"]) for b in body["blocks"]] == [
        (dataset, 0, "open", "1/4")
    ]
    assert body["progress_percent"] == 25.0


def test_the_estimate_is_what_is_left_at_the_measured_rate(reader: APIClient) -> None:
    workflow, _ = running(units=4, done=1, hours=2)
    estimated = parse_datetime(status_detail(reader, workflow)["estimated_completion"])
    assert estimated is not None
    left = estimated - timezone.now()
    assert timedelta(hours=5.9) < left < timedelta(hours=6.1), "one unit in two hours, three to go"


def test_units_done_before_this_dag_count_as_progress_and_not_as_rate(reader: APIClient) -> None:
    workflow, dag = running(units=4, done=2, hours=1)
    WorkUnit.objects.filter(dag=dag, index=0).update(done_at=timezone.now() - timedelta(days=9))
    body = status_detail(reader, workflow)
    estimated = parse_datetime(body["estimated_completion"])
    assert body["progress_percent"] == 50.0
    assert estimated is not None
    assert timedelta(hours=1.9) < estimated - timezone.now() < timedelta(hours=2.1), "one unit in an hour, two to go"


def test_without_a_rate_there_is_no_estimate(reader: APIClient) -> None:
    assert status_detail(reader, running(done=0)[0])["estimated_completion"] is None
    workflow, dag = running(done=2)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.PARTIAL)
    assert status_detail(reader, workflow)["estimated_completion"] is None
    assert status_detail(reader, running(units=2, done=2)[0])["estimated_completion"] is None, (
        "all done, only registration is left"
    )
    assert status_detail(reader, running(done=1, units=1_000_000 // 800, hours=900_000)[0])["estimated_completion"] is None


def test_progress_goes_by_units_where_events_are_not_known(reader: APIClient) -> None:
    workflow, _ = running(units=4, done=3)
    Workflow.objects.filter(pk=workflow.pk).update(requested_events=0)
    assert status_detail(reader, workflow)["progress_percent"] == 75.0


def test_a_workflow_before_its_first_dag_and_one_after_its_last(reader: APIClient) -> None:
    fresh = status_detail(reader, workflow_row(request_row(S.QUEUED)))
    assert (fresh["dag"], fresh["blocks"], fresh["progress_percent"]) == (None, [], 0.0)
    ended = workflow_row(request_row(S.COMPLETED), status=WorkflowStatus.COMPLETED)
    assert status_detail(reader, ended)["progress_percent"] == 100.0


def test_units_of_all_rounds_are_summed_and_the_dags_are_its_rounds(reader: APIClient) -> None:
    workflow, dag = running(units=2, done=2)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.COMPLETED)
    dag.round.closed_at = timezone.now()
    dag.round.save()
    second = dag_row(workflow, round=round_row(workflow, 1), total_work_units=1)
    unit_row(second, 0, events=800)
    body = status_detail(reader, workflow)
    assert (body["work_units"]["total"], body["dag"]["work_units"]["total"]) == (3, 1)


def test_nodes_and_jobs_by_site_are_those_of_all_rounds(reader: APIClient) -> None:
    workflow, first = running(units=2, done=2)
    ended = {"nodes_running": 0, "nodes_idle": 0}
    DAG.objects.filter(pk=first.pk).update(status=DAGStatus.PARTIAL, failed_units={"failed": 5, "done": 3}, **ended)
    rescue = dag_row(
        workflow, DAGStatus.COMPLETED, round=first.round, directory_id=first.directory_id, fence=2, total_work_units=2,
        total_nodes=22, node_counts=first.node_counts, failed_units={"failed": 1},
    )  # fmt: skip
    assert rescue.created_at > first.created_at
    first.round.closed_at = timezone.now()
    first.round.save()
    WorkUnit.objects.filter(dag=first).update(site="T2_CH_CERN")
    second = dag_row(
        workflow, round=round_row(workflow, 1), total_work_units=1, total_nodes=11, node_counts={"Processing": 8},
        nodes_running=4, nodes_idle=1, jobs={"sites": {"T2_DE_DESY": {"running": 4, "idle": 1}}},
    )  # fmt: skip
    FailureGroup.objects.create(
        workflow=workflow, category="transient", code=1, site="T2_CH_CERN", attempts=2, first_at=timezone.now(),
        last_at=timezone.now(),
    )  # fmt: skip
    body = status_detail(reader, workflow)
    assert (body["dag"]["id"], body["dag"]["total_nodes"], rescue.round_id) == (str(second.pk), 11, first.round_id)
    assert body["nodes"] == {"total": 33, "idle": 1, "running": 4, "held": 0, "done": 22, "failed": 1}
    none = {"idle": 0, "running": 0, "held": 0, "done": 0, "failed": 0}
    assert body["sites"] == {
        "T2_CH_CERN": none | {"done": 18, "failed": 2},
        "T2_DE_DESY": none | {"idle": 1, "running": 4},
    }


def test_the_standing_has_the_limits_of_categories_in_force_and_how_many_jobs_did_well(reader: APIClient) -> None:
    workflow, dag = running(done=2)
    DAG.objects.filter(pk=dag.pk).update(jobs={"sites": {"T2_CH_CERN": {"running": 2}}}, merge_groups=3)
    FailureGroup.objects.create(
        workflow=workflow, category="transient", code=1, attempts=2, first_at=timezone.now(), last_at=timezone.now()
    )
    limit_set(name="dag_max_merge_groups", value=60, actor="olga", reason="test")
    body = status_detail(reader, workflow)
    assert body["job_success"] == {"ended_well": 18, "ended_badly": 2, "success_rate": 0.9}
    assert body["category_throttles"] == {"MergeGroup": 60, "Processing": 5000, "Merge": None, "Cleanup": None}
    assert (body["dag"]["units_at_once"], body["dag"]["jobs"]) == (3, {"sites": {"T2_CH_CERN": {"running": 2}}})
    Request.objects.filter(pk=workflow.request.pk).update(overrides={"max_merge_groups": 7, "max_cleanup": 2})
    body = status_detail(reader, workflow)
    assert body["category_throttles"] == {"MergeGroup": 7, "Processing": 5000, "Merge": None, "Cleanup": 2}
    request = reader.get(f"/api/v1/requests/{workflow.request_id}").json()
    assert request["job_success"]["success_rate"] == 0.9
    assert (request["dag"]["nodes_running"], request["dag"]["nodes_idle"], request["dag"]["nodes_held"]) == (2, 1, 0)


def test_the_standing_costs_a_fixed_number_of_queries(reader: APIClient, django_assert_num_queries: Any) -> None:
    workflow, dag = running(units=30, done=10)
    with_block(dag)
    # user, workflow, DAG, units, blocks, their units; failures of the DAG's directory and of the workflow; request, limit
    with django_assert_num_queries(12):
        status_detail(reader, workflow)


@pytest.mark.parametrize("rows", [1, 20])
def test_a_page_costs_three_queries_however_many_rows(reader: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for _ in range(rows):
        workflow_row(request_row(S.ACTIVE))
    with django_assert_num_queries(3):
        assert len(reader.get("/api/v1/workflows").json()["results"]) == rows


def test_the_list_filters_and_one_has_its_specification_but_no_psets(reader: APIClient) -> None:
    workflow = workflow_row(request_row(S.ACTIVE, campaign="A"), status=WorkflowStatus.ACTIVE)
    workflow_row(request_row(S.QUEUED, campaign="B"))

    def found(**query: str) -> list[str]:
        return [row["id"] for row in reader.get("/api/v1/workflows", query).json()["results"]]

    assert found(status="active") == found(campaign="A") == found(request=workflow.request_id) == [str(workflow.pk)]
    body = reader.get(f"/api/v1/workflows/{workflow.pk}").json()
    assert body["spec"]["request_name"] == workflow.request_id
    assert "psets" not in body


@pytest.mark.parametrize("query", ["status=odd", "ordering=spec", "page_size=-1", "created_since=x", "request=%00"])
def test_a_wrong_query_is_400(reader: APIClient, query: str) -> None:
    assert reader.get(f"/api/v1/workflows?{query}").status_code == 400


def test_what_is_not_there_is_404(reader: APIClient) -> None:
    for path in (uuid.uuid4(), f"{uuid.uuid4()}/status", "not-a-uuid", "1/status"):
        problem(reader.get(f"/api/v1/workflows/{path}"), 404, "not_found")
