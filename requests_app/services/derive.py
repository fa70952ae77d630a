"""Derived requests, and the flush of an input that may grow (spec: production status, Special States; ADR 0024).

Owns the operations. How the work is divided is ``requests_app.work.derived``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Exists, OuterRef

from dags_app.models import WorkUnit, WorkUnitState
from outputs_app.blocks.ownership import names_claim
from outputs_app.effects.invalidation import invalidation_asked
from outputs_app.models import OPEN_EFFECT, REPORTS, Effect, IntegrityCase, OutputDataset, OutputFile, Validity
from requests_app import intake
from requests_app.feed import emit_event
from requests_app.models import Request, RequestStatus, Workflow
from requests_app.services.common import (
    free_name,
    give_up,
    live_dag_of,
    put,
    recorded_operation,
    request_known_refuse,
    workflow_known,
)
from requests_app.services.decisions import request_set_sites
from requests_app.states import record_creation
from requests_app.work.derived import work_hand_over
from requests_app.work.groups import group_inherit
from requests_app.work.input_reading import input_open
from requests_app.work.ledger import ledger_of
from requests_app.work.overrides import Overrides, check_pins
from requests_app.work.planner import round_preview
from requests_app.work.rounds import round_files_at_rest
from requests_app.work.spec import spec_of, spec_to_json
from wms2.actions import AlreadyDone, applies
from wms2.errors import InvalidTransition, LedgerViolation, PlanningRefused, ServiceError
from wms2.runtime import clock
from wms2.web.formatting import counted

S = RequestStatus
_ENDED = (S.FAILED, S.ABORTED, S.COMPLETED)
#: Nothing of it runs, and it may have work that was not used.
_FROM = (S.QUEUED, S.ACTIVE, S.HELD, *_ENDED)
_OUR_SUFFIX = re.compile(r"_d\d+\Z")
_REQUEST = (
    "requestor", "requestor_dn", "group", "payload_config", "splitting_params", "input_dataset", "campaign", "prep_id",
    "warnings", "urgent", "adaptive", "cleanup_policy", "family",
)  # fmt: skip
_WORKFLOW = (
    "input_dataset", "splitting_algo", "splitting_params", "config_cache_id", "psets", "input_imported_at", "input_read_at",
    "input_grew_at", "input_closed_at",
)  # fmt: skip
_DATASET = ("name", "step", "module", "tier", "registration", "tape_rse")
#: Work units that the preview of a flush names.
_NAMED = 20


def request_derive(
    *,
    request: Request,
    actor: str,
    reason: str,
    request_name: str | None = None,
    failed: bool = False,
    priority: int | None = None,
    site_whitelist: Sequence[str] = (),
    site_blacklist: Sequence[str] = (),
    overrides: Overrides | None = None,
    payload_config: Mapping[str, Any] | None = None,
) -> Request:
    """Make a request of what this one has not used, into the same datasets; this one ends what it has and takes nothing new.

    Args:
        request_name: of the new one; without it ``<name>_d<N>``, the first that is free.
        failed: also what failed here or was given back; the open round is closed. Always so where nothing more would be planned.
        payload_config: what is kept of a document that asked for it, beside the old one's.

    Raises:
        InvalidTransition: it runs, has something pending, has no work to give or none to keep; or a change is not possible.
        DocumentRefused: its datasets are another's by now; or the name is taken.
    """
    files = round_files_at_rest(request)
    with recorded_operation(request, actor, "request_derive", reason):
        applies(request, derive_refused(request))
        ended = request.status in _ENDED or request.complete_early
        if failed or ended:
            give_up(request, reason, files)
        old = Workflow.objects.get(request=request)
        stem = _OUR_SUFFIX.sub("", request.request_name) if request.derived_from_id else request.request_name
        new = _like(request, old, request_name or free_name(f"{stem}_d", 1))
        work_hand_over(old, new.workflow, failed=failed or ended)
        _change(new, priority, overrides, payload_config)
        if site_whitelist or site_blacklist:
            white = site_whitelist or spec_of(new.workflow).site_whitelist
            request_set_sites(request=new, site_whitelist=white, site_blacklist=site_blacklist, actor=actor, reason=reason)
        put(request, derived_by=new.request_name)
        for child in request.dependents.all():
            child.depends_on.add(new)
        _judge(request, old, new, ended=ended)
        record_creation(new, actor=actor, reason=f"derived from {request.request_name}: {reason}")
        emit_event("request.derived", request, by=new.request_name, actor=actor)
        new.refresh_from_db()
        return new


def derive_refused(request: Request) -> str:
    """Why nothing can be derived from it now, and what to do; empty if something can."""
    if request.derived_by:
        return f"{request.derived_by} has been derived from it already; derive from that."
    if request.superseded_by_request:
        return f"It is replaced by {request.superseded_by_request}, which does all of its work."
    workflow = workflow_known(request)
    begun = workflow is not None and (workflow.input_imported_at is not None or not workflow.input_dataset)
    if not begun or request.status not in _FROM or (request.status == S.COMPLETED and not request.complete_early):
        return (
            f"It is {request.get_status_display()}; it can be derived from while it is queued, held or has ended: hold it first."
        )
    if request.status == S.ACTIVE or live_dag_of(request) is not None:
        return "Its DAG runs: hold it first."
    if invalidation_asked(request_id=request.pk, request_epoch=request.epoch):
        return "Its outputs are taken back: import its document anew."
    if WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE_UNACCOUNTED).exists():
        return "Work units of it are done but not accounted: repair their manifests first."
    cut = IntegrityCase.objects.filter(file=OuterRef("pk"), cut__has_key="at")
    gone = OutputFile.objects.filter(~Exists(cut), block__workflow=workflow, validity=Validity.INVALID).order_by("id").first()
    if gone is not None:
        return f"Files of it were taken back, e.g. {gone}, and neither request would make them again: restart it."
    pending = Effect.objects.filter(request=request, state__in=OPEN_EFFECT, epoch=request.epoch).exclude(kind__in=REPORTS).count()
    if pending:
        return f"{counted(pending, 'registration')} of it are not done: wait for them; retry or discard those that are stuck."
    return ""


def _like(request: Request, old: Workflow, name: str) -> Request:
    """Request, workflow and datasets, as yet without work of their own."""
    request_known_refuse(request_name=name)
    new = Request.objects.create(
        request_name=name, status=S.SUBMITTED, derived_from=request, request_data=request.request_data,
        priority=request.priority, overrides=request.overrides, **{field: getattr(request, field) for field in _REQUEST},
    )  # fmt: skip
    group_inherit(request, new)
    spec = spec_to_json(replace(spec_of(old), request_name=name))
    workflow = Workflow.objects.create(request=new, spec=spec, **{field: getattr(old, field) for field in _WORKFLOW})
    workflow.refresh_from_db()
    new.workflow = workflow
    names = [output.dataset for output in spec_of(old).outputs]
    names_claim(request_id=new.pk, family=new.family, names=names)
    rows = OutputDataset.objects.filter(workflow=old).order_by("pk").values(*_DATASET)
    OutputDataset.objects.bulk_create(OutputDataset(workflow=workflow, **row) for row in rows)
    return new


def _change(new: Request, priority: int | None, overrides: Overrides | None, payload_config: Mapping[str, Any] | None) -> None:
    changed = overrides or Overrides()
    check_pins(changed, spec_of(new.workflow))
    new.overrides = {**new.overrides, **changed.set_fields()}
    new.payload_config = {**new.payload_config, **(payload_config or {})}
    if priority is not None:
        new.priority, new.request_data = priority, intake.with_fields(new.request_data, RequestPriority=priority)
    new.save(update_fields=["overrides", "payload_config", "priority", "request_data"])


def _judge(request: Request, old: Workflow, new: Request, *, ended: bool) -> None:
    """Both have something to do; what neither will do is a warning."""
    kept, given = ledger_of(old), ledger_of(new.workflow)
    if not given.work_left and input_open(new.workflow) is None:
        raise InvalidTransition(f"{request.request_name}: it has no work to hand over: {kept.summary()}")
    if not ended and not kept.work_done and not kept.work_left:
        raise InvalidTransition(f"{request.request_name}: it would keep no work; change it as it is, or restart it")
    if ended and kept.work_left:
        left = f"part of files or lumis that {request.request_name} has done is made by neither; its account: {kept.summary()}"
        Request.objects.filter(pk=new.pk).update(warnings=[*new.warnings, left])


def derive_preview(request: Request) -> list[str]:
    """What would become of the work."""
    if derive_refused(request):
        return []
    try:
        summary = ledger_of(request.workflow, whole=False).summary()
    except LedgerViolation as error:
        summary = str(error)
    words = [
        f"A new request takes over what has not been used of it, and writes into the same datasets. Now: {summary}.",
        "What is planned, done, left out or tried stays here, is run, recovered and registered as ever, and inherited there.",
    ]
    if request.status in _ENDED:
        return [*words, "It has ended, so what failed or was given back is taken over, too."]
    return [*words, "It takes no new input from then on, is not extended, and is shown as Completing."]


def request_flush(*, request: Request, actor: str, reason: str) -> None:
    """No more input: DBS is not asked again, and the next planning takes what is left, also what fills no work unit."""
    with recorded_operation(request, actor, "request_flush", reason):
        if applies(request, flush_refused(request)):
            Workflow.objects.filter(request=request).update(input_closed_at=clock.now())
            put(request, flush=True, **({"next_attempt_at": None} if request.status == S.QUEUED else {}))


def flush_refused(request: Request) -> str:
    """Why there is nothing to flush; empty if there is."""
    if request.flush:
        return AlreadyDone("It is flushed already.")
    workflow = workflow_known(request)
    if workflow is None or request.status in _ENDED or workflow.input_imported_at is None:
        return f"It is {request.get_status_display()}; it can be flushed once its input is read and until it ends."
    if input_open(workflow) is None:
        return "Its input is not open: nothing waits for more of it, everything is planned."
    return ""


def flush_preview(request: Request) -> list[str]:
    """The work units that will be planned."""
    if flush_refused(request):
        return []
    words = [f"DBS is not asked for more of {request.input_dataset}: what has been read is all of it."]
    try:
        planned = round_preview(request)
    except (PlanningRefused, LedgerViolation, ServiceError) as error:
        return [*words, f"What is left cannot be planned now: {error}"]
    if planned is None or not planned.dag.units:
        return [*words, "Nothing is left to be planned."]
    units = planned.dag.units
    groups = [
        f"{unit.name}: {counted(len(unit.jobs), 'job')}, {counted(unit.events, 'event')}, at {', '.join(sorted(unit.sites))}"
        for unit in units[-_NAMED:]
    ]
    more = [f"{len(units) - _NAMED} more before these."] if len(units) > _NAMED else []
    return [
        *words,
        f"{counted(len(units), 'work unit is', 'work units are')} planned next, the last ones however small:",
        *more,
        *groups,
    ]
