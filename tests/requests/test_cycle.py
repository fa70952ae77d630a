"""Which requests a cycle hints at, and in which order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from requests_app.cycle import requests_to_evaluate
from requests_app.models import RequestStatus
from tests.support.rows import request_row

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
