"""What others do in ReqMgr2 to requests of ours happens here, once, in the name of ``reqmgr2``; what operators do here stands."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.models import WorkUnit, WorkUnitState
from outputs_app.models import REPORTS, Effect, EffectKind, EffectState, OutputDataset, OutputFile
from requests_app.models import HoldCode, Lease, ReqMgr2Request, Request, RequestStatus, RequestTransition
from requests_app.reqmgr2 import following
from requests_app.reqmgr2.following import POLL, reqmgr2_poll
from requests_app.selectors.reqmgr2 import reqmgr2_state
from requests_app.services import (
    request_abort,
    request_clean,
    request_complete,
    request_fail,
    request_hold,
    request_keep,
    request_release,
    request_restart,
    request_set_priority,
    request_submit,
)
from requests_app.services.lost_files import lost_files_make_again, lost_files_plan
from requests_app.work.spec import spec_of
from sites_app.bans import bans_active
from tests.support.faults import fault
from tests.support.reqmgr2_world import Outside, taken
from tests.support.scripted import documents
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import cycles, fresh, run_on
from tests.support.scripted.schedd import End
from tests.support.scripted.tour import until
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import StaleState
from wms2.models import AuditEntry
from wms2.runtime.circuits import circuits

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def running(world: World, outside: Outside, events: int = 300) -> Request:
    """Its DAG runs, three units of it."""
    request = taken(outside.stage(events=events))
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    world.effects()
    return request


def poll() -> None:
    reqmgr2_poll(force=True)


def test_what_is_aborted_there_stops_here_and_is_left_to_move_on(world: World, outside: Outside) -> None:
    request = running(world, outside)
    outside.put(request.request_name, RequestStatus="aborted")
    poll()
    assert fresh(request).status == S.STOPPING
    last = RequestTransition.objects.filter(request=request, to_status=S.STOPPING).get()
    assert (last.actor, last.reason) == ("reqmgr2", "ReqMgr2 has it as aborted")
    outside.habits(settle_seconds=0.0)
    world.clock.advance(3 * 3600)
    poll()
    assert outside.status(request.request_name) == "aborted-completed"
    (row,) = reqmgr2_state().problems
    ahead = "ReqMgr2 is ahead by 3 hours: it has it as aborted-completed, and here it is Stopping"
    assert row.problem.startswith(ahead), "an operator sees how far"
    cycles(world, 3)
    assert fresh(request).status == S.ABORTED
    poll()
    assert outside.status(request.request_name) == "aborted-completed"
    assert ReqMgr2Request.objects.get().over
    assert not reqmgr2_state().problems


def test_an_end_that_was_not_seen_as_it_came_is_an_end(world: World, outside: Outside) -> None:
    ends = ("aborted-completed", "rejected", "aborted-archived")
    names = {outside.stage(): end for end in ends}
    requests = [taken(name) for name in names]
    for name, end in names.items():
        outside.simulators.application.reqmgr2.store.put({**outside.simulators.request(name), "RequestStatus": end})
    poll()
    assert [fresh(request).status for request in requests] == [S.ABORTED] * 3


def test_what_is_forced_completes_with_what_is_done_also_while_it_is_held_and_without_work_is_aborted(
    world: World, outside: Outside
) -> None:
    request, paused = taken(outside.stage()), taken(outside.stage())
    world.cycle()
    world.schedd.unit_done(world.job_of(request), "mg_000000")
    request_hold(request=fresh(paused), **BY)
    cycles(world, 3)
    assert (fresh(request).status, fresh(paused).status) == (S.ACTIVE, S.HELD)
    idle = taken(outside.stage())
    outside.put(request.request_name, RequestStatus="force-complete")
    for name in (paused.request_name, idle.request_name):
        document = outside.simulators.request(name)
        outside.simulators.application.reqmgr2.store.put({**document, "RequestStatus": "completed"})
    poll()
    assert (fresh(request).complete_early, fresh(idle).status) == (True, S.ABORTED)
    for _ in range(8):
        world.cycle()
        world.clock.advance(60)
        if {fresh(request).status, fresh(paused).status} == {S.COMPLETED}:
            break
    world.effects()
    check(world)
    assert (request.status, paused.status) == (S.COMPLETED, S.COMPLETED)
    done = WorkUnit.objects.filter(state=WorkUnitState.DONE).values_list("workflow__request", "name")
    assert list(done) == [(request.request_name, "mg_000000")]
    assert not world.schedd.live
    assert outside.steps(request.request_name)[-2:] == ["force-complete", "completed"]
    assert not OutputDataset.objects.exclude(workflow__request__in=(request, paused)).exists()


def test_priority_and_site_lists_are_taken_as_they_change_and_operators_changes_stand(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a poll that stood still bring back what another has followed since."""
    request = running(world, outside, events=600)  # more than one round: it is running-open
    name = request.request_name
    outside.put(name, RequestPriority=222_222, SiteWhitelist=["T1_US_FNAL"], SiteBlacklist=["T2_US_Purdue"])
    poll()
    assert fresh(request).priority == 222_222
    workflow = type(request.workflow).objects.get(request=request)
    assert spec_of(workflow).site_whitelist == ("T1_US_FNAL",)
    assert {ban.site_id for ban in bans_active()} == {"T2_CH_CERN", "T2_US_Purdue"}
    assert AuditEntry.objects.filter(action="request_set_sites", actor="reqmgr2").count() == 1
    request_set_priority(request=request, priority=5, **BY)
    poll()
    assert fresh(request).priority == 5, "what an operator did later stands"
    outside.put(name, SiteWhitelist=["T1_US_FNAL", "T2_CH_CERN"], RequestPriority=333_333)
    poll()
    assert (fresh(request).priority, {ban.site_id for ban in bans_active()}) == (333_333, {"T2_US_Purdue"})
    entries = AuditEntry.objects.count()
    poll()
    assert AuditEntry.objects.count() == entries, "nothing has changed"

    real = following.Seen.of
    outside.put(name, RequestPriority=7, SiteWhitelist=["T1_US_FNAL"])

    def stands_still(document: Any) -> Any:
        monkeypatch.setattr(following.Seen, "of", real)
        outside.put(name, RequestPriority=9, SiteWhitelist=["T2_CH_CERN"])
        poll()
        assert fresh(request).priority == 9
        return real(document)

    monkeypatch.setattr(following.Seen, "of", stands_still)
    poll()
    assert fresh(request).priority == 9, "what it had read is older"
    assert spec_of(type(request.workflow).objects.get(request=request)).site_whitelist == ("T2_CH_CERN",)
    assert ReqMgr2Request.objects.get().priority == 9


def test_a_change_that_cannot_be_followed_is_reported_and_one_at_a_wrong_moment_is_followed_later(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = running(world, outside, events=600)
    outside.put(request.request_name, RequestPriority=222_222)
    with monkeypatch.context() as patch:

        def changed(**_: Any) -> None:
            raise StaleState("it changed meanwhile")

        patch.setattr(following, "request_set_priority", changed)
        poll()
    assert "changed meanwhile" in ReqMgr2Request.objects.get().problem
    poll()
    assert (fresh(request).priority, ReqMgr2Request.objects.get().problem) == (222_222, "")
    outside.put(request.request_name, SiteWhitelist=["T2_XX_Nowhere"])
    poll()
    for _ in range(2):
        assert "T2_XX_Nowhere is not a site of CRIC" in ReqMgr2Request.objects.get().problem
        poll()
    assert fresh(request).status == S.ACTIVE
    assert AuditEntry.objects.filter(action="request_set_sites").count() == 1, "refused once"
    outside.put(request.request_name, SiteWhitelist=["T1_US_FNAL"])
    poll()
    assert ReqMgr2Request.objects.get().problem == ""


def test_a_poll_costs_the_same_with_many_requests(world: World, outside: Outside) -> None:
    for _ in range(5):
        outside.stage()
    poll()
    calls: list[str] = []
    handle = outside.simulators.application.reqmgr2.handle

    def counted(request: Any, parts: list[str]) -> Any:
        calls.append(request.raw_target)
        return handle(request, parts)

    outside.simulators.application.reqmgr2.handle = counted  # type: ignore[method-assign]
    poll()
    assert len(calls) == 3, calls


def test_reqmgr2_may_be_away_for_a_day_and_is_told_everything_in_order(world: World, outside: Outside) -> None:
    name = outside.stage(events=100)
    request = taken(name)
    handle = outside.simulators.application.reqmgr2.handle

    def away(request: Any, parts: list[str]) -> Any:
        raise BrokenPipeError

    outside.simulators.application.reqmgr2.handle = away  # type: ignore[method-assign]
    assert run_on(world, request) == S.COMPLETED, "nothing here waits for it"
    poll()
    assert "error" in Lease.objects.get(name=POLL).data
    for _ in range(10):
        world.clock.advance(8600)
        world.effects()
    outside.simulators.application.reqmgr2.handle = handle  # type: ignore[method-assign]
    circuits().clear()
    for _ in range(6):
        world.clock.advance(30_000)
        world.effects()
    assert outside.steps(name) == ["staged", "acquired", "running-open", "running-closed", "completed"]
    assert outside.simulators.request(name)["TotalEstimatedJobs"] == 1


def test_a_reqmgr2_that_never_answered_is_silent_since_it_was_first_asked(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reqmgr2_state().age_seconds is None
    monkeypatch.setattr(outside.simulators.application.reqmgr2, "handle", lambda request, parts: 1 / 0)
    for _ in range(2):
        poll()
        world.clock.advance(1800)
    found = reqmgr2_state()
    assert found.polled_at is None and found.error
    assert found.age_seconds is not None and 3600 <= found.age_seconds < 3700


def test_totals_are_added_once_although_the_answer_is_lost(world: World, outside: Outside) -> None:
    request = taken(outside.stage())
    world.cycle()
    outside.habits(lost_answers=4)
    for _ in range(4):
        world.clock.advance(8000)
        world.effects()
    document = outside.simulators.request(request.request_name)
    assert (document["TotalEstimatedJobs"], document["TotalInputEvents"]) == (3, 300)
    assert outside.status(request.request_name) == "running-closed"


def test_what_people_moved_further_never_goes_backwards_and_a_refused_report_waits_and_keeps_nothing_back(
    world: World, outside: Outside
) -> None:
    """A report that is refused waits for an operator."""
    requests = aborted, forced = [taken(outside.stage(events=100)) for _ in range(2)]
    world.cycle()
    assert {fresh(request).status for request in requests} == {S.ACTIVE}
    world.effects()
    outside.put(aborted.request_name, RequestStatus="aborted")
    outside.put(forced.request_name, RequestStatus="force-complete")
    outside.habits(admins=())
    assert [run_on(world, request) for request in requests] == [S.COMPLETED] * 2, "neither was polled, nor waits for its report"
    world.effects()
    refused = Effect.objects.get(request=forced, kind=EffectKind.REQMGR2_STATUS, payload__status="completed")
    assert (refused.state, "not allowed" in refused.last_error) == (EffectState.REFUSED, True)
    outside.habits(admins=None)
    world.retry_effects()
    world.effects()
    assert [outside.status(request.request_name) for request in requests] == ["aborted", "completed"]
    assert not Effect.objects.exclude(state=EffectState.DONE).exists()


def test_ends_here_are_told_as_reqmgr2s_table_allows(world: World, outside: Outside) -> None:
    waiting, active = taken(outside.stage()), running(world, outside, events=100)
    request_abort(request=fresh(waiting), **BY)
    request_fail(request=active, **BY)
    cycles(world, 4)
    assert (fresh(waiting).status, fresh(active).status) == (S.ABORTED, S.FAILED)
    assert outside.status(waiting.request_name) == "aborted"
    assert outside.status(active.request_name) == "aborted", "one that runs cannot become failed there"
    poll()
    assert fresh(active).status == S.FAILED


def test_a_request_that_is_held_elsewhere_goes_on_after_its_release(world: World, outside: Outside) -> None:
    name = outside.stage()
    outside.agents_take(name)
    request = taken(name)
    assert request.hold_code == HoldCode.RUN_ELSEWHERE
    request_release(request=request, **BY)
    world.cycle()
    poll()
    assert fresh(request).status == S.ACTIVE


CLONES = "test_a_restart_clones_in_reqmgr2_once_though_it_is_killed_and_the_clone_is_ours_alone"
ALONE = pytest.mark.deep(f"tests/requests_app/reqmgr2/test_following.py::{CLONES}")


@pytest.mark.parametrize(
    "points",
    ["claimed called recorded", *(pytest.param(point, marks=ALONE) for point in ("claimed", "called", "recorded"))],
)
def test_a_restart_clones_in_reqmgr2_once_though_it_is_killed_and_the_clone_is_ours_alone(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch, points: str
) -> None:
    """At each point, one after the other."""
    from tests.support.simulator_world import put_config

    document = documents.generation()
    steps = {key: {**document[key], "GlobalTag": "140X_v1"} for key in ("Step1", "Step2")}
    old = outside.stage(RequestString="scripted", events=100, **steps)
    request = taken(old)
    for identifier, module, tier in (("1", "RAWSIMoutput", "GEN-SIM"), ("2", "AODSIMoutput", "AODSIM")):
        put_config(outside.simulators, identifier * 32, **{module: (tier, "")})
    for tier in ("GEN-SIM", "AODSIM"):
        outside.simulators.dbs("POST", "datatiers", {"data_tier_name": tier})
    world.cycle()
    new = request_restart(request=fresh(request), **BY)
    monkeypatch.setattr("wms2.adapters.reqmgr2.VIEW_SECONDS", 0.0)
    world.crash_at = ",".join(f"{EffectKind.REQMGR2_CLONE}.{point}" for point in points.split())
    world.crash_mark = str(world.root / "killed")
    for _ in range(4):
        world.cycle()
        world.clock.advance(conf().effect_lease_seconds)
        poll()
    assert world.deaths == len(points.split())
    row = ReqMgr2Request.objects.get(request=new)
    assert row.name is not None, Effect.objects.filter(kind=EffectKind.REQMGR2_CLONE).values_list("last_error")[0][0][-900:]
    assert run_on(world, new) == S.COMPLETED
    world.effects()
    assert outside.status(old) == "aborted"
    assert outside.status(row.name) == "completed", Effect.objects.exclude(state=EffectState.DONE).values("key", "last_error")
    assert outside.simulators.request(row.name)["Team"] == "wms2"
    there = outside.simulators.application.reqmgr2.store.storage.rows("SELECT name FROM requests")
    assert sorted(each["name"] for each in there) == sorted([old, row.name]), "one clone, in whatever status"
    assert Request.objects.count() == 2


@fault(
    "bad rows in every poll: ReqMgr2, following",
    done="following one request breaks",
    spec="issue: One bad row stops all others",
    afterwards="the others are followed; the broken one says so",
)
def test_one_that_breaks_keeps_no_other_from_being_followed(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ways: its directory cannot be read, its document makes no sense, and what nobody has foreseen."""
    names = sorted(outside.stage() for _ in range(4))
    requests = [taken(name) for name in names]
    unreadable, senseless, unforeseen, good = requests
    abort = following.request_abort

    def aborted(*, request: Request, **how: Any) -> None:
        if request == unreadable:
            raise PermissionError(13, "Permission denied", "/submit/one")
        if request == unforeseen:
            raise KeyError("unforeseen")
        abort(request=request, **how)

    for request in requests:
        outside.put(request.request_name, RequestStatus="aborted")
    store = outside.simulators.application.reqmgr2.store
    document = {**outside.simulators.request(senseless.request_name), "_id": senseless.request_name}
    store.put({**document, "RequestPriority": 1.5})
    with monkeypatch.context() as patch:
        patch.setattr(following, "request_abort", aborted)
        poll()
    assert fresh(good).status == S.ABORTED
    problems = dict(ReqMgr2Request.objects.values_list("name", "problem"))
    assert problems[unreadable.request_name].startswith("not yet: PermissionError")
    assert problems[senseless.request_name].startswith("not yet: ValueError: RequestPriority 1.5 is no whole number")
    assert problems[unforeseen.request_name].startswith("not yet: KeyError")
    assert not Lease.objects.get(name=POLL).data, "the poll itself has succeeded"
    store.put(document)
    poll()
    assert {fresh(request).status for request in requests} == {S.ABORTED}
    assert set(ReqMgr2Request.objects.values_list("problem", flat=True)) == {""}


def test_lost_files_are_made_again_without_a_word_to_reqmgr2_which_has_it_as_completed(world: World, outside: Outside) -> None:
    name = outside.stage()
    request = taken(name)
    assert run_on(world, request) == S.COMPLETED
    world.effects()
    poll()
    steps, jobs = outside.steps(name), outside.simulators.request(name)["TotalEstimatedJobs"]
    assert steps[-1] == "completed"
    lost = OutputFile.objects.filter(block__workflow__request=request).order_by("pk")[0]
    lost_files_make_again(lfns=[lost.lfn], confirm=lost_files_plan([lost.lfn]).confirm, **BY)
    ReqMgr2Request.objects.update(over=False)  # as of one that was imported by its name
    for _ in range(20):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
        poll()
        assert not fresh(request).complete_early, "that it is completed there is no wish to stop"
        if request.status == S.COMPLETED:
            break
    assert (request.status, OutputFile.objects.get(pk=lost.pk).is_valid) == (S.COMPLETED, False)
    assert sum(file.events for file in OutputFile.objects.filter(dataset=lost.dataset) if file.is_valid) == 300
    assert outside.steps(name) == steps
    assert outside.simulators.request(name)["TotalEstimatedJobs"] == jobs
    assert not Effect.objects.filter(kind__in=REPORTS).exclude(state=EffectState.DONE).exists()


def test_one_that_the_work_queue_cannot_split_is_held_and_goes_on_after_its_release(world: World, outside: Outside) -> None:
    """The queue goes by its old list: the requests were staged when it was made, and are acquired by us since."""
    runs = taken(outside.stage())
    outside.habits(cannot_split=[runs.request_name])
    assert outside.status(runs.request_name) == "failed"
    world.cycle()
    assert fresh(runs).status == S.ACTIVE
    requests = (runs, taken(outside.stage()))  # the second does not begin before it fails there
    names = [request.request_name for request in requests]
    outside.habits(cannot_split=names)
    assert outside.status(names[1]) == "failed"
    poll()
    cycles(world, 3)
    assert [outside.status(name) for name in names] == ["failed"] * 2
    for request in requests:
        assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.FAILED_ELSEWHERE)
        assert "set by /DC=ch/DC=cern/OU=computers/CN=wmagent" in request.hold_reason
        assert "work queue" in request.hold_reason
    outside.habits(cannot_split=[])
    for request in requests:
        request_release(request=request, **BY)
    poll()
    assert S.HELD not in [fresh(request).status for request in requests], "once: who releases it now knows"
    cycles(world, 2)
    assert [fresh(request).status for request in requests] == [S.ACTIVE] * 2
    assert sorted(len(world.job_of(request).open_nodes) for request in requests) == [3, 3]


def test_one_that_fails_there_or_that_agents_take_while_it_is_held_is_held_again_for_that_once(
    world: World, outside: Outside
) -> None:
    request, theirs = taken(outside.stage()), taken(outside.stage())
    for each in (request, theirs):
        request_hold(request=each, **BY)
    outside.habits(cannot_split=[request.request_name])
    outside.agents_take(theirs.request_name)
    poll()
    assert [fresh(each).hold_code for each in (request, theirs)] == [HoldCode.OPERATOR] * 2
    problems = dict(ReqMgr2Request.objects.values_list("name", "problem"))
    assert "failed" in problems[request.request_name]
    assert "WMCore has it too" in problems[theirs.request_name]
    for each in (request, theirs):
        request_release(request=each, **BY)
    poll()
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.FAILED_ELSEWHERE)
    assert (fresh(theirs).status, "WMCore" in theirs.hold_reason) == (S.HELD, True)
    request_release(request=theirs, **BY)
    outside.put(request.request_name, RequestStatus="rejected")
    poll()
    assert fresh(theirs).status != S.HELD, "once: who releases it now knows"
    assert fresh(request).status == S.ABORTED, "that is a person's"


def test_one_that_fails_there_before_it_can_be_held_is_held_for_that_later(world: World, outside: Outside) -> None:
    request = taken(outside.stage())
    Request.objects.update(status=S.NEW)
    outside.habits(cannot_split=[request.request_name])
    poll()
    assert "It is New; that cannot be held" in ReqMgr2Request.objects.get().problem
    request_submit(request=fresh(request), actor="olga")
    poll()
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.FAILED_ELSEWHERE)


def test_one_that_is_aborted_while_its_outputs_are_validated_is_told_until_it_is_held(world: World, outside: Outside) -> None:
    request = running(world, outside, events=100)
    world.schedd.end(world.job_of(request), End.FINISHED)
    until(world, request, S.VALIDATING_OUTPUTS)
    outside.put(request.request_name, RequestStatus="aborted")
    poll()
    (row,) = reqmgr2_state().problems
    reported = "it is aborted in ReqMgr2, and here it is Validating outputs: hold it, and it is aborted"
    assert row.problem.startswith(reported)
    request_hold(request=fresh(request), **BY)
    poll()
    assert (fresh(request).status, list(reqmgr2_state().problems)) == (S.ABORTED, [])


def test_one_that_is_rejected_after_it_completed_is_cleaned_or_kept_by_an_operator(world: World, outside: Outside) -> None:
    requests = cleaned, kept = [taken(outside.stage(events=100)) for _ in range(2)]
    world.cycle()
    request_complete(request=fresh(kept), **BY)
    assert run_on(world, cleaned) == S.COMPLETED
    assert fresh(kept).status == S.COMPLETED
    world.effects()
    poll()
    assert list(ReqMgr2Request.objects.values_list("over", flat=True)) == [True] * 2
    for request in requests:
        outside.put(request.request_name, RequestStatus="rejected")
    poll()
    rows = list(reqmgr2_state().problems)
    said = "it is rejected in ReqMgr2 since it completed here: clean it, or keep what it made"
    assert [(row.problem, row.is_undecided) for row in rows] == [(said, True)] * 2
    assert {fresh(request).status for request in requests} == {S.COMPLETED}
    request_clean(request=cleaned, confirm=cleaned.request_name, **BY)
    request_keep(request=kept, **BY)
    poll()
    poll()
    assert not reqmgr2_state().problems
    assert (fresh(cleaned).status != S.COMPLETED, fresh(kept).status) == (True, S.COMPLETED)
