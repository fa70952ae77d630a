"""The page of the queue: its order with the reasons, when each may be expected to start, what another priority would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.http import QueryDict

from requests_app.api.admission import QueueQuerySerializer
from requests_app.models import Request
from requests_app.pages.tables import MOST, Table
from requests_app.selectors.admission import Queue, QueuedRow, queue_now
from requests_app.selectors.what_if import MOST_NAMES, Asked, Moved, queued_keys, what_if
from requests_app.services.decisions import MAX_PRIORITY
from wms2.actions import buttons_of
from wms2.admin.actions import action_url
from wms2.identities.grants import enters_admin, may

#: Requests on one page.
ON_PAGE = 100
_OF_REQUEST = ("request_name", "priority", "urgent", "campaign", "requestor", "queued_at", "next_attempt_at")
_OF_PLACE = ("risen_priority", "band", "expected_start", "expected_basis", "waits_for")


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
    key = next((key for key, each in queue.names.items() if each == name), None) or queued_keys([name]).get(name)
    if key is None:
        return found._replace(errors={"request": [f"{name} is not queued"]})
    answer = what_if(Asked(None, None, (), {key: {"priority": priority}}, {}), queue)
    own = [row for row in answer.moved[:1] if row.request_name == name]
    change = action_url(Request, "priority", [key], back, {"priority": priority})
    acts = enters_admin(user) and any(may(user, each) for each in buttons_of(Request) if each.name == "priority")
    tried = Tried(
        name, priority, own[0] if own else None, answer.moved[len(own) :], answer.moved_number - len(own),
        name in answer.starts_now, change if acts else "",
    )  # fmt: skip
    return found._replace(tried=tried)


def queue_lists(seen: Callable[[], QueuePage]) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself: the queue, and who would stand elsewhere with what is tried."""

    def moved() -> Table:
        tried = seen().tried
        own = [tried.own] if tried is not None and tried.own is not None else []
        return Table(Moved._fields, [*own, *(tried.others if tried is not None else ())])

    def queue() -> Table:
        return Table(("place", *_OF_REQUEST, *_OF_PLACE), map(_cells, queue_now()[0:MOST]))

    return {"queue": queue, "moved": moved}


def _cells(row: QueuedRow) -> Sequence[Any]:
    return [row.place, *(getattr(row.request, name) for name in _OF_REQUEST), *(getattr(row, name) for name in _OF_PLACE)]
