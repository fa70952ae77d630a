"""Recorded arrivals through the rules of admission, in simulated time: how long each waits, whether one starves, limits.

``make bench ARGS="arrivals --file F"``. F is CSV with a header or JSON lines, in any order of time:

    time        ISO 8601, or seconds
    priority, campaign, requester, jobs
    urgent      optional: true or 1
    seconds     optional: how long its DAG holds its slot; without it 2 hours and 20 s a job, two days at most

The order and the limits are those that the life cycle applies (``requests_app.admission.ordering``), once with bands, limits
and aging, once with the same limits, all hard, and once with plain priority, then time. A pass in each minute in which
something changes; nothing sleeps, and no database is asked. That limits are kept over each day, and how many slots are idle
while a request waits, is counted from starts and ends, not believed. Without a file the sample is taken, made from ``SEED``;
``BENCH_WRITE=F`` writes it there. ``BENCH_SLOTS`` (50) and ``BENCH_AGING`` (200 points an hour) change the policy.
"""

from __future__ import annotations

import csv
import heapq
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

from requests_app.admission.ordering import URGENT, Cap, Group, Policy, State, Waiting, obstacle, opens_at, order

SEED = 20261123
SLOTS, AGING = 50, 200.0
PASS = timedelta(minutes=1)
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
OVER_A_DAY = 0.1
BANDS = (("high", 110_000), ("normal", 80_000), ("low", 0))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that came, and for how long its DAG holds a slot."""

    waiting: Waiting
    lasts: timedelta


@dataclass(frozen=True, slots=True)
class Run:
    """From when to when each had its slot; which had none at the end."""

    began: Mapping[Any, datetime]
    ended: Mapping[Any, datetime]
    left: Sequence[Waiting]
    at: datetime


def main() -> None:
    """Print all runs."""
    path = os.environ.get("BENCH_FILE", "")
    arrivals = read(Path(path)) if path else sample(SEED)
    if target := os.environ.get("BENCH_WRITE"):
        write(Path(target), arrivals)
    slots, aging = int(os.environ.get("BENCH_SLOTS", SLOTS)), float(os.environ.get("BENCH_AGING", AGING))
    policy = policy_of(slots, aging)
    held = sum((each.lasts for each in arrivals), timedelta()).total_seconds()
    span = max(each.waiting.queued_at for each in arrivals) - min(each.waiting.queued_at for each in arrivals)
    print(f"{len(arrivals)} requests in {span.days} days, {held / (span.total_seconds() * slots):.2f} of {slots} slots' time")
    plain = replace(policy, aging_per_hour=0.0, caps={})
    hard = replace(policy, caps={group: replace(cap, hard=True) for group, cap in policy.caps.items()})
    for name, each in (("bands, limits and aging", policy), ("hard limits", hard), ("priority, then time", plain)):
        run = simulate(arrivals, each)
        print(f"\n{name}")
        for line in report(arrivals, run, policy):
            print(f"  {line}")


def policy_of(slots: int, aging: float) -> Policy:
    """A fifth of the slots is not for high ones; a campaign has a quarter at most, a requester 12 starts an hour after 30."""
    caps = {
        ("band", URGENT): Cap(most=slots // 3),
        ("band", "high"): Cap(most=slots * 4 // 5),
        ("campaign", ""): Cap(most=slots // 4),
        ("requester", ""): Cap(per_hour=12, burst=30),
    }
    return Policy(slots, aging, bands=BANDS, caps=caps)


def simulate(arrivals: Sequence[Arrival], policy: Policy) -> Run:
    """A pass whenever something has changed until all have had their slot, or for as long again as requests came."""
    coming = sorted(arrivals, key=lambda each: each.waiting.queued_at, reverse=True)
    now, last = coming[-1].waiting.queued_at, coming[0].waiting.queued_at
    until = last + (last - now) + timedelta(days=2)
    queue: dict[Any, Arrival] = {}
    ends: list[tuple[datetime, int, tuple[Group, ...]]] = []
    began, ended = {}, {}
    state = State(now)
    while now <= until and (coming or queue):
        while coming and coming[-1].waiting.queued_at <= now:
            arrival = coming.pop()
            queue[arrival.waiting.key] = arrival
        running = Counter(state.running)
        while ends and ends[0][0] <= now:
            running.subtract(heapq.heappop(ends)[2])
        state = replace(state, now=now, used=len(ends), running=running)
        if queue and len(ends) < policy.slots:
            for row in order((each.waiting for each in queue.values()), state, policy):
                if not row.waits_for:
                    state = state.after(row.groups, policy, lent=row.lent)
                    key = row.waiting.key
                    began[key], ended[key] = now, now + queue.pop(key).lasts
                    heapq.heappush(ends, (ended[key], len(began), row.groups))
        moments = [coming[-1].waiting.queued_at if coming else None, ends[0][0] if ends else None, opens_at(state, policy)]
        now = max(min((at for at in moments if at is not None), default=until), now + PASS)
    return Run(began, ended, [each.waiting for each in queue.values()], now)


def report(arrivals: Sequence[Arrival], run: Run, policy: Policy) -> Iterator[str]:
    """Waiting times by band, the longest wait of all, limits, and the slots' time by campaign while requests came."""
    hours: defaultdict[str, list[float]] = defaultdict(list)
    for each in arrivals:
        waiting = each.waiting
        since = run.began.get(waiting.key, run.at) - waiting.queued_at
        hours[policy.band(urgent=waiting.urgent, priority=waiting.priority)].append(since.total_seconds() / 3600)
    yield f"{'band':10}{'requests':>9}{'p50 h':>9}{'p95 h':>9}{'max h':>9}"
    for band in (URGENT, *(name for name, _ in policy.bands)):
        if found := hours.get(band):
            cuts = quantiles(found, n=20, method="inclusive") if len(found) > 1 else found * 19
            yield f"{band:10}{len(found):9}{cuts[9]:9.1f}{cuts[18]:9.1f}{max(found):9.1f}"
    yield f"longest wait {max(map(max, hours.values())):.1f} h; without a slot to the end: {len(run.left)}"
    over = [f"{group[0]} {group[1]} {much}" for group, much in passed(arrivals, run, policy)]
    yield f"limits passed over a day, while others within theirs waited: {', '.join(over) or 'none'}"
    idle, waited = idle_slots(arrivals, run, policy.slots)
    mean = f"{idle / waited:.1f} of {policy.slots} slots in the mean" if waited else "none waited"
    yield f"idle while a request waits: {idle:.0f} slot-hours in {waited:.0f} h, {mean}"
    yield "slots' time while requests came: " + ", ".join(f"{name} {part:.0%}" for name, part in shares(arrivals, run))


@dataclass(slots=True)
class _Standing:
    """How things stood between two moments: who ran, and who waited, by the groups they belong to; ``full_at``: buckets, if all
    starts had been taken from them, at most to the last one.
    """

    running: Counter[Group]
    waiting: Counter[tuple[Group, ...]]
    full_at: dict[Group, datetime] = field(default_factory=dict)
    used: int = 0

    def starts(self, groups: tuple[Group, ...], policy: Policy, at: datetime) -> None:
        """One more start."""
        for group in groups:
            cap = policy.cap(group)
            if cap is not None and cap.per_hour is not None:
                empty = at + timedelta(hours=cap.burst / cap.per_hour)
                self.full_at[group] = min(cap.taken(self.full_at.get(group), at), empty)

    def within_waits(self, policy: Policy, at: datetime) -> bool:
        """Whether a request waits none of whose groups is at its limit."""
        state = State(at, running=self.running, full_at=self.full_at)
        return any(
            number and not any(obstacle(group, state, policy) for group in groups) for groups, number in self.waiting.items()
        )


def _status_details(arrivals: Sequence[Arrival], run: Run, policy: Policy) -> Iterator[tuple[datetime, float, _Standing]]:
    """Each time in which nothing changed: its begin, its hours, and how things stood."""
    changes: list[tuple[datetime, int, tuple[Group, ...]]] = []
    for each in arrivals:
        key, groups = each.waiting.key, each.waiting.groups(policy)
        moments = (each.waiting.queued_at, run.began.get(key), run.ended.get(key))
        changes += [(at, what, groups) for what, at in enumerate(moments) if at is not None]
    changes.sort(key=lambda change: change[:2])
    now = _Standing(Counter(), Counter())
    for (at, what, groups), following in pairwise([*changes, (run.at, 0, ())]):
        now.waiting[groups] += (1, -1, 0)[what]
        now.used += (0, 1, -1)[what]
        if what == 1:
            now.starts(groups, policy, at)
        now.running.update(dict.fromkeys(groups, (0, 1, -1)[what]))
        if following[0] > at:
            yield at, (following[0] - at).total_seconds() / 3600, now


def idle_slots(arrivals: Sequence[Arrival], run: Run, slots: int) -> tuple[float, float]:
    """Slot-hours that were idle while a request waited, and the hours in which one did."""
    idle = waited = 0.0
    for _, hours, now in _status_details(arrivals, run, Policy(slots)):
        if now.waiting.total():
            idle, waited = idle + hours * (slots - now.used), waited + hours
    return idle, waited


def passed(arrivals: Sequence[Arrival], run: Run, policy: Policy) -> Iterator[tuple[Group, str]]:
    """Groups that had more than their limits over a day, by starts and ends alone. Slots that no other wanted count for
    nothing: what a group has above its limit counts while another within its limits waits, in parts of what the limit gives
    in a day; as a DAG that was lent a slot ends when it ends, ``OVER_A_DAY`` of that is none.
    """
    above: Counter[tuple[Group, int]] = Counter()  # slot-seconds, by day
    for at, hours, now in _status_details(arrivals, run, policy):
        if now.within_waits(policy, at):
            for group, number in now.running.items():
                cap = policy.cap(group)
                if cap is not None and cap.most is not None and number > cap.most:
                    above[group, (at - BEGIN).days] += round((number - cap.most) * hours * 3600)
    worst: dict[Group, float] = {}
    for (group, _), seconds in above.items():
        worst[group] = max(worst.get(group, 0.0), seconds / 86_400)
    for group, more in sorted(worst.items()):
        most = (policy.cap(group) or Cap()).most or 0
        if more > OVER_A_DAY * most:
            yield group, f"{most + more:.1f} of {most} DAGs"
    yield from _too_many_starts(arrivals, run, policy)


def _too_many_starts(arrivals: Sequence[Arrival], run: Run, policy: Policy) -> Iterator[tuple[Group, str]]:
    """Of a rate: more starts in a day than it gives, while another within its limits waited."""
    starts: defaultdict[datetime, Counter[Group]] = defaultdict(Counter)
    for each in arrivals:
        if each.waiting.key in run.began:
            starts[run.began[each.waiting.key]].update(each.waiting.groups(policy))
    by_day: Counter[tuple[Group, int]] = Counter()
    for at, _, now in _status_details(arrivals, run, policy):
        if at in starts and now.within_waits(policy, at):
            for group, number in starts[at].items():
                by_day[group, (at - BEGIN).days] += number
    most: dict[Group, int] = {}
    for (group, _), number in by_day.items():
        most[group] = max(most.get(group, 0), number)
    for group, number in sorted(most.items()):
        cap = policy.cap(group)
        if cap is not None and cap.per_hour is not None and number > (gives := cap.burst + 24 * cap.per_hour):
            yield group, f"{number} of {gives:.0f} starts"


def shares(arrivals: Sequence[Arrival], run: Run) -> list[tuple[str, float]]:
    """Campaigns by their part of the time of slots that were in use until the last request came."""
    until = max(each.waiting.queued_at for each in arrivals)
    used: Counter[str] = Counter()
    for each in arrivals:
        if (begin := run.began.get(each.waiting.key, until)) < until:
            used[each.waiting.campaign] += int((min(run.ended[each.waiting.key], until) - begin).total_seconds())
    return [(name, seconds / used.total()) for name, seconds in used.most_common(6)]


def read(path: Path) -> list[Arrival]:
    """A file of arrivals.

    Raises:
        ValueError: a line lacks something; it is named by its number.
    """
    text = path.read_text()
    lines: Any = map(json.loads, text.splitlines()) if text.lstrip().startswith("{") else csv.DictReader(text.splitlines())
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_arrival(number, line))
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}: record {number}: {type(error).__name__} {error}") from error
    return found


def _arrival(number: int, line: Mapping[str, Any]) -> Arrival:
    time = str(line["time"])
    try:
        at = datetime.fromtimestamp(float(time), UTC)
    except ValueError:
        at = datetime.fromisoformat(time)
    urgent = str(line.get("urgent") or "").lower() in ("1", "true", "yes")
    seconds = float(line.get("seconds") or min(7200 + 20 * int(line["jobs"]), 172_800))
    waiting = Waiting(
        number,
        int(line["priority"]),
        at if at.tzinfo else at.replace(tzinfo=UTC),
        urgent,
        str(line["campaign"]),
        str(line["requester"]),
    )
    return Arrival(waiting, timedelta(seconds=seconds))


def write(path: Path, arrivals: Sequence[Arrival]) -> None:
    """As CSV."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("time", "priority", "campaign", "requester", "jobs", "urgent", "seconds"))
        for each in arrivals:
            one, seconds = each.waiting, int(each.lasts.total_seconds())
            jobs = (seconds - 7200) // 20
            rows.writerow((one.queued_at.isoformat(), one.priority, one.campaign, one.requester, jobs, int(one.urgent), seconds))


def sample(seed: int) -> list[Arrival]:
    """A week: a steady stream, more of it of high priority by day than slots can run; a campaign that asks for 200
    requests within an hour, twice; low priorities all along; one in fifty urgent. Then, when that is done, two days in which one
    campaign of normal priority alone asks for all that the slots can run.
    """
    chance = random.Random(seed)  # noqa: S311  a sample
    found: list[Arrival] = []

    def add(hours: float, priority: int, campaign: str, requester: str, *, urgent: bool = False) -> None:
        jobs = min(int(chance.lognormvariate(5.3, 1.0)), 8_000)
        line = {
            "time": (BEGIN + timedelta(hours=hours)).isoformat(), "priority": priority, "campaign": campaign,
            "requester": requester, "jobs": jobs, "urgent": urgent,
        }  # fmt: skip
        found.append(_arrival(len(found) + 1, line))

    for day in range(7):
        for _ in range(260):
            hours = 24 * day + chance.triangular(0, 24, 14)
            urgent = chance.random() < 0.02
            kind = chance.random()
            if kind < 0.55:
                add(hours, chance.choice((110_000, 120_000, 130_000)), f"Run{chance.randint(1, 4)}", "prod", urgent=urgent)
            elif kind < 0.8:
                add(
                    hours,
                    chance.choice((80_000, 90_000)),
                    f"MC{chance.randint(1, 6)}",
                    f"pag{chance.randint(1, 5)}",
                    urgent=urgent,
                )
            else:
                add(hours, chance.choice((20_000, 63_000)), f"Study{chance.randint(1, 8)}", f"user{chance.randint(1, 12)}")
    for hours in (30.0, 100.0):
        for _ in range(200):
            add(hours + chance.random(), 115_000, "Flood", "flooder")
    for _ in range(520):
        add(24 * 12 + chance.uniform(0, 48), chance.choice((80_000, 90_000)), "Alone", "prod")
    return sorted(found, key=lambda each: each.waiting.queued_at)
