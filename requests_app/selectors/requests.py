"""Requests for lists and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import QuerySet

from dags_app.counts import UnitCounts, unit_counts
from dags_app.models import DAG
from dags_app.selectors import dag_last
from outputs_app.models import OutputDataset
from outputs_app.selectors import effects_open_counts
from requests_app.models import Request, RequestStatus, RequestTransition, Workflow
from requests_app.selectors.account import Account, account_of

#: Transitions that one answer carries, newest kept; a request that was held and released for years has more.
MAX_TRANSITIONS = 500

_LARGE = (
    "request_data", "prepared", "payload_config", "production_steps", "overrides", "requestor_dn", "warnings", "splitting_params",
)  # fmt: skip
_LISTED = tuple(field.name for field in Request._meta.concrete_fields if field.name not in _LARGE)


@dataclass(frozen=True, slots=True)
class RequestPicture:
    """One request with everything its page shows."""

    request: Request
    workflow: Workflow | None
    transitions: list[RequestTransition]
    units: UnitCounts
    account: Account | None
    dag: DAG | None
    output_datasets: list[str]
    effects_open: Mapping[str, int]


def requests_stored() -> QuerySet[Request]:
    """Requests, whole."""
    return Request.objects.all()


def requests_listed() -> QuerySet[Request]:
    """Requests with their workflow's id and status; documents and specifications stay in the database."""
    return Request.objects.select_related("workflow").only(*_LISTED, "workflow__id", "workflow__status", "workflow__request_id")


def request_picture(request: Request) -> RequestPicture:
    """Everything about one request; a fixed number of queries."""
    workflow = Workflow.objects.defer("psets").filter(request_id=request.request_name).first()
    latest = RequestTransition.objects.filter(request=request).order_by("-id")[:MAX_TRANSITIONS]
    return RequestPicture(
        request=request,
        workflow=workflow,
        transitions=list(reversed(latest)),
        units=unit_counts([workflow.pk])[workflow.pk] if workflow else UnitCounts(),
        account=account_of(request, workflow) if workflow else None,
        dag=dag_last(workflow.pk) if workflow else None,
        output_datasets=_datasets(workflow) if workflow else [],
        effects_open=effects_open_counts(request.pk),
    )


def release_repeated(request: Request, *, actor: str, reason: str) -> bool:
    """Whether this very release has been done already: the request left HELD last by this actor with this reason.

    A client that lost the answer may ask again without being told that the request is not held.
    """
    if request.status == RequestStatus.HELD:
        return False
    last = RequestTransition.objects.filter(request=request, from_status=RequestStatus.HELD).order_by("-id").first()
    return last is not None and (last.actor, last.reason) == (actor, reason)


def _datasets(workflow: Workflow) -> list[str]:
    return list(OutputDataset.objects.filter(workflow=workflow).order_by("name").values_list("name", flat=True))
