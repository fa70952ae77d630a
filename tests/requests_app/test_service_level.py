"""Levels of the service, the switch of new work, patience under trouble of one's own host."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from outputs_app.models import EffectState
from requests_app import service_level
from requests_app.admission.queue import admit, admit_if_changed
from requests_app.lifecycle.cycle import run_cycle
from requests_app.models import EvaluationLease, Event, Lease, Request, RequestStatus, ServiceLevel
from requests_app.service_level import (
    FALLS,
    RISES,
    SHORT_CYCLE_SECONDS,
    Judged,
    judge,
    level,
    new_work_stop,
    no_new_work,
    read,
    service_judge,
    service_rows,
    signals,
    stretch_of,
    troubled,
)
from sites_app.models import Schedd
from tests.support.rows import new_effect, request_row, schedd_row
from wms2.celery import app
from wms2.conf import conf
from wms2.models import AuditEntry, Wake, WorkerPool
from wms2.runtime import clock, levels, periodic
from wms2.runtime.levels import CLOSES_AT, EASED, KnownLevel, Level

QUEUED = RequestStatus.QUEUED
CALM = {"cycle": 0.1, "evaluations": 0.0, "effects": 0.0, "database": 0.1, "broker": 0.0, "schedds": 0.0}
pressures = st.floats(0, 20)
RANK = {each: number for number, each in enumerate(Level)}


def after(pressures: list[float], now: Judged = Judged(Level.NORMAL)) -> list[Judged]:  # noqa: B008  frozen
    said = []
    for pressure in pressures:
        now = judge(now, pressure)
        said.append(now)
    return said


# --- the rule


@given(st.lists(pressures, max_size=60))
def test_a_level_changes_only_after_enough_cycles_that_say_so_and_falls_by_one(seen: list[float]) -> None:
    said = [Judged(Level.NORMAL), *after(seen)]
    for index in range(1, len(said)):
        before, now = RANK[said[index - 1].level], RANK[said[index].level]
        if now > before:
            assert index >= RISES
            assert all(pressure >= (1, CLOSES_AT)[before] for pressure in seen[index - RISES : index])
        if now < before:
            assert now == before - 1
            assert all(pressure < EASED * (1, CLOSES_AT)[before - 1] for pressure in seen[index - FALLS : index])


@given(st.sampled_from(Level), pressures)
def test_whatever_lasts_ends_in_a_level_that_stays(begin: Level, pressure: float) -> None:
    said = after([pressure] * 20, Judged(begin))
    assert len({each.level for each in said[-10:]}) == 1
    last = RANK[said[-1].level]
    assert (pressure >= CLOSES_AT) <= (last == 2)
    assert (pressure < EASED) <= (last == 0)


@given(st.sampled_from([Level.STRAINED, Level.CLOSED]), st.lists(st.floats(0, 1), min_size=5, max_size=50))
def test_what_swings_about_a_threshold_changes_nothing(begin: Level, swings: list[float]) -> None:
    entered = 1 if begin is Level.STRAINED else CLOSES_AT
    around = [entered * (EASED + 0.01 + swing * (1 - EASED)) for swing in swings]
    assert {each.level for each in after(around, Judged(begin))} == {begin}


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 50)), max_size=40))
def test_patience_has_bounds_and_a_calm_host_loses_it_step_by_step(seen: list[tuple[float, float, float]]) -> None:
    score = 0
    for late, jump, load in seen:
        before = score
        score, why = troubled(score, late_cycles=late, jump_seconds=jump, load_per_cpu=load)
        assert 1 <= stretch_of(score) <= 3
        assert (score > before or before == 8) if why else score == max(0, before - 1)


def test_a_host_that_hung_is_patient_at_once() -> None:
    score, why = troubled(0, late_cycles=20.0, jump_seconds=0.0, load_per_cpu=0.1)
    assert (stretch_of(score), why) == (2.0, ["the last cycle began 20.0 cycles too late"])


# --- the switch


@pytest.mark.django_db
def test_with_new_work_switched_off_nothing_is_admitted_and_each_request_says_why() -> None:
    schedd_row()
    request = request_row(QUEUED)
    new_work_stop(service=service_rows().get(), actor="eva", reason="the storage moves")
    assert admit() == 0
    request.refresh_from_db()
    assert (request.status, request.waiting_for) == (QUEUED, "new work is switched off by eva: the storage moves")
    service_level.new_work_allow(service=service_rows().get(), actor="eva", reason="moved")
    assert admit() == 1
    assert [entry.action for entry in AuditEntry.objects.filter(target="level").order_by("id")] == [
        "new_work_stop", "new_work_allow",
    ]  # fmt: skip


# --- the level


@pytest.mark.django_db
def test_an_overload_closes_and_opens_again_by_itself() -> None:
    """Seen from outside: requests that wait to be looked at for hours close it, and looking at them opens it."""
    schedd_row()
    request = request_row(QUEUED)
    lease = EvaluationLease.objects.create(request=request, due_at=clock.now() - timedelta(hours=2))
    seen: list[str] = []

    def cycles(number: int) -> None:
        for _ in range(number):
            measured = CALM | {"evaluations": signals(clock.now(), 0.1)["evaluations"]}
            service_judge(measured, late_cycles=0, jump_seconds=0, fenced=transaction.atomic)
            seen.append(level())

    cycles(RISES)
    assert level() is Level.CLOSED
    assert no_new_work() == "the service is overloaded and closed for new work: evaluations"
    assert admit() == 0
    EvaluationLease.objects.filter(pk=lease.pk).update(due_at=None)
    cycles(2 * FALLS)
    assert (level(), no_new_work()) == (Level.NORMAL, "")
    assert admit() == 1
    assert seen == ["normal", *["closed"] * 3, *["strained"] * 3, "normal"]
    changes = Event.objects.filter(kind="service.level").order_by("id")
    assert [(each.data["from"], each.data["to"]) for each in changes] == [
        ("normal", "closed"), ("closed", "strained"), ("strained", "normal"),
    ]  # fmt: skip


@pytest.mark.django_db
def test_while_closed_a_cycle_with_other_numbers_writes_no_row_of_the_queue() -> None:
    schedd_row(name="full", health="busy", health_reason="duty cycle 0.99", duty_cycle=0.99)

    def cycle(**measured: float) -> list[tuple[str, Any]]:
        service_judge(CALM | measured, late_cycles=0, jump_seconds=0, fenced=transaction.atomic)
        admit_if_changed()
        return list(Request.objects.order_by("pk").values_list("waiting_for", "updated_at"))

    for _ in range(RISES):
        cycle(evaluations=12.0)
    request_row(QUEUED), request_row(QUEUED)
    first = cycle(evaluations=12.0, schedds=1.0)
    assert {words for words, _ in first} == {"the service is overloaded and closed for new work: evaluations"}
    Schedd.objects.update(health_reason="duty cycle 1.0")
    assert cycle(evaluations=12.4, effects=0.8, schedds=0.9) == first
    assert "evaluations at 12.4 times its limit" in ServiceLevel.objects.get().reason
    assert {words for words, _ in cycle(evaluations=12.0, effects=6.0)} == {
        "the service is overloaded and closed for new work: evaluations and effects"
    }


@pytest.mark.django_db
def test_strained_names_what_is_behind_it_and_follows_that() -> None:
    now = clock.now()

    def judged(**measured: float) -> str:
        for _ in range(RISES):
            service_judge(CALM | measured, late_cycles=0, jump_seconds=0, fenced=transaction.atomic)
        return read().why

    WorkerPool.objects.filter(queue="effects").update(state="stopped", since=now, reason="eva: the database moves")
    why = judged(effects=1.5)
    assert why.startswith("effects at 1.5 times its limit (worker pool effects: stopped since ")
    assert why.endswith("it takes no tasks until it is resumed (eva: the database moves))")
    schedd_row(name="full", health="busy", health_reason="duty cycle 0.99", duty_cycle=0.99)
    assert judged(schedds=1.0) == "schedds at 1.0 times its limit (schedd full: duty cycle 0.99)", "the cause is another now"
    assert judged(schedds=1.0, database=2.0).startswith("database at 2.0 times its limit, schedds at 1.0")


@pytest.mark.django_db
def test_each_signal_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now()
    assert {name for name, value in signals(now, 0.0).items() if value >= 1} == set()
    assert signals(now, 120.0)["cycle"] == 120 / max(conf().cycle_seconds, SHORT_CYCLE_SECONDS)
    monkeypatch.setattr(service_level, "broker_answers", lambda: False)
    assert signals(now, 0.0)["broker"] == 1.0
    schedd_row(name="one", health="busy", duty_cycle=0.99)
    schedd_row(name="two", health="busy", duty_cycle=0.2)
    assert signals(now, 0.0)["schedds"] == 0.5, "one that is full of DAGs and keeps up is no trouble"


@pytest.mark.django_db(transaction=True)
def test_a_cycle_judges_and_strained_cycles_are_further_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_level, "broker_answers", lambda: False)
    for _ in range(RISES):
        assert run_cycle(force=True)
    row = ServiceLevel.objects.get()
    assert (row.level, row.reason) == (Level.STRAINED, "broker at 1.0 times its limit")
    lease = Lease.objects.get(name="lifecycle")
    pause = service_level.conf().cycle_seconds
    begun = clock.now().timestamp() - 1.5 * pause
    Lease.objects.filter(name="lifecycle").update(data=lease.data | {"cycle_started_epoch": begun})
    assert not run_cycle()
    ServiceLevel.objects.update(level=Level.NORMAL)
    assert run_cycle()


@pytest.mark.django_db(transaction=True)
def test_a_leader_that_was_away_judges_others_more_patiently_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    run_cycle(force=True)
    lease = Lease.objects.get(name="lifecycle")
    away = clock.now().timestamp() - 3600
    Lease.objects.filter(name="lifecycle").update(data=lease.data | {"cycle_started_epoch": away})
    run_cycle(force=True)
    assert read().stretch == 2.0
    assert "cycles too late" in ServiceLevel.objects.get().trouble_reason
    for _ in range(4):
        run_cycle(force=True)
    assert read().stretch == 1.0


def test_what_can_wait_is_skipped_while_strained(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @app.task(name="outputs_app.tasks.of_a_test")
    def task() -> None:
        done.append("done")

    monkeypatch.setitem(periodic.DECLARED, task.name, periodic.Declared(task.name, "effects", "", None, can_wait=True))
    levels.use(lambda: KnownLevel(Level.STRAINED))
    task()
    assert done == []
    levels.use(KnownLevel)
    task()
    assert done == ["done"]


@pytest.mark.django_db
def test_a_level_that_cannot_be_read_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    ServiceLevel.objects.create(level=Level.STRAINED, reason="effects", trouble=4)
    levels.use(read)
    assert (levels.known().level, levels.stretched(10)) == (Level.STRAINED, 20.0)

    def silent() -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(levels, "_read", silent)
    monkeypatch.setattr(levels, "CACHE_SECONDS", 0.0)
    assert levels.known().level is Level.STRAINED


@pytest.mark.django_db
def test_what_no_worker_could_do_now_is_no_overload() -> None:
    """Registrations behind one that waits for a person, or of a former epoch; a wake of what is being evaluated."""
    now = clock.now()
    request = request_row(RequestStatus.ACTIVE)
    dead = new_effect(request=request, state=EffectState.DEAD)
    new_effect(request=request, next_attempt_at=now - timedelta(days=3)).depends_on.add(dead)
    new_effect(request=request, next_attempt_at=now - timedelta(days=3), epoch=request.epoch - 1)
    EvaluationLease.objects.create(request=request, due_at=now + timedelta(hours=1), expires_at=now + timedelta(hours=1))
    Wake.objects.create(request_id=request.pk, why="effect done")
    Wake.objects.update(at=now - timedelta(hours=2))
    measured = signals(now, 0.0)
    assert (measured["effects"], measured["evaluations"]) == (0.0, 0.0)
    new_effect(request=request, next_attempt_at=now - timedelta(hours=2))
    assert signals(now, 0.0)["effects"] == pytest.approx(2.0)
