"""The page of the queue: its order with the reasons, when each may be expected to start, what another priority would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.http import QueryDict
from rest_framework import serializers

from requests_app.models import Request
from requests_app.pages.tables import MOST, Table
from requests_app.selectors.admission import Queue, QueuedRow, queue_now
from requests_app.selectors.what_if import MOST_NAMES, Asked, Moved, queued_keys, what_if
from requests_app.services.decisions import MAX_PRIORITY
from wms2.admin.actions import action_url, buttons
from wms2.api.serializers import NameField

#: Requests on one page.
ON_PAGE = 100
#: Pages, which as many have places.
MOST_PAGES = 200
_OF_REQUEST = ("request_name", "priority", "urgent", "campaign", "requestor", "queued_at", "next_attempt_at")
_OF_PLACE = ("risen_priority", "band", "waits_for", "expected_start", "expected_basis")


class QueueQuerySerializer(serializers.Serializer):
    """What the address asks for: a page, and what ``priority`` of ``request`` would change."""

    page = serializers.IntegerField(min_value=1, max_value=MOST_PAGES, default=1)
    request = NameField(required=False)
    priority = serializers.IntegerField(min_value=0, max_value=MAX_PRIORITY, required=False)


class Tried(NamedTuple):
    """What another priority of a request would do. ``own``: its new place; None: it would stay where it is. ``others``: requests
    that would stand elsewhere. ``change``: where the priority is changed; empty for those who may not."""

    request_name: str
    priority: int
    own: Moved | None
    others: Sequence[Moved]
    others_number: int
    starts: bool
    change: str


class QueuePage(NamedTuple):
    """What the address asks for. ``more``: there are others behind those shown."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    queue: Queue | None = None
    rows: Sequence[QueuedRow] = ()
    number: int = 1
    more: bool = False
    tried: Tried | None = None
    most_priority: int = MAX_PRIORITY
    most_moved: int = MOST_NAMES


def queue_page(given: QueryDict, user: Any, back: str) -> QueuePage:
    """A fixed number of queries, however long the queue."""
    values = {str(name): given.get(str(name), "") for name in QueueQuerySerializer().fields}
    query = QueueQuerySerializer(data={name: value for name, value in values.items() if value})
    if not query.is_valid():
        return QueuePage(values, {name: [str(one) for one in why] for name, why in query.errors.items()})
    number, name, priority = (query.validated_data.get(each) for each in ("page", "request", "priority"))
    queue = queue_now()
    rows = queue[(number - 1) * ON_PAGE : number * ON_PAGE + 1]
    found = QueuePage(values, {}, queue, rows[:ON_PAGE], number, len(rows) > ON_PAGE)
    if name is None or priority is None:
        return found
    key = queued_keys([name]).get(name)
    if key is None:
        return found._replace(errors={"request": [f"{name} is not queued"]})
    answer = what_if(Asked(None, None, (), {key: {"priority": priority}}, {}), queue)
    own = [row for row in answer.moved[:1] if row.request_name == name]
    change = action_url(Request, "priority", [key], back, {"priority": priority})
    may = buttons(user, Request.objects.get(pk=key), names=["priority"])
    tried = Tried(
        name, priority, own[0] if own else None, answer.moved[len(own) :], answer.moved_number - len(own),
        name in answer.starts_now, change if may else "",
    )  # fmt: skip
    return found._replace(tried=tried)


def queue_lists(seen: Callable[[], QueuePage]) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself: the queue, and who would stand elsewhere with what is tried."""

    def moved() -> Table:
        tried = seen().tried
        own = [tried.own] if tried is not None and tried.own is not None else []
        return Table(Moved._fields, [*own, *(tried.others if tried is not None else ())])

    return {"queue": lambda: Table(("place", *_OF_REQUEST, *_OF_PLACE), map(_line, queue_now()[0:MOST])), "moved": moved}


def _line(row: QueuedRow) -> Sequence[Any]:
    of_request = [getattr(row.request, name) for name in _OF_REQUEST]
    return [row.place, *of_request, *(getattr(row, name) for name in _OF_PLACE)]
