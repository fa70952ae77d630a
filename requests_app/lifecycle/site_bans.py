"""Bans that the failures of a request earn (error-handling 6.1, 6.2); told in its feed and audited, the guard's refusals too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial

from django.db import transaction

from requests_app.feed import tell
from requests_app.models import Request
from sites_app.bans import AUTOMATIC, BAN, SiteFailures, problem_sites, site_ban, site_promote
from sites_app.guard import ban_objection
from sites_app.models import Site
from sites_app.selectors import candidate_sites
from wms2.audit import audit
from wms2.errors import InvalidTransition


def sites_judge(*, request: Request, failures: Mapping[str, SiteFailures]) -> list[str]:
    """Ban for this request the sites whose failures speak against them, and promote what others ban too; the sites banned.

    In the caller's transaction. What the guard refuses is told in the feed and the audit, and banned by nobody.
    """
    workflow, problems, banned = request.workflow, problem_sites(failures), []
    candidates = candidate_sites(workflow) if problems else frozenset[str]()
    objection = ban_objection(problems, candidates) if problems else ""
    for name, seen in problems.items():
        site = Site.objects.filter(name=name).first()
        if site is None:
            continue
        why = f"{seen.against_site} of {seen.attempts} attempts of {request.request_name} failed for the site's sake"
        ban = partial(
            site_ban,
            site=site,
            workflow_id=workflow.pk,
            reason=why,
            created_by=AUTOMATIC,
            candidates=candidates,
            failure_data=asdict(seen),
        )
        if _automatic(BAN, request, site, why, ban, objection):
            banned.append(name)
            _automatic("site_ban_promote", request, site, "banned by several workflows", partial(site_promote, site))
    return banned


def _automatic(action: str, request: Request, site: Site, why: str, act: Callable[[], object], objection: str = "") -> bool:
    try:
        if objection:
            raise InvalidTransition(objection)
        with transaction.atomic():
            made = act()
    except InvalidTransition as error:
        audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why, refused=True, why=str(error))
        tell("site.ban_refused", request, site=site.name, why=str(error))
        return False
    if made is None:
        return False
    audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why)
    tell("site.banned", request, site=site.name, why=why, by=action)
    return True
