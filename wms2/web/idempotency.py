"""``Idempotency-Key``: a call that is made again, because its answer was lost, is answered again and not done again (ADR 0028).

The key is the caller's, for a day or so. What was done and its answer are committed together, save where a service is asked
meanwhile: there the answer follows in a transaction of its own, and a call that was broken off in between is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from django.db import transaction
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from wms2.api.preconditions import HEADER as IF_MATCH
from wms2.api.problems import MEDIA_TYPE as PROBLEM
from wms2.api.problems import Problem, ProblemError, bad_field
from wms2.errors import StaleState
from wms2.models import KeptAnswer
from wms2.runtime import clock
from wms2.runtime.storable import storable

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
#: A call that has no answer after this was broken off; longer than the web server lets one last.
_BROKEN_OFF = timedelta(seconds=180)
_RETRY_AFTER_SECONDS = 2
_STORED_HEADERS = ("ETag", "Location")


def key_of(request: Request) -> str | None:
    """What the client has sent; None: nothing. Raises ProblemError: 400, it is no key."""
    key: str | None = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        raise bad_field(HEADER, "must be 1 to 200 visible ASCII characters, e.g. a UUID")
    return key


def once(view: Any, key: str, handler: Callable[..., Response], outside: bool, request: Request, **given: Any) -> Response:
    """The answer of ``handler``, now or as it was the first time. ``outside``: it may ask services, so no transaction is open.
    Raises ProblemError: 409 while the first call lasts, 422 if it asked for something else."""
    sent = json.dumps([request.query_params.lists(), request.body.decode(errors="replace")], default=list)
    sent += request.headers.get(IF_MATCH, "")  # with another version it asks for something else
    asked = {"method": request.method, "path": request.path[:500], "digest": hashlib.sha256(sent.encode()).hexdigest()}
    row = _begin(request.user.get_username(), key, asked)
    if row.status is not None:
        content_type = PROBLEM if row.status >= 400 else None
        return Response(row.body, row.status, headers={**row.headers, REPLAYED: "true"}, content_type=content_type)
    stored = False
    try:
        with nullcontext() if outside else transaction.atomic():
            try:
                response = handler(request, **given)
            except Exception as error:  # noqa: BLE001
                response = view.handle_exception(error)  # its own answer, or raised again
            # what was denied may be allowed by the next call: roles are given and taken away
            stored = response.status_code < 500 and response.status_code != 403 and "Retry-After" not in response.headers
            if stored:
                _store(row, response)
            elif not outside:  # nothing was done, and the same key may try again
                transaction.set_rollback(True)
        return response
    finally:
        if not stored:
            KeptAnswer.objects.filter(pk=row.pk, status=None, at=row.at).delete()


def _begin(identity: str, key: str, asked: dict[str, Any]) -> KeptAnswer:
    now = clock.now()
    row, new = KeptAnswer.objects.get_or_create(identity=identity, key=key, defaults={**asked, "at": now})
    if new:
        return row
    if asked != {name: getattr(row, name) for name in asked}:
        hint = "Take a new key for each thing that is to be done."
        raise ProblemError(Problem(422, "idempotency_key_reused", f"{HEADER}: it was used for something else", HEADER, hint=hint))
    if row.status is None:
        broken_off = KeptAnswer.objects.filter(pk=row.pk, status=None, at=row.at).filter(at__lt=now - _BROKEN_OFF)
        if broken_off.update(at=now) != 1:
            problem = Problem(409, "in_flight", "the first call with this key is still under way", hint="Ask again in a moment.")
            raise ProblemError(problem, {"Retry-After": str(_RETRY_AFTER_SECONDS)})
        row.at = now
    return row


def _store(row: KeptAnswer, response: Response) -> None:
    body = None if response.data is None else storable(json.loads(JSONRenderer().render(response.data)))
    headers = {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers}
    mine = KeptAnswer.objects.filter(pk=row.pk, status=None, at=row.at)
    if mine.update(status=response.status_code, body=body, headers=headers) != 1:
        raise StaleState("it took so long that it counted as broken off, and was made again")
