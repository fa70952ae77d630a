"""Adaptive rounds over REST: asked for, pinned, and what they measured and decided."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from dags_app.histogram import counted
from dags_app.models import FailureGroup, SizingDecision, StepMeasurement
from requests_app.models import Request, RequestStatus
from requests_app.work.overrides import pins_of
from tests.support.cases import in_one_test
from tests.support.rows import dag_row, generation_spec, request_row, workflow_row

pytestmark = pytest.mark.django_db
WHY = {"reason": "leaks memory"}


def active() -> Request:
    request = request_row(RequestStatus.ACTIVE)
    dag_row(workflow_row(request, generation_spec(request.request_name)))
    return request


def test_pins_are_set_as_a_whole_and_unset_by_leaving_them_out(operator: APIClient, reader: APIClient) -> None:
    request = active()
    Request.objects.filter(pk=request.pk).update(overrides={"retry_merge": 5})
    url = f"/api/v1/requests/{request.request_name}"
    answer = operator.post(f"{url}/pin", WHY | {"memory_mb": 2900, "jobs_per_work_unit": 20})
    assert answer.status_code == 202, answer.content
    assert reader.get(url).json()["overrides"] == {"retry_merge": 5, "memory_mb": 2900, "jobs_per_work_unit": 20}
    assert operator.post(f"{url}/pin", WHY | {"events_per_job": 50}).json()["overrides"] == {
        "retry_merge": 5,
        "events_per_job": 50,
    }
    texts = {"layouts": ["GenSim=2x4"], "task_sizes": ["1:memory_mb=2800", "1:cores=2"]}
    assert operator.post(f"{url}/pin", WHY | texts).json()["overrides"] == {"retry_merge": 5, **texts}
    request.refresh_from_db()
    assert (pins_of(request).of(1).memory_mb, pins_of(request).of(1).cores, pins_of(request).of(2).cores) == (2800, 2, None)
    assert operator.post(f"{url}/pin", WHY).json()["overrides"] == {"retry_merge": 5}


@in_one_test(
    "pin, status, words",
    [
        ({"memory_mb": 3001}, 409, "too much for 1 cores of task 1; at most 3000"),
        ({"cores": 2, "memory_mb": 6001}, 409, "at most 6000"),
        ({"lumis_per_job": 3}, 409, "task 1 is split by EventBased"),
        ({"files_per_job": 3}, 409, "split by EventBased"),
        ({"layouts": ["Digi=2x4"]}, 409, "it has no step Digi; its steps: GenSim"),
        ({"layouts": ["GenSim 2x4"]}, 400, "is not STEP=PROCESSESxTHREADS"),
        ({"task_sizes": ["2:cores=2"]}, 409, "it has no task 2; its tasks: 1"),
        ({"task_sizes": ["1:memory_mb=3001"]}, 409, "too much for 1 cores of task 1; at most 3000"),
        ({"task_sizes": ["1:files_per_job=3"]}, 409, "task 1 is split by EventBased"),
        ({"task_sizes": ["1:disk_mb=3"]}, 400, "is not TASK:SIZE=NUMBER"),
        ({"cores": 0}, 400, "cores"),
        ({"events_per_jobs": 5}, 400, "events_per_jobs"),
    ],
    rows=True,
)
def test_a_pin_that_cannot_be_is_refused_and_changes_nothing(
    operator: APIClient, pin: dict[str, object], status: int, words: str
) -> None:
    request = active()
    answer = operator.post(f"/api/v1/requests/{request.request_name}/pin", WHY | pin)
    assert answer.status_code == status
    assert words in answer.content.decode()
    request.refresh_from_db()
    assert request.overrides == {}


def test_adaptive_may_be_changed_until_the_request_is_over(operator: APIClient) -> None:
    request = active()
    url = f"/api/v1/requests/{request.request_name}"
    assert operator.patch(url, {"adaptive": True}, format="json").json()["adaptive"] is True
    assert operator.patch(url, {"adaptive": False, "priority": 7}, format="json").json()["adaptive"] is False
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.COMPLETED)
    assert operator.patch(url, {"adaptive": True}, format="json").status_code == 409


def test_rounds_tell_what_was_measured_and_why_numbers_were_chosen(reader: APIClient) -> None:
    request = active()
    workflow, dag = request.workflow, request.workflow.dags.get()
    StepMeasurement.objects.create(
        round=dag.round, step="GenSim", processes=2, threads=2, jobs=100, wall_seconds=1000, cpu_seconds=2000,
        histograms={"rss_mb": counted([1000.0] * 90 + [3000.0] * 10)},
    )  # fmt: skip
    SizingDecision.objects.create(
        dag=dag, what="memory_mb", before=2000, measured=3000, chosen=3000, why="p95", bound="max_memory_per_core_mb"
    )
    now = dag.created_at
    FailureGroup.objects.create(
        workflow=workflow, category="transient", code=8021, step="GenSim", first_at=now, last_at=now, attempts=3, rounds={"0": 3}
    )
    body = reader.get(f"/api/v1/workflows/{workflow.pk}/rounds").json()
    (reported,) = body["rounds"]
    (step,) = reported["steps"]
    assert (step["jobs"], step["cpu_efficiency"], step["exit_codes"]) == (100, 0.5, {"8021": 3})
    assert step["spreads"]["rss_mb"] == {"p50": pytest.approx(1000, rel=0.011), "p95": pytest.approx(3000, rel=0.011)}
    (why,) = reported["decisions"]
    assert (why["what"], why["measured"], why["bound"], why["pinned"]) == ("memory_mb", 3000.0, "max_memory_per_core_mb", False)
    assert reported["exit_codes"] == {"GenSim": {"8021": 3}}
    assert reported["dags"][0]["id"] == str(dag.pk)
