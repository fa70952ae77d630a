"""What admission would do with other limits, priorities or further requests; nothing is written (ADR 0025)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from requests_app.admission.expected import Expected
from requests_app.admission.ordering import Policy, Ranked, Waiting
from requests_app.admission.queue import with_limits
from requests_app.models import AdmissionLimit, Request, RequestStatus
from requests_app.selectors.admission import Queue, queue_now, state_shown

#: Names in each part of an answer.
MOST_NAMES = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be tried. ``changes``: fields of ``Waiting`` by request; ``further``: requests that are not there, by a name."""

    slots: int | None
    aging_per_hour: float | None
    limits: Sequence[AdmissionLimit]
    changes: Mapping[uuid.UUID, Mapping[str, Any]]
    further: Mapping[str, Mapping[str, Any]]


class Moved(NamedTuple):
    """A request whose place or reason to wait would be another; ``before``: as things are."""

    request_name: str
    place_before: int | None
    place: int
    waits_for_before: str
    waits_for: str
    expected_start_before: datetime | None
    expected_start: datetime | None
    expected_basis: str


@dataclass(frozen=True, slots=True)
class Answer:
    """``next``: who would start as soon as a slot is free; ``moved``: first those of which a change is tried; ``moved_number``:
    also those of whom no line is shown."""

    starts_now: list[str]
    starts_number: int
    next: list[str]
    moved: list[Moved]
    moved_number: int


def queued_keys(names: Iterable[str]) -> dict[str, uuid.UUID]:
    """Of those of these requests that are queued."""
    queued = Request.objects.filter(request_name__in=names, status=RequestStatus.QUEUED)
    return dict(queued.values_list("request_name", "pk"))


def what_if(asked: Asked, now: Queue | None = None) -> Answer:
    """A fixed number of queries; ``now``: the queue as it is, if it has been read."""
    now = now or queue_now()
    policy = _policy(now.policy, asked)
    state = now.state if policy == now.policy else state_shown(policy)
    refilled = [group for group in state.full_at if policy.cap(group) != now.policy.cap(group)]
    state = replace(state, now=now.state.now, full_at={k: at for k, at in state.full_at.items() if k not in refilled})
    waiting = [replace(row.waiting, **asked.changes.get(row.waiting.key, {})) for row in now.ranked]
    waiting += [Waiting(name, queued_at=state.now, **fields) for name, fields in asked.further.items()]
    return _compared(now, now.under(policy, state, waiting), asked.changes)


def _policy(now: Policy, asked: Asked) -> Policy:
    """With the limits that are asked for in place of those of the same kind and name."""
    policy = replace(
        now,
        slots=now.slots if asked.slots is None else asked.slots,
        aging_per_hour=now.aging_per_hour if asked.aging_per_hour is None else asked.aging_per_hour,
    )
    if not asked.limits:
        return policy
    rows = {(row.kind, row.name): row for row in [*AdmissionLimit.objects.all(), *asked.limits]}
    return with_limits(policy, rows.values())


def _compared(before: Queue, after: Queue, tried: Collection[uuid.UUID]) -> Answer:
    was = {row.waiting.key: row for row in before.ranked}
    starts = [row for row in after.ranked if not row.waits_for]
    following = [row for row in after.ranked if row.waits_for and not row.limited][:MOST_NAMES]
    moved = [row for row in after.ranked if _stand(row) != _stand(was.get(row.waiting.key))]
    moved.sort(key=lambda row: row.waiting.key not in tried)

    def name(row: Ranked) -> str:
        return before.names.get(row.waiting.key, str(row.waiting.key))

    def line(row: Ranked) -> Moved:
        old = was.get(row.waiting.key)
        expected, first = after.expected[row.waiting.key], before.expected.get(row.waiting.key, Expected(None, ""))
        return Moved(
            name(row), old.place if old else None, row.place, old.waits_for if old else "", row.waits_for, first.at, expected.at,
            expected.basis,
        )  # fmt: skip

    return Answer(
        starts_now=[name(row) for row in starts[:MOST_NAMES]],
        starts_number=len(starts),
        next=[name(row) for row in following],
        moved=[line(row) for row in moved[:MOST_NAMES]],
        moved_number=len(moved),
    )


def _stand(row: Ranked | None) -> tuple[int, str] | None:
    return None if row is None else (row.place, row.waits_for)
