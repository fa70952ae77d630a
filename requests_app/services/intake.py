"""From a document, fetched or given, to a request row (spec 4.3). Refused documents leave nothing behind."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction

from outputs_app.blocks.ownership import names_claim, names_refuse
from requests_app import intake
from requests_app.limits import limits_now
from requests_app.models import HoldCode, ReqMgr2Request, Request, RequestStatus
from requests_app.services.common import request_known_refuse
from requests_app.services.derive import derive_refused, request_derive
from requests_app.services.groups import group_join, parents_set
from requests_app.services.workflow import draft_of, draft_prepare
from requests_app.states import hold_changes, record_creation, transition
from requests_app.work.ledger import Ledger
from requests_app.work.overrides import Overrides, read_pools
from requests_app.work.production_steps import steps_read, steps_refused, steps_rounded_by
from requests_app.work.spec import PREPARED, Prepared, spec_of
from wms2.adapters import factory
from wms2.adapters.reqmgr2 import Seen
from wms2.audit import audit
from wms2.conf import conf
from wms2.errors import DocumentRefused, FieldRefused, InvalidTransition, NotFoundInService, Problem
from wms2.runtime import clock
from wms2.runtime.notify import EVALUATE_REQUEST, notify

_QUEUED = "the work queue of WMCore has it too"


@dataclass(frozen=True, slots=True)
class Received:
    """An import as it was asked for. Without ``document``, ReqMgr2 is asked for ``request_name``.

    Args:
        submit: False: stored as NEW.
        adaptive: whether it runs in rounds sized by what was measured; None: as ``adaptive_default`` says.
        priority: instead of the document's.
        pools: HTCondor pools that its DAGs may go to; none: all.
        family_of: a request into whose datasets it may write; ``family_reason`` says why.
        in_group: with which it completes.
        depends_on: requests that complete before it begins.
        outputs: what a document that was not checked is known to write.
    """

    document: dict[str, Any] | None = None
    request_name: str | None = None
    urgent: bool = False
    submit: bool = True
    adaptive: bool | None = None
    priority: int | None = None
    production_steps: Sequence[Mapping[str, Any]] = ()
    pools: Sequence[str] = ()
    family_of: str = ""
    family_reason: str = ""
    in_group: str = ""
    depends_on: Sequence[str] = ()
    outputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is asked for: the name given, else what the document says, whether or not that is one."""
        return self.request_name or str((self.document or {}).get("RequestName", ""))

    @property
    def family(self) -> uuid.UUID | None:
        """That of ``family_of``; None for a family of its own.

        Raises:
            DocumentRefused: there is no such request, or no reason is given.
        """
        if not self.family_of:
            return None
        if not self.family_reason.strip():
            raise DocumentRefused([Problem("family_reason", f"say why it may write into the datasets of {self.family_of}")])
        relative = Request.objects.filter(request_name=self.family_of).first()
        if relative is None:
            raise DocumentRefused([Problem("family_of", f"there is no request {self.family_of}")])
        return relative.family


@dataclass(frozen=True, slots=True)
class Checked:
    """A document that may be run: as it was read, and what it comes to."""

    draft: intake.Draft | None  # None: of ``again``, which asks for what another request has not done
    prepared: Prepared
    again: intake.Resubmission | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The datasets it will write."""
        return tuple(output.dataset for output in self.prepared.spec.outputs)


def request_import(
    *,
    document: dict[str, Any],
    request_name: str | None,
    actor: str,
    asked: Received | None = None,
    checked: Checked | None = None,
    seen: Seen | None = None,
) -> Request:
    """Store a document as a request, SUBMITTED or (``submit=False``) NEW, that owns the datasets it will write.

    Args:
        asked: all but its document, name and priority.
        checked: what ``request_check`` has made of this document: it is not read again, here or by the life cycle, unless it
            stays NEW, maybe for long. Without it the document is parsed, and services are asked in SUBMITTED.
        seen: as which it is in ReqMgr2, under the document's own name, if that is where it comes from.

    Raises:
        DocumentRefused: every problem by field, also a dataset that belongs to another request; nothing stored.
        RequestKnown: there is one of this name.
        InvalidTransition: a production step is wrong; nothing stored.
    """
    asked = asked or Received()
    try:
        own = Overrides(pools=tuple(read_pools(asked.pools)) or None)
    except FieldRefused as error:
        raise DocumentRefused([Problem(error.field, str(error))]) from error
    if checked is not None and checked.again is not None:
        if not asked.submit or asked.production_steps:
            raise DocumentRefused([Problem("RequestType", "a resubmission begins at once, without production steps")])
        changes: dict[str, Any] = {} if asked.adaptive is None else {"adaptive": asked.adaptive}
        return _import_again(checked, checked.again, own, actor, seen, urgent=asked.urgent, **changes)
    draft = (checked.draft if checked is not None else None) or draft_of(document, request_name)
    identity, outputs = draft.identity, checked.outputs if checked is not None else asked.outputs
    steps = steps_read(asked.production_steps)
    refused = steps_refused(steps, priority=identity.priority, urgent=asked.urgent)
    if refused:
        raise DocumentRefused([Problem("production_steps", refused)])
    made = draft.spec.generation
    rounded: list[str] = []
    if made is not None:
        rounded = steps_rounded_by(steps, Ledger(all_events=made.events), made.events_per_job * limits_now().jobs_per_work_unit)
    request = Request(
        family=asked.family or uuid.uuid4(),
        request_name=draft.spec.request_name,
        requestor=identity.requestor or actor,
        requestor_dn=identity.requestor_dn,
        group=identity.group,
        request_data=document,
        payload_config={"RequestType": identity.request_type},
        splitting_params=draft.spec.splitting.shown(draft.spec.generation),
        prepared=PREPARED.dump_python(checked.prepared, mode="json") if checked is not None and asked.submit else None,
        input_dataset=draft.spec.input.dataset if draft.spec.input else "",
        campaign=draft.spec.campaign,
        prep_id=identity.prep_id,
        warnings=[*draft.spec.warnings, *rounded],
        priority=identity.priority,
        urgent=asked.urgent,
        adaptive=conf().adaptive_default if asked.adaptive is None else asked.adaptive,
        production_steps=[step.model_dump() for step in steps],
        overrides=own.set_fields(),
        status=RequestStatus.SUBMITTED if asked.submit else RequestStatus.NEW,
    )
    try:
        with transaction.atomic():
            request.save(force_insert=True)
            if seen is not None:
                reqmgr2_seen(name=str(document["RequestName"]), request=request, seen=seen)
            record_creation(request, actor=actor, reason="imported" if asked.submit else "stored as new")
            names_claim(request_id=request.pk, family=request.family, names=outputs)
            group_join(request, asked.in_group, actor)
            parents_set(request, asked.depends_on)
            evidence: dict[str, Any] = {"family_of": asked.family_of} if asked.family_of else {}
            evidence |= {"reason": asked.family_reason, "status": request.status}
            audit(actor=actor, action="request_import", target=request.request_name, **evidence)
            notify(EVALUATE_REQUEST, str(request.pk))
    except IntegrityError as error:
        if "request_name" not in str(error):
            raise
        request_known_refuse(request_name=request.request_name)
        raise
    return request


def request_check(*, document: dict[str, Any], request_name: str | None, asked: Received | None = None) -> Checked:
    """Everything that import and the life cycle would check, ConfigCache included; stores nothing.

    Raises:
        DocumentRefused: every problem by field, also a dataset that belongs to another request.
        RequestKnown: there is one of this name.
        ServiceUnavailable: ConfigCache did not answer.
    """
    draft = request_read(document=document, request_name=request_name)
    if isinstance(draft, intake.Resubmission):
        return _check_again(draft)
    family = asked.family if asked is not None else None
    checked = Checked(draft, draft_prepare(draft))
    names_refuse(family=family, names=checked.outputs)
    return checked


def request_read(*, document: dict[str, Any], request_name: str | None) -> intake.Draft | intake.Resubmission:
    """What a document says, checked as far as it alone can be; asks no service and stores nothing.

    Raises:
        DocumentRefused: every problem by field.
        RequestKnown: there is one of this name.
    """
    found = intake.read_resubmission(document, request_name=request_name) or draft_of(document, request_name)
    team = found.identity.team
    if team not in ("", conf().team) and conf().team and not conf().other_teams:
        raise DocumentRefused([Problem("Team", f"is {team}; this installation runs requests of {conf().team} only")])
    request_known_refuse(request_name=found.request_name if isinstance(found, intake.Resubmission) else found.spec.request_name)
    if isinstance(found, intake.Resubmission):
        _check_again(found)
    return found


def _check_again(again: intake.Resubmission) -> Checked:
    original = Request.objects.filter(request_name=again.original).first()
    why = (
        derive_refused(original) if original is not None else "WMS2 has no such request, and does not know what of it is missing"
    )
    if original is None or why:
        raise DocumentRefused([Problem("OriginalRequestName", f"{again.original}: {why}")])
    spec = replace(spec_of(original.workflow), request_name=again.request_name)
    return Checked(None, Prepared(spec, original.workflow.psets), again)


def _import_again(
    checked: Checked, again: intake.Resubmission, own: Overrides, actor: str, seen: Seen | None, **changes: Any
) -> Request:
    """Derived from its original: all that is not done there, also what failed."""
    memory = {"memory_mb": again.memory_mb} if again.memory_mb not in (None, checked.prepared.spec.resources.memory_mb) else {}
    try:
        with transaction.atomic():
            request = request_derive(
                request=Request.objects.get(request_name=again.original),
                actor=actor,
                reason=f"{again.request_name} asks for what is missing",
                request_name=again.request_name,
                failed=True,
                priority=again.priority,
                site_whitelist=again.site_whitelist,
                site_blacklist=again.site_blacklist,
                overrides=own.model_copy(update=memory),
                payload_config={"RequestType": again.identity.request_type, **again.acdc},
            )
            if seen is not None:
                reqmgr2_seen(name=again.request_name, request=request, seen=seen)
            Request.objects.filter(pk=request.pk).update(**changes)
            request.refresh_from_db()
    except InvalidTransition as error:
        raise DocumentRefused([Problem("OriginalRequestName", str(error))]) from error
    return request


def reqmgr2_seen(*, name: str, request: Request, seen: Seen) -> None:
    """Store the state in which a request is in ReqMgr2; in the caller's transaction."""
    ReqMgr2Request.objects.update_or_create(name=name, defaults={**fields_of(seen), "request": request, "problem": ""})


def fields_of(seen: Seen) -> dict[str, Any]:
    """As columns."""
    lists = {"site_whitelist": list(seen.site_whitelist), "site_blacklist": list(seen.site_blacklist)}
    return {"status": seen.status, "priority": seen.priority, **lists}


def request_fetch(*, request_name: str) -> dict[str, Any]:
    """The document as ReqMgr2 has it.

    Raises:
        NotFoundInService: no such request.
        ServiceUnavailable: ReqMgr2 did not answer.
    """
    document: dict[str, Any] = factory.reqmgr2().request(request_name)
    return document


def request_receive(*, received: Received, actor: str, fetched: dict[str, Any] | None = None, doubt: str = "") -> Request:
    """Fetch if need be, check with everything the life cycle checks, store. What is fetched is HELD where the work queue of
    WMCore has it too, or there is ``doubt`` that nothing else runs it (ADR 0023).

    Args:
        fetched: the document, where ReqMgr2 has just given it.

    Raises:
        DocumentRefused: every problem by field; nothing stored.
        RequestKnown: there is one of this name; found before any service is asked when the name is given.
        InvalidTransition: a production step is wrong; nothing stored.
        ServiceUnavailable: ReqMgr2, its work queue or ConfigCache did not answer; nothing stored.
    """
    name = received.request_name or ""
    if name:
        request_known_refuse(request_name=name)
    document, seen, elsewhere = received.document, None, False
    if document is None:
        try:
            document = fetched or request_fetch(request_name=name)
        except NotFoundInService as error:
            raise DocumentRefused([Problem("request_name", f"ReqMgr2 has no request {name}")]) from error
        seen, elsewhere = Seen.of(document), name in factory.reqmgr2().queued_elsewhere([name], conf().team)
    why = _QUEUED if elsewhere else doubt
    if why and not received.submit:
        raise DocumentRefused([Problem("submit", f"{why}; it can be imported held, but not as new")])
    if received.priority is not None:
        document = intake.with_fields(document, RequestPriority=received.priority)
    steps_read(received.production_steps)
    named: dict[str, Any] = {"document": document, "request_name": received.request_name, "asked": received}
    checked = request_check(**named)
    with transaction.atomic():
        request = request_import(**named, actor=actor, checked=checked, seen=seen)
        if seen is not None:
            ReqMgr2Request.objects.filter(request=request).update(elements=elsewhere, compared_at=clock.now())
        if why:
            held = f"{why}; release it once nothing else runs it, otherwise abort it here: its work would be done twice"
            transition(request, RequestStatus.HELD, actor=actor, reason=held, **hold_changes(HoldCode.RUN_ELSEWHERE, held))
    return request
