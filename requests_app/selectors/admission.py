"""The admission queue as people see it: each request's place, what it waits for, when it may be expected to start (spec 7.2)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import attrgetter, or_
from threading import Lock
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.utils import timezone

from dags_app.models import DAG
from requests_app.admission.expected import ALL, RATE_HOURS, Ended, Expected, expected_start, expected_starts
from requests_app.admission.ordering import (
    ITS_TURN,
    LIMIT,
    TURN,
    Cap,
    Group,
    Policy,
    Ranked,
    State,
    Waiting,
    obstacle,
    order,
    risen,
    shut,
)
from requests_app.admission.queue import (
    ABOUT_DAG,
    KEY,
    WAITING,
    Key,
    comes_after,
    eligible,
    in_groups,
    in_order,
    key_of,
    of_group,
    of_groups,
    open_groups,
    policy_now,
    state_now,
    waiting_of,
)
from requests_app.models import AdmissionState as Remembered
from requests_app.models import Limit, Request, RequestStatus
from wms2.conf import GROUPS, Limits, conf
from wms2.runtime.cached import Cached
from wms2.runtime.in_force import over

#: Requests of the queue that are given a place; those behind them have none yet.
MOST_PLACES = 20_000
#: For this long, lists are answered from one ranking of the queue, which costs more the longer it is, and single requests from
#: one reading of policy, state and ends.
CACHED_SECONDS = 20.0
#: The queue, and its rows by key.
_cache: Cached[tuple[Queue, Mapping[Any, Ranked]]] = Cached()
_ranking = Lock()
#: Policy, how things stand, which DAGs ended.
_known = Cached[tuple[Policy, State, Ended]]()
#: The key of the first in the queue.
_first = Cached[Any]()
#: Of how many the overview shows when they may start.
HEAD = 8
_head: Cached[list[QueuedRow]] = Cached()
#: Groups that are named for each limit.
MOST_IN_USE = 50
_SHOWN = (
    "id", "request_name", "priority", "urgent", "queued_at", "status_since", "campaign", "requestor", "waiting_for",
    "next_attempt_at", "failed_attempts", "last_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """Slots and the queue's length. ``next_in_queue`` is the first that neither pauses after a failure nor is kept by a limit."""

    active_dags: int
    max_active_dags: int
    queued_workflows: int
    pausing: int
    next_in_queue: Request | None
    stopped: str


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue in order, as it stands; ``names``: of its requests, by key."""

    policy: Policy
    state: State
    ranked: list[Ranked]
    expected: Mapping[Any, Expected]
    obstacles: Mapping[Any, str]
    ended: Ended
    names: Mapping[Any, str]

    def under(self, policy: Policy, state: State, waiting: Iterable[Waiting]) -> Queue:
        """As it would be with another policy and other requests."""
        ranked = order(waiting, state, policy, lambda each: self.obstacles.get(each.key, ""))
        expected = expected_starts(ranked, state, policy, self.ended)
        return Queue(policy, state, ranked, expected, self.obstacles, self.ended, self.names)

    def __getitem__(self, part: slice) -> list[QueuedRow]:
        """A page of it, those that pause after a failure behind all others."""
        ranked = self.ranked[part]
        first, left = max(part.start - len(self.ranked), 0), part.stop - part.start - len(ranked)
        wanted, pausing = Q(pk__in=[row.waiting.key for row in ranked]), _pausing().order_by("next_attempt_at", "id")
        if left > 0:
            wanted |= Q(pk__in=pausing.values("pk")[first : first + left])
        rows = {row.pk: row for row in Request.objects.filter(wanted).only(*_SHOWN).order_by("next_attempt_at", "id")}
        there = [row for row in ranked if row.waiting.key in rows]
        found = [replace(self.shown(rows.pop(row.waiting.key), row), waits_for=row.waits_for) for row in there]
        return found + [QueuedRow(request) for request in rows.values()]

    def shown(self, request: Request, row: Ranked) -> QueuedRow:
        """A request of it."""
        return _shown(request, row, self.policy, self.expected[row.waiting.key])


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """One queued request. ``place`` counts from 1; None while it pauses after a failure and is passed over.

    ``waits_for``, on a page of the queue alone: what keeps it; empty: it would start with the next pass, or it is passed over.
    """

    request: Request
    place: int | None = None
    risen_priority: int | None = None
    band: str = ""
    expected_start: datetime | None = None
    expected_basis: str = ""
    waits_for: str = ""


def _shown(request: Request, row: Ranked, policy: Policy, expected: Expected) -> QueuedRow:
    band = policy.band(urgent=request.urgent, priority=request.priority)
    return QueuedRow(request, row.place, int(row.priority), band, expected.at, expected.basis)


@dataclass(frozen=True, slots=True)
class LimitInForce:
    """A limit that operators may change, what it means, its default, and who changed it."""

    group: str
    name: str
    value: float
    default: float
    changed_by: str
    reason: str
    changed_at: datetime | None

    @property
    def description(self) -> str:
        """As ``wms2.conf`` has it."""
        return Limits.model_fields[self.name].description or ""


def state_shown(policy: Policy) -> State:
    """As it is now, for readers; whether any request may start at all was found by the last pass."""
    return state_now(policy, timezone.now(), stopped=Remembered.objects.values_list("stopped", flat=True).first() or "")


def admission_state(queued: int, queue: Queue | None = None) -> AdmissionState:
    """With ``queued`` requests in the queue, which the caller knows (``stored_counts``); those that pause are counted."""
    policy = queue.policy if queue else policy_now()
    state = queue.state if queue else state_shown(policy)
    return AdmissionState(
        active_dags=state.used,
        max_active_dags=policy.slots,
        queued_workflows=queued,
        pausing=_pausing().count(),
        next_in_queue=_next_in_queue(policy, state, known=None if queue else _first.known("")),
        stopped=state.stopped,
    )


def _next_in_queue(policy: Policy, state: State, known: Any) -> Request | None:
    """The one that was ``CACHED_SECONDS`` ago at most, if it still waits and may start: to find it the whole queue is sorted."""
    rows = open_groups(eligible(), policy, state).only(*_SHOWN)
    if known is not None and (first := rows.filter(pk=known).first()) is not None:
        return first
    found = rows.filter(pk__in=in_order(rows, policy, state.now).values("pk")[:1]).first()  # sorted in an index, without rows
    if found is not None:
        _first.put("", CACHED_SECONDS, found.pk)
    return found


def queue_now(most: int = MOST_PLACES) -> Queue:
    """Its first ones, read and ranked, in a fixed number of queries; what the last passes could not place is taken for not to be
    placed now."""
    policy = policy_now()
    state = state_shown(policy)
    rows = list(in_order(eligible(), policy, state.now).values_list(*WAITING, "request_name", "waiting_for")[:most])
    obstacles = {} if state.stopped else {row[0]: row[-1] for row in rows if row[-1] and not row[-1].startswith((LIMIT, TURN))}
    names = {row[0]: row[-2] for row in rows}
    empty = Queue(policy, state, [], {}, obstacles, ended_lately(policy, state.now), names)
    return empty.under(policy, state, (waiting_of(row[:-2], state.now) for row in rows))


def ended_lately(policy: Policy, now: datetime) -> Ended:
    """DAGs that ended, by group; each has made a slot free."""
    rows = DAG.objects.filter(completed_at__gt=now - timedelta(hours=RATE_HOURS), submitted_at__isnull=False).order_by()
    about = list(rows.values_list(*ABOUT_DAG))
    return {**in_groups(policy, about), ALL: len(about)}


def queue_head() -> list[QueuedRow]:
    """The first in the queue, as they were ``CACHED_SECONDS`` ago at most; those before one are all that its start rests on."""

    def read() -> list[QueuedRow]:
        queue = queue_now(HEAD)
        return queue[0 : len(queue.ranked)]

    return _head.get("", CACHED_SECONDS, read)


def queued_rows(requests: Iterable[Request]) -> dict[Any, QueuedRow]:
    """For a list: those that have a place, by key, as it was ``CACHED_SECONDS`` ago at most; no query where none is queued."""
    wanted = [request for request in requests if _has_place(request)]
    if not wanted:
        return {}
    with _ranking:  # one ranks, and the others wait for that
        queue, rows = _cached_queue(wanted)
    return {request.pk: queue.shown(request, rows[request.pk]) for request in wanted if request.pk in rows}


def _cached_queue(wanted: Iterable[Request]) -> tuple[Queue, Mapping[Any, Ranked]]:
    """The queue with its rows by key; read anew also where one of these has come to it or was changed since."""
    known = _cache.known("")
    if known is not None and (len(known[1]) == MOST_PLACES or all(_as_ranked(each, known[1]) for each in wanted)):
        return known
    queue = queue_now()
    return _cache.put("", CACHED_SECONDS, (queue, {row.waiting.key: row for row in queue.ranked}))


def _as_ranked(request: Request, rows: Mapping[Any, Ranked]) -> bool:
    row = rows.get(request.pk)
    return row is not None and (row.waiting.priority, row.waiting.urgent) == (request.priority, request.urgent)


def _has_place(request: Request) -> bool:
    return request.status == RequestStatus.QUEUED and request.next_attempt_at is None


def queued_row(request: Request) -> QueuedRow | None:
    """One that has a place, as ``queue_now`` has it, but counted by one query; none where it is not queued.

    Policy, slots in use and ends are those of ``CACHED_SECONDS`` ago at most.
    """
    if not _has_place(request):
        return None
    policy, state, ended = _known.get("", CACHED_SECONDS, _read)
    state = replace(state, now=timezone.now())
    waiting = waiting_of(attrgetter(*WAITING)(request), state.now)
    priority = risen(waiting, state.now, policy.aging_per_hour)
    key = key_of(waiting.urgent, priority, waiting.queued_at, waiting.key)
    rows = in_order(eligible(), policy, state.now).order_by()
    starting, used_up = _starting(policy, state)
    groups, closed = waiting.groups(policy), shut(state, policy)
    further = (of_group(group, policy) & Q(comes_after(last)) for group, last in used_up.items())
    lent_to = reduce(or_, further, of_groups(closed, policy)) & ~Q(pk__in=starting)  # to whom a slot is lent
    limited = {f"ahead_{index}": group for index, group in enumerate(groups) if (policy.cap(group) or Cap()) != Cap()}
    numbers = {name: Count("pk", filter=of_group(group, policy)) for name, group in limited.items()}
    ahead_of_it = rows.exclude(comes_after(key)).exclude(pk=request.pk)  # whose own key may differ from ours in the last bit
    counted = ahead_of_it.aggregate(place=Count("pk"), of_all=Count("pk", filter=~lent_to), **numbers)
    is_limited = bool(state.stopped) or any(group in closed or (group in used_up and used_up[group] < key) for group in groups)
    row = Ranked(
        waiting, counted["place"] + 1, priority, groups,
        waits_for="" if waiting.key in starting else ITS_TURN, limited=is_limited,
    )  # fmt: skip
    ahead = {ALL: counted["of_all"]} | {group: counted[name] for name, group in limited.items()}
    return _shown(request, row, policy, expected_start(row, ahead, state, policy, ended))


def _read() -> tuple[Policy, State, Ended]:
    policy = policy_now()
    state = state_shown(policy)
    return policy, state, ended_lately(policy, state.now)


def _starting(policy: Policy, state: State) -> tuple[set[Any], dict[Group, Key]]:
    """Who would start now, as ``order`` has it, and who is the last one for which each limit is open that they use up."""
    placeable = Q(waiting_for="") | Q(waiting_for__startswith=LIMIT) | Q(waiting_for__startswith=TURN)
    starting, used_up = set[Any](), dict[Group, Key]()
    rules, within = policy, used_up  # whom a limit keeps is said by the first round alone
    while not state.stopped and state.used < policy.slots:
        rows = open_groups(eligible().filter(placeable).exclude(pk__in=starting), rules, state)
        found = list(in_order(rows, policy, state.now).values_list(*KEY, *WAITING)[: policy.slots - state.used])
        for values in found:
            key, waiting = key_of(*values[: len(KEY)]), waiting_of(values[len(KEY) :], state.now)
            groups = waiting.groups(policy)
            if used_up.keys().isdisjoint(groups):
                starting.add(waiting.key)
                state = state.after(groups, policy, lent=rules is not policy)
                used_up |= {group: key for group in groups if obstacle(group, state, rules)}
        if not found and rules is not policy:
            break
        if not found:  # what is left is lent
            rules, used_up = policy.bent(), {}
    return starting, within


def _pausing() -> Any:
    return Request.objects.filter(status=RequestStatus.QUEUED, next_attempt_at__isnull=False)


class InUse(NamedTuple):
    """What a group has of its limits. ``starts_left``: None where no rate is set; ``next_start_at``: None: now."""

    name: str
    dags: int
    starts_left: int | None
    next_start_at: datetime | None


def limits_in_use() -> dict[Group, list[InUse]]:
    """By the limit that holds for them, a group each; those with most DAGs first."""
    policy = policy_now()
    state = state_now(policy, timezone.now())
    found: defaultdict[Group, list[InUse]] = defaultdict(list)
    for group in {*state.running, *state.full_at}:
        cap, full_at = policy.cap(group), state.full_at.get(group)
        if cap is not None:
            left = None if cap.per_hour is None else max(math.floor(cap.tokens(full_at, state.now)), 0)
            next_at = cap.next_at(full_at) if left == 0 else None
            row = InUse(group[1], state.running.get(group, 0), left, next_at)
            found[group if group in policy.caps else (group[0], "")].append(row)
    return {each: sorted(rows, key=lambda row: (-row.dags, row.name))[:MOST_IN_USE] for each, rows in found.items()}


def config_in_force() -> list[LimitInForce]:
    """Every limit that can be changed at run time, by group."""
    rows = {row.name: row for row in Limit.objects.filter(name__in=[*Limits.model_fields])}
    return [_limit(group, name, rows.get(name)) for group, names in GROUPS.items() for name in names]


def _limit(group: str, name: str, row: Limit | None) -> LimitInForce:
    default = getattr(conf().limits, name)
    if row is None:
        return LimitInForce(group, name, default, default, "", "", None)
    value = getattr(over(conf().limits, {name: row.value})[0], name)
    return LimitInForce(group, name, value, default, row.actor, row.reason, row.updated_at)
