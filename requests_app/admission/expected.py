"""When a queued request may be expected to start, and from what that follows (ADR 0025). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from requests_app.admission.ordering import ABOVE, Group, Policy, Ranked, State

#: All requests, as a group.
ALL: Group = ("", "")
#: The rate at which slots become free is that of these last hours.
RATE_HOURS = 24.0
#: DAGs that ended in them, by group and in ``ALL``: so many slots became free.
Ended = Mapping[Group, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """``at``: None when it is not known; ``basis``: what it rests on, or why nothing can be said."""

    at: datetime | None
    basis: str


def expected_starts(ranked: Iterable[Ranked], state: State, policy: Policy, ended: Ended) -> dict[Any, Expected]:
    """Of each by its key: the latest of what the slots, each of its hard limits and its buckets allow, at the recent rate.

    Requests behind a limit are not counted before others; what arrives meanwhile, urgent or by priority, may go before.
    """
    ahead: Counter[Group] = Counter()
    found = {}
    for row in ranked:
        found[row.waiting.key] = expected_start(row, ahead, state, policy, ended)
        ahead.update(row.groups if row.limited else (ALL, *row.groups))
    return found


def expected_start(row: Ranked, ahead: Mapping[Group, int], state: State, policy: Policy, ended: Ended) -> Expected:
    """Of one. ``ahead``: how many are before it, of its groups that have a limit, and in ``ALL`` those that no limit keeps."""
    if not row.waits_for:
        return Expected(state.now, "a slot is free, and it is its turn")
    if state.stopped:
        return Expected(None, f"not known: nothing starts now, for {state.stopped}")
    free = max(policy.slots - state.used, 0)
    needed = ahead.get(ALL, 0) + 1 - free
    limits = [_by_slots(ALL, needed if row.limited else max(needed, 1), ahead, state, ended)]
    caps = [(group, cap) for group in row.groups if (cap := policy.cap(group)) is not None]
    if row.limited and any(cap.bends for _, cap in caps):  # all before it and those within their limits go first
        lent = _by_slots(ALL, max(row.place - free, 1), {ALL: row.place - 1}, state, ended)
        limits = [replace(lent, basis=f"{ABOVE}: {lent.basis}")]
    for group, cap in caps:
        if cap.bends:
            continue
        before = ahead.get(group, 0)
        if cap.most is not None:
            left = max(cap.most - state.running.get(group, 0), 0)
            limits.append(_by_slots(group, before + 1 - left, ahead, state, ended))
        if cap.per_hour is not None:
            at = cap.next_at(state.full_at.get(group, state.now), before) or state.now
            words = f"{cap.per_hour:g} starts an hour of {group[0]} {group[1]}, {before} before it"
            limits.append(Expected(max(at, state.now), words))
    unknown = next((each for each in limits if each.at is None), None)
    return unknown or max(limits, key=lambda each: each.at or state.now)


def _by_slots(group: Group, needed: int, ahead: Mapping[Group, int], state: State, ended: Ended) -> Expected:
    if needed <= 0:
        return Expected(state.now, "")
    number, of = ended.get(group, 0), f"of {group[0]} {group[1]}" if group != ALL else "in all"
    lately = f"became free in the last {RATE_HOURS:g} hours"
    if not number:
        return Expected(None, f"not known: no slot {of} {lately}")
    at = state.now + timedelta(hours=needed * RATE_HOURS / number)
    return Expected(at, f"{number} slots {of} {lately}, {ahead.get(group, 0)} before it")
