"""A poll looks at the queue when something has changed that admission rests on, and only then; no change is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAG, DAGStatus
from requests_app.admission import queue
from requests_app.admission.queue import admit, admit_if_changed
from requests_app.lease import evaluating
from requests_app.lifecycle.planning import handle_queued
from requests_app.limits import limit_set
from requests_app.models import AdmissionBucket, AdmissionLimit, Request, RequestStatus, Round
from requests_app.service_level import new_work_allow, new_work_stop, service_rows
from sites_app.models import Health, Pool, PoolState, Schedd, ScheddState, SystemicAlert
from tests.support.locking import aside
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from tests.support.statements import statements
from wms2.conf import Limits, conf
from wms2.errors import LeaseLost
from wms2.metrics.series import FORGOTTEN_TOTAL
from wms2.models import Wake
from wms2.runtime import clock

pytestmark = pytest.mark.django_db
QUEUED, PLANNING, ACTIVE = RequestStatus.QUEUED, RequestStatus.PLANNING, RequestStatus.ACTIVE


def forgotten() -> float:
    return FORGOTTEN_TOTAL._value.get()


def rest() -> None:
    """Passes until nothing has changed since the last."""
    for _ in range(20):
        with CaptureQueriesContext(connection) as asked:
            admit_if_changed()
        if not any('"requests"' in each for each in statements(asked)):
            return
    raise AssertionError("each pass asks for another one")


def running(**fields: Any) -> DAG:
    counted = {"observed_at": timezone.now(), "total_work_units": 10, "node_counts": {"Processing": 80}, "merge_groups": 1}
    return dag_row(workflow_row(request_row(ACTIVE, campaign="Run3")), DAGStatus.RUNNING, **counted | fields)


def limited(kind: str, name: str, **values: Any) -> AdmissionLimit:
    return AdmissionLimit.objects.create(kind=kind, name=name, hard=True, **values)


def all_slots_taken() -> None:
    limit_set(name="max_active_dags", value=1, actor="t", reason="t")
    running()


def kept_by_a_limit() -> None:
    limited("campaign", "Run3", max_dags=1)
    running()


def no_room() -> None:
    Schedd.objects.update(max_dagman_slots=8)
    running(schedd=Schedd.objects.get(), merge_groups=6)


def too_many_jobs_wait() -> None:
    limit_set(name="idle_job_budget", value=100, actor="t", reason="t")
    running(nodes_idle=100)


def switched_off() -> None:
    new_work_stop(service=service_rows().get(), actor="t", reason="t")


def in_trouble() -> None:
    SystemicAlert.objects.create(holds=True, reason="bad", began_at=timezone.now())


def its_schedd_disabled() -> None:
    home = schedd_row("home", submit_root="/of/home", state=ScheddState.DISABLED)
    dag_row(workflow_row(request_row(QUEUED, campaign="Run3")), DAGStatus.STOPPED, schedd=home)
    Request.objects.exclude(workflow__dags__schedd=home).delete()


def nobody_queued() -> None:
    Request.objects.all().delete()


def bucket_empty() -> None:
    limited("campaign", "Run3", rate_per_hour=2)
    AdmissionBucket.objects.create(kind="campaign", name="Run3", full_at=clock.now() + timedelta(minutes=30))


def updates(model: Any, **values: Any) -> Callable[[], object]:
    return lambda: model.objects.update(**values)


def ends() -> None:
    Request.objects.filter(status=ACTIVE).update(status=RequestStatus.COMPLETED)
    DAG.objects.update(status=DAGStatus.COMPLETED)


CHANGES: list[tuple[Callable[[], None], Callable[[], object]]] = [
    (all_slots_taken, updates(DAG, status=DAGStatus.COMPLETED)),
    (all_slots_taken, lambda: limit_set(name="max_active_dags", value=2, actor="t", reason="t")),
    (all_slots_taken, lambda: DAG.objects.all().delete()),
    (kept_by_a_limit, ends),
    (kept_by_a_limit, lambda: AdmissionLimit.objects.filter(name="Run3").delete()),
    (kept_by_a_limit, lambda: AdmissionLimit.objects.filter(name="Run3").update(max_dags=2)),
    (kept_by_a_limit, lambda: Request.objects.filter(status=ACTIVE).update(campaign="Run2")),
    (kept_by_a_limit, lambda: Request.objects.filter(status=QUEUED).update(campaign="Run2")),
    (kept_by_a_limit, lambda: request_row(QUEUED, campaign="Run2")),
    (no_room, updates(Schedd, max_dagman_slots=90)),
    (no_room, updates(DAG, merge_groups=1)),
    (no_room, lambda: schedd_row("another")),
    (no_room, updates(DAG, status=DAGStatus.COMPLETED)),
    (too_many_jobs_wait, updates(DAG, nodes_idle=10)),
    (too_many_jobs_wait, lambda: limit_set(name="idle_job_budget", value=1000, actor="t", reason="t")),
    (switched_off, lambda: new_work_allow(service=service_rows().get(), actor="t", reason="t")),
    (in_trouble, updates(SystemicAlert, ended_at=timezone.now())),
    (updates(Schedd, state=ScheddState.DISABLED), updates(Schedd, state=ScheddState.ENABLED)),
    (updates(Schedd, unreachable_since=timezone.now()), updates(Schedd, unreachable_since=None)),
    (updates(Schedd, health=Health.DEGRADED), updates(Schedd, health=Health.BUSY)),
    (updates(Schedd, max_dagman_slots=9, dagmans_others=8), updates(Schedd, dagmans_others=1)),
    (updates(Pool, state=PoolState.DISABLED), updates(Pool, state=PoolState.ENABLED)),
    (updates(Request, overrides={"pools": ["elsewhere"]}), updates(Request, overrides={})),
    (its_schedd_disabled, updates(Round, closed_at=timezone.now())),
    (its_schedd_disabled, lambda: Schedd.objects.filter(name="home").update(state=ScheddState.ENABLED)),
    (nobody_queued, lambda: request_row(QUEUED)),
    (updates(Request, status=RequestStatus.HELD, hold_code="operator", hold_reason="x"),
     updates(Request, status=QUEUED, hold_code="", hold_reason="")),
    (updates(Request, next_attempt_at=timezone.now() + timedelta(hours=1)), updates(Request, next_attempt_at=None)),
    (bucket_empty, lambda: pytest.MonkeyPatch().setattr(clock, "now", lambda: timezone.now() + timedelta(minutes=31))),
]  # fmt: skip


@pytest.fixture
def undo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", clock.now)  # put back, whatever a case sets


@pytest.mark.usefixtures("undo")
@pytest.mark.parametrize(("hinders", "change"), CHANGES)
def test_while_nothing_changes_nothing_of_the_queue_is_read_and_each_change_admits_at_the_next_poll(
    hinders: Callable[[], None], change: Callable[[], object]
) -> None:
    schedd_row()
    request_row(QUEUED, campaign="Run3")
    before = forgotten()
    hinders()
    rest()
    with CaptureQueriesContext(connection) as asked:
        assert admit_if_changed() == 0
    assert len(statements(asked)) <= 3
    assert not any(table in each for each in statements(asked) for table in ('"requests"', '"dags"', "INSERT", "UPDATE"))
    change()
    assert admit_if_changed() == 1, list(Request.objects.values_list("status", "waiting_for"))
    rest()
    admit()
    assert forgotten() == before


def test_what_those_wait_for_who_joined_is_told_by_the_next_poll_and_one_that_left_is_no_reason_to_look_twice() -> None:
    schedd_row()
    all_slots_taken()
    first = request_row(QUEUED)
    rest()
    second = request_row(QUEUED)
    assert admit_if_changed() == 0
    assert set(Request.objects.filter(status=QUEUED).values_list("waiting_for", flat=True)) == {"its turn for a DAG slot"}
    Request.objects.filter(pk=first.pk).update(status=RequestStatus.ABORTED)
    rest()
    second.refresh_from_db()
    assert second.status == QUEUED


def test_an_evaluation_of_one_that_waits_reads_nothing_of_the_others_and_a_pause_that_is_over_is_told() -> None:
    schedd_row()
    request = workflow_row(request_row(QUEUED, next_attempt_at=timezone.now() - timedelta(seconds=1), failed_attempts=3)).request
    request_row(QUEUED, next_attempt_at=timezone.now() + timedelta(hours=1))
    rest()
    for _ in range(2):
        with evaluating(request.pk, owner="test") as evaluation:
            assert evaluation is not None
            with CaptureQueriesContext(connection) as asked:
                handle_queued(evaluation)
    assert len(statements(asked)) <= 3
    assert admit_if_changed() == 1


def test_a_pass_that_does_not_come_to_its_end_is_made_again() -> None:
    schedd_row()
    rest()
    request_row(QUEUED)

    @contextmanager
    def deposed() -> Any:
        with transaction.atomic():
            yield
            raise LeaseLost("somebody else leads")

    with pytest.raises(LeaseLost):
        admit_if_changed(fenced=deposed)
    assert admit_if_changed() == 1


def test_after_a_restart_with_other_settings_the_queue_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    schedd_row()
    request_row(QUEUED)
    settings = conf()
    for module in ("requests_app.limits", "requests_app.admission.queue"):
        monkeypatch.setattr(f"{module}.conf", lambda: settings)
    settings = settings.model_copy(update={"limits": Limits.model_construct(max_active_dags=0)})
    rest()
    settings = settings.model_copy(update={"limits": Limits(max_active_dags=1)})
    assert admit_if_changed() == 1


def test_who_changes_while_a_round_over_many_that_cannot_be_placed_goes_on_is_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "FURTHER", 0)
    limit_set(name="max_active_dags", value=2, actor="t", reason="t")
    schedd_row(state=ScheddState.DISABLED)
    rows = [request_row(QUEUED, priority=priority) for priority in range(9, 0, -1)]
    for _ in range(3):
        assert admit_if_changed() == 0
    schedd_row("another", pool="another")
    Request.objects.exclude(pk=rows[0].pk).update(overrides={"pools": ["nowhere"]})
    rest()
    rows[0].refresh_from_db()
    assert rows[0].status == PLANNING, "the first, which the round had passed over"


def test_what_nobody_told_is_found_by_the_cycle_and_counted() -> None:
    schedd_row()
    all_slots_taken()
    request_row(QUEUED)
    rest()
    before = forgotten()
    DAG.objects.update(status=DAGStatus.COMPLETED)
    Wake.objects.all().delete()  # as if the trigger were missing
    assert admit_if_changed() == 0
    assert admit() == 1
    assert forgotten() == before + 1


@pytest.mark.django_db(transaction=True)
def test_a_change_in_the_middle_of_a_pass_is_seen_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    schedd_row()
    all_slots_taken()
    request_row(QUEUED)
    rest()
    before, reported = forgotten(), queue._report

    def report(*args: Any) -> int:
        aside(updates(DAG, status=DAGStatus.COMPLETED)).join()
        return reported(*args)

    request_row(QUEUED)
    with monkeypatch.context() as patch:
        patch.setattr(queue, "_report", report)
        assert admit_if_changed() == 0
    assert admit_if_changed() == 1
    assert forgotten() == before


@pytest.mark.django_db(transaction=True)
def test_one_that_somebody_keeps_locked_is_come_to_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    schedd_row()
    rest()
    request, admitted = request_row(QUEUED), list[int]()
    Request.objects.update(waiting_for="its turn for a DAG slot")
    with transaction.atomic():
        Request.objects.select_for_update(no_key=True).get(pk=request.pk)
        aside(lambda: admitted.append(admit_if_changed())).join()
    assert admitted == [0]
    assert admit_if_changed() == 1


def test_a_leaders_observation_of_what_does_not_concern_admission_wakes_nobody() -> None:
    schedd_row()
    all_slots_taken()
    request_row(QUEUED)
    rest()
    Schedd.objects.update(asked_at=timezone.now(), duty_cycle=0.5)
    DAG.objects.update(observed_at=timezone.now(), units_done=F("units_done") + 1)
    Request.objects.update(updated_at=timezone.now(), last_error="x")
    assert not Wake.objects.filter(request_id=queue.ADMISSION).exists()
