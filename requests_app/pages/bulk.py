"""One operation on selected requests, or on all that a filter finds: what it would do, and how far a run is.

The run itself is that of the REST interface (``wms2.work.bulk``).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from rest_framework.request import Request as ApiRequest

from requests_app.models import Request
from requests_app.pages.board_query import BoardQuery, keyset_page
from wms2.actions import Action, resource_type_of, undone
from wms2.admin.forms import ReasonForm, form_of
from wms2.api.problems import ProblemError
from wms2.identities.grants import denial, may
from wms2.models import BulkItem, BulkResult, BulkRun
from wms2.work.bulk import MOST_ROWS, BulkPreview, bulk_counts, bulk_preview

#: Requests that are named before a run.
NAMED = 10
#: Runs that are listed.
MOST_RUNS = 50
#: The operation that the list offers first for requests of a status.
_USUAL = {"held": "release", "new": "submit"}


class Asked(NamedTuple):
    """What an address asks for. ``error``: why nothing can be done."""

    action: Action
    rows: QuerySet[Request]
    selected: int
    error: str


class Preview(NamedTuple):
    """What is shown before a run. ``run``: its key, so that a form that is sent twice begins one."""

    run: uuid.UUID
    counts: BulkPreview
    names: list[str]
    selected: int
    undone: str


class RunOnPage(NamedTuple):
    """A run, how far it is, and a page of its rows. ``older``: address of the next page."""

    run: BulkRun
    label: str
    counts: tuple[tuple[BulkResult, int], ...]
    settled: int
    items: Sequence[BulkItem]
    result: str
    older: str
    error: str


def operations_for(user: Any, given: Mapping[str, str]) -> list[Action]:
    """Those that a user may do to many requests, the usual one for the status asked for first."""
    status = "held" if given.get("needs", "").startswith("held:") or given.get("hold_code") else given.get("status", "")
    found = [action for action in _of_many() if may(user, action)]
    return sorted(found, key=lambda action: action.name != _USUAL.get(status))


def operation_named(name: str) -> Action | None:
    """An operation that may be done to many requests."""
    return next((action for action in _of_many() if action.name == name), None)


def asked_for(request: HttpRequest, action: Action) -> Asked:
    """The rows that an address means: those selected, else all of its filter."""
    keys, query = request.GET.getlist("id"), BoardQuery(request)
    if request.GET.get("which") == "selected" or (keys and request.GET.get("which") != "filter"):
        try:
            rows = Request.objects.filter(pk__in=keys)
        except ValidationError:
            return Asked(action, Request.objects.none(), 0, "A selected row has no key of a request.")
        return Asked(action, rows, len(keys), "" if keys else "No row is selected: mark some, then choose again.")
    if not query.filtered:
        return Asked(action, Request.objects.none(), 0, "Choose a filter first: without one, all requests would be meant.")
    rows = query.rows(Request.objects.all())
    error = "; ".join(f"{name}: {why}" for name, why in query.errors.items())
    if not error and len(rows.order_by().values_list("pk")[: MOST_ROWS + 1]) > MOST_ROWS:
        error = f"More than {MOST_ROWS:,} requests are found; narrow the filter."
    return Asked(action, rows, 0, error)


def preview_of(asked: Asked, user: Any) -> Preview:
    """What a run would do now."""
    names = list(asked.rows.order_by("attention", "status_since").values_list("request_name", flat=True)[:NAMED])
    counts = bulk_preview(asked.action, asked.rows.order_by("pk"), user)
    return Preview(uuid.uuid4(), counts, names, asked.selected, undone(resource_type_of(Request), asked.action))


def form_for(action: Action, user: Any, given: QueryDict | None = None) -> ReasonForm:
    """The operation's form, without what this user may not give."""
    form = form_of(action)(given)
    for one in action.fields:
        if one.roles and denial(user, replace(action, roles=one.roles)):
            del form.fields[one.name]
    return form


def bulk_runs_latest() -> list[tuple[BulkRun, str, Mapping[str, int]]]:
    """The newest, each with its operation in words and its rows by result; two statements."""
    runs = list(BulkRun.objects.all()[:MOST_RUNS])
    counts = bulk_counts([run.pk for run in runs])
    return [(run, _label(run), counts[run.pk]) for run in runs]


def run_on_page(run: BulkRun, request: HttpRequest) -> RunOnPage:
    """Two statements."""
    counts, result = bulk_counts([run.pk])[run.pk], request.GET.get("result", "")
    rows = BulkItem.objects.filter(run=run)
    items, older, error = list[BulkItem](), "", ""
    if result and result not in BulkResult.values:
        error = f"result: must be one of: {', '.join(BulkResult.values)}"
    else:
        wanted = rows.filter(result=result) if result else rows
        try:
            items, older = keyset_page(wanted, ApiRequest(request), ("position",), ("position",))
        except ProblemError as problem:
            error = f"{problem.problem.field}: {problem.problem.detail}"
    return RunOnPage(
        run=run,
        label=_label(run),
        counts=tuple((each, counts[each]) for each in BulkResult if counts[each]),
        settled=run.total - counts[BulkResult.WAITING],
        items=items,
        result=result,
        older=older,
        error=error,
    )


def _of_many() -> list[Action]:
    return [action for action in resource_type_of(Request).actions if action.many and action.admin]


def _label(run: BulkRun) -> str:
    action = operation_named(run.operation) if run.resource == resource_type_of(Request).name else None
    return action.label if action else run.operation.replace("_", " ").capitalize()
