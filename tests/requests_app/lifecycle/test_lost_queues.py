"""The loss of a schedd's queue: evidence is kept, nothing happens by itself, and one word of a person settles it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from dags_app.models import DAG, DAGHistory, DAGKind, DAGStatus, WorkUnit
from dags_app.payload.contract import layout
from dags_app.payload.contract.layout import post_name
from dags_app.services.lost_queue import dag_fence_off, lost_queue_of, schedd_confirm_lost
from dags_app.services.stop import halt_file
from requests_app.lifecycle.watching import schedds_to_watch
from requests_app.models import EvaluationLease, Event, HoldCode, Request, RequestStatus
from requests_app.services import request_abort, request_release, request_stop
from requests_app.services.release import ReleaseMode, release_plan
from sites_app.models import QueueChange, Schedd, ScheddState
from tests.support.rest_clients import client_of
from tests.support.scripted import dagman, documents
from tests.support.scripted.branching import once
from tests.support.scripted.dagman import Account
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import all_done, cycles, nothing_is_registered, status
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.adapters.types import DagmanAd, JobStatus, ScheddAd
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry
from wms2.runtime import clock, levels

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/lifecycle/test_lost_queues.py"
#: For the long run.
OTHER_WORDS = pytest.mark.deep(f"{HERE}::test_a_silent_schedd_is_never_suspected_and_the_collectors_word_is_reported")
S = RequestStatus
BY = {"actor": "olga", "reason": "its disk is gone"}


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(World, "effects", nothing_is_registered)
    made = World(world_root, monkeypatch)
    made.furnish()
    return made


def fresh(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


def schedd() -> Schedd:
    return Schedd.objects.get()


def window(world: World) -> None:
    """The suspicion window passes."""
    world.clock.advance(conf().schedd_suspicion_seconds + 1)


def suspicious(world: World) -> None:
    """The suspicion window passes between two cycles."""
    world.cycle()
    window(world)
    world.cycle()


@once
def started(world: World, events: int = 300) -> tuple[Request, Job]:
    """A generation whose DAG runs: one unit for each 100 events."""
    request = world.request(documents.generation(events))
    world.cycle()
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    return request, world.job_of(request)


@once
def suspected(world: World, events: int = 300) -> tuple[Request, Job]:
    """The queue was lost while one of the units was done, and the window is over."""
    request, job = started(world, events)
    world.schedd.unit_done(job, "mg_000000")
    world.schedd.lose_queue()
    suspicious(world)
    return request, job


def alerts(request: Request) -> list[str]:
    return list(Event.objects.filter(request=request, kind="alert").order_by("id").values_list("data__code", flat=True))


def goes_on(world: World, request: Request) -> int:
    """So many units of the DAG with which it goes on are open."""
    cycles(world, 2)
    assert status(request) is S.ACTIVE
    return len(world.job_of(request).open_nodes)


# --- unreachable is not lost


@pytest.mark.parametrize(
    ("has_ad", "words"),
    [
        (True, "the collector has its ad"),
        pytest.param(None, "the collector does not answer either", marks=OTHER_WORDS),
        pytest.param(False, "the collector has no ad", marks=OTHER_WORDS),
    ],
)
def test_a_silent_schedd_is_never_suspected_and_the_collectors_word_is_reported(
    world: World, has_ad: bool | None, words: str
) -> None:
    request, job = started(world)
    world.schedd.silent, world.schedd.collector_has_ad = True, has_ad
    world.cycle()
    silent = DAG.objects.get().unanswered_since
    assert silent is not None
    over = silent + timedelta(seconds=conf().schedd_suspicion_seconds)
    assert EvaluationLease.objects.get().due_at == over, "until then nothing is to be done"
    for _ in range(3):
        window(world)
        world.cycle()
    row = fresh(request)
    due_at = EvaluationLease.objects.get().due_at
    assert due_at is None or due_at > clock.now() + timedelta(seconds=conf().cycle_seconds)
    assert (row.status, row.alert_code) == (S.ACTIVE, "schedd_unreachable")
    assert words in Event.objects.get(request=request, kind="alert").data["message"]
    assert not DAG.objects.filter(suspected_at__isnull=False).exists()

    for silences in (1, 2):  # an alert is over when its cause is gone, and the next time is a new one
        if silences > 1:
            world.schedd.silent = True
            suspicious(world)
        assert fresh(request).alert_code == "schedd_unreachable"
        world.schedd.silent = False
        world.cycle()
        row = fresh(request)
        assert (row.status, row.alert_code, row.alerted_at) == (S.ACTIVE, "", None)
        assert alerts(request) == ["schedd_unreachable"] * silences
    job.held_because = "no power at the site"
    world.cycle()
    assert fresh(request).alert_code == "dagman_held"
    job.held_because = ""
    world.cycle()
    assert fresh(request).alert_code == ""
    world.schedd.end(job, End.FINISHED)
    assert all_done(world, request)


def test_a_unit_whose_dagman_is_held_is_named_until_it_goes_on(world: World) -> None:
    request, _ = started(world)
    seen = DAG.objects.get().observed
    for held in (["mg_000001: Cannot access initial working directory"], []):
        DAG.objects.update(observed=seen | {"units_held": held})
        world.evaluate(request)
        assert (fresh(request).status, fresh(request).alert_code) == (S.ACTIVE, "dagman_held" if held else "")
        assert "units done" in fresh(request).waiting_for, "the others go on"
    said = Event.objects.get(request=request, kind="alert").data["message"]
    assert said == "DAGMan jobs of 1 work unit at schedd@test are held, e.g. mg_000001: Cannot access initial working directory"


def test_a_missing_dag_is_not_suspected_before_the_window_is_over_nor_while_its_directory_is_written_to(world: World) -> None:
    request, job = started(world)
    world.schedd.lose_queue()
    for _ in range(3):
        world.cycle()
        world.clock.advance(conf().schedd_suspicion_seconds / 4)
    assert fresh(request).status == S.ACTIVE
    assert alerts(request) == ["outcome_unknown"]
    with pytest.raises(InvalidTransition, match="1 DAG missing at schedd@test; how they ended is looked for"):
        schedd_confirm_lost(schedd=schedd(), **BY)
    window(world)
    dagman.write_status(job.directory, job.nodes, final=False)
    world.touch(job.directory / layout.OUTER_STATUS)
    world.cycle()
    assert alerts(request) == ["outcome_unknown"], "its DAGMan lives, whatever the queue says"
    window(world)
    world.cycle()
    assert alerts(request) == ["outcome_unknown", "queue_suspected"]


def test_a_host_in_trouble_suspects_nobody_before_a_longer_window_is_over(world: World) -> None:
    levels.use(lambda: levels.KnownLevel(stretch=3.0))
    request, _ = suspected(world)
    assert alerts(request) == ["outcome_unknown"]
    levels.use(levels.KnownLevel)
    world.cycle()
    assert alerts(request) == ["outcome_unknown", "queue_suspected"]


# --- evidence


def test_another_birthdate_is_kept_as_evidence_and_a_dag_that_is_in_a_queue_again_was_never_lost(world: World) -> None:
    request, job = suspected(world)
    change = QueueChange.objects.get()
    assert (change.old_birthdate, change.new_birthdate, change.dagmans_before) == (1, 1001, 1)
    assert change.old_answered_at is not None
    assert AuditEntry.objects.filter(action="schedd_queue_changed", target="schedd@test").count() == 1
    for _ in range(3):
        window(world)
        world.cycle()
    row = fresh(request)
    assert (row.status, row.alert_code) == (S.ACTIVE, "queue_suspected"), "nothing happens by itself"
    assert "has had another queue since" in row.waiting_for
    assert "operator" in row.waiting_for
    assert alerts(request) == ["outcome_unknown", "queue_suspected"]
    assert QueueChange.objects.count() == 1
    check(world)

    job.live = True
    world.cycle()
    dag = DAG.objects.get()
    assert (dag.suspected_at, dag.missing_since, fresh(request).alert_code) == (None, None, "")
    assert DAGHistory.objects.filter(dag=dag, event_type="seen_again").count() == 1
    with pytest.raises(InvalidTransition, match="are in it"):
        schedd_confirm_lost(schedd=schedd(), **BY)

    world.schedd.lose_queue()
    suspicious(world)
    assert fresh(request).alert_code == "queue_suspected"
    world.schedd.put_back_queue()
    world.cycle()
    assert fresh(request).alert_code == "", "nor where the queue is put back"
    world.schedd.end(job, End.FINISHED)
    cycles(world, 2)
    assert DAG.objects.get().status == DAGStatus.COMPLETED


def test_a_dag_that_returns_after_a_worker_died_while_it_was_fenced_off_does_not_stand_still(world: World) -> None:
    """What it merges is refused by the new fence, and its halt file lets no unit begin: it is stopped, and rescued."""
    request, job = suspected(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    assert not dag_fence_off(DAG.objects.get(), transaction.atomic), "and then the worker is killed"
    job.live = True
    world.cycle()
    dag = DAG.objects.get(pk=job.dag_id)
    assert (dag.lost_confirmed_at, fresh(request).status) == (None, S.STOPPING)
    assert goes_on(world, request) == 2
    assert not halt_file(dag).exists()
    kinds = DAG.objects.filter(workflow__request=request).order_by("fence").values_list("kind", flat=True)
    assert list(kinds) == [DAGKind.FRESH, DAGKind.STOP_RESCUE]


def test_a_job_that_the_schedd_forgot_is_suspected_and_a_history_that_comes_late_proves_its_end_after_all(world: World) -> None:
    request, job = started(world)
    world.schedd.history_lags = True
    world.schedd.end(job, End.FINISHED)
    (job.directory / f"{layout.OUTER_DAG}.metrics").unlink()
    suspicious(world)
    assert fresh(request).alert_code == "queue_suspected"
    assert "the schedd's queue is the same as before" in fresh(request).waiting_for
    assert lost_queue_of(schedd()).refusal == ""
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.schedd.history_lags = False
    cycles(world, 2)
    dag = DAG.objects.get()
    assert dag.status == DAGStatus.COMPLETED and "lost" not in dag.outcome


def test_what_an_earlier_submission_left_proves_nothing_of_one_with_the_same_number(world: World) -> None:
    """Numbers begin again in a queue that was lost, and at every schedd: a rescue may get that of its DAG again."""
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=fresh(request), actor="olga", reason="the schedd is set up anew")
    world.cycle()
    assert not job.live
    assert not world.schedd.lose_queue()
    while fresh(request).status != S.ACTIVE:
        world.cycle()
    rescue = world.job_of(request)
    assert (rescue.cluster, rescue.directory) == (job.cluster, job.directory)
    assert world.schedd.lose_queue() == [rescue]
    world.cycle()
    dag = DAG.objects.get(pk=rescue.dag_id)
    assert (dag.status, fresh(request).alert_code) == (DAGStatus.SUBMITTED, "outcome_unknown")
    world.schedd.put_back_queue()
    assert goes_on(world, request) == 2 and fresh(request).alert_code == ""


def test_a_contradiction_takes_nothing_from_an_operators_confirmation(world: World) -> None:
    """A history that is put back says all done; the status file 1 of 3."""
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    metrics = job.directory / f"{layout.OUTER_DAG}.metrics"
    world.schedd.end(job, End.UNFINISHED)
    metrics.unlink()
    cycles(world, 2)
    assert (status(request), request.alert_code) == (S.ACTIVE, "outcome_unknown")
    job.history = None
    world.schedd.lose_queue()
    for _ in range(3):
        window(world)
        world.cycle()
    assert (status(request), request.alert_code) == (S.ACTIVE, "queue_suspected")
    assert not lost_queue_of(schedd()).refusal, "a queue that is lost after it"
    world.schedd.end(job, End.UNFINISHED)
    metrics.unlink()
    cycles(world, 2)
    job.history = None
    schedd_confirm_lost(schedd=schedd(), **BY)
    cycles(world, 2)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.QUEUE_LOST), "a queue that was lost before it"


def test_an_ad_that_says_nothing_of_the_end_contradicts_nothing(world: World) -> None:
    request, job = started(world)
    world.schedd.end(job, End.FINISHED)
    metrics = job.directory / f"{layout.OUTER_DAG}.metrics"
    text = metrics.read_text()
    metrics.unlink()
    assert job.history is not None
    job.history = replace(job.history, job_status=JobStatus.RUNNING)
    cycles(world, 2)
    assert status(request) is S.ACTIVE
    world.schedd.history_lags = True
    metrics.write_text(text)  # a shared file system that was late
    cycles(world, 1)
    assert DAG.objects.get().status == DAGStatus.COMPLETED


# --- the button


def test_without_evidence_the_button_is_refused_and_the_refusal_is_audited(world: World) -> None:
    started(world)
    with pytest.raises(InvalidTransition, match="answers, its queue is the one born 1970-01-01 00:00:01 UTC, and 1 DAG"):
        schedd_confirm_lost(schedd=schedd(), **BY)
    entry = AuditEntry.objects.get(action="schedd_confirm_lost")
    assert (entry.outcome, entry.actor) == ("refused", "olga")
    assert not DAG.objects.filter(lost_confirmed_at__isnull=False).exists()


def test_a_confirmed_loss_holds_the_request_and_a_release_plans_what_is_left(world: World) -> None:
    request, job = suspected(world)
    found = lost_queue_of(schedd())
    assert [row.dag.workflow.request_id for row in found.affected] == [request.request_name]
    assert "status file: 1 of 3 units done" in " ".join(found.words())
    for _ in range(2):
        schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    row = fresh(request)
    assert (row.status, row.hold_code) == (S.HELD, HoldCode.QUEUE_LOST)
    assert "confirmed by olga: its disk is gone" in row.hold_reason
    dag = DAG.objects.get()
    assert (dag.status, dag.outcome["lost"]) == (DAGStatus.REMOVED, True)
    assert WorkUnit.objects.filter(state="done").count() == 1, "the last sweep counted it"
    assert halt_file(dag).exists(), "a DAGMan that lives on unseen starts no further unit"
    assert f'My.WMS2_Fence="{dag.fence + 1}"' in (job.directory / layout.FENCE_INCLUDE).read_text()
    check(world)

    plan = release_plan(row)
    assert (plan.mode, plan.units_done, plan.units_again) == (ReleaseMode.NEXT_ROUND, 1, 2)
    request_release(request=row, actor="olga", reason="the schedd is repaired")
    world.cycle()
    again = world.job_of(request)
    assert again.cluster == job.cluster, "cluster numbers begin again in the new queue"
    assert again.directory != job.directory, "what the lost jobs still write, they write elsewhere"
    assert DAG.objects.order_by("-fence")[0].fence == dag.fence + 2
    dagman.write_manifest(job.directory, "mg_000001", job.fence, Account.RIGHT)
    dagman.write_status(job.directory, dict.fromkeys(job.nodes, dagman.NodeState.DONE), final=True)
    assert all_done(world, request)
    events = DAGHistory.objects.filter(dag=dag).values_list("event_type", flat=True)
    assert [list(events).count(kind) for kind in ("suspected_lost", "lost_confirmed", "lost")] == [1, 1, 1]


def test_a_unit_whose_merge_was_accepted_counts_though_no_status_file_says_so(world: World) -> None:
    request, job = started(world)
    dagman.write_manifest(job.directory, "mg_000001", job.fence, Account.RIGHT)
    for unit, category in (("mg_000001", "success"), ("mg_000002", "transient")):
        verdict = {"final": True, "classification": {"category": category}}
        (job.directory / unit / post_name(layout.MERGE)).write_text(json.dumps(verdict))
    dagman.write_manifest(job.directory, "mg_000002", job.fence, Account.RIGHT)
    world.schedd.lose_queue()
    suspicious(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST
    assert list(WorkUnit.objects.filter(state="done").values_list("name", flat=True)) == ["mg_000001"]
    request_release(request=fresh(request), actor="olga", reason="go on")
    assert goes_on(world, request) == 2


def test_an_account_that_is_wrong_outlives_the_loss(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000", Account.EXTRA)
    world.schedd.silent = True
    world.schedd.lose_queue()
    world.cycle()
    window(world)
    world.touch(*job.directory.glob("workflow.dag.status"), ago=conf().schedd_suspicion_seconds + 1)
    world.cycle()
    schedd_confirm_lost(schedd=schedd(), **BY)
    for _ in range(3):
        world.cycle()
    assert (fresh(request).status, fresh(request).hold_code) == (S.HELD, HoldCode.LEDGER)
    check(world)


def test_the_word_stands_when_the_schedd_falls_silent_after_it(world: World) -> None:
    request, _ = suspected(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.schedd.silent = True
    world.evaluate(request)
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST


# --- a machine that never answers again


def test_a_dead_schedd_is_confirmed_only_after_the_window_and_only_if_its_dagmans_are_quiet(world: World) -> None:
    request, job = started(world)
    world.schedd.silent = True
    world.cycle()
    with pytest.raises(InvalidTransition, match="s only; unreachable is not lost before 900 s"):
        schedd_confirm_lost(schedd=schedd(), **BY)
    window(world)
    world.touch(job.directory / layout.OUTER_STATUS)
    with pytest.raises(InvalidTransition, match="its DAGMans still write into their directories: it runs"):
        schedd_confirm_lost(schedd=schedd(), **BY)
    window(world)
    words = " ".join(schedd_confirm_lost(schedd=schedd(), **BY).words())
    assert "It has been silent since" in words
    assert "the collector has its ad" in words
    world.cycle()
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST

    dagman.write_rescue(job.directory, job.nodes)
    with pytest.raises(InvalidTransition, match="has not said that the lost DAG is gone"):
        request_release(request=fresh(request), actor="olga", reason="go on", mode=ReleaseMode.RESCUE)
    job.live, world.schedd.silent = False, False
    world.cycle()
    assert release_plan(fresh(request)).mode is ReleaseMode.NEXT_ROUND, "late jobs may still write"
    assert release_plan(fresh(request), ReleaseMode.RESCUE).mode is ReleaseMode.RESCUE, "for whoever knows that none does"


def test_requests_that_were_stopping_or_submitting_at_a_dead_schedd_are_settled_too(world: World) -> None:
    stopped, _ = started(world)
    aborted, _ = started(world)
    submitting = world.request(documents.generation(100))
    request_stop(request=fresh(stopped), actor="op", reason="later")
    request_abort(request=fresh(aborted), actor="op", reason="never")
    world.schedd.silent = True
    world.cycle()
    DAG.objects.filter(workflow__request=stopped).update(stop_mode="now")
    window(world)
    world.cycle()
    assert (fresh(stopped).status, fresh(aborted).status) == (S.STOPPING, S.STOPPING)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    assert (fresh(stopped).status, fresh(stopped).hold_code) == (S.HELD, HoldCode.QUEUE_LOST)
    assert fresh(aborted).status == S.ABORTED
    assert fresh(submitting).status == S.QUEUED, "it never was at the schedd"


@pytest.mark.parametrize(("intent", "arrives"), [("abort", S.ABORTED), ("stop", S.HELD)])
def test_a_stop_at_a_schedd_that_is_gone_is_forced_and_what_comes_back_is_removed(
    world: World, intent: str, arrives: RequestStatus
) -> None:
    operator = client_of(User.objects.create_superuser("olga"))
    request, job = started(world)
    address, word = f"/api/v1/requests/{request.request_name}", {"reason": "burnt down"}
    force = {**word, "confirm": request.request_name}
    DAG.objects.update(nodes_running=3, nodes_idle=2)
    begin = (
        partial(operator.delete, f"{address}?reason=x") if intent == "abort" else partial(operator.post, f"{address}/stop", word)
    )
    assert operator.post(f"{address}/force", force).status_code == 409, "nobody has stopped it"
    for _ in range(2):
        (counted,) = begin().json()["removing"]
        assert (counted["schedd"], counted["jobs_idle"], counted["jobs_running"]) == ("schedd@test", 2, 3)
    assert operator.post(f"{address}/force", force).json()["field"] == "insist", "its schedd answers"
    world.schedd.silent = True
    world.cycle()
    assert operator.post(f"{address}/force", {**force, "confirm": "other"}).json()["field"] == "confirm"
    for _ in range(2):
        assert operator.post(f"{address}/force", force).status_code == 202
    world.cycle()
    assert fresh(request).status == arrives
    dag = DAG.objects.get()
    assert (dag.status, dag.outcome["confirmation"]["forced"], dag.outcome["confirmation"]["actor"]) == ("removed", True, "olga")
    assert operator.get(address).json()["removing"] == []
    world.schedd.silent = False
    window(world)
    for _ in range(3):
        world.cycle()
    assert not job.live
    check(world)


def test_a_submission_without_an_answer_at_a_schedd_that_died_is_planned_anew(world: World) -> None:
    request = world.request(documents.generation(100))
    script = world.schedd.script  # its first call looks for the DAG, its second one submits it
    script.meanwhile = lambda: setattr(script, "meanwhile", lambda: script.arm(Mode.LOST))
    world.cycle()
    dag = DAG.objects.get()
    assert (fresh(request).status, dag.submit_intent_at is not None) == (S.PLANNING, True)
    world.schedd.silent = True
    world.schedd.lose_queue()
    world.cycle()
    window(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    assert (fresh(request).status, fresh(request).hold_code) == (S.HELD, HoldCode.QUEUE_LOST)
    assert f"the submission with fence {dag.fence}" in fresh(request).hold_reason
    world.schedd.silent = False
    world.cycle()
    request_release(request=fresh(request), actor="olga", reason="go on")
    assert goes_on(world, request) == 1


# --- it comes back


@once
def returned(world: World) -> tuple[Request, Job]:
    """A DAG given up with its silent schedd, whose machine is there again with the DAG in its queue."""
    request, job = started(world)
    world.schedd.silent = True
    world.cycle()
    window(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST
    world.schedd.silent = False
    return request, job


def test_a_lost_dag_that_comes_back_is_removed_and_never_followed(world: World) -> None:
    request, job = returned(world)
    world.cycle()
    assert not job.live
    assert "its DAG has ended" in job.remove_reason
    assert fresh(request).alert_code == "dag_returned"
    dag = DAG.objects.get()
    assert (dag.status, dag.lost_settled_at) == (DAGStatus.REMOVED, None)
    world.cycle()
    assert DAG.objects.get().lost_settled_at is not None
    assert AuditEntry.objects.filter(action="dag_remove_returned").count() == 1
    request_release(request=fresh(request), actor="olga", reason="go on")
    assert goes_on(world, request) == 3


def test_what_a_schedd_said_before_its_dag_was_given_up_changes_nothing_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, job = started(world)
    world.schedd.silent = True
    world.cycle()
    window(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.schedd.silent = False
    watch = world.schedd.watch

    def overtaken(instance: str) -> tuple[ScheddAd, list[DagmanAd]]:
        answer = watch(instance)
        assert [ad.cluster for ad in answer[1]] == [job.cluster]
        world.evaluate(request)
        return answer

    monkeypatch.setattr(world.schedd, "watch", overtaken)
    world.observe()
    dag = DAG.objects.get()
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST
    assert (dag.status, dag.lost_confirmed_at is not None) == (DAGStatus.REMOVED, True)
    assert not DAGHistory.objects.filter(event_type="seen_again").exists()


def test_it_is_removed_also_when_the_request_has_gone_on_and_the_removal_takes_long(world: World) -> None:
    request, job = returned(world)
    request_release(request=fresh(request), actor="olga", reason="go on elsewhere")
    world.schedd.removes_late = True
    for _ in range(3):
        world.observe()
    assert job.remove_reason
    assert Event.objects.filter(request=request, kind="dag.returned").count() == 1
    world.schedd.removes_late = False
    world.schedd.work()
    assert goes_on(world, request) == 3
    assert not job.live and DAG.objects.get(pk=job.dag_id).lost_settled_at is not None


def test_all_that_come_back_are_removed_by_one_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, calls = [started(world)[1] for _ in range(2)], list[dict[int, str]]()
    DAG.objects.update(status=DAGStatus.REMOVED)
    remove_all = world.schedd.remove_all

    def reported(dag_ids: Mapping[int, str], reason: str) -> int:
        calls.append(dict(dag_ids))
        if len(calls) == 1:
            world.schedd.script.arm(Mode.DOWN)
        return remove_all(dag_ids, reason)

    monkeypatch.setattr(world.schedd, "remove_all", reported)
    world.observe()
    assert all(job.live for job in jobs)
    world.observe()
    assert calls == [{job.cluster: job.dag_id for job in jobs}] * 2, "not once for each"
    assert not any(job.live for job in jobs)
    assert AuditEntry.objects.filter(action="dag_remove_returned").count() == 2


def test_a_schedd_is_asked_for_its_lost_dags_now_and_then_though_it_is_disabled(world: World) -> None:
    request, job = returned(world)
    Schedd.objects.update(state=ScheddState.DISABLED)
    assert schedds_to_watch() == []
    window(world)
    assert schedds_to_watch() == [schedd()]
    world.observe()
    assert not job.live
    world.observe()
    window(world)
    assert schedds_to_watch() == [], "it has said that they are gone"
    assert fresh(request).status == S.HELD


def test_numbers_that_begin_again_do_not_mix_up_dags(world: World) -> None:
    old, job = suspected(world)
    new = world.request(documents.generation(100))
    for _ in range(4):  # until the schedd with another queue is found well again
        world.cycle()
    other = world.job_of(new)
    assert other.cluster == job.cluster
    world.schedd.end(other, End.FINISHED)
    cycles(world, 2)
    assert DAG.objects.get(workflow__request=new).status == DAGStatus.COMPLETED
    assert fresh(old).status == S.ACTIVE, "the other DAG's end proves nothing about it"
    assert lost_queue_of(schedd()).affected


def test_an_old_rescue_file_is_not_used_where_more_is_done_by_now(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=fresh(request), actor="op", reason="pause")
    for _ in range(2):
        world.cycle()
    rescue = world.job_of(request)
    assert rescue.directory == job.directory
    world.schedd.unit_done(rescue, "mg_000001")
    world.schedd.lose_queue()
    suspicious(world)
    schedd_confirm_lost(schedd=schedd(), **BY)
    world.cycle()
    world.cycle()
    with pytest.raises(InvalidTransition, match="there is no rescue file"):
        request_release(request=fresh(request), actor="olga", reason="go on", mode=ReleaseMode.RESCUE)
    request_release(request=fresh(request), actor="olga", reason="go on")
    assert goes_on(world, request) == 1
