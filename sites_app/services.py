"""What operators decide on sites and schedds, with a reason, audited, refusals too; and the end of bans (error-handling 6)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from django.utils import timezone

from sites_app.bans import AUTOMATIC, bans_expire, site_ban, site_unban
from sites_app.models import Schedd, ScheddState, Site, SiteBan, SiteStatus
from sites_app.schedds import schedd_set_state
from sites_app.selectors import candidate_sites
from sites_app.statuses import site_set_status
from wms2.audit import audit, audited
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
    workflow: Any = None,
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


def site_unban_by_operator(*, site: Site, actor: str, reason: str, workflow: Any = None, ban_id: uuid.UUID | None = None) -> int:
    """Remove the bans of a site, those of one workflow, or a single one; the number removed.

    None in force is no error: done twice it is done once.
    """
    with _told(actor, "site_unban", site, reason, workflow=str(workflow.pk) if workflow else "all"):
        return len(site_unban(site=site, actor=actor, workflow_id=workflow.pk if workflow else None, ban_id=ban_id))


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


def schedd_change_state(*, schedd: Schedd, state: ScheddState, actor: str, reason: str) -> None:
    """Enable, drain or disable a schedd. DAGs at it are neither stopped nor moved.

    Raises:
        InvalidTransition: it is so already.
        StaleState: somebody else changed it meanwhile.
    """
    with audited(
        actor=actor, action="schedd_change_state", target=schedd.name, target_type="schedd", reason=reason,
        old=schedd.state, new=state,
    ):  # fmt: skip
        schedd_set_state(schedd=schedd, state=state)
