"""Requests for lists and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from dags_app.counts import JobSuccess, UnitCounts, job_success, unit_counts
from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import dag_last
from outputs_app.models import OPEN_EFFECT, Effect
from requests_app.models import KeptAccount, Request, RequestStatus, RequestTransition, RequestWatch, Workflow
from requests_app.selectors.account import account_of
from requests_app.selectors.admission import QueuedRow, queued_row
from requests_app.selectors.explain import Explanation, explain
from wms2.runtime.sql import sql_rows

#: Transitions that one answer carries, newest kept; a request that was held and released for years has more.
MAX_TRANSITIONS = 500

#: What lines of pages show, and what they are ordered by.
_LISTED = (
    "request_name", "prep_id", "status", "status_since", "stop_intent", "hold_code", "hold_reason", "waiting_for",
    "next_attempt_at", "last_error", "alert_code", "alerted_at", "priority", "urgent", "campaign", "requestor", "created_at",
    "derived_by", "completed_at", "failing", "attention",
)  # fmt: skip


#: Watched requests of one user that a list finds.
MOST_WATCHED = 1000
#: Columns that sort lists of them, and in which ways.
SORTED_BY = ("request_name", "status_since", "priority", "campaign", "requestor", "created_at")
ORDERINGS = tuple(sign + name for name in SORTED_BY for sign in ("", "-"))

_NAMES = """
SELECT ARRAY(SELECT other.request_name FROM request_dependencies d JOIN requests other ON other.id = d.to_request_id
             WHERE d.from_request_id = r.id ORDER BY 1),
       ARRAY(SELECT other.request_name FROM request_dependencies d JOIN requests other ON other.id = d.from_request_id
             WHERE d.to_request_id = r.id ORDER BY 1),
       ARRAY(SELECT o.name FROM output_datasets o JOIN workflows w ON w.id = o.workflow_id
             WHERE w.request_name = r.request_name ORDER BY 1)
FROM requests r WHERE r.id = %s
"""


class Names(NamedTuple):
    """Requests that one depends on, those that depend on it, and its output datasets."""

    depends_on: list[str]
    dependents: list[str]
    output_datasets: list[str]


@dataclass(frozen=True, slots=True)
class RequestDetail:
    """One request with everything its page shows."""

    request: Request
    workflow: Workflow | None
    transitions: list[RequestTransition]
    units: UnitCounts
    account: KeptAccount | None
    dag: DAG | None
    names: Names
    effects_open: Mapping[str, int]
    job_success: JobSuccess | None
    queued: QueuedRow | None

    @property
    def explanation(self) -> Explanation:
        """Where it stands, in sentences."""
        return explain(self.request, dag=self.dag)

    @property
    def removing(self) -> list[DAG]:
        """What a stop takes out of queues, with its jobs as the schedd counted them last; none once that is proved."""
        return [self.dag] if self.dag and self.request.status == RequestStatus.STOPPING and self.dag.status in LIVE_DAG else []


def requests_listed() -> QuerySet[Any]:
    """Requests with what a line of a page shows, and the id of their workflow as ``workflow_key``."""
    return Request.objects.only(*_LISTED).annotate(workflow_key=F("workflow__id"))


def requests_of_user(rows: QuerySet[Request], user: Any) -> QuerySet[Request]:
    """Of these a user's own, and those that they watch, whose keys are read first, since they are few."""
    watched = list(RequestWatch.objects.filter(user=user.pk).values_list("request", flat=True)[:MOST_WATCHED])
    return rows.filter(Q(requestor=user.get_username()) | Q(pk__in=watched))


def with_watching(rows: QuerySet[Request], user: Any) -> QuerySet[Request]:
    """These, read with whether this user watches them (``watched_by``)."""
    return rows.annotate(watcher=Exists(RequestWatch.objects.filter(request=OuterRef("pk"), user=user.pk)))


def watched_by(request: Request, user: Any) -> bool:
    """Whether this user watches a request; asked for where it was not read with it for the user (``with_watching``)."""
    known = getattr(request, "watcher", None)
    return RequestWatch.objects.filter(request=request, user=user.pk).exists() if known is None else bool(known)


def requests_with_workflow() -> QuerySet[Request]:
    """Requests, whole, with their lease, their account, what ReqMgr2 has of them, and their workflow but for its PSets."""
    return Request.objects.select_related("workflow__kept_account", "lease", "reqmgr2", "in_group").defer("workflow__psets")


def workflow_of(request: Request) -> Workflow | None:
    """Its workflow, as it was read with it (``requests_with_workflow``)."""
    return getattr(request, "workflow", None)


def request_changed(request: Request) -> RequestDetail:
    """Everything about one request that an operation has just changed: its workflow was read before."""
    return request_detail(requests_with_workflow().get(pk=request.pk))


def request_detail(request: Request) -> RequestDetail:
    """Everything about one of ``requests_with_workflow``; a fixed number of queries."""
    workflow = workflow_of(request)
    latest = RequestTransition.objects.filter(request=request).order_by("-id")[:MAX_TRANSITIONS]
    units = unit_counts([workflow.pk])[workflow.pk] if workflow else UnitCounts()
    effects = Effect.objects.filter(request_id=request.pk, state__in=OPEN_EFFECT).order_by()
    return RequestDetail(
        request=request,
        workflow=workflow,
        transitions=list(reversed(latest)),
        units=units,
        account=account_of(request, workflow, units) if workflow else None,
        dag=dag_last(workflow.pk) if workflow else None,
        names=names_about(request),
        effects_open=dict(effects.values_list("state").annotate(number=Count("id"))),
        job_success=job_success(workflow.pk) if workflow else None,
        queued=queued_row(request),
    )


def release_repeated(request: Request, *, actor: str, reason: str) -> bool:
    """Whether this very release has been done already: the request left HELD last by this actor with this reason.

    A client that lost the answer may ask again without an error that the request is not held.
    """
    if request.status == RequestStatus.HELD:
        return False
    last = RequestTransition.objects.filter(request=request, from_status=RequestStatus.HELD).order_by("-id").first()
    return last is not None and (last.actor, last.reason) == (actor, reason)


def names_about(request: Request) -> Names:
    """Of what one request has to do with, in order; one query."""
    return Names(*next(iter(sql_rows(_NAMES, [request.pk])), ([], [], [])))  # none: it has gone meanwhile
