"""Who starts next, and what each of the others waits for (spec 4.4; ADR 0025). Pure: no rows, no clock.

Urgent requests go first, then by priority, which rises while a request waits, then by time of queueing. Limits close a *group* of
requests (those of a band of priorities, of a campaign, of a requester): they are passed over, and the others go on. A slot that
no request within the limits can take is lent to them, unless their limit is hard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

#: Where the rise of a priority ends (as high as any may be): from there on time of queueing alone decides, so no request starves.
TOP = 999_999
#: The band of requests that are urgent, whatever their priority.
URGENT = "urgent"
#: How the words begin for what a limit keeps, and for what only waits its turn; all others name what it needs to be placed.
LIMIT, TURN = "limit of", "its turn"
#: The reason of all that no limit stops. It does not name the number of slots: a change of that would rewrite the whole queue.
ITS_TURN = f"{TURN} for a DAG slot"
#: What a request gets whose limit bends.
ABOVE = "above its limit it gets what others leave"
_HOUR = 3600.0


class GroupKind(StrEnum):
    """By what requests are limited together."""

    BAND = "band"
    CAMPAIGN = "campaign"
    REQUESTER = "requester"


#: Kind and name; with an empty name: all of the kind that have no limit of their own.
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cap:
    """Limits of a group: DAGs live at once, and a bucket of ``burst`` starts that fills with ``per_hour``; None: no limit.

    A bucket is kept as the moment at which it is full (``full_at``); None, or a moment that has passed: it is full.
    A limit that is not ``hard`` bends while a slot is free; ``most`` 0 never does.
    """

    most: int | None = None
    per_hour: float | None = None
    burst: int = 1
    hard: bool = False

    @property
    def bends(self) -> bool:
        """Whether slots above it are lent."""
        return not self.hard and self.most != 0 and (self.most or self.per_hour) is not None

    def tokens(self, full_at: datetime | None, now: datetime) -> float:
        """Starts that may be made now."""
        missing = max((full_at - now).total_seconds(), 0.0) * (self.per_hour or 0) / _HOUR if full_at else 0.0
        return self.burst - missing

    def next_at(self, full_at: datetime | None, ahead: int = 0) -> datetime | None:
        """When the next start may be made, after ``ahead`` others; None: now."""
        if full_at is None or not self.per_hour:
            return None
        return full_at + timedelta(hours=(ahead - self.burst + 1) / self.per_hour)

    def taken(self, full_at: datetime | None, now: datetime) -> datetime:
        """``full_at`` after one more start."""
        return max(full_at or now, now) + timedelta(hours=1 / (self.per_hour or math.inf))


@dataclass(frozen=True, slots=True)
class Policy:
    """What operators decide. ``bands``: name and lowest priority, highest first; a lower priority has no band. Watermarks are
    parts of the idle-job budget.
    """

    slots: int
    aging_per_hour: float = 0.0
    high_watermark: float = 1.0
    low_watermark: float = 1.0
    bands: tuple[tuple[str, int], ...] = ()
    caps: Mapping[Group, Cap] = field(default_factory=dict)

    def band(self, *, urgent: bool, priority: int) -> str:
        """The band of a request, by the priority it was given."""
        return URGENT if urgent else next((name for name, least in self.bands if priority >= least), "")

    def cap(self, group: Group) -> Cap | None:
        """The limits of a group: its own, else those of its kind."""
        return self.caps.get(group) or self.caps.get((group[0], ""))

    def bent(self) -> Policy:
        """With the hard limits alone: what holds for slots that no request within the limits can take."""
        caps = {group: Cap() if cap.bends else cap for group, cap in self.caps.items()}
        return replace(self, caps=caps)

    def groups(self, *, urgent: bool, priority: int, campaign: str, requester: str) -> tuple[Group, ...]:
        """To which a request belongs."""
        found = (
            (GroupKind.BAND, self.band(urgent=urgent, priority=priority)),
            (GroupKind.CAMPAIGN, campaign),
            (GroupKind.REQUESTER, requester),
        )
        return tuple((kind.value, name) for kind, name in found if name)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued request."""

    key: Any
    priority: int
    queued_at: datetime
    urgent: bool = False
    campaign: str = ""
    requester: str = ""

    def groups(self, policy: Policy) -> tuple[Group, ...]:
        """To which it belongs."""
        return policy.groups(urgent=self.urgent, priority=self.priority, campaign=self.campaign, requester=self.requester)


@dataclass(frozen=True, slots=True)
class State:
    """As things are: slots in use, by group and in all; buckets that are not full; why no request may start (``stopped``)."""

    now: datetime
    used: int = 0
    running: Mapping[Group, int] = field(default_factory=dict)
    full_at: Mapping[Group, datetime] = field(default_factory=dict)
    stopped: str = ""

    def after(self, groups: Iterable[Group], policy: Policy, *, lent: bool = False) -> State:
        """With one more start, of a request in these groups; one that is ``lent`` its slot takes from hard rates alone."""
        groups, running, full_at = list(groups), dict(self.running), dict(self.full_at)
        for group in groups:
            running[group] = running.get(group, 0) + 1
            cap = policy.cap(group)
            if cap is not None and cap.per_hour is not None and not (lent and cap.bends):
                full_at[group] = cap.taken(full_at.get(group), self.now)
        return replace(self, used=self.used + 1, running=running, full_at=full_at)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A queued request in its place (from 1), with the priority to which it has risen. ``waits_for``: empty when it starts now.

    ``limited``: by a limit, or with all others; not by those before it or for want of room. ``lent``: it starts above a limit.
    """

    waiting: Waiting
    place: int
    priority: float
    groups: tuple[Group, ...]
    waits_for: str = ""
    limited: bool = False
    lent: bool = False


def risen(waiting: Waiting, now: datetime, aging_per_hour: float) -> float:
    """The priority with what waiting has added: never less than before, at most ``TOP``."""
    hours = max((now - waiting.queued_at).total_seconds(), 0.0) / _HOUR
    return min(waiting.priority + aging_per_hour * hours, float(TOP))


def obstacle(group: Group, state: State, policy: Policy) -> str:
    """Why no request of a group may start; empty when one may."""
    cap, running = policy.cap(group), state.running.get(group, 0)
    if cap is None:
        return ""
    words, above = f"{LIMIT} {group[0]} {group[1]}", f"; {ABOVE}" if cap.bends else ""
    if cap.most is not None and running >= cap.most:
        return f"{words}: {running} of {cap.most} DAGs{above}"
    at = cap.next_at(state.full_at.get(group))
    if at is not None and at > state.now:
        return f"{words}: {cap.per_hour:g} starts an hour, the next at {at:%Y-%m-%d %H:%M:%S} UTC{above}"
    return ""


def shut(state: State, policy: Policy) -> dict[Group, str]:
    """Closed groups, each with the reason. A group that neither runs, has started recently nor has limits is open."""
    known = {*state.running, *state.full_at, *policy.caps}
    found = {group: obstacle(group, state, policy) for group in sorted(known) if group[1]}
    return {group: why for group, why in found.items() if why}


def opens_at(state: State, policy: Policy) -> datetime | None:
    """When the next of the groups that have used up their starts has one again."""
    moments = [cap.next_at(full_at) for group, full_at in state.full_at.items() if (cap := policy.cap(group))]
    return min((at for at in moments if at is not None and at > state.now), default=None)


def order(
    queue: Iterable[Waiting], state: State, policy: Policy, fits: Callable[[Waiting], str] = lambda waiting: ""
) -> list[Ranked]:
    """The whole queue in its order, with what each waits for; slots that no request within the limits can take are lent.

    Args:
        fits: called for each that may start, in order: why it cannot be placed, or empty when it has its place. A refused
            request takes neither a slot nor a part of a limit.
    """
    found = order_within(queue, state, policy, fits)
    for row in found:
        if not row.waits_for:
            state = state.after(row.groups, policy)
    return lend(found, state, policy, fits)


def order_within(
    queue: Iterable[Waiting], state: State, policy: Policy, fits: Callable[[Waiting], str] = lambda waiting: ""
) -> list[Ranked]:
    """As ``order``, with nothing lent: for a part of the queue, behind which others within the limits may wait."""
    closed = shut(state, policy)
    rows = [(risen(waiting, state.now, policy.aging_per_hour), waiting) for waiting in queue]
    rows.sort(key=lambda row: (not row[1].urgent, -row[0], row[1].queued_at, str(row[1].key)))
    found = []
    for place, (priority, waiting) in enumerate(rows, start=1):
        groups, free = waiting.groups(policy), state.used < policy.slots
        limited = state.stopped or next((closed[group] for group in groups if group in closed), "")
        why = limited or (fits(waiting) if free else ITS_TURN)
        if not why:
            state = state.after(groups, policy)
            closed |= {group: words for group in groups if (words := obstacle(group, state, policy))}
        found.append(Ranked(waiting, place, priority, groups, why, limited=bool(limited)))
    return found


def lend(ranked: Iterable[Ranked], state: State, policy: Policy, fits: Callable[[Waiting], str]) -> list[Ranked]:
    """Give the slots that are left to those whom a limit keeps that is not hard, in order; ``state``: after all other starts."""
    found, bent = [], policy.bent()
    closed = shut(state, bent)
    for row in ranked:
        if row.limited and not state.stopped and state.used < policy.slots and closed.keys().isdisjoint(row.groups):
            why = fits(row.waiting)
            row = replace(row, waits_for=why, limited=bool(why), lent=not why)
            if not why:
                state = state.after(row.groups, policy, lent=True)
                closed = shut(state, bent)
        found.append(row)
    return found
