"""Taking a request in from outside, whole or not at all: fetched or given, checked like the life cycle would, then stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from requests_app.intake import with_priority
from requests_app.models import Request
from requests_app.services.intake import Belonging, request_check, request_fetch, request_import, request_known_refuse
from requests_app.work.production_steps import steps_read
from wms2.errors import DocumentRefused, NotFoundInService, Problem


@dataclass(frozen=True, slots=True)
class Received:
    """What somebody asks for. Without ``document``, ReqMgr2 is asked for ``request_name``.

    ``submit=False`` stores it as NEW; ``priority`` replaces the document's. ``family_of`` names a request into whose datasets
    this one may write, ``family_reason`` says why.
    """

    document: dict[str, Any] | None
    request_name: str | None
    urgent: bool = False
    submit: bool = True
    priority: int | None = None
    production_steps: tuple[dict[str, Any], ...] = ()
    family_of: str = ""
    family_reason: str = ""


def request_receive(*, received: Received, actor: str) -> Request:
    """Fetch if need be, check with everything the life cycle checks, store.

    Raises:
        DocumentRefused: every problem by field; nothing stored.
        RequestKnown: there is one of this name, which is told before any service is asked when the name is given.
        InvalidTransition: a production step is wrong; nothing stored.
        ServiceUnavailable: ReqMgr2 or ConfigCache did not answer; nothing stored.
    """
    if received.request_name:
        request_known_refuse(request_name=received.request_name)
    document = _document(received)
    if received.priority is not None:
        document = with_priority(document, received.priority)
    steps_read(received.production_steps)
    belonging = Belonging(family_of=received.family_of, reason=received.family_reason)
    checked = request_check(document=document, request_name=received.request_name, belonging=belonging)
    return request_import(
        document=document,
        request_name=received.request_name,
        actor=actor,
        urgent=received.urgent,
        submit=received.submit,
        production_steps=received.production_steps,
        belonging=belonging,
        checked=checked,
    )


def _document(received: Received) -> dict[str, Any]:
    if received.document is not None:
        return received.document
    name = received.request_name or ""
    try:
        return request_fetch(request_name=name)
    except NotFoundInService as error:
        raise DocumentRefused([Problem("request_name", f"ReqMgr2 has no request {name}")]) from error
