"""Limits of admission over REST, expected starts, and what would happen with other limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAGStatus
from requests_app.admission.queue import admit
from requests_app.limits import limit_set
from requests_app.models import AdmissionBucket, AdmissionLimit, Request, RequestStatus
from requests_app.selectors import admission
from requests_app.selectors.admission import queue_now
from requests_app.services import preview
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus
ABOVE = "above its limit it gets what others leave"
LIMITS, WHAT_IF, QUEUE = "/api/v1/admission/limits", "/api/v1/admission/what-if", "/api/v1/admission/queue"


def whole(kind: str) -> AdmissionLimit:
    """The row of all of a kind: a migration's, which tests that commit take away."""
    return AdmissionLimit.objects.get_or_create(kind=kind, name="")[0]


def own(operator: APIClient, kind: str, name: str, **says: Any) -> dict[str, Any]:
    response = operator.post(f"{LIMITS}/{whole(kind).pk}/add", {"name": name, "reason": "test", **says})
    assert response.status_code == 202, response.content
    return dict(response.json())


def running(campaign: str, **fields: Any) -> None:
    dag_row(workflow_row(request_row(S.ACTIVE, campaign=campaign, **fields)))


def test_limits_are_added_changed_and_removed_with_a_reason_and_say_what_is_used(operator: APIClient) -> None:
    running("Run3")
    running("Other")
    row = own(operator, "campaign", "Run3", max_dags=1, rate_per_hour=6, burst=2)
    assert (row["max_dags"], row["rate_per_hour"], row["burst"], row["actor"]) == (1, 6.0, 2, "olga")
    changed = operator.post(f"{LIMITS}/{whole('campaign').pk}/set", {"max_dags": 3, "reason": "test"})
    assert changed.json()["max_dags"] == 3
    used = {(each["kind"], each["name"]): each["in_use"] for each in operator.get(LIMITS).json()["results"]}
    assert used["campaign", "Run3"] == [{"name": "Run3", "dags": 1, "starts_left": 2, "next_start_at": None}]
    assert [each["name"] for each in used["campaign", ""]] == ["Other"]
    again = operator.post(f"{LIMITS}/{row['id']}/set", {"rate_per_hour": 1, "reason": "test"}).json()
    assert (again["max_dags"], again["rate_per_hour"], again["burst"]) == (None, 1.0, 1), "what is not given is no limit"
    assert operator.post(f"{LIMITS}/{row['id']}/remove", {"reason": "test"}).status_code == 202
    assert not AdmissionLimit.objects.filter(name="Run3").exists()
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == [
        "admission_limit_add", "admission_limit_change", "admission_limit_change", "admission_limit_remove",
    ]  # fmt: skip


@in_one_test(
    "kind, body, field",
    [
        ("band", {"name": "high"}, "least_priority"),
        ("band", {"name": "urgent", "least_priority": 5}, "least_priority"),
        ("campaign", {"name": "a", "least_priority": 5}, "least_priority"),
        ("campaign", {"name": "a", "burst": 0}, "burst"),
        ("campaign", {"name": "a", "rate_per_hour": 0}, "rate_per_hour"),
        ("campaign", {"max_dags": 3}, "name"),
        ("campaign", {"name": "there"}, "name"),
    ],
    rows=True,
)
def test_a_limit_that_cannot_be_is_refused_by_its_field(operator: APIClient, kind: str, body: dict[str, Any], field: str) -> None:
    own(operator, "campaign", "there")
    response = operator.post(f"{LIMITS}/{whole(kind).pk}/add", {**body, "reason": "test"})
    assert response.status_code in (400, 409)
    assert response.json()["field"] == field


def test_the_row_of_a_whole_kind_stays_and_cannot_stop_all(operator: APIClient) -> None:
    row = whole("requester")
    problem(operator.post(f"{LIMITS}/{row.pk}/remove", {"reason": "test"}), 409, "invalid_transition")
    problem(operator.post(f"{LIMITS}/{row.pk}/set", {"max_dags": 0, "reason": "test"}), 400, "invalid", field="max_dags")
    problem(operator.post(f"{LIMITS}/{whole('band').pk}/set", {"max_dags": 1, "reason": "test"}), 409, "invalid_transition")


def test_a_limit_that_is_set_anew_stays_hard_until_it_is_said_otherwise(operator: APIClient) -> None:
    row = AdmissionLimit.objects.get(pk=own(operator, "band", "urgent", max_dags=3, hard=True)["id"])
    for says, hard in (({"max_dags": 4}, True), ({"max_dags": 4, "hard": False}, False), ({"max_dags": 5}, False)):
        assert operator.post(f"{LIMITS}/{row.pk}/set", {**says, "reason": "test"}).status_code == 202
        row.refresh_from_db()
        assert (row.max_dags, row.hard) == (says["max_dags"], hard)


def test_a_campaign_at_its_limit_waits_and_another_starts(operator: APIClient) -> None:
    schedd_row()
    own(operator, "campaign", "Run3", max_dags=1, hard=True)
    running("Run3")
    first, second = request_row(S.QUEUED, campaign="Run3", priority=900), request_row(S.QUEUED, campaign="Run2", priority=1)
    assert admit() == 1
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, first.waiting_for, second.status) == (S.QUEUED, "limit of campaign Run3: 1 of 1 DAGs", S.PLANNING)
    assert operator.get(f"/api/v1/requests/{first.request_name}").json()["queue"]["expected_start"] is None
    ended = timezone.now() - timedelta(hours=1)
    dag_row(workflow_row(request_row(S.COMPLETED, campaign="Run3")), DAGStatus.COMPLETED, completed_at=ended, submitted_at=ended)
    reported = operator.get(f"/api/v1/requests/{first.request_name}").json()["queue"]
    assert reported["place"] == 1
    assert reported["expected_basis"] == "1 slots of campaign Run3 became free in the last 24 hours, 0 before it"


def test_a_slot_that_nobody_within_the_limits_wants_is_lent_and_goes_to_another_at_the_next_pass(operator: APIClient) -> None:
    schedd_row()
    limit_set(name="max_active_dags", value=3, actor="t", reason="t")
    own(operator, "campaign", "Run3", max_dags=1)
    own(operator, "campaign", "Closed", max_dags=0)
    running("Run3")
    lent, closed = request_row(S.QUEUED, campaign="Run3", priority=9), request_row(S.QUEUED, campaign="Closed", priority=900)
    assert operator.get(f"/api/v1/requests/{lent.request_name}").json()["queue"]["expected_basis"].startswith("a slot is free")
    assert admit() == 1
    lent.refresh_from_db(), closed.refresh_from_db()
    assert (lent.status, closed.waiting_for) == (S.PLANNING, "limit of campaign Closed: 0 of 0 DAGs")
    above, within = request_row(S.QUEUED, campaign="Run3", priority=900), request_row(S.QUEUED, campaign="Run2", priority=1)
    assert admit() == 1
    above.refresh_from_db(), within.refresh_from_db()
    assert (above.waiting_for, within.status) == (f"limit of campaign Run3: 2 of 1 DAGs; {ABOVE}", S.PLANNING)


def test_starts_are_taken_from_a_bucket_that_fills_by_the_clock_of_the_database(operator: APIClient) -> None:
    schedd_row()
    own(operator, "requester", "rita", rate_per_hour=2, burst=2, hard=True)
    rows = [request_row(S.QUEUED, requestor="rita", priority=priority) for priority in (3, 2, 1)]
    assert admit() == 2
    assert admit() == 0
    rows[2].refresh_from_db()
    assert rows[2].waiting_for.startswith("limit of requester rita: 2 starts an hour, the next at ")
    in_use = operator.get(f"{LIMITS}/{AdmissionLimit.objects.get(name='rita').pk}").json()["in_use"]
    assert (in_use[0]["dags"], in_use[0]["starts_left"]) == (2, 0)
    full_at = AdmissionBucket.objects.get().full_at - timedelta(minutes=31)
    AdmissionBucket.objects.update(full_at=full_at)  # as if half an hour had passed
    assert admit() == 1


def test_the_queue_tells_bands_and_what_priorities_have_risen_to(operator: APIClient) -> None:
    own(operator, "band", "high", least_priority=1000)
    limit_set(name="admission_aging_per_hour", value=100, actor="t", reason="t")
    now = timezone.now()
    request_row(S.QUEUED, priority=950, queued_at=now - timedelta(hours=2))
    request_row(S.QUEUED, priority=1100, queued_at=now)
    rows = operator.get(QUEUE).json()["queue"]
    assert [(row["priority"], row["risen_priority"], row["band"]) for row in rows] == [(950, 1150, ""), (1100, 1100, "high")]
    assert rows[0]["expected_basis"] == "a slot is free, and it is its turn"


def test_one_ranking_serves_the_readers_of_lists_until_one_of_theirs_is_new_or_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "CACHED_SECONDS", 3600.0)
    read, ranked = admission.queue_now, list[object]()
    monkeypatch.setattr(admission, "queue_now", lambda: ranked.append(1) or read())

    def places(*rows: Request) -> list[int | None]:
        found = admission.queued_rows(Request.objects.in_bulk([row.pk for row in rows]).values())
        return [found[row.pk].place if row.pk in found else None for row in rows]

    first, second = (request_row(S.QUEUED, priority=priority) for priority in (300, 200))
    assert [places(first, second), places(first)] == [[1, 2], [1]]
    assert len(ranked) == 1
    third = request_row(S.QUEUED, priority=250)
    assert places(second, third) == [3, 2], "what is new is in its place at once, and then the others are"
    assert len(ranked) == 2
    Request.objects.filter(pk=second.pk).update(priority=400)
    assert places(second) == [1]
    assert len(ranked) == 3
    Request.objects.filter(pk=first.pk).update(next_attempt_at=timezone.now() + timedelta(hours=1))
    assert places(first) == [None]
    assert len(ranked) == 3, "who pauses has no place, and needs none"


def test_the_place_of_one_request_is_counted_at_once_and_what_it_rests_on_is_read_once_for_all(
    operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_set(name="max_active_dags", value=1, actor="t", reason="t")
    running("Run3")
    monkeypatch.setattr(admission, "CACHED_SECONDS", 3600.0)
    first, second = (request_row(S.QUEUED, priority=priority) for priority in (300, 200))

    def place(request: Request) -> tuple[int | None, int]:
        request.refresh_from_db()
        with CaptureQueriesContext(connection) as asked:
            row = admission.queued_row(request)
        return row and row.place, len(asked)

    assert place(first) == (1, 7)
    assert place(second) == (2, 1)
    assert place(request_row(S.QUEUED, priority=250)) == (2, 1)
    assert place(second) == (3, 1)
    changed = operator.patch(f"/api/v1/requests/{second.request_name}", {"priority": 400, "reason": "test"})
    assert changed.json()["queue"]["place"] == 1, changed.content
    Request.objects.filter(pk=first.pk).update(next_attempt_at=timezone.now() + timedelta(hours=1))
    assert place(first) == (None, 0), "who pauses has no place"


def test_what_if_tells_who_would_start_and_who_would_move_and_changes_nothing(operator: APIClient) -> None:
    limit_set(name="max_active_dags", value=1, actor="t", reason="t")
    running("Run3")
    first, second, third = (request_row(S.QUEUED, campaign="Run3", priority=priority) for priority in (300, 200, 100))
    assert operator.post(WHAT_IF, {}).json()["moved"] == []
    reported = operator.post(
        WHAT_IF,
        {
            "max_active_dags": 3,
            "priorities": [{"request_name": third.request_name, "urgent": True}],
            "limits": [{"kind": "campaign", "name": "Run3", "max_dags": 2}],
            "further": [{"name": "new", "priority": 50, "campaign": "Run2"}],
        },
    ).json()
    assert reported["starts_now"] == [third.request_name, "new"]
    assert reported["next"] == []
    moved = {row["request_name"]: (row["place_before"], row["place"], row["waits_for"]) for row in reported["moved"]}
    assert moved == {
        third.request_name: (3, 1, ""),
        first.request_name: (1, 2, f"limit of campaign Run3: 2 of 2 DAGs; {ABOVE}"),
        second.request_name: (2, 3, f"limit of campaign Run3: 2 of 2 DAGs; {ABOVE}"),
        "new": (None, 4, ""),
    }
    assert (Request.objects.filter(status=S.QUEUED).count(), AdmissionLimit.objects.filter(name="Run3").count()) == (3, 0)


@in_one_test(
    "body, field",
    [
        ({"max_active_dags": -1}, "max_active_dags"),
        ({"priorities": [{"request_name": "nobody", "priority": 1}]}, "priorities.0.request_name"),
        ({"limits": [{"kind": "site"}]}, "limits.0.kind"),
        ({"limits": [{"kind": "band", "name": "x"}]}, "limits.0.least_priority"),
        ({"further": [{"name": "a", "priority": 1_000_000}]}, "further.0.priority"),
        ({"slots": 3}, "slots"),
        ({"further": [{"name": "a"}, {"name": "a"}]}, "further"),
    ],
)
def test_what_if_refuses_by_field(operator: APIClient, body: dict[str, Any], field: str) -> None:
    problem(operator.post(WHAT_IF, body), 400, "invalid", field=field)


@pytest.mark.parametrize("rows", [2, 30])
def test_what_if_costs_a_fixed_number_of_queries(operator: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for _ in range(rows):
        request_row(S.QUEUED)
    with django_assert_num_queries(12):
        operator.post(WHAT_IF, {"max_active_dags": 1})


def test_before_a_priority_is_changed_its_place_is_told_and_what_makes_it_the_first() -> None:
    now = timezone.now()
    rows = [request_row(S.QUEUED, priority=priority, queued_at=now) for priority in (200, 100)]
    request_row(S.QUEUED, priority=1, urgent=True, queued_at=now)
    reported = preview.priority([*rows, request_row(S.ACTIVE)])
    first = "Its place in the queue is 2 of 3 and changes at once; it is the first of those that are not urgent."
    assert reported[rows[0].pk][1] == first
    assert (
        "place in the queue is 3 of 3" in reported[rows[1].pk][1]
        and "with more than 200 it is the first" in reported[rows[1].pk][1]
    )


def test_what_priority_leads_to_which_place_is_told_too() -> None:
    now = timezone.now()
    priorities = (900, 700, 700, 500, 300, 300)
    rows = [request_row(S.QUEUED, priority=each, queued_at=now + timedelta(microseconds=n)) for n, each in enumerate(priorities)]
    reported = preview.priority(rows)
    assert reported[rows[-1].pk][1] == (
        "Its place in the queue is 6 of 6 and changes at once; with more than 900 it is the first of those that are not urgent,"
        " with more than 700 it is in place 2, with more than 500 it is in place 4, with more than 300 it is in place 5."
    )
    Request.objects.filter(pk=rows[-1].pk).update(priority=501)
    assert {row.waiting.key: row.place for row in queue_now().ranked}[rows[-1].pk] == 4
