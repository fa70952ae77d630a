"""``If-Match``: a change is made only to the version that its client has read (RFC 9110, 13.1.1).

Owns: tags made of values, what the header says, and the refusal 412 when the version is another. Not here: what the
version of a row is made of (``etags`` of the apps), the refusal 400 of rows without a version (``wms2.api.views``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TypeVar

from django.db import transaction
from rest_framework.request import Request

from wms2.api.problems import Problem, ProblemError, bad_field
from wms2.errors import InvalidTransition, StaleState

T = TypeVar("T")
HEADER = "If-Match"
_TAG = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*')


def etag_of(*values: object) -> str:
    """A strong tag: another one as soon as any of the values is another."""
    text = json.dumps(values, default=str, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


def if_match(request: Request) -> frozenset[str]:
    """The versions that the client would change; empty: any. Raises ProblemError: it is neither ``*`` nor a list of quoted
    tags."""
    given = request.headers.get(HEADER, "*")
    if given.strip() == "*":
        return frozenset()
    parts = given.split(",")
    if not all(_TAG.fullmatch(part) for part in parts):
        raise bad_field(HEADER, 'must be * or tags as they came in ETag, with their quotes: "abc", "def"')
    return frozenset(part.strip() for part in parts)  # a weak tag equals no strong one


def require_version(demanded: frozenset[str], current: str) -> None:
    """Go on only with one of these versions. Raises ProblemError: 412 with the present version in ``ETag``."""
    if demanded and current not in demanded:
        detail = f"it has changed since it was read; nothing was done. Its version is {current} now"
        hint = "Read it again, decide again, and send the ETag of that answer."
        raise ProblemError(Problem(412, "precondition_failed", detail, hint=hint), {"ETag": current})


def in_one_transaction(act: Callable[[], T]) -> T:
    """Compare the version and change in one transaction; a refusal is raised after the commit, which keeps its audit entry."""
    refusal: Exception
    with transaction.atomic():
        try:
            return act()
        except (InvalidTransition, StaleState, ProblemError) as error:
            refusal = error
    raise refusal
