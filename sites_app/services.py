"""What operators decide on sites and schedds, with a reason, audited, refusals too; the end of bans and drains; what comes of it.

Error-handling 6, spec 4.9. An operator's decision outlives every sync.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import MappingProxyType
from typing import Any

import structlog
from django.db.models import Q, QuerySet

from sites_app.bans import AUTOMATIC, OF_LISTS, bans_active, bans_judged, by_whom, site_ban, stands_for_lists
from sites_app.models import Pool, Schedd, ScheddState, Site, SiteBan, SiteStatus
from sites_app.schedds import state_refused
from sites_app.selectors import candidate_sites, known_site_names
from wms2.actions import must_apply
from wms2.audit import audit, audited
from wms2.conf import conf
from wms2.errors import FieldRefused, InvalidTransition, StaleState
from wms2.runtime import clock
from wms2.runtime.locks import Fenced

log = structlog.get_logger(__name__)
#: ``removed_by`` of a ban that was not lifted.
EXPIRY = "its end"
#: How what is said of work without an open site begins.
NO_SITE = "a site: "


#: The actor of what the Site Status Board says.
SSB = "ssb"
#: Actors of a status that no person has decided.
FED = ("", SSB)


def _audited(actor: str, action: str, site: Site, reason: str, **evidence: Any) -> AbstractContextManager[None]:
    return audited(actor=actor, action=action, target=site.name, target_type="site", reason=reason, **evidence)


def written(row: Site | Schedd | Pool, seen: Mapping[str, Any] = MappingProxyType({}), **values: Any) -> None:
    """Change a row and its picture here. Raises StaleState: it is no longer as it was ``seen``."""
    there = type(row)._default_manager.filter(pk=row.pk, **seen).update(**values, updated_at=clock.now())
    if seen and not there:
        raise StaleState(f"{row.name} is no longer {', '.join(str(old.label).lower() for old in seen.values())}")
    for name, value in values.items():
        setattr(row, name, value)


def status_refused(site: Site, status: SiteStatus) -> str:
    """Why the site cannot be given this status; empty if it can."""
    return f"It is {status.label.lower()} already." if site.status == status else ""


def sites_drained(fenced: Fenced) -> list[str]:
    """Enable the sites whose drain has come to its end; their names. A locked row waits for the next cycle."""
    over = Q(status=SiteStatus.DRAINING, drain_until__lte=clock.now())
    with fenced():
        names = list(Site.objects.select_for_update(skip_locked=True).filter(over).values_list("name", flat=True))
        if names:
            ended = {"status_actor": "", "status_reason": "the drain came to its end", "updated_at": clock.now()}
            Site.objects.filter(name__in=names).update(status=SiteStatus.ENABLED, drain_until=None, **ended)
            log.info("drains ended", sites=names)
    return names


def sites_avoided(workflow_id: object) -> dict[str, str]:
    """Sites where a DAG that is submitted now must not land -> why."""
    return _avoided([workflow_id])[workflow_id]


def _avoided(workflow_ids: Collection[object]) -> dict[object, dict[str, str]]:
    """For each workflow; two statements for all of them."""
    common = {site.name: closed_words(site) for site in sites_closed()}
    found = {workflow_id: dict(common) for workflow_id in workflow_ids}
    ours = Q(workflow__in=[workflow_id for workflow_id in workflow_ids if workflow_id is not None])
    for ban in bans_active().filter(Q(workflow__isnull=True) | ours):
        if ban.workflow_id is not None:
            found[ban.workflow_id][ban.site_id] = f"banned for this request{ban_words(ban)}"
            continue
        for avoided in found.values():
            avoided[ban.site_id] = f"banned for all{ban_words(ban)}"
    return found


def sites_closed() -> QuerySet[Site]:
    """Those that take no new work of any request, bans apart."""
    closed = Site.objects.exclude(status=SiteStatus.ENABLED).exclude(status=SiteStatus.DRAINING, drain_until__lte=clock.in_sql())
    return closed.only("name", "status", "status_reason", "status_actor", "drain_until")


def avoided_by_all(closed: Iterable[Site], bans: Iterable[SiteBan]) -> dict[str, str]:
    """Site -> why no request may land there, of ``sites_closed`` and of bans in force that were read."""
    return {site.name: closed_words(site) for site in closed} | {ban.site_id: f"banned for all{ban_words(ban)}" for ban in bans}


def closed_words(site: Site) -> str:
    """That a site takes no new work: by a status, by whom, until when and why."""
    return f"{site.get_status_display().lower()}{by_whom(site.status_actor, site.drain_until)}: {site.status_reason}"


def ban_words(ban: SiteBan) -> str:
    """By whom, until when and why, behind what it bans."""
    return f"{by_whom(ban.created_by, ban.expires_at)}: {ban.reason}"


def without_site(workflows: QuerySet[Any]) -> dict[str, str]:
    """Request -> why none of the sites that it may run at takes new work now, each with its reason; those alone of which that is
    so. Four statements at most, however many there are, and of their specifications the lists of sites alone."""
    lists = list(workflows.values_list("request_id", "pk", "spec__site_whitelist", "spec__site_blacklist"))
    avoided = _avoided([pk for _, pk, *_ in lists])
    if not any(avoided.values()):
        return {}
    every = known_site_names() if not all(_names(named) for _, _, named, _ in lists) else frozenset[str]()
    found = {}
    for name, pk, named, excluded in lists:
        candidates = (_names(named) or every) - _names(excluded)
        if candidates and candidates <= avoided[pk].keys():
            found[name] = f"{NO_SITE}{avoided_sentence(avoided[pk], candidates)}"
    return found


def _names(listed: object) -> frozenset[str]:
    """A list in a specification that cannot be read names nothing here; its request's own evaluation says what is wrong."""
    return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()


def avoided_sentence(avoided: Mapping[str, str], named: Collection[str]) -> str:
    """Which of these sites are avoided, and why."""
    return "; ".join(f"{site} is {why}" for site, why in sorted(avoided.items()) if site in named)


def site_change_status(*, site: Site, status: SiteStatus, actor: str, reason: str, drain_until: datetime | None = None) -> None:
    """Enable, drain (until), disable a site. DAGs that run go on; each later submission looks again.

    Compare-and-set from the status that ``site`` was read with. Draining may be given an end; the same again changes it.

    Raises:
        InvalidTransition: it is so already.
        FieldRefused: the end lies in the past.
        StaleState: it was changed meanwhile.
    """
    until = drain_until.isoformat() if drain_until else ""
    with _audited(actor, "site_change_status", site, reason, old=site.status, new=status, drain_until=until):
        if drain_until is not None and status is not SiteStatus.DRAINING:
            raise InvalidTransition("only draining has an end")
        if drain_until is not None and drain_until <= clock.now():
            raise FieldRefused("until", "a drain ends in the future")
        old = SiteStatus(site.status)
        if drain_until == site.drain_until and (why := status_refused(site, status)):
            raise InvalidTransition(f"{site.name}: {why}")
        values = {"status": status, "status_actor": actor, "status_reason": reason, "drain_until": drain_until}
        written(site, {"status": old}, **values)
        log.info("site status", site=site.name, old=old.value, new=status.value, actor=actor, reason=reason)


def site_follow(*, site: Site, actor: str, reason: str) -> None:
    """Leave the site's status to the Site Status Board from now on; it stays as it is until that says otherwise.

    Raises:
        InvalidTransition: it is so already, or no board is followed.
        StaleState: it was changed meanwhile.
    """
    with _audited(actor, "site_follow", site, reason, before=site.status_actor):
        must_apply(site.name, follow_refused(site))
        written(site, {"status": SiteStatus(site.status)}, status_actor="", drain_until=None)


def follow_refused(site: Site) -> str:
    """Why there is nothing to leave to the board; empty if there is."""
    if not conf().site_status_url:
        return "WMS2_SITE_STATUS_URL is not set: no board is followed."
    return "It follows SSB already." if site.status_actor in FED else ""


def site_note(*, site: Site, notes: Mapping[str, Any], actor: str, reason: str) -> None:
    """Put operators' notes about a site (``config_data``) in place of the old ones. The same again changes nothing."""
    if site.config_data == notes:
        return
    with _audited(actor, "site_note", site, reason, old=site.config_data, new=dict(notes)):
        written(site, config_data=dict(notes))


def site_ban_by_operator(
    *, site: Site, actor: str, reason: str, workflow: Any = None, expires_at: datetime | None = None, insist: bool = False
) -> SiteBan:
    """Ban a site for one workflow or for all. Raises InvalidTransition: more than half of the sites would be banned, and the
    operator does not insist."""
    with _audited(actor, "site_ban", site, reason, workflow=str(workflow.pk) if workflow else "all", insist=insist):
        return site_ban(
            site=site, workflow_id=workflow.pk if workflow else None, reason=reason, created_by=actor, expires_at=expires_at,
            candidates=candidate_sites(workflow) if workflow else (), insist=insist,
        )  # fmt: skip


def site_unban_by_operator(*, site: Site, actor: str, reason: str, workflow: Any = None, ban_id: uuid.UUID | None = None) -> int:
    """Remove the bans of a site, those of one workflow, or a single one; the number removed. What stands for a request's site
    lists goes with a change of these.

    None in force is no error: done twice it is done once. Raises InvalidTransition: the single one stands for site lists.
    """
    with _audited(actor, "site_unban", site, reason, workflow=str(workflow.pk) if workflow else "all"):
        rows = bans_judged(site.name) if ban_id is None else bans_active(site.name)
        if workflow is not None:
            rows = rows.filter(workflow_id=workflow.pk)
        if ban_id is not None:
            rows = rows.filter(pk=ban_id)
            if workflow is None and any(map(stands_for_lists, rows)):
                raise InvalidTransition(f"{site.name}: {OF_LISTS}")
        removed = [ban.pk for ban in rows.select_for_update()]
        SiteBan.objects.filter(pk__in=removed).update(removed_at=clock.now(), removed_by=actor)
        if removed:
            log.info("site bans removed", site=site.name, bans=len(removed), actor=actor)
        return len(removed)


def site_bans_expire(fenced: Fenced) -> int:
    """Mark the bans that have come to their end, each once in log and audit (error-handling 6.3); how many.

    A ban is without force from its end on, whether this has run or not.
    """
    with fenced():
        over = SiteBan.objects.filter(removed_at__isnull=True, expires_at__lte=clock.now())
        ended = list(over.select_for_update(skip_locked=True))
        for ban in ended:
            ban.removed_at, ban.removed_by = ban.expires_at, EXPIRY
            ban.save(update_fields=["removed_at", "removed_by"])
            about: dict[str, Any] = {"workflow": str(ban.workflow_id or "all"), "until": ban.expires_at.isoformat()}
            log.info("site ban expired", site=ban.site_id, **about)
            audit(
                actor=AUTOMATIC, action="site_ban_expire", target=ban.site_id, target_type="site", reason=ban.reason,
                ban=str(ban.pk), **about,
            )  # fmt: skip
    return len(ended)


def schedd_drain(*, schedd: Schedd, actor: str, reason: str, move: bool = False, at_once: int = 1) -> None:
    """Drain a schedd: no new DAG goes there; what is there runs to its end, or is moved, so many DAGs ``at_once``.

    Errors as ``schedd_change_state``; also when it drains in the same way already.
    """
    schedd_change_state(schedd=schedd, state=ScheddState.DRAINING, actor=actor, reason=reason, at_once=at_once if move else 0)


def schedd_change_state(*, schedd: Schedd, state: ScheddState, actor: str, reason: str, at_once: int = 0) -> None:
    """Enable, drain or disable a schedd. Only a drain moves DAGs that are at it, ``at_once`` of them at a time; the next
    change ends it.

    Raises:
        InvalidTransition: it is so already, or would become DISCOVERED, which only discovery sets.
        StaleState: it was changed meanwhile.
    """
    with audited(
        actor=actor, action="schedd_change_state", target=schedd.name, target_type="schedd", reason=reason,
        old=schedd.state, new=state, **({"at_once": at_once} if at_once else {}),
    ):  # fmt: skip
        old = ScheddState(schedd.state)
        again = schedd.state == state and schedd.drain_at_once != at_once  # drained in another way
        if not again and (why := state_refused(schedd, state)):
            raise InvalidTransition(f"{schedd.name}: {why}")
        if state is ScheddState.DISCOVERED:
            raise InvalidTransition(f"{schedd.name}: only discovery makes a schedd {state.label.lower()}")
        values: dict[str, Any] = {
            "state": state, "drain_since": None, "drain_actor": "", "drain_reason": "", "drain_at_once": 0, "drained_at": None,
        }  # fmt: skip
        if state is ScheddState.DRAINING:
            since = schedd.drain_since or clock.now()
            values |= {"drain_since": since, "drain_actor": actor, "drain_reason": reason, "drain_at_once": at_once}
        written(schedd, {"state": old}, **values)
        log.info("schedd state", schedd=schedd.name, old=old.value, new=state.value)
