"""A fixed way through every edge of the status table and every operation: short lives, one after the other, nothing left to
chance.

Each is brought to rest as the random lives are, with all that must hold looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from dags_app.models import WorkUnit, WorkUnitState
from outputs_app.checks.cases import case_of
from outputs_app.models import (
    BlockValidation,
    CaseState,
    Effect,
    EffectState,
    FindingKind,
    IntegrityCase,
    OutputFile,
)
from requests_app.lifecycle.packing import dags_pack, requests_archive
from requests_app.models import Harvest, HarvestState, HoldCode, Request, RequestStatus
from requests_app.services.intake import Received, request_receive
from requests_app.services.lost_files import lost_files_make_again, lost_files_plan
from sites_app.models import Schedd, Site
from tests.support.scripted import actions, aftermath, documents, invariants, losses
from tests.support.scripted.branching import wipe
from tests.support.scripted.catalogues import SourceFile
from tests.support.scripted.faults import Mode
from tests.support.scripted.operation import ask
from tests.support.scripted.progress import failed, fresh
from tests.support.scripted.rest import bring_to_rest
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.runtime import clock

S = RequestStatus


def go(world: World) -> None:
    """The whole tour; the tally of ``world`` has what was reached."""
    for life in LIVES:
        wipe()
        world.reset()
        world.furnish()
        life(world)
        bring_to_rest(world)
        world.tally.collect()


def before_anything_runs(world: World) -> None:
    """NEW, SUBMITTED, QUEUED: held, released, aborted."""
    kept, dropped = small(world, events=400, submit=False), small(world, submit=False)
    said(world, "submit", kept, S.SUBMITTED)
    said(world, "abort", dropped, S.ABORTED)
    said(world, "hold", kept, S.HELD)
    said(world, "release", kept, S.SUBMITTED)
    said(world, "abort", small(world), S.ABORTED)
    other = small(world)
    world.schedd.silent = True
    world.evaluate(kept)  # no answer, so it waits for its turn
    assert fresh(kept).status == S.QUEUED, kept.status
    said(world, "hold", kept, S.HELD)
    world.evaluate(other)
    said(world, "abort", other, S.ABORTED)
    said(world, "release", kept, S.QUEUED)
    for word in ("steps, confirmed", "steps away", "steps"):
        said(world, word, kept, S.QUEUED)
    said(world, "raise", kept)
    said(world, "lower", kept)
    said(world, "error limits", kept)
    for word in ("note", "pin", "unpin", "throttle", "retry time", "adaptive", "not adaptive", "group", "ungroup", "group"):
        said(world, word, kept)
    world.tally.accepted[actions.dissolve()] += 1
    child = small(world)
    said(world, "abort", kept, S.ABORTED)
    said(world, "depend", child, S.SUBMITTED)
    world.evaluate(child)
    assert fresh(child).hold_code == HoldCode.PARENT, child.hold_reason
    said(world, "depend on nobody", child, S.HELD)


def while_planning(world: World) -> None:
    """Processes die and the schedd refuses between admission and submission."""
    dead, refused, sent = small(world), small(world), small(world)
    world.crash_at = "plan.claimed"
    world.evaluate(dead)
    said(world, "abort", dead, S.ABORTED)
    world.schedd.script.waiting = [Mode.REFUSED]
    world.evaluate(refused)
    assert fresh(refused).hold_code == "submission", refused.hold_reason
    said(world, "fail", refused, S.FAILED)
    world.crash_at = "submit.called"
    world.evaluate(sent)
    assert fresh(sent).status == S.PLANNING, sent.status
    said(world, "stop", sent, S.STOPPING)
    said(world, "abort", sent, S.STOPPING)


def between_dags(world: World) -> None:
    """PARTIAL and RESUBMITTING do not last; people still come by."""
    for action, then in (("fail", S.FAILED), ("abort", S.ABORTED), ("hold", S.HELD)):
        request = small(world, events=200)
        job = runs(world, request)
        world.schedd.unit_failed(job, job.open_nodes[0])
        world.schedd.end(job, End.FINISHED)
        world.observe()
        world.evaluate(request, steps=1)
        assert fresh(request).status == S.PARTIAL, request.status
        said(world, action, request, then)
    for action, then in (("hold", S.HELD), ("abort", S.ABORTED)):
        request = small(world)
        runs(world, request)
        said(world, "stop", request, S.STOPPING)
        for _ in range(2):
            world.observe()
            world.evaluate(request, steps=1)
        assert fresh(request).status == S.RESUBMITTING, request.status
        said(world, action, request, then)
    said(world, "abort", Request.objects.filter(status=S.HELD)[0], S.ABORTED)


def done_early(world: World) -> None:
    """What is done is enough: while it runs, with a unit done; and held, with none."""
    request, held = small(world, events=300), small(world, events=200)
    job = runs(world, request)
    world.schedd.unit_done(job, job.open_nodes[0])
    runs(world, held)
    said(world, "hold", held, S.STOPPING)
    for _ in range(3):
        world.cycle()
    assert fresh(held).status == S.HELD, held.status
    said(world, "complete early", held, S.QUEUED)
    said(world, "complete early", request, S.STOPPING)
    for _ in range(8):
        world.cycle()
        world.clock.advance(60)
    for each in (fresh(request), fresh(held)):
        assert each.status == S.COMPLETED, (each.status, each.hold_reason, each.waiting_for)
    assert WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.DONE).count() == 1


def divided(world: World) -> None:
    """What is not used goes to another request, and from that to a third; an input that may grow is flushed."""
    request = small(world, events=1000)
    for word in ("derive", "derive with what failed"):
        job = runs(world, request)
        world.schedd.unit_done(job, job.open_nodes[0])
        world.cycle()
        said(world, "hold", request, S.STOPPING)
        for _ in range(4):
            world.cycle()
            world.clock.advance(60)
        said(world, word, request, S.HELD)
        request = Request.objects.get(request_name=request.derived_by)
    dataset = world.source("Grows", 90)
    growing = world.request(documents.reprocessing(dataset, files_per_job=1, OpenRunningTimeout=3000))
    runs(world, growing)
    said(world, "flush", growing)


def over_the_threshold(world: World) -> None:
    """Held, released in each way; rescues used up; failed in the end and taken back."""
    request = small(world, events=300)
    for release in ("release: threshold", "release: next round", "release: memory"):
        runs(world, request)
        failed(world, request, done=0)
        assert fresh(request).hold_code == "threshold", request.hold_reason
        said(world, release, request, S.QUEUED)
    runs(world, request)
    for done in (1, 0, 0):
        failed(world, request, done=done)
    assert fresh(request).hold_code == "rescues", request.hold_reason
    said(world, "release: rescue", request, S.QUEUED)
    runs(world, request)
    failed(world, request, done=0)
    said(world, "fail", request)
    world.cycle()
    world.cycle()
    assert fresh(request).status == S.FAILED, request.status
    said(world, "invalidate", request)


def the_schedd_plays_up(world: World) -> None:
    """A DAG paused, removed, aborted, ended in dispute; a queue that is silent."""
    request = small(world, events=200)
    runs(world, request)
    said(world, "stop", request, S.STOPPING)
    world.cycle()
    runs(world, request)
    on_dag(world, "dag hold", request)
    world.cycle()
    assert fresh(request).alert_code == "dagman_held", request.alert_code
    on_dag(world, "dag release", request)
    for end, code in ((End.REMOVED, "removed"), (End.ABORTED, "abort_code")):
        world.schedd.end(runs(world, request), end)
        world.cycle()
        assert fresh(request).hold_code == code, request.hold_reason
        said(world, "release", request, S.QUEUED)
    runs(world, request)
    on_dag(world, "dag remove", request)
    world.cycle()
    world.cycle()
    assert fresh(request).status == S.HELD, request.status
    on_dag(world, "dag rescue", request)
    world.schedd.end(runs(world, request), End.DISPUTED)
    world.cycle()
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "outcome_unknown")
    said(world, "stop", request)
    world.clock.advance(conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds)
    world.cycle()
    assert fresh(request).hold_code == "outcome_unknown", request.hold_reason
    schedd = actions.schedd_of_the_world()
    for action in ("schedd drain", "schedd disable", "schedd enable"):
        assert ask(world.tally, actions.ON_SCHEDDS[action], schedd, twice=True), action


def dags_are_moved(world: World) -> None:
    """Moved while it runs and while it waits, where processes die; drained away, and back when the drain is taken back."""
    world.furnish_another()
    first, other = actions.schedd_of_the_world(), actions.other_schedd()
    request = small(world, events=250)
    job = runs(world, request)
    assert not ask(world.tally, actions.ON_REQUESTS["move"], request), "there is nowhere to go"
    assert ask(world.tally, actions.ON_SCHEDDS["schedd enable"], other)
    world.schedd.unit_done(job, job.open_nodes[0])
    said(world, "move", request, S.STOPPING)
    for point in ("stop.claimed", "stop.called", "submit.claimed", "submit.called"):
        world.crash_at = point
        world.cycle()
        world.clock.advance(conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds)
    world.cycle()
    assert runs(world, request).at == other.name
    on_dag(world, "dag move", request)
    world.cycle()
    assert runs(world, request).at == first.name
    assert not fresh(request).moving, "it has arrived"
    said(world, "move when its units are done", request, S.STOPPING)
    world.schedd.end(world.job_of(request), End.DRAINED)
    world.cycle()
    assert runs(world, request).at == other.name
    late = small(world)
    assert runs(world, late).at == first.name
    assert ask(world.tally, actions.ON_SCHEDDS["schedd drain, moving"], other, twice=True)
    world.cycle()
    assert runs(world, request).at == first.name
    world.cycle()
    assert Schedd.objects.get(pk=other.pk).drained_at is not None
    assert ask(world.tally, actions.ON_SCHEDDS["schedd enable"], other)


def sites_come_and_go(world: World) -> None:
    """Bans, their guard, drains; and a release that bans a site and leaves a file out."""
    dataset = world.source("Source0", 90, 90, 90, 90)
    request = world.request(documents.reprocessing(dataset, files_per_job=1))
    runs(world, request)
    failed(world, request, done=1)
    said(world, "release: site ban", request, S.QUEUED)
    said(world, "hold", request, S.HELD)
    said(world, "release: without a file", request, S.QUEUED)
    said(world, "hold", request, S.HELD)
    said(world, "let files in", request, S.HELD)
    said(world, "release: retries", request, S.QUEUED)
    first, second, third = Site.objects.order_by("name")
    for action, site in (
        ("site ban", first), ("site ban for one", first), ("site ban, insisting", second), ("site disable", third),
        ("site enable", third), ("site drain", third), ("site drain until", third), ("site note", first), ("site unban", second),
    ):  # fmt: skip
        assert ask(world.tally, actions.ON_SITES[action], site, twice=True), action
    assert not ask(world.tally, actions.ON_SITES["site ban"], third), "two of three sites were banned and nobody insisted"
    world.cycle()


def input_is_left_out(world: World) -> None:
    """A file that no splitting by lumis can take, accepted when everything else is done."""
    dataset = world.source("Source0", 90)
    world.sources[dataset].blocks[f"{dataset}#0"].append(SourceFile("/store/data/bare.root", 100, 1, ()))
    request = world.request(documents.reprocessing(dataset, lumis_per_job=100))
    world.schedd.end(runs(world, request), End.FINISHED)
    for _ in range(6):
        world.cycle()
        world.clock.advance(60)
    assert fresh(request).hold_code == HoldCode.EXCLUDED, f"{request.status}: {request.waiting_for}"
    world.tally.collect()
    said(world, "release: accept", request, S.QUEUED)


def a_new_version(world: World) -> None:
    """Restarted while it runs, replaced, cleaned up; a registration that needs a person."""
    first = small(world, events=200)
    job = runs(world, first)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.cycle()
    said(world, "restart", first, S.STOPPING)
    world.cycle()
    world.cycle()
    second = Request.objects.get(previous_version_request=fresh(first))
    runs(world, second)
    said(world, "restart and clean up", second, S.STOPPING)
    world.cycle()
    world.cycle()
    third = Request.objects.get(previous_version_request=fresh(second))
    job = runs(world, third)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.rucio.script.waiting = [Mode.REFUSED]
    world.cycle()
    said(world, "drain", third, S.STOPPING)
    world.cycle()
    world.cycle()
    effect = Effect.objects.filter(state=EffectState.REFUSED)[0]
    assert ask(world.tally, actions.EFFECT_RETRY, effect, twice=True)
    assert ask(world.tally, actions.EFFECT_DISCARD, effect, twice=True)


def done_at_last(world: World) -> None:
    """All is registered while it is held: planning finds nothing to do. And a stop that comes too late."""
    request, late = small(world), small(world)
    runs(world, request)
    runs(world, late)
    world.schedd.end(world.job_of(request), End.FINISHED)
    world.observe()
    world.evaluate(request)
    said(world, "hold", request, S.STOPPING)
    _registered_and_held(world, request)
    said(world, "release", request, S.QUEUED)
    world.evaluate(request)
    assert fresh(request).status == S.VALIDATING_OUTPUTS, request.status
    world.schedd.end(world.job_of(late), End.FINISHED)
    said(world, "drain", late, S.STOPPING)
    world.cycle()
    for word in ("add", "change", "off", "on", "remove"):
        world.tally.accepted[actions.rule_say(word)] += 1
    request_receive(received=Received(documents.generation(100), None), actor="tester")
    world.tally.accepted["request_receive"] += 1


def _registered_and_held(world: World, request: Request) -> None:
    for _ in range(3):
        world.evaluate(request)
        world.effects()
    assert fresh(request).status == S.HELD, request.status


def after_the_last_job(world: World) -> None:
    """Held and released in every status after its last job; cases; a shortfall; a harvest; archived in the end. And a stop that
    finds everything done."""
    request = world.request(documents.generation(200))
    world.schedd.end(runs(world, request), End.FINISHED)
    for status in (S.VALIDATING_OUTPUTS, S.WAITING_INTEGRITY, S.VALIDATED_OUTPUTS, S.REMOVING_FILES):
        if status is S.WAITING_INTEGRITY:
            case = _case(request)
        until(world, request, status)
        said(world, "hold", request, S.HELD)
        said(world, "release", request, S.VALIDATING_OUTPUTS)
        if status is S.WAITING_INTEGRITY:
            for action in actions.ON_CASES:
                until(world, request, status)
                assert ask(world.tally, action, case, twice=True), f"{action.name}: {request.waiting_for}"
                until(world, request, S.VALIDATING_OUTPUTS)
                case.refresh_from_db()
                assert case.state == CaseState.RESOLVED
                case = _case(request) if action is not actions.ON_CASES[-1] else case
    until(world, request, S.VALIDATED_OUTPUTS)
    BlockValidation.objects.filter(block__workflow__request=request).update(events=50)
    world.evaluate(request, steps=1)
    assert fresh(request).hold_code == HoldCode.SHORT, "600 more would be too many"
    BlockValidation.objects.filter(block__workflow__request=request).update(events=150)
    said(world, "release", request, S.VALIDATING_OUTPUTS)
    until(world, request, S.QUEUED)
    assert fresh(request).workflow.requested_events == 267, "50 are short, and 200 made 150"
    world.schedd.end(runs(world, request), End.FINISHED)
    until(world, request, S.COMPLETED)
    harvest = Harvest.objects.create(request=request, dataset="/A/B/DQMIO", state=HarvestState.FAILED, next_try_at=clock.now())
    for action in actions.ON_HARVESTS:
        assert ask(world.tally, action, harvest, twice=True), action.name
    late = small(world)
    world.schedd.end(runs(world, late), End.FINISHED)
    world.observe()
    world.evaluate(late)
    for _ in range(3):
        world.clock.advance(60)
        world.effects()
    said(world, "stop", late, S.STOPPING)
    until(world, late, S.VALIDATING_OUTPUTS)
    world.clock.advance(8 * 86_400)
    dags_pack()
    assert requests_archive() == 1
    assert fresh(request).status == S.ARCHIVED


def files_are_lost_afterwards(world: World) -> None:
    """Of one that is archived and one that has completed: their work is made again, and both complete once more."""
    archived = small(world)
    world.schedd.end(runs(world, archived), End.FINISHED)
    until(world, archived, S.COMPLETED)
    world.clock.advance(8 * 86_400)
    dags_pack()
    assert requests_archive() == 1
    completed = small(world)
    world.schedd.end(runs(world, completed), End.FINISHED)
    until(world, completed, S.COMPLETED)
    for request, status in ((archived, S.ARCHIVED), (completed, S.COMPLETED)):
        assert fresh(request).status == status, request.status
        lost = list(OutputFile.objects.filter(dataset__workflow__request=request).values_list("lfn", flat=True))
        confirm = lost_files_plan(lost).confirm
        lost_files_make_again(lfns=lost, confirm=confirm, actor="op", reason="the disk is gone")
        assert fresh(request).status == S.WAITING_INTEGRITY, request.status
        invariants.check(world)
        world.schedd.end(runs(world, request), End.FINISHED)
        until(world, request, S.COMPLETED)


def _case(request: Request) -> IntegrityCase:
    """As if its first file were not found at its storage."""
    file = OutputFile.objects.filter(dataset__workflow__request=request).order_by("pk")[0]
    case = case_of(file, FindingKind.MISSING_REPLICA, "not there")
    case.save()
    return case


def until(world: World, request: Request, status: RequestStatus) -> None:
    """A status at a time."""
    for _ in range(20):
        if fresh(request).status == status:
            return
        world.observe()
        world.evaluate(request, steps=1)
        if fresh(request).status != status:
            world.effects()
            world.clock.advance(60)
    raise AssertionError(f"{request}: {request.status}, not {status}: {request.waiting_for}{request.hold_reason}")


def a_queue_is_lost(world: World) -> None:
    """The schedd comes back without it: suspected, given up, planned anew; another one is put back in time."""
    request = small(world, events=300)
    job = runs(world, request)
    assert not ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world()), "given up without evidence"
    world.schedd.unit_done(job, job.open_nodes[0])
    world.schedd.lose_queue()
    world.cycle()
    assert fresh(request).alert_code == "outcome_unknown", request.waiting_for
    assert not ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world()), "given up before the window was over"
    suspected(world, request)
    world.schedd.put_back_queue()
    world.cycle()
    assert not ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world()), "given up though it runs again"
    world.schedd.lose_queue()
    world.cycle()
    suspected(world, request)
    give_up(world)
    assert (fresh(request).status, request.hold_code) == (S.HELD, "queue_lost"), request.hold_reason
    assert WorkUnit.objects.get(state=WorkUnitState.DONE).name == next(iter(job.nodes)), "the last sweep counts what is done"
    said(world, "release", request, S.QUEUED)
    again = runs(world, request)
    assert again.directory != job.directory, "planned anew, under other names"
    assert len(again.nodes) == 2, again.nodes


def a_schedd_is_silent_for_good(world: World) -> None:
    """Given up while requests are ACTIVE and STOPPING; then it comes back with their DAGs, which have gone on."""
    active, stopped = small(world, events=300), small(world, events=300)
    jobs = [runs(world, active), runs(world, stopped)]
    said(world, "stop", stopped, S.STOPPING)
    silent_for_good(world)
    for request in (active, stopped):
        assert (fresh(request).status, request.hold_code) == (S.HELD, "queue_lost"), request.hold_reason
    for job in jobs:
        world.schedd.unit_done(job, job.open_nodes[0])
    assert not ask(world.tally, actions.ON_REQUESTS["release: rescue"], stopped), "the lost DAG may still run there"
    world.schedd.silent, world.schedd.removes_late = False, True
    world.cycle()
    assert fresh(active).alert_code == "dag_returned", active.alert_code
    assert all(job.live and "has ended" in job.remove_reason for job in jobs)
    said(world, "release", active, S.QUEUED)
    world.schedd.removes_late = False
    for _ in range(2):
        world.cycle()
    assert not jobs[0].live
    assert runs(world, active).directory != jobs[0].directory, "planned anew, under other names"
    said(world, "release: rescue", stopped, S.QUEUED)
    assert runs(world, stopped).directory == jobs[1].directory
    assert not WorkUnit.objects.filter(workflow__request=active, fence=jobs[0].fence).exists(), (
        "what the lost DAG did later was counted"
    )


def given_up_on_the_way(world: World) -> None:
    """Given up while one is PLANNING, its submission without an answer, and one is to be aborted."""
    aborted = small(world, events=200)
    runs(world, aborted)
    sent = small(world, events=200)
    world.crash_at = "submit.called"
    world.evaluate(sent)
    assert fresh(sent).status == S.PLANNING, sent.status
    said(world, "abort", aborted, S.STOPPING)
    silent_for_good(world)
    assert fresh(aborted).status == S.ABORTED, aborted.status
    assert (fresh(sent).status, sent.hold_code) == (S.HELD, "queue_lost"), sent.hold_reason
    assert len(world.schedd.live) == 2
    world.schedd.silent = False
    world.cycle()
    assert not world.schedd.live, "what came back is removed"


def cleaned(world: World) -> None:
    """While it runs, when it is held, before it runs; what the cleaner, which is off, would remove is accepted."""
    running, held, queued = small(world), small(world), small(world, events=300)
    for request in (running, held):
        runs(world, request)
    said(world, "hold", held, S.STOPPING)
    until(world, held, S.HELD)
    said(world, "clean", running, S.STOPPING)
    said(world, "clean", fresh(held), S.CLEANING)
    world.schedd.silent = True
    world.evaluate(queued)
    said(world, "clean", queued, S.CLEANING)
    world.schedd.silent = False


LIVES: tuple[Callable[[World], None], ...] = (
    before_anything_runs, while_planning, between_dags, done_early, over_the_threshold, the_schedd_plays_up, dags_are_moved,
    sites_come_and_go, input_is_left_out, a_new_version, done_at_last, after_the_last_job, files_are_lost_afterwards,
    a_queue_is_lost, a_schedd_is_silent_for_good, given_up_on_the_way, cleaned, divided,
)  # fmt: skip


def small(world: World, *, events: int = 100, submit: bool = True) -> Request:
    """A reprocessing of a file for each hundred events, a unit each."""
    dataset = world.source(f"Source{len(world.sources)}", *[90] * (events // 100))
    return world.request(documents.reprocessing(dataset, files_per_job=1), submit=submit)


def runs(world: World, request: Request) -> Job:
    """Its DAG, once it runs."""
    for _ in range(4):
        if any(job.request_name == request.request_name for job in world.schedd.live):
            break
        world.cycle()
        world.clock.advance(400)
    world.cycle()
    assert fresh(request).status == S.ACTIVE, f"{request}: {request.status} {request.waiting_for}"
    return world.job_of(request)


def suspected(world: World, request: Request) -> None:
    """The window passes."""
    world.clock.advance(losses.WINDOW)
    world.cycle()
    assert fresh(request).alert_code == "queue_suspected", request.waiting_for
    invariants.check(world)
    aftermath.check(world)


def silent_for_good(world: World) -> None:
    """No answer for longer than the window, refused as long as DAGMans write; then given up."""
    world.schedd.silent = True
    world.cycle()
    assert not ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world()), "given up before the window was over"
    world.clock.advance(losses.WINDOW)
    losses.dagmans_write(world)
    assert not ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world()), "given up while its DAGMans write"
    world.clock.advance(losses.WINDOW)
    give_up(world)


def give_up(world: World) -> None:
    """An operator's confirmation that the queue is lost, twice; then a cycle."""
    assert ask(world.tally, actions.SCHEDD_LOST, actions.schedd_of_the_world(), twice=True)
    world.cycle()
    invariants.check(world)
    aftermath.check(world)


def said(world: World, action: str, request: Request, then: RequestStatus | None = None) -> None:
    """A word that is accepted, twice, and what the request is then; all else in order."""
    assert ask(world.tally, actions.ON_REQUESTS[action], request, twice=True), f"{action} of {request} ({request.status})"
    assert then is None or request.status == then, f"{action} of {request}: {request.status}, not {then}"
    invariants.check(world)
    aftermath.check(world)


def on_dag(world: World, action: str, request: Request) -> None:
    """A word on a request's newest DAG."""
    (dag, *_) = actions.dags_of(request)
    assert ask(world.tally, actions.ON_DAGS[action], dag, twice=True), f"{action} of {dag} ({dag.status})"
