"""Attempts by site: all of a workflow so far, and those that speak against the site (error-handling 6.1)."""

from __future__ import annotations

import uuid
from collections import defaultdict

from django.db.models import Sum

from dags_app.models import FailureCategory, FailureGroup, WorkUnit, WorkUnitState

#: Failures that may be the site's fault.
AGAINST_SITE = (FailureCategory.INFRASTRUCTURE, FailureCategory.DATA)


def site_attempts(workflow_id: uuid.UUID) -> dict[str, tuple[int, int]]:
    """Site -> (attempts, attempts that failed for the site's sake). Jobs of done units count as attempts that did well."""
    attempts: dict[str, int] = defaultdict(int)
    against: dict[str, int] = defaultdict(int)
    for site, category, number in FailureGroup.objects.filter(workflow_id=workflow_id).values_list(
        "site", "category", "attempts"
    ):
        attempts[site] += number
        if category in AGAINST_SITE:
            against[site] += number
    done = WorkUnit.objects.filter(workflow_id=workflow_id, state=WorkUnitState.DONE).values("site")
    for row in done.annotate(number=Sum("jobs")):
        attempts[row["site"]] += row["number"]
    return {site: (number, against[site]) for site, number in attempts.items() if site}


def failure_summary(workflow_id: uuid.UUID) -> str:
    """The most frequent kind of failure in words; empty when none is known."""
    group = FailureGroup.objects.filter(workflow_id=workflow_id).order_by("-given_up", "-attempts", "id").first()
    if group is None:
        return ""
    where = f" at {group.site}" if group.site else ""
    step = f" in {group.step}" if group.step else ""
    return f"most often {group.code} ({group.category}){step}{where}, {group.attempts} times: {group.reason}"[:1000]
