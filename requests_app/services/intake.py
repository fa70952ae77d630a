"""From a document to a request row (spec 4.3). Refused documents leave nothing behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from dags_app.planning.specs import WorkflowSpec
from requests_app import intake
from requests_app.audit import audit
from requests_app.models import Request, RequestStatus
from requests_app.production import steps_read
from requests_app.services.workflow import configs_of
from requests_app.states import record_creation
from sites_app.selectors import known_site_names
from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import DocumentRefused, Problem
from wms2.nudge import EVALUATE_REQUEST, nudge


def request_import(
    *,
    document: dict[str, Any],
    request_name: str | None,
    actor: str,
    urgent: bool = False,
    submit: bool = True,
    production_steps: Sequence[Mapping[str, Any]] = (),
) -> Request:
    """Check a document and store it as a request, SUBMITTED or (``submit=False``) NEW.

    Raises:
        DocumentRefused: every problem by field; nothing stored.
        InvalidTransition: a production step is wrong; nothing stored.
    """
    draft = draft_of(document, request_name)
    identity = draft.identity
    request = Request(
        request_name=draft.request_name,
        requestor=identity.requestor or actor,
        requestor_dn=identity.requestor_dn,
        group=identity.group,
        request_data=document,
        payload_config={"RequestType": identity.request_type},
        splitting_params={"algorithm": draft.work.splitting.algorithm.value},
        input_dataset=draft.work.input.dataset if draft.work.input else "",
        campaign=draft.campaign,
        prep_id=identity.prep_id,
        warnings=list(draft.warnings),
        priority=identity.priority,
        urgent=urgent,
        production_steps=[step.model_dump() for step in steps_read(production_steps)],
        status=RequestStatus.SUBMITTED if submit else RequestStatus.NEW,
    )
    try:
        with transaction.atomic():
            request.save(force_insert=True)
            record_creation(request, actor=actor, reason="imported" if submit else "stored as new")
            audit(actor=actor, action="request_import", target=request.request_name, status=request.status)
            nudge(EVALUATE_REQUEST, str(request.pk))
    except IntegrityError as error:
        if "request_name" not in str(error):
            raise
        raise _known_already(request.request_name) from error
    return request


def request_check(*, document: dict[str, Any], request_name: str | None) -> WorkflowSpec:
    """Everything that import and the life cycle would check, ConfigCache included; stores nothing.

    Raises:
        DocumentRefused: every problem by field.
        ServiceUnavailable: ConfigCache did not answer.
    """
    draft = draft_of(document, request_name)
    if Request.objects.filter(request_name=draft.request_name).exists():
        raise _known_already(draft.request_name)
    return intake.complete(draft, configs_of(draft))


def request_fetch(*, request_name: str) -> dict[str, Any]:
    """The document as ReqMgr2 has it.

    Raises:
        NotFoundInService: no such request.
        ServiceUnavailable: ReqMgr2 did not answer.
    """
    document: dict[str, Any] = factory.reqmgr2().request(request_name)
    return document


def _known_already(name: str) -> DocumentRefused:
    return DocumentRefused([Problem("RequestName", f"{name} is known already; a new version needs a name of its own")])


def draft_of(document: dict[str, Any], request_name: str | None) -> intake.Draft:
    """Parse with this installation's memory window and known sites."""
    sites = known_site_names()
    return intake.parse(
        document, request_name=request_name, window=intake.MemoryWindow.from_conf(conf()), known_sites=sites or None
    )
