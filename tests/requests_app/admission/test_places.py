"""A place that the database counts is the one that the pure order gives, with the same expected start, whatever the queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace

import pytest

from dags_app.models import DAGStatus
from requests_app.admission.ordering import TOP
from requests_app.limits import limit_set
from requests_app.models import AdmissionBucket, AdmissionLimit, Request, RequestStatus
from requests_app.models import AdmissionState as Remembered
from requests_app.selectors import admission
from requests_app.selectors.admission import queue_now, queued_row
from tests.support.rows import dag_row, request_row, workflow_row

pytestmark = pytest.mark.django_db
NOW = datetime(2030, 1, 1, tzinfo=UTC)
CAMPAIGNS, REQUESTERS = ("", "a", "b", "c"), ("rita", "rolf")
WORDS = ("", "limit of campaign a: 1 of 1 DAGs", "its turn for a DAG slot", "a schedd with room")


def queue(random: Random) -> list[Request]:
    """Few that differ little, so that much is equal; limits that are used up, and some that those who start use up."""
    for name, value in (("max_active_dags", random.randint(1, 8)), ("admission_aging_per_hour", random.choice((0, 100)))):
        limit_set(name=name, value=value, actor="t", reason="t")
    AdmissionLimit.objects.update_or_create(
        kind="campaign", name="", defaults={"max_dags": random.choice((None, 1, 2)), "hard": random.random() < 0.3}
    )
    limits = [
        ("campaign", "a", None), ("requester", "rita", None), ("band", "high", 500), ("band", "low", 200),
        ("band", "urgent", None),
    ]  # fmt: skip
    for kind, name, least in random.sample(limits, random.randint(0, 4)):
        rate = random.choice((None, 2.0))
        most = None if rate else random.randint(0, 3)
        AdmissionLimit.objects.create(
            kind=kind, name=name, least_priority=least, max_dags=most, rate_per_hour=rate, burst=random.randint(1, 2),
            hard=random.random() < 0.5,
        )  # fmt: skip
        if rate and random.random() < 0.5:
            AdmissionBucket.objects.create(kind=kind, name=name, full_at=NOW + timedelta(minutes=random.choice((10, 50, 90))))
    if random.random() < 0.2:
        Remembered.objects.create(stopped="the schedds are in trouble")

    def row(status: RequestStatus, **says: object) -> Request:
        names = {"campaign": random.choice(CAMPAIGNS), "requestor": random.choice(REQUESTERS)}
        return request_row(
            status, **names, priority=random.choice((1, 200, 300, 500, 700, TOP)), urgent=random.random() < 0.2,
            queued_at=random.choice((None, *(NOW - timedelta(hours=hours) for hours in (-1, 0, 2, 2, 3)))), **says,
        )  # fmt: skip

    for _ in range(random.randint(0, 3)):
        dag_row(workflow_row(row(RequestStatus.ACTIVE)))
    ended = NOW - timedelta(hours=1)
    for _ in range(random.randint(0, 3)):
        dag_row(workflow_row(row(RequestStatus.COMPLETED)), DAGStatus.COMPLETED, completed_at=ended, submitted_at=ended)
    row(RequestStatus.QUEUED, next_attempt_at=NOW)
    return [row(RequestStatus.QUEUED, waiting_for=random.choice(WORDS)) for _ in range(random.randint(1, 16))]


@pytest.mark.parametrize("seed", range(40))
def test_a_counted_place_is_that_of_the_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = queue(Random(seed))
    monkeypatch.setattr(admission, "timezone", SimpleNamespace(now=lambda: NOW))
    whole = queue_now()
    ranked = {row.waiting.key: row for row in whole.ranked}
    assert [queued_row(row) for row in rows] == [whole.shown(row, ranked[row.pk]) for row in rows]
