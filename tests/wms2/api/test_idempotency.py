"""Idempotency-Key: what is asked twice is done once, and answered the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app.lifecycle.retention import expired
from requests_app.models import Limit, Request, RequestStatus
from tests.support.problems import problem
from tests.support.rest_clients import client_of
from tests.support.rows import request_row
from wms2.audit import audit
from wms2.identities.grants import OPERATORS
from wms2.models import AuditEntry, KeptAnswer
from wms2.web import idempotency

pytestmark = pytest.mark.django_db
API = "/api/v1"
WHY = {"reason": "r"}
KEY = {"HTTP_IDEMPOTENCY_KEY": "3b6d1d4e"}


def change(client: APIClient, value: int = 7, **headers: Any) -> Any:
    return client.patch(f"{API}/admission/config", {"max_active_dags": value, "reason": "r"}, **headers)


def test_the_same_call_again_is_answered_as_the_first_and_done_once(operator: APIClient) -> None:
    first, again = change(operator, **KEY), change(operator, **KEY)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert AuditEntry.objects.filter(action="limit_set").count() == 1
    assert change(operator).json() != first.json(), "without a key it is done again"


def test_a_refusal_is_kept_too_with_its_audit_entry(operator: APIClient) -> None:
    row = request_row(RequestStatus.FAILED)
    path = f"{API}/requests/{row.request_name}/hold"
    first = operator.post(path, WHY, **KEY)
    refused = problem(first, 409, "invalid_transition")
    Request.objects.update(status=RequestStatus.ACTIVE)
    again = operator.post(path, WHY, **KEY)
    assert problem(again, 409, "invalid_transition") == refused
    assert AuditEntry.objects.filter(outcome="refused").count() == 1


def test_a_key_is_for_one_thing_of_one_user(operator: APIClient, django_user_model: Any) -> None:
    change(operator, **KEY)
    problem(change(operator, 8, **KEY), 422, "idempotency_key_reused")
    row = request_row(RequestStatus.QUEUED)
    problem(operator.post(f"{API}/requests/{row.request_name}/hold", WHY, **KEY), 422, "idempotency_key_reused")
    olaf = django_user_model.objects.create_user("olaf")
    olaf.groups.add(*django_user_model.objects.get(username="olga").groups.filter(name=OPERATORS))
    assert "Idempotency-Replayed" not in change(client_of(olaf), **KEY)


def test_what_is_demanded_of_the_version_is_part_of_the_call(operator: APIClient) -> None:
    address, asked = f"{API}/admission/config", {"max_active_dags": 7, "reason": "r"}
    stale = operator.patch(address, asked, HTTP_IF_MATCH='"old"', **KEY)
    refused = problem(stale, 412, "precondition_failed")
    assert problem(operator.patch(address, asked, HTTP_IF_MATCH='"old"', **KEY), 412, "precondition_failed") == refused
    read_again = operator.patch(address, asked, HTTP_IF_MATCH=stale["ETag"], **KEY)
    problem(read_again, 422, "idempotency_key_reused")
    assert operator.patch(address, asked, HTTP_IF_MATCH=stale["ETag"], HTTP_IDEMPOTENCY_KEY="another").status_code == 200


def test_while_the_first_lasts_the_second_is_told_to_come_back(operator: APIClient) -> None:
    change(operator, **KEY)
    KeptAnswer.objects.update(status=None, body=None)
    busy = change(operator, **KEY)
    problem(busy, 409, "in_flight")
    assert int(busy["Retry-After"]) > 0
    KeptAnswer.objects.update(at=timezone.now() - idempotency._BROKEN_OFF - timedelta(seconds=1))
    assert change(operator, **KEY).status_code == 200, "it was broken off, and nothing had been done"


def test_what_was_not_done_may_be_asked_again_with_the_same_key(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from requests_app.api import admission

    def silent(**_: Any) -> None:
        Limit.objects.create(name="max_active_dags", value=1, reason="half done", actor="x")
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(admission, "limit_set", silent)
        answer = change(operator, **KEY)
        assert (answer.status_code, int(answer["Retry-After"]) > 0) == (503, True)
    assert not Limit.objects.exists(), "nothing of it stays"
    assert change(operator, **KEY).status_code == 200


def test_it_is_no_key_and_not_allowed(operator: APIClient, reader: APIClient) -> None:
    assert "200 visible" in problem(change(operator, HTTP_IDEMPOTENCY_KEY="a b"), 400, "invalid")["detail"]
    assert change(reader, **KEY).status_code == 403
    assert operator.get(f"{API}/admission/config", **KEY).status_code == 200
    assert not KeptAnswer.objects.exists()


def test_answers_are_not_kept_for_ever(operator: APIClient) -> None:
    change(operator, **KEY)
    later = timezone.now() + timedelta(days=2)
    assert [rows.count() for rows in expired(later) if rows.model is KeptAnswer] == [1]


@pytest.mark.parametrize("name", [r"a\u0000", r"a\ud800"])
def test_what_no_column_holds_is_answered_with_a_key_as_without(operator: APIClient, name: str) -> None:
    body, path = f'{{"{name}": 1, "{name}": 2}}', f"{API}/requests"
    answers = [operator.post(path, body, content_type="application/json", **key) for key in ({}, KEY, KEY)]
    said = [problem(answer, 400, "malformed")["detail"] for answer in answers]
    assert "given twice" in said[0]
    assert set(said) == {said[0]}
    assert answers[2]["Idempotency-Replayed"] == "true"


def test_the_audit_takes_whatever_was_said() -> None:
    audit(actor="o" * 150, action="x", target="a\0", reason="half \ud800", tried={"b\0": ["c\0"]})
    entry = AuditEntry.objects.get(action="x")
    assert entry.actor == "o" * 100
    assert (entry.target, entry.reason, entry.evidence) == ("a\ufffd", "half ?", {"tried": {"b\ufffd": ["c\ufffd"]}})
