"""Bringing a scripted world to rest: faults stop, somebody repairs and does what the runbook says.

Then nothing may stay in between.
"""

from __future__ import annotations

from django.db.models import F

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import SETTLED_EFFECT, Effect, EffectState
from requests_app.models import TERMINAL, HoldCode, Request, RequestStatus
from requests_app.work.ledger import ledger_of
from sites_app.models import Schedd, ScheddState, Site, SiteStatus
from tests.support.scripted import actions, aftermath, invariants, losses
from tests.support.scripted.operation import ask
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World

S = RequestStatus
AT_REST = (S.NEW, S.HELD, S.COMPLETED, *TERMINAL)
#: Cycles of ten minutes, longer than any pause between attempts in this world.
MOST_CYCLES = 30
MOST_RELEASES = 5


def bring_to_rest(world: World) -> None:
    """To the end of every life.

    Raises:
        AssertionError: a request stays where it is, or is held with nothing to be done about it.
    """
    for _ in range(MOST_RELEASES):
        come_to_rest(world)
        waiting = [r for r in Request.objects.filter(status__in=(S.HELD, S.NEW)).order_by("created_at") if not _for_good(r)]
        for request in waiting:
            action = "release" if request.status == S.HELD else "submit"
            action = "release: accept" if request.hold_code == HoldCode.EXCLUDED else action
            assert ask(world.tally, actions.ON_REQUESTS[action], request), f"{request} ({request.status}): no {action}"
            assert request.status in (S.QUEUED, S.SUBMITTED, S.VALIDATING_OUTPUTS), f"{request}: let go, and {request.status}"
        if not waiting:
            break
    for request in Request.objects.filter(status=S.HELD):
        assert _for_good(request), f"{request}: {request.hold_code}: {request.hold_reason}"
    world.observe()
    aftermath.check_at_rest(world)


def come_to_rest(world: World) -> None:
    """All faults stop, whoever must repairs manifests, sites and registrations; then nothing may stay in between."""
    world.heal()
    world.schedd.repair()
    _open_all(world)
    for _ in range(MOST_CYCLES):
        _retry_all(world)
        for job in losses.followed(world):
            if not job.held_because:
                world.schedd.end(job, End.DRAINED if job.halted and job.open_nodes else End.FINISHED)
        world.cycle()
        _follow_the_runbook(world)
        invariants.check(world)
        aftermath.check(world)
        world.clock.advance(600)
        owed = Effect.objects.exclude(state__in=SETTLED_EFFECT).filter(epoch=F("request__epoch"))
        if not Request.objects.exclude(status__in=AT_REST).exists() and not owed.exists():
            return
    left = Request.objects.exclude(status__in=AT_REST)
    raise AssertionError(
        f"not at rest: {[(r.request_name, r.status, r.stop_intent, r.waiting_for, r.last_error) for r in left]}, "
        f"{[(e.key, e.state, e.last_error) for e in owed]}"
    )


def _open_all(world: World) -> None:
    """Every site and the schedd take work again."""
    for site in Site.objects.order_by("name"):
        ask(world.tally, actions.ON_SITES["site unban"], site)
        if site.status != SiteStatus.ENABLED:
            assert ask(world.tally, actions.ON_SITES["site enable"], site), f"{site} stays {site.status}"
    for schedd in Schedd.objects.exclude(state=ScheddState.ENABLED):
        assert ask(world.tally, actions.ON_SCHEDDS["schedd enable"], schedd), f"{schedd} stays {schedd.state}"


def _retry_all(world: World) -> None:
    stuck = Effect.objects.filter(state__in=(EffectState.REFUSED, EffectState.DEAD), epoch=F("request__epoch"))
    for effect in stuck:
        assert ask(world.tally, actions.EFFECT_RETRY, effect), f"{effect} cannot be tried again"


def _follow_the_runbook(world: World) -> None:
    """A site that failures have banned meanwhile is let in again where a request has no other. A DAG that is held is released,
    one that is suspected lost is given up; where what is left of one disagrees about how it ended, nobody else will ever know:
    the request is held. What waits for a request that goes no further waits for it no more.
    """
    for request in Request.objects.filter(
        status__in=(S.SUBMITTED, S.HELD), depends_on__isnull=False, workflow__isnull=True
    ).distinct():
        ask(world.tally, actions.ON_REQUESTS["depend on nobody"], request)
    for request in Request.objects.filter(status=S.VALIDATED_OUTPUTS, in_group__isnull=False):
        if not Request.objects.filter(in_group=request.in_group).exclude(status__in=(*AT_REST, S.VALIDATED_OUTPUTS)).exists():
            ask(world.tally, actions.ON_REQUESTS["ungroup"], request)
    if Request.objects.filter(status=S.QUEUED, last_error__startswith="a site: ").exists():
        _open_all(world)
    for request in Request.objects.filter(status=S.CLEANING, waiting_for__contains="the cleaner is switched off"):
        assert ask(world.tally, actions.ON_REQUESTS["clean: accept"], request), f"the rest of {request} cannot be accepted"
    for dag in DAG.objects.filter(status__in=LIVE_DAG, workflow__request__alert_code="dagman_held"):
        ask(world.tally, actions.ON_DAGS["dag release"], dag)
    suspected = DAG.objects.filter(suspected_at__isnull=False, lost_confirmed_at__isnull=True, status__in=LIVE_DAG)
    for schedd in Schedd.objects.filter(dags__in=suspected).distinct():
        assert ask(world.tally, actions.SCHEDD_LOST, schedd), f"a suspected DAG of {schedd} cannot be given up"
    vanished = {job.request_name for job in world.schedd.jobs if job.ended is End.VANISHED}
    unknown = Request.objects.filter(status=S.ACTIVE, alert_code="outcome_unknown")
    for request in unknown.exclude(request_name__in=vanished):  # what vanished is suspected after the window
        ask(world.tally, actions.ON_REQUESTS["hold"], request)


def _for_good(request: Request) -> bool:
    """Whether a release cannot help: too much was lost, or nothing of the input is left that may be processed."""
    if request.hold_code == HoldCode.SHORT:
        return True
    if request.hold_code != HoldCode.REFUSED or not hasattr(request, "workflow"):
        return False
    ledger = ledger_of(request.workflow)
    return not ledger.work_left and not ledger.work_done
