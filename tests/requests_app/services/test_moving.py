"""Moving what runs, waits or is held to another schedd; and where placement takes it then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus
from requests_app import services
from requests_app.admission.placement import schedd_for
from requests_app.admission.queue import admit
from requests_app.lifecycle.draining import drains_go_on
from requests_app.models import Request, RequestStatus, RequestTransition, StopIntent
from requests_app.selectors.drains import drain_progress
from requests_app.services import StopMode, request_abort, request_hold, request_move, request_stop
from requests_app.services.dags import dag_move
from requests_app.services.moving import schedd_named
from sites_app.models import Schedd, ScheddState
from sites_app.services import schedd_change_state, schedd_drain
from tests.support.problems import problem
from tests.support.rest_clients import operator, reader
from tests.support.rows import dag_row, pool_row, request_row, schedd_row, workflow_row
from wms2.errors import FieldRefused, InvalidTransition
from wms2.models import AuditEntry

__all__ = ["operator", "reader"]
pytestmark = pytest.mark.django_db
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "its disk is slow"}


@pytest.fixture
def home() -> Schedd:
    return schedd_row("home", submit_root="/of/home")


@pytest.fixture
def near(home: Schedd) -> Schedd:
    return schedd_row("near", submit_root=home.submit_root)


@pytest.fixture
def far(home: Schedd) -> Schedd:
    return schedd_row("far", submit_root="/of/far", max_dagman_slots=5000)


def with_dag(schedd: Schedd, status: S = S.ACTIVE, dag_status: DAGStatus = DAGStatus.RUNNING, **fields: Any) -> Request:
    request = request_row(status)
    place = {"schedd": schedd, "schedd_name": schedd.name, "throttles": {"MergeGroup": 10}}
    dag_row(workflow_row(request), dag_status, **place | fields)
    return request


def queued_at(schedd: Schedd) -> Request:
    """One that goes on from a rescue file there."""
    return with_dag(schedd, S.QUEUED, DAGStatus.STOPPED)


def admitted(request: Request) -> Schedd | None:
    admit()
    request.refresh_from_db()
    return request.reserved_schedd if request.status == S.PLANNING else None


def test_what_runs_is_stopped_to_be_moved_and_the_wish_is_kept_once(home: Schedd, near: Schedd) -> None:
    request = with_dag(home)
    for _ in range(2):
        request_move(request=request, to=near, **BY)
    assert (request.status, request.stop_intent) == (S.STOPPING, StopIntent.MOVE)
    effect_request = {
        "away": home.pk,
        "to": near.pk,
        "to_name": "near",
        "actor": "olga",
        "reason": "its disk is slow",
        "drain": False,
    }
    assert request.moving == effect_request
    dag = DAG.objects.get(workflow__request=request)
    assert (dag.stop_mode, dag.stop_reason) == (StopMode.NOW, "olga: its disk is slow")
    assert RequestTransition.objects.filter(request=request, to_status=S.STOPPING).count() == 1
    request_move(request=request, actor="oscar", reason="elsewhere, rather")
    assert (request.moving["to"], request.moving["actor"]) == (None, "oscar"), "the later wish counts"


def test_a_stop_to_go_on_becomes_a_move_and_a_move_gives_way_to_a_hold(home: Schedd, near: Schedd) -> None:
    request = with_dag(home)
    request_stop(request=request, mode=StopMode.DRAIN, **BY)
    request_move(request=request, **BY)
    assert request.stop_intent == StopIntent.MOVE
    request_hold(request=request, **BY)
    assert request.stop_intent == StopIntent.HOLD
    with pytest.raises(InvalidTransition, match="being stopped already"):
        request_move(request=request, to=near, **BY)
    request_abort(request=request, **BY)
    assert AuditEntry.objects.filter(action="request_move", outcome="refused").count() == 1


def test_a_move_is_refused_in_words_when_nobody_else_could_take_it(home: Schedd) -> None:
    request = with_dag(home)
    with pytest.raises(InvalidTransition, match="No other schedd can take it: no other is known"):
        request_move(request=request, **BY)
    closed = schedd_row("closed", state=ScheddState.DRAINING)
    silent = schedd_row("silent", unreachable_since=timezone.now())
    with pytest.raises(InvalidTransition, match=r"closed: state draining; silent: does not answer"):
        request_move(request=request, **BY)
    for to, why in ((closed, "closed: state draining"), (silent, "silent: does not answer"), (home, "It is at home")):
        with pytest.raises(InvalidTransition, match=why):
            request_move(request=request, to=to, **BY)
    request.refresh_from_db()
    assert (request.status, request.moving) == (S.ACTIVE, {})


@pytest.mark.parametrize("status", [S.NEW, S.SUBMITTED, S.COMPLETED, S.ABORTED, S.VALIDATING_OUTPUTS])
def test_what_neither_runs_nor_waits_to_run_is_not_moved(home: Schedd, near: Schedd, status: S) -> None:
    with pytest.raises(InvalidTransition, match="nothing of it runs or waits"):
        request_move(request=request_row(status), **BY)
    with pytest.raises(InvalidTransition, match="Nothing of it is at a schedd"):
        request_move(request=request_row(S.QUEUED), **BY)


def test_a_schedd_is_named_with_its_pool_where_several_have_the_name(home: Schedd, near: Schedd) -> None:
    assert schedd_named("near") == schedd_named(f"near in {near.pool_id}") == near
    with pytest.raises(FieldRefused, match=f"no schedd is called nowhere; there are .*home in {home.pool_id}"):
        schedd_named("nowhere")


def test_a_moved_rescue_prefers_who_sees_its_directory_and_waits_for_them_to_have_room(
    home: Schedd, near: Schedd, far: Schedd
) -> None:
    request = queued_at(home)
    request_move(request=request, **BY)
    assert (request.status, request.stop_intent) == (S.QUEUED, "")
    Schedd.objects.filter(pk=near.pk).update(max_dagman_slots=1)
    assert admitted(request) is None
    assert "near: 0 DAGs with 0 of 1" in request.waiting_for
    assert "moved away from home by olga: its disk is slow" in request.waiting_for
    Schedd.objects.filter(pk=near.pk).update(max_dagman_slots=500)
    assert admitted(request) == near
    evidence = RequestTransition.objects.filter(request=request, to_status=S.PLANNING).latest("id").evidence
    assert evidence["moved"] == {"from": "home", "to": "near", "by": "olga", "why": "its disk is slow"}


@pytest.mark.parametrize("named", [True, False])
def test_it_goes_where_its_directory_is_not_seen_if_it_is_told_to_or_nobody_else_is_left(
    home: Schedd, near: Schedd, far: Schedd, named: bool
) -> None:
    request = queued_at(home)
    if not named:
        Schedd.objects.filter(pk=near.pk).update(state=ScheddState.DISABLED)
    request_move(request=request, to=far if named else None, **BY)
    assert admitted(request) == far


def test_a_target_that_was_removed_is_named_with_what_to_do(home: Schedd, near: Schedd, far: Schedd) -> None:
    request = queued_at(home)
    request_move(request=request, to=far, **BY)
    far.delete()
    assert admitted(request) is None
    assert request.waiting_for.startswith(
        "another Move, with another target or none: schedd far, where it was to go, was removed"
    )
    request_move(request=request, **BY)
    assert admitted(request) == near


def test_without_a_drain_that_moves_a_rescue_stays_and_with_one_it_leaves_until_that_is_taken_back(
    home: Schedd, far: Schedd
) -> None:
    request = queued_at(home)
    schedd_drain(schedd=home, **BY)
    assert admitted(request) == home
    Request.objects.filter(pk=request.pk).update(status=S.QUEUED)
    schedd_drain(schedd=home, move=True, **BY)
    assert admitted(request) == far
    Request.objects.filter(pk=request.pk).update(status=S.QUEUED)
    Schedd.objects.filter(pk=far.pk).update(state=ScheddState.DISABLED)
    assert admitted(request) == home, "alone it keeps what it has"
    Request.objects.filter(pk=request.pk).update(status=S.QUEUED)
    Schedd.objects.filter(pk=far.pk).update(state=ScheddState.ENABLED)
    schedd_change_state(schedd=home, state=ScheddState.ENABLED, **BY)
    assert admitted(request) == home


@pytest.mark.parametrize("near_too", [True, False])
def test_a_rescue_leaves_a_pool_that_its_request_may_no_longer_go_to_by_itself(
    home: Schedd, near: Schedd, far: Schedd, near_too: bool
) -> None:
    for schedd, pool in ((near, "new" if near_too else "third"), (far, "new")):
        Schedd.objects.filter(pk=schedd.pk).update(pool=pool_row(pool, file_system=home.pool.file_system))
    request = queued_at(home)
    services.request_set_pools(request=request, actor="olga", reason="there", pools=["new"])
    Schedd.objects.filter(pool="new").update(state=ScheddState.DRAINING)
    assert admitted(request) is None
    assert request.waiting_for.endswith("(it is moved away from home by lifecycle: it may go to new only)")
    Schedd.objects.filter(pool="new").update(state=ScheddState.ENABLED)
    assert admitted(request) == (near if near_too else far), "who sees its directory first"
    evidence = RequestTransition.objects.filter(request=request, to_status=S.PLANNING).latest("id").evidence
    assert evidence["moved"]["from"] == "home"


def test_what_was_admitted_to_a_schedd_that_is_drained_is_placed_elsewhere(home: Schedd, near: Schedd) -> None:
    request = request_row(S.QUEUED)
    Schedd.objects.filter(pk=near.pk).update(state=ScheddState.DISABLED)
    assert admitted(request) == home
    schedd_drain(schedd=home, **BY)
    assert drain_progress(home).queued == 1
    Schedd.objects.filter(pk=near.pk).update(state=ScheddState.ENABLED)
    assert schedd_for(request, dag_row(workflow_row(request), DAGStatus.READY)).schedd == near


def test_a_drain_moves_so_many_at_a_time_the_longest_running_first_and_tells_when_it_is_done(home: Schedd, near: Schedd) -> None:
    now = timezone.now()
    requests = [with_dag(home, submitted_at=now - timedelta(hours=hours)) for hours in (1, 3, 2)]
    schedd_drain(schedd=home, move=True, at_once=2, **BY)

    def stopping() -> list[int]:
        rows = {request.pk: number for number, request in enumerate(requests)}
        return sorted(rows[pk] for pk in Request.objects.filter(status=S.STOPPING).values_list("pk", flat=True))

    for _ in range(2):
        drains_go_on(transaction.atomic)
        assert stopping() == [1, 2]
    progress = drain_progress(home)
    assert (progress.left, progress.moving, progress.moved, progress.drained) == (3, 2, 0, False)
    assert progress.words()[0].startswith("3 DAGs left there, moved, 2 at a time; 0 requests queued for it.")
    arrived = requests[1]
    DAG.objects.filter(workflow__request=arrived).update(status=DAGStatus.STOPPED, completed_at=now)
    Request.objects.filter(pk=arrived.pk).update(status=S.ACTIVE, stop_intent="", moving={})
    moved = {"placement": {"moved": {"from": "home"}}, "submitted_at": timezone.now(), "schedd": near, "fence": 2}
    dag_row(arrived.workflow, DAGStatus.RUNNING, round=arrived.workflow.rounds.get(), **moved)
    drains_go_on(transaction.atomic)
    assert stopping() == [0, 2]
    assert drain_progress(home).moved == 1
    DAG.objects.filter(schedd=home).update(status=DAGStatus.COMPLETED, completed_at=timezone.now())
    assert Schedd.objects.get(pk=home.pk).drained_at is None
    drains_go_on(transaction.atomic)
    drains_go_on(transaction.atomic)
    assert AuditEntry.objects.filter(action="schedd_drained", target="home", actor="olga").count() == 1
    home.refresh_from_db()
    assert drain_progress(home).words()[0].startswith("Drained since")
    schedd_change_state(schedd=home, state=ScheddState.ENABLED, **BY)
    assert (home.drained_at, home.drain_at_once, drain_progress(home).words()) == (None, 0, [])


def test_a_drain_stops_nothing_while_nobody_else_can_take_it(home: Schedd) -> None:
    request = with_dag(home)
    schedd_drain(schedd=home, move=True, **BY)
    drains_go_on(transaction.atomic)
    request.refresh_from_db()
    assert request.status == S.ACTIVE
    assert "No other schedd can take it: no other is known." in drain_progress(home).words()


def test_a_drain_does_not_stop_what_would_come_back_there_and_goes_on_with_the_others(home: Schedd, near: Schedd) -> None:
    """One that may go to the pool of the drained schedd alone would be stopped and rescued there again, cycle after cycle."""
    bound = with_dag(home)
    Request.objects.filter(pk=bound.pk).update(overrides={"pools": [home.pool_id]})
    near.pool = schedd_row("other", pool="another").pool
    near.save()
    free = with_dag(home)
    schedd_drain(schedd=home, **BY, move=True)
    drains_go_on(transaction.atomic)
    bound.refresh_from_db()
    free.refresh_from_db()
    assert (bound.status, free.status) == (S.ACTIVE, S.STOPPING)
    with pytest.raises(InvalidTransition, match="of pool another, not of"):
        request_move(request=bound, **BY)


def test_a_drain_goes_on_past_one_that_cannot_be_read(home: Schedd, near: Schedd) -> None:
    bad, good = with_dag(home), with_dag(home)
    Request.objects.filter(pk=bad.pk).update(overrides={"pools": 7})
    schedd_drain(schedd=home, **BY, move=True)
    drains_go_on(transaction.atomic)
    bad.refresh_from_db()
    good.refresh_from_db()
    assert (bad.status, good.status) == (S.ACTIVE, S.STOPPING)
    assert bad.waiting_for.startswith("a repair of WMS2") and "pools" in bad.last_error


def test_a_drain_that_moves_is_no_way_around_the_checks(home: Schedd) -> None:
    schedd_drain(schedd=home, **BY, move=True)
    Schedd.objects.update(onboarded_at=None)
    home.refresh_from_db()
    with pytest.raises(InvalidTransition, match="checks have not passed"):
        schedd_change_state(schedd=home, state=ScheddState.ENABLED, **BY)


def test_the_end_of_a_drain_is_told_by_the_pace_so_far(home: Schedd) -> None:
    now = timezone.now()
    with_dag(home, submitted_at=now - timedelta(hours=2), units_done=2, total_work_units=6)
    schedd_drain(schedd=home, **BY)
    end = drain_progress(home).expected_end
    assert end is not None
    assert timedelta(hours=3.9) < end - now < timedelta(hours=4.1)
    with_dag(home, submitted_at=now, units_done=0)
    assert drain_progress(home).expected_end is None, "nobody can tell"


def test_a_dag_is_moved_with_its_request_and_only_while_it_runs(home: Schedd, near: Schedd) -> None:
    request = with_dag(home)
    dag = DAG.objects.get(workflow__request=request)
    for _ in range(2):
        dag_move(dag=dag, to=near, mode=StopMode.DRAIN, **BY)
    request.refresh_from_db()
    assert (request.stop_intent, DAG.objects.get(pk=dag.pk).stop_mode) == (StopIntent.MOVE, StopMode.DRAIN)
    dag.status = DAGStatus.STOPPED
    dag.save()
    with pytest.raises(InvalidTransition, match="not in the queue"):
        dag_move(dag=dag, **BY)


def test_moves_and_drains_over_rest(operator: APIClient, reader: APIClient, home: Schedd, near: Schedd) -> None:
    request = with_dag(home)
    address = f"/api/v1/requests/{request.request_name}/move"
    problem(operator.post(address, {"reason": "why", "to": "nowhere"}), 400, "invalid", field="to")
    assert operator.post(address, {"reason": "why", "to": "near"}).json()["status"] == "stopping"
    for _ in range(2):
        body = operator.post("/api/v1/schedds/home/drain", {"reason": "why", "move": True, "at_once": 3})
        assert body.status_code == 202
    body = reader.get("/api/v1/schedds/home/drain").json()
    reported = [body[name] for name in ("name", "state", "drain_actor", "drain_reason", "at_once", "left", "drained")]
    assert reported == ["home", "draining", "olga", "why", 3, 1, False]


def test_how_far_a_drain_is_stands_on_the_schedds_page(admin_client: Client, home: Schedd, near: Schedd) -> None:
    with_dag(home)
    schedd_drain(schedd=home, move=True, **BY)
    page = admin_client.get(f"/admin/sites_app/schedd/{home.pk}/change/").content.decode()
    assert "1 DAG left there, moved, 1 at a time; 0 requests queued for it." in page
    assert "left there" not in admin_client.get(f"/admin/sites_app/schedd/{near.pk}/change/").content.decode()
