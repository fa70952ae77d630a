"""Where a request may run, changed while it is under way (contracts of ReqMgr2: site lists of acquired requests)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from requests_app import intake
from requests_app.models import Request, Workflow
from requests_app.services.acting import acting, applies
from requests_app.services.verbs import priority_refused
from requests_app.work.spec import spec_of, spec_to_json
from sites_app.bans import bans_active
from sites_app.models import Site
from sites_app.selectors import candidate_sites, known_site_names
from sites_app.services import site_ban_by_operator, site_unban_by_operator
from wms2 import clock
from wms2.errors import InvalidTransition

#: What such a ban says; it is lifted when the site comes back.
LEFT = "no longer on the request's site lists"
_FOR_GOOD = timedelta(days=3650)


def request_set_sites(
    *, request: Request, site_whitelist: Sequence[str], actor: str, reason: str, site_blacklist: Sequence[str] = ()
) -> None:
    """Replace the site lists. Further rounds are planned for them; a rescue avoids sites that are gone; running jobs go on.

    Raises:
        InvalidTransition: no site is left, one is unknown, or the request is over.
    """
    white, black = sorted(set(site_whitelist)), sorted(set(site_blacklist))
    with acting(request, actor, "request_set_sites", reason, site_whitelist=white, site_blacklist=black):
        applies(request, priority_refused)
        if not set(white) - set(black):
            raise InvalidTransition("the site lists leave no site")
        known = known_site_names()
        unknown = sorted({*white, *black} - known)
        if known and unknown:
            raise InvalidTransition(f"{unknown[0]} is not a site of CRIC")
        document = intake.with_sites(request.request_data, white, black)
        Request.objects.filter(pk=request.pk).update(request_data=document, prepared=None)
        request.request_data, request.prepared = document, None
        workflow = Workflow.objects.filter(request=request).first()
        if workflow is not None:
            before = candidate_sites(workflow)
            spec = replace(spec_of(workflow), site_whitelist=tuple(white), site_blacklist=tuple(black))
            workflow.spec = spec_to_json(spec)
            workflow.save(update_fields=["spec"])
            _bans(workflow, before - candidate_sites(workflow), candidate_sites(workflow) - before, actor, reason)


def _bans(workflow: Workflow, gone: frozenset[str], back: frozenset[str], actor: str, reason: str) -> None:
    """The files of a DAG are fixed; what its rescue avoids is not."""
    until, told = clock.now() + _FOR_GOOD, f"{LEFT}: {reason}"
    for site in Site.objects.filter(name__in=gone):
        site_ban_by_operator(site=site, actor=actor, reason=told, workflow=workflow, expires_at=until, insist=True)
    for ban in bans_active().filter(site_id__in=back, workflow_id=workflow.pk, reason__startswith=LEFT).select_related("site"):
        site_unban_by_operator(site=ban.site, actor=actor, reason=reason, workflow=workflow, ban_id=ban.pk)
