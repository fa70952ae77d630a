"""Which requests a cycle hints at, and in which order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.models import DAGStatus
from requests_app.lifecycle.cycle import requests_to_evaluate, schedds_to_watch
from requests_app.models import RequestStatus
from sites_app.models import ScheddState
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row

pytestmark = pytest.mark.django_db
S = RequestStatus


def test_those_that_waited_longest_for_an_evaluation_come_first_whatever_their_priority() -> None:
    now = timezone.now()
    lately = request_row(S.QUEUED, priority=900_000, urgent=True, evaluated_at=now)
    earlier = request_row(S.ACTIVE, priority=1, evaluated_at=now - timedelta(minutes=5))
    never = request_row(S.SUBMITTED, priority=1)
    assert requests_to_evaluate() == [never.pk, earlier.pk, lately.pk]


def test_requests_at_an_end_are_left_alone() -> None:
    for status in (S.NEW, S.COMPLETED, S.ARCHIVED, S.FAILED, S.ABORTED, S.CLEANED):
        request_row(status)
    held = request_row(S.HELD)
    assert requests_to_evaluate() == [held.pk]


def test_schedds_are_watched_once_each_while_they_may_get_dags_have_some_or_lost_some() -> None:
    now = timezone.now()
    gone = {"dagman_cluster_id": "7", "lost_confirmed_at": now}
    cases = {
        "enabled": (ScheddState.ENABLED, DAGStatus.COMPLETED, {}),
        "live": (ScheddState.DISABLED, DAGStatus.RUNNING, {}),
        "lost": (ScheddState.DISABLED, DAGStatus.REMOVED, gone),
        "settled": (ScheddState.DISABLED, DAGStatus.REMOVED, gone | {"lost_settled_at": now}),
        "ended": (ScheddState.DISABLED, DAGStatus.COMPLETED, {}),
    }
    for name, (state, status, fields) in cases.items():
        schedd = schedd_row(name, state=state)
        for number in range(2):
            fields = fields | ({"dagman_cluster_id": str(number)} if fields else {})
            dag_row(workflow_row(), status, schedd=schedd, schedd_name=name, **fields)
    assert sorted(schedd.name for schedd in schedds_to_watch()) == ["enabled", "live", "lost"]
