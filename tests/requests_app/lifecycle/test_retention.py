"""Which rows go after a time, how many at once, and what stays because something rests on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAG, DAGHistory, DAGStatus, FailureCategory, FailureGroup, FailureSample
from dags_app.services.submit import SUBMIT_INTENT
from requests_app.lifecycle import cycle, leader, retention
from requests_app.lifecycle.watching import RETURNED
from requests_app.models import EVALUATED, Event, Lease, Reconciliation, Request, RequestStatus, RequestTransition
from sites_app.models import Health, HealthChange, QueueChange, Site, SiteBan, SystemicAlert
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from tests.support.statements import statements
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus
LONG_AGO = timezone.now() - timedelta(days=5000)


@pytest.fixture(autouse=True)
def _events_can_be_made_old() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE events DISABLE TRIGGER events_stay")


@pytest.fixture(name="leads")
def _leads() -> Iterator[leader.Leadership]:
    with leader.leading() as leadership:
        assert leadership is not None
        yield leadership


def keep(monkeypatch: pytest.MonkeyPatch, **days: float) -> None:
    changed = conf().model_copy(update=days)
    monkeypatch.setattr(retention, "conf", lambda: changed)


def lived(status: RequestStatus, at: datetime = LONG_AGO, **fields: object) -> Request:
    """A request with one row of each kind, all of ``at``, in its status since then."""
    request = request_row(status, status_since=at, **fields)
    dag = dag_row(workflow_row(request), DAGStatus.COMPLETED)
    Event.objects.filter(request=request).delete()  # what the database told of these rows
    Event.objects.create(request=request, kind="request.status")
    reported(dag, SUBMIT_INTENT)
    group = FailureGroup.objects.create(
        workflow=dag.workflow, category=FailureCategory.TRANSIENT, code=1, first_at=at, last_at=at, attempts=1
    )
    FailureSample.objects.create(
        group=group, dag=dag, unit="mg_000000", node="proc_0", attempt=0, job_id="1.0", final=True, at=at
    )  # fmt: skip
    RequestTransition.objects.create(request=request, to_status=status, actor="tester", reason="for a test")
    Event.objects.filter(request=request).update(at=at)
    DAGHistory.objects.filter(dag=dag).update(created_at=at)
    RequestTransition.objects.filter(request=request).update(at=at)
    return request


def reported(dag: DAG, event: str, at: datetime = LONG_AGO) -> None:
    row = DAGHistory.objects.create(dag=dag, event_type=event)
    DAGHistory.objects.filter(pk=row.pk).update(created_at=at)


def kept(request: Request) -> set[str]:
    rows = {
        "events": Event.objects.filter(request=request),
        "history": DAGHistory.objects.filter(dag__workflow__request=request),
        "samples": FailureSample.objects.filter(dag__workflow__request=request),
        "transitions": RequestTransition.objects.filter(request=request),
    }
    return {name for name, found in rows.items() if found.exists()}


ALL = {"events", "history", "samples", "transitions"}


@pytest.mark.parametrize("status", [*EVALUATED, S.NEW])
def test_what_goes_on_or_may_go_on_keeps_everything_however_old(status: RequestStatus, leads: leader.Leadership) -> None:
    request = lived(status)
    assert retention.rows_expire(leads) == 0
    assert kept(request) == ALL


@pytest.mark.parametrize("status", retention.AT_AN_END)
def test_of_a_request_at_an_end_only_its_transitions_stay(status: RequestStatus, leads: leader.Leadership) -> None:
    request = lived(status)
    assert retention.rows_expire(leads) == 3
    assert kept(request) == {"transitions"}


def test_every_table_has_its_own_time_counted_from_the_end_of_the_request(leads: leader.Leadership) -> None:
    now = timezone.now()
    between = lived(S.COMPLETED, now - timedelta(days=conf().keep_events_days + 1))
    lately_ended = lived(S.COMPLETED)
    Request.objects.filter(pk=lately_ended.pk).update(status_since=now - timedelta(days=1))
    lately_told = lived(S.COMPLETED)
    Event.objects.filter(request=lately_told).update(at=now)
    retention.rows_expire(leads)
    assert kept(between) == ALL - {"events"}
    assert kept(lately_ended) == ALL, "its rows are old, its end is not"
    assert kept(lately_told) == {"events", "transitions"}


def test_what_is_told_only_once_stays(leads: leader.Leadership) -> None:
    alerted = lived(S.FAILED, alert_code="effect_dead")
    returned = lived(S.FAILED)
    reported(DAG.objects.get(workflow__request=returned), RETURNED)
    lost = lived(S.FAILED)
    DAG.objects.filter(workflow__request=lost).update(lost_confirmed_at=LONG_AGO)
    retention.rows_expire(leads)
    assert "events" in kept(alerted)
    assert [row.event_type for row in DAGHistory.objects.filter(dag__workflow__request=returned)] == [RETURNED]
    assert "history" in kept(lost), "its schedd has not said yet that it is gone"


def test_the_audit_and_events_of_no_request_go_by_age_alone(leads: leader.Leadership) -> None:
    live = request_row(S.ACTIVE)
    for at in (LONG_AGO, timezone.now()):
        entry = AuditEntry.objects.create(actor="tester", action="request_hold", target=live.request_name)
        AuditEntry.objects.filter(pk=entry.pk).update(at=at)
        Event.objects.filter(pk=Event.objects.create(kind="installation").pk).update(at=at)
    assert retention.rows_expire(leads) == 2
    assert not AuditEntry.objects.filter(at=LONG_AGO).exists()
    assert AuditEntry.objects.filter(action="request_hold").count() == 1


def test_of_schedds_bans_and_reconciliations_what_is_over_goes_by_age(leads: leader.Leadership) -> None:
    schedd, site, now = schedd_row(), Site.objects.create(name="T2_CH_CERN"), timezone.now()
    for at in (LONG_AGO, now):
        HealthChange.objects.create(schedd=schedd, at=at, old=Health.HEALTHY, new=Health.BUSY)
        QueueChange.objects.create(schedd=schedd, seen_at=at, old_birthdate=1, new_birthdate=2)
        Reconciliation.objects.create(asked_by="olga", reason="r", ended_at=at)
        SystemicAlert.objects.create(holds=False, reason="r", began_at=LONG_AGO, ended_at=at)
        ban = SiteBan.objects.create(site=site, reason="r", expires_at=now + timedelta(days=9))
        SiteBan.objects.filter(pk=ban.pk).update(created_at=LONG_AGO - timedelta(days=1), expires_at=at)
    Reconciliation.objects.create(asked_by="olga", reason="goes on")
    SystemicAlert.objects.create(holds=False, reason="goes on", began_at=LONG_AGO)
    assert retention.rows_expire(leads) == 5
    left = (HealthChange, QueueChange, Reconciliation, SystemicAlert, SiteBan)
    assert [model.objects.count() for model in left] == [1, 1, 2, 2, 1]


def test_nothing_goes_where_all_is_kept(leads: leader.Leadership, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, keep_events_days=0, keep_history_days=0, keep_audit_days=0)
    request = lived(S.ARCHIVED)
    assert retention.rows_expire(leads) == 0
    assert kept(request) == ALL


def test_a_big_table_is_shortened_in_portions_cycle_by_cycle_and_then_left_for_an_hour(
    leads: leader.Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PORTION", 3)
    monkeypatch.setattr(retention, "PORTIONS", 2)
    request, live = lived(S.COMPLETED), lived(S.ACTIVE)
    for owner in (request, live):
        Event.objects.bulk_create(Event(request=owner, kind="x", data={"n": n}) for n in range(9))
    Event.objects.update(at=LONG_AGO)
    assert [retention.rows_expire(leads) for _ in range(3)] == [6 + 2, 4, 0]
    assert Event.objects.filter(request=live).count() == 10
    Event.objects.filter(pk=Event.objects.create(kind="x").pk).update(at=LONG_AGO)
    with CaptureQueriesContext(connection) as asked:
        assert retention.rows_expire(leads) == 0, "it has looked within the hour"
    assert len(statements(asked)) == 1
    row = Lease.objects.get(name="lifecycle")
    Lease.objects.update(data=row.data | {"rows_expired_epoch": row.data["rows_expired_epoch"] - 3601})
    assert retention.rows_expire(leads) == 1


def test_who_leads_no_more_removes_nothing(leads: leader.Leadership) -> None:
    request = lived(S.COMPLETED)
    Lease.objects.update(process="another", epoch=99)
    with pytest.raises(LeaseLost):
        retention.rows_expire(leads)
    assert kept(request) == ALL


def test_each_large_table_is_read_by_the_index_on_its_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        for rows, index in zip(
            retention.expired(timezone.now()),
            ("idx_kept_answers_at", "idx_events_at", "idx_audit_at", "idx_dag_history_created", "idx_failure_samples_at"),
            strict=False,  # after these come small ones
        ):
            assert index in rows.values("pk")[: retention.PORTION].explain()


def test_the_cycle_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    request = lived(S.COMPLETED)
    assert cycle.run_cycle(force=True)
    assert kept(request) == {"transitions"}
