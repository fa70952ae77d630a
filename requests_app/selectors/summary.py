"""The whole installation at a glance (spec 7.1, ``GET /status``): counts by status, and what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Model

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import OPEN_EFFECT, BlockStatus, Effect, ProcessingBlock
from requests_app.models import HoldCode, Request, RequestStatus, Workflow, WorkflowStatus
from requests_app.selectors.admission import AdmissionState, admission_state
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_state
from sites_app.models import Site, SiteStatus


@dataclass(frozen=True, slots=True)
class SystemSummary:
    """Counts; each mapping has every status, zeros included."""

    requests: dict[str, int]
    workflows: dict[str, int]
    held: dict[str, int]
    alerted_requests: int
    dags_live: int
    blocks: dict[str, int]
    effects_open: dict[str, int]
    sites: dict[str, int]
    admission: AdmissionState
    lifecycle: LifecycleState


def status_counts(model: type[Model], field: str, known: list[str], **filters: Any) -> dict[str, int]:
    """Rows by the values of ``field``; every known value is there."""
    # COUNT(*), not of a column: PostgreSQL then reads nothing but the index
    rows = model._default_manager.filter(**filters).order_by().values_list(field).annotate(number=Count("*"))
    return dict.fromkeys(known, 0) | {str(value): number for value, number in rows}


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The requests of one status: how many, since when the one that is longest in it, how many have an alert."""

    number: int = 0
    since: datetime | None = None
    alerted: int = 0


def request_facts() -> dict[str, StatusFacts]:
    """Every status, zeros included; two passes over indexes, since the requests are many."""
    rows = Request.objects.order_by().values_list("status")
    alerted = dict(rows.exclude(alert_code="").annotate(number=Count("*")))
    counted = rows.annotate(number=Count("*"), since=Min("status_since"))
    facts = {status: StatusFacts(number, since, alerted.get(status, 0)) for status, number, since in counted}
    return dict.fromkeys(RequestStatus.values, StatusFacts()) | facts


def system_summary() -> SystemSummary:
    """Count; a fixed number of queries."""
    requests = request_facts()
    return SystemSummary(
        requests={status: facts.number for status, facts in requests.items()},
        workflows=status_counts(Workflow, "status", WorkflowStatus.values),
        held=status_counts(Request, "hold_code", HoldCode.values, status=RequestStatus.HELD),
        alerted_requests=sum(facts.alerted for facts in requests.values()),
        dags_live=DAG.objects.filter(status__in=LIVE_DAG).count(),
        blocks=status_counts(ProcessingBlock, "status", BlockStatus.values),
        effects_open=status_counts(Effect, "state", [state.value for state in OPEN_EFFECT], state__in=OPEN_EFFECT),
        sites=status_counts(Site, "status", SiteStatus.values),
        admission=admission_state(),
        lifecycle=lifecycle_state(),
    )
