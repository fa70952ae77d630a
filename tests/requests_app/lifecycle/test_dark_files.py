"""Merged files that Rucio does not know are told of before CMS's consistency checks delete them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.models import DAG, WorkUnit, WorkUnitState
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.lifecycle.dark_files import dark_files_check
from requests_app.models import Event, Request, RequestStatus
from tests.support.rows import dag_row, request_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db


@pytest.fixture(name="dag")
def _dag() -> DAG:
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)))


def code() -> str:
    return Request.objects.get().alert_code


def days(number: float) -> object:
    return timezone.now() - timedelta(days=number)


@pytest.mark.parametrize(
    ("state", "age", "reported"),
    [
        (EffectState.PENDING, 15, True), (EffectState.REFUSED, 15, True), (EffectState.DEAD, 24, True),
        (EffectState.PENDING, 13, False), (EffectState.DONE, 15, False), (EffectState.DISCARDED, 15, False),
    ],
)  # fmt: skip
def test_files_whose_registration_waits_for_two_weeks(dag: DAG, state: EffectState, age: int, reported: bool) -> None:
    request = dag.workflow.request
    effect = Effect.objects.create(request=request, kind=EffectKind.RUCIO_FILES, key="k", state=state, payload={"units": [1, 2]})
    Effect.objects.update(created_at=days(age), last_error="Rucio says no")
    assert dark_files_check() == int(reported)
    assert (code() == "dark_files") is reported
    if reported:
        message = Event.objects.get(kind="alert").data["message"]
        assert "2 work units" in message and "Rucio says no" in message
        dark_files_check()
        assert Event.objects.filter(kind="alert").count() == 1, "it is told once"
        Effect.objects.filter(pk=effect.pk).update(state=EffectState.DONE)
        assert (dark_files_check(), code()) == (0, "")


def test_a_row_that_cannot_be_read_keeps_no_other_request_from_its_alert(dag: DAG) -> None:
    """Of a later release, say."""
    bad = request_row(RequestStatus.ACTIVE)
    for request, payload in ((bad, ["later"]), (dag.workflow.request, {"units": [1]})):
        Effect.objects.create(request=request, kind=EffectKind.RUCIO_FILES, key=request.request_name, payload=payload)
    Effect.objects.update(created_at=days(15))
    assert dark_files_check() == 1
    assert Request.objects.get(alert_code="dark_files") == dag.workflow.request


@pytest.mark.parametrize(("age", "reported"), [(15, True), (13, False)])
def test_units_without_an_account(dag: DAG, age: int, reported: bool) -> None:
    unit = unit_row(dag, 0)
    WorkUnit.objects.filter(pk=unit.pk).update(
        state=WorkUnitState.DONE_UNACCOUNTED, problem="manifest missing", problem_since=days(age)
    )
    assert dark_files_check() == int(reported)


@pytest.mark.parametrize(("status", "age", "reported"), [("held", 15, True), ("held", 13, False), ("active", 15, False)])
def test_a_request_that_stands_before_its_account(dag: DAG, status: str, age: int, reported: bool) -> None:
    DAG.objects.update(observed={"nodes_done": 3}, units_done=0)
    unit_row(dag, 7, state=WorkUnitState.DONE, manifest_sha256="x", fence=1, done_at=days(age))  # by the DAG or its rescue
    Request.objects.update(
        status=status, status_since=days(age), **({"hold_code": "operator", "hold_reason": "x"} if status == "held" else {})
    )
    assert dark_files_check() == int(reported)
    if reported:
        assert "2 work units" in Event.objects.get(kind="alert").data["message"]
