"""The feed: what is committed has its place once, in order, whatever order transactions end in; what is told, and what stays."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from dags_app.models import DAG, DAGStatus
from outputs_app.models import BlockStatus, Effect, EffectState, ProcessingBlock
from requests_app import feed
from requests_app.feed import Wanted, emit_event, publish, read
from requests_app.models import Event, EventFeed, Request, RequestStatus, Round
from requests_app.states import transition
from sites_app.models import Schedd, Site
from tests.support.locking import aside, paused
from tests.support.rows import new_block, new_effect, request_row, schedd_row
from wms2.audit import audit
from wms2.errors import EventsGone

EVERYTHING = Wanted()
_TOLD = "INSERT INTO events (kind, data, at) VALUES (%s, '{}', clock_timestamp())"


def kinds(after: int | None = None, wanted: Wanted = EVERYTHING) -> list[str]:
    return [event[2] for event in read(wanted, after).events]


@pytest.mark.django_db(transaction=True)
def test_an_event_that_is_committed_late_is_not_missed_and_delays_no_other() -> None:
    with paused(_TOLD, "late"):  # it has its row's id already
        emit_event("early")
        page = read(EVERYTHING, None)
        assert [event[2] for event in page.events] == ["early"], "a transaction that goes on for hours holds up nobody else's"
    with transaction.atomic():
        emit_event("second")
    assert kinds(page.last_id) == ["second"]
    with paused(_TOLD, "late too"):
        before = read(EVERYTHING, page.last_id).last_id
        emit_event("third")
    assert kinds(before) == ["third"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(3))
def test_readers_see_every_event_once_in_order_while_writers_commit_in_any_order(seed: int) -> None:
    writers, each, chance = 5, 25, random.Random(seed)
    plans = [[(chance.random() * 0.01, chance.random() < 0.2) for _ in range(each)] for _ in range(writers)]
    committed: list[set[tuple[int, int]]] = [set() for _ in range(writers)]
    seen: list[list[tuple[Any, ...]]] = [[], [], []]
    over = threading.Event()

    def write(writer: int) -> None:
        for number, (pause, given_up) in enumerate(plans[writer]):
            with transaction.atomic():
                emit_event("test", writer=writer, number=number)
                time.sleep(pause)  # others take later ids and commit before
                transaction.set_rollback(given_up)
            if not given_up:
                committed[writer].add((writer, number))

    def follow(reader: int) -> None:
        after, last_look = 0, False
        while not last_look:
            last_look = over.is_set()
            page = read(Wanted(limit=7 + reader), after)
            seen[reader] += page.events
            last_look = last_look and not page.events
            after = page.last_id

    followers = [aside(lambda reader=reader: follow(reader)) for reader in range(len(seen))]
    threads = [aside(lambda writer=writer: write(writer)) for writer in range(writers)]
    for thread in threads:
        thread.join()
    while Event.objects.filter(position=None).exists():  # who finds a reader at it leaves it to that one
        publish()
    over.set()
    for thread in followers:
        thread.join()
    for events in seen:
        assert [event[0] for event in events] == list(range(1, len(events) + 1)), "rising, without holes, each once"
        reported = [(event[4]["writer"], event[4]["number"]) for event in events]
        assert set(reported) == set().union(*committed) and len(reported) == len(set(reported)), (
            "what was committed, all of it, once"
        )
        for writer in range(writers):
            own = [number for who, number in reported if who == writer]
            assert own == sorted(own), "what was written after another's commit comes after it"


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_was_away_goes_on_where_it_was_and_one_that_cannot_is_told() -> None:
    emit_event("first")
    left = read(EVERYTHING, None).last_id
    for number in range(12):
        emit_event(f"later.{'a' * number}")
    pages = [read(Wanted(limit=5), left)]
    while pages[-1].events:
        pages.append(read(Wanted(limit=5), pages[-1].last_id))
    assert [event[0] for page in pages for event in page.events] == list(range(left + 1, left + 13))
    Event.objects.filter(position__lte=left + 3).delete()
    with pytest.raises(EventsGone, match=f"{left + 3} is the oldest id"):
        read(EVERYTHING, left)
    assert len(read(EVERYTHING, left + 3).events) == len(read(EVERYTHING, None).events) == 9
    with pytest.raises(EventsGone, match="another database"):
        read(EVERYTHING, left + 13)


@pytest.mark.django_db
def test_a_filter_lets_readers_go_on_past_what_they_do_not_want() -> None:
    mine = request_row(RequestStatus.QUEUED)
    emit_event("alert", mine)
    emit_event("other")
    emit_event("alert", request_row(RequestStatus.QUEUED))
    page = read(Wanted(kinds=("other",)), None)
    assert [event[2] for event in page.events] == ["other"]
    assert page.last_id == 3 and not read(Wanted(kinds=("other",)), page.last_id).events
    assert [event[3] for event in read(Wanted(("alert",), mine), None).events] == [mine.request_name]


@pytest.mark.django_db
def test_nobody_changes_an_event() -> None:
    emit_event("once")
    publish()
    for change in ({"kind": "twice"}, {"data": {"a": 1}}, {"position": 7}, {"position": None}):
        with pytest.raises(DatabaseError, match="only appended"), transaction.atomic():
            Event.objects.update(**change)


@pytest.mark.django_db
def test_places_are_given_in_portions_and_nothing_is_written_when_there_is_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PORTION", 2)
    for number in range(5):
        emit_event("test", number=number)
    assert [publish() for _ in range(4)] == [True, True, True, False]
    assert [event[4]["number"] for event in read(EVERYTHING, None).events] == list(range(5))


@pytest.mark.django_db(transaction=True)
def test_what_it_costs(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):  # nothing is without a place: what each poll of the life cycle pays
        assert not publish()
    for number in range(100):
        emit_event("test", number=number)
    with django_assert_num_queries(7):  # that; BEGIN; the feed's row, made if missing; its lock; places; the call; COMMIT
        assert publish()
    with django_assert_num_queries(4):  # nothing without a place; how far it goes; the page; what is gone by now
        assert len(read(EVERYTHING, 50).events) == 50


def of(request: Request) -> list[tuple[str, Any]]:
    return [(event[2], event[4]) for event in read(Wanted(request=request), None).events]


@pytest.mark.django_db
def test_a_kind_of_which_there_is_none_costs_no_more_with_more_events() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO events (kind, data, at, position) "
            "SELECT 'request.status', '{}', now(), n FROM generate_series(1, 20000) n"
        )
        cursor.execute("ANALYZE events")
    EventFeed.objects.create(last=20_000)
    with CaptureQueriesContext(connection) as asked:
        assert not read(Wanted(("alert_over",)), 0).events
    (query,) = (each["sql"] for each in asked if "'alert_over'" in each["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {query}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Removed by Filter" not in plan, plan


@pytest.mark.django_db
def test_the_life_of_a_request_its_rounds_dags_and_blocks_is_told_by_whoever_writes_them() -> None:
    block = new_block()
    request, dag = block.workflow.request, block.workflow.dags.get()
    dags = DAG.objects.filter(pk=dag.pk)
    dags.update(status=DAGStatus.HALTED)
    dags.update(nodes_running=3)  # nothing to tell
    transition(request, RequestStatus.STOPPING, actor="olga", reason="to look at it", stop_intent="hold")
    ProcessingBlock.objects.update(dbs_block_closed=True, status=BlockStatus.ARCHIVED, no_tape="none", sealed_at=dag.created_at)
    Round.objects.update(closed_at=dag.created_at)
    reported = of(request)
    assert [(kind, data.get("to")) for kind, data in reported] == [
        ("round.begin", None), ("dag.status", "running"), ("dag.status", "halted"), ("request.status", "stopping"),
        ("block.registered", None), ("block.status", "archived"), ("round.end", None),
    ]  # fmt: skip
    assert reported[2][1] == {
        "from": "running", "to": "halted", "id": str(dag.pk), "kind": "fresh", "round_id": dag.round_id, "schedd_name": "",
        "dagman_cluster_id": dag.dagman_cluster_id,
    }  # fmt: skip


@pytest.mark.django_db
def test_effects_that_need_an_operator_verbs_sites_and_schedds_are_told() -> None:
    request = request_row(RequestStatus.ACTIVE)
    effect = Effect.objects.filter(pk=new_effect(request=request).pk)
    for state in (EffectState.CLAIMED, EffectState.PENDING, EffectState.DEAD, EffectState.PENDING):
        effect.update(state=state, claim_expires_at=request.created_at)
    audit(actor="olga", action="request_hold", target=request.request_name, reason="to look at it")
    assert [(kind, data.get("to"), data.get("actor")) for kind, data in of(request)] == [
        ("effect.state", "dead", None),
        ("effect.state", "pending", None),
        ("audit", None, "olga"),
    ]
    Site.objects.create(name="T2_XX_Yonder")
    Site.objects.filter(name="T2_XX_Yonder").update(status="draining")
    Schedd.objects.filter(pk=schedd_row().pk).update(state="draining")
    audit(actor="unknown", action="sign_in_braked", target="10.1.2.3", target_type="address")
    assert kinds()[-2:] == ["site.status", "schedd.state"], "and who fails to sign in is nobody's business"
