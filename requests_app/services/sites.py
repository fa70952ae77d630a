"""An operator's word on sites, and bans that failures earn; each with a reason, audited, refusals too (error-handling 6)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from requests_app.models import Event, Request, Workflow
from sites_app.bans import AUTOMATIC, SiteFailures, bans_expire, problem_sites, site_ban, site_promote, site_unban
from sites_app.models import Site, SiteBan, SiteStatus
from sites_app.selectors import candidate_sites
from sites_app.statuses import site_set_status
from wms2.audit import audit, audited
from wms2.errors import InvalidTransition
from wms2.locks import Fenced


def _told(actor: str, action: str, site: Site, reason: str, **evidence: Any) -> AbstractContextManager[None]:
    return audited(actor=actor, action=action, target=site.name, target_type="site", reason=reason, **evidence)


def site_change_status(*, site: Site, status: SiteStatus, actor: str, reason: str, drain_until: datetime | None = None) -> None:
    """Enable, drain (until), disable a site. DAGs that run go on; each later submission looks again.

    Raises:
        InvalidTransition: it is so already.
        StaleState: somebody else changed it meanwhile.
    """
    until = drain_until.isoformat() if drain_until else ""
    with _told(actor, "site_change_status", site, reason, old=site.status, new=status, drain_until=until):
        site_set_status(site=site, status=status, actor=actor, reason=reason, drain_until=drain_until)


def site_note(*, site: Site, notes: Mapping[str, Any], actor: str, reason: str) -> None:
    """Put operators' notes about a site (``config_data``) in place of the old ones. The same again changes nothing."""
    if site.config_data == notes:
        return
    with _told(actor, "site_note", site, reason, old=site.config_data, new=dict(notes)):
        Site.objects.filter(pk=site.pk).update(config_data=dict(notes), updated_at=timezone.now())
    site.config_data = dict(notes)


def site_ban_by_operator(
    *,
    site: Site,
    actor: str,
    reason: str,
    workflow: Workflow | None = None,
    expires_at: datetime | None = None,
    insist: bool = False,
) -> SiteBan:
    """Ban a site for one workflow or for all.

    Raises:
        InvalidTransition: more than half of the sites would be banned, and the operator does not insist.
    """
    with _told(actor, "site_ban", site, reason, workflow=str(workflow.pk) if workflow else "all", insist=insist):
        return site_ban(
            site=site,
            workflow_id=workflow.pk if workflow else None,
            reason=reason,
            created_by=actor,
            expires_at=expires_at,
            candidates=candidate_sites(workflow) if workflow else (),
            insist=insist,
        )


def site_unban_by_operator(
    *, site: Site, actor: str, reason: str, workflow_id: uuid.UUID | None = None, ban_id: uuid.UUID | None = None
) -> int:
    """Remove the bans of a site, those of one workflow, or a single one; the number removed.

    None in force is no error: done twice it is done once.
    """
    with _told(actor, "site_unban", site, reason, workflow=str(workflow_id or "all")):
        return len(site_unban(site=site, actor=actor, workflow_id=workflow_id, ban_id=ban_id))


def site_bans_expire(fenced: Fenced) -> int:
    """Tell of the bans that have come to their end, in log and audit, each once; how many."""
    with fenced():
        ended = bans_expire()
        for ban in ended:
            audit(
                actor=AUTOMATIC,
                action="site_ban_expire",
                target=ban.site_id,
                target_type="site",
                reason=ban.reason,
                ban=str(ban.pk),
                workflow=str(ban.workflow_id or "all"),
                until=ban.expires_at.isoformat(),
            )
    return len(ended)


def sites_judge(*, request: Request, failures: Mapping[str, SiteFailures]) -> list[str]:
    """Ban for this request the sites whose failures speak against them, and promote what others ban too; the sites banned.

    In the caller's transaction. What the guard refuses is told in the feed and the audit, and banned by nobody.
    """
    workflow = request.workflow
    banned = []
    for name, seen in problem_sites(failures).items():
        site = Site.objects.filter(name=name).first()
        if site is None:
            continue
        why = f"{seen.against_site} of {seen.attempts} attempts of {request.request_name} failed for the site's sake"

        def ban(site: Site = site, why: str = why, seen: SiteFailures = seen) -> object:
            return site_ban(
                site=site,
                workflow_id=workflow.pk,
                reason=why,
                created_by=AUTOMATIC,
                candidates=candidate_sites(workflow),
                failure_data=asdict(seen),
            )

        if _automatic("site_ban", request, site, why, ban):
            banned.append(name)
            _automatic("site_ban_promote", request, site, "banned by several workflows", partial(site_promote, site))
    return banned


def _automatic(action: str, request: Request, site: Site, why: str, act: Callable[[], object]) -> bool:
    try:
        with transaction.atomic():
            made = act()
    except InvalidTransition as error:
        audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why, refused=True, why=str(error))
        Event.objects.create(request=request, kind="site.ban_refused", data={"site": site.name, "why": str(error)})
        return False
    if made is None:
        return False
    audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why)
    Event.objects.create(request=request, kind="site.banned", data={"site": site.name, "why": why, "by": action})
    return True
