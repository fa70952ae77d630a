"""The cycle's look at several schedds: one that is silent keeps nobody waiting, and the leader leads on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta

import pytest
from django.utils import timezone

from requests_app.lifecycle import cycle, leader, watching
from requests_app.models import EvaluationLease, Lease, RequestStatus
from sites_app.models import Schedd
from tests.support.rows import request_row, schedd_row
from wms2.adapters import factory
from wms2.adapters.types import OrphanJobs, QueueAnswer, ScheddAd
from wms2.conf import conf
from wms2.errors import LeaseLost, ServiceUnavailable
from wms2.runtime import notify, parallel
from wms2.runtime.notify import EVALUATE_DUE

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 20.0


class Answers:
    """A schedd; a silent one waits until ``asked_long`` before it gives up."""

    asked_long = threading.Event()

    def __init__(self, name: str) -> None:
        self.name = name

    def watch(self, instance: str) -> QueueAnswer:
        if self.name == "silent":
            assert self.asked_long.wait(PATIENCE), "it was waited for"
            raise ServiceUnavailable("htcondor", "watch", "no answer", "timeout")
        return QueueAnswer(ScheddAd(self.name, "25.14.1", 1), [], [])

    def collector_ad(self) -> ScheddAd | None:
        return None

    def orphans(self, known: object) -> list[OrphanJobs]:
        return []

    def remove_all(self, dag_ids: Mapping[int, str], reason: str) -> int:
        if self.name == "deaf":
            assert self.asked_long.wait(PATIENCE), "it was waited for"
            raise ServiceUnavailable("htcondor", "remove_all", "no answer", "timeout")
        self.asked_long.set()
        return len(dag_ids)


@pytest.fixture(autouse=True)
def _two_schedds(monkeypatch: pytest.MonkeyPatch) -> None:
    Answers.asked_long = threading.Event()
    monkeypatch.setattr(factory, "htcondor", lambda name, *_: Answers(name))
    monkeypatch.setattr(parallel, "_PAUSE_SECONDS", 0.05)
    for name in ("silent", "answers"):
        schedd_row(name)


def test_what_one_says_is_written_while_another_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    written, heard = [], watching.schedd_observe

    def then_the_other_gives_up(**answer: object) -> object:
        seen = heard(**answer)
        written.append(list(Schedd.objects.filter(last_answer_at__isnull=False).values_list("name", flat=True)))
        Answers.asked_long.set()
        return seen

    monkeypatch.setattr(watching, "schedd_observe", then_the_other_gives_up)
    with leader.leading() as leadership:
        assert leadership is not None
        watching.schedds_watch(leadership)
    assert written == [["answers"], ["answers"]]
    silent = Schedd.objects.get(name="silent")
    assert (silent.unreachable_since is not None, silent.collector_says) == (True, "the collector has no ad of it any more")
    assert set(Schedd.objects.filter(orphans_asked_at__isnull=False).values_list("name", flat=True)) == {"answers"}


def test_what_must_not_run_is_removed_at_one_while_another_that_has_it_too_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    Schedd.objects.filter(name="silent").update(name="deaf")
    monkeypatch.setattr(watching, "orphans_reported", lambda schedd, *_: {7: "an ended DAG"})
    with leader.leading() as leadership:
        assert leadership is not None
        watching.schedds_watch(leadership)
    assert Answers.asked_long.is_set()
    assert Schedd.objects.filter(orphans_asked_at__isnull=False).count() == 2, "and the cycle goes on"


def test_requests_are_admitted_and_handed_out_while_a_schedd_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    request, handed_out = request_row(RequestStatus.QUEUED), list[tuple[object, ...]]()
    EvaluationLease.objects.create(request=request)

    def send(name: str, args: tuple[object, ...]) -> None:
        if name == EVALUATE_DUE:
            asked = dict(Schedd.objects.values_list("name", "asked_at"))
            request.refresh_from_db()
            handed_out.append((request.status, asked["answers"] is not None, asked["silent"]))
            Answers.asked_long.set()

    monkeypatch.setattr(notify, "_send", send)
    assert cycle.run_cycle(force=True)
    assert handed_out[0] == (RequestStatus.PLANNING, True, None)


def test_a_poll_that_breaks_meanwhile_keeps_no_schedd_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(**asked: object) -> int:
        Answers.asked_long.set()
        raise ZeroDivisionError

    monkeypatch.setattr(cycle, "admit_if_changed", breaks)
    assert not cycle.run_cycle(force=True), "it is told"
    assert not Schedd.objects.filter(asked_at=None).exists()


def test_the_lease_is_renewed_while_a_schedd_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, renew = [], leader.Leadership.renew

    def counted(leadership: leader.Leadership) -> None:
        renew(leadership)
        renewed.append(Lease.objects.get().expires_at)
        if len(renewed) == 3:
            Answers.asked_long.set()

    monkeypatch.setattr(leader.Leadership, "renew", counted)
    with leader.leading() as leadership:
        assert leadership is not None
        watching.schedds_watch(leadership)
    assert len(renewed) >= 3 and renewed == sorted(renewed)


def test_a_leader_that_is_replaced_while_it_waits_writes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    renew = leader.Leadership.renew

    def replaced(leadership: leader.Leadership) -> None:
        Lease.objects.update(epoch=leadership.epoch + 1, expires_at=timezone.now() + timedelta(minutes=1))
        Answers.asked_long.set()
        renew(leadership)

    monkeypatch.setattr(leader.Leadership, "renew", replaced)
    with leader.leading() as leadership, pytest.raises(LeaseLost):
        assert leadership is not None
        watching.schedds_watch(leadership)
    assert Schedd.objects.get(name="silent").asked_at is None


def test_a_question_that_hangs_longer_than_all_its_limits_keeps_the_lease_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "lease_life", lambda: timedelta(0))
    monkeypatch.setattr(leader.Leadership, "renew", lambda leadership: pytest.fail("a leader that hangs leads on"))
    timer = threading.Timer(0.3, Answers.asked_long.set)
    timer.start()
    with leader.leading() as leadership:
        assert leadership is not None
        watching.schedds_watch(leadership)
    timer.join()


def test_a_schedd_and_then_its_collector_may_be_silent_for_their_limits_before_the_lease_is_no_longer_renewed() -> None:
    settings = conf()
    assert leader.lease_life().total_seconds() >= settings.service_timeout_seconds + min(settings.service_timeout_seconds, 10.0)
