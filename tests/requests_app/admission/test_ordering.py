"""The order of admission, its limits and its aging, by property; and expected starts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from requests_app.admission.expected import ALL, expected_starts
from requests_app.admission.ordering import TOP, URGENT, Cap, Policy, State, Waiting, order, risen, shut
from requests_app.admission.queue import flooded
from requests_app.models import AdmissionState

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BANDS = (("high", 100_000), ("normal", 50_000))
caps = st.builds(
    Cap, st.none() | st.integers(1, 4), st.none() | st.floats(0.1, 100, allow_nan=False), st.integers(1, 4), st.booleans()
)
names = st.sampled_from(["", "a", "b", "c"])


@st.composite
def queues(draw: st.DrawFn, most: int = 25) -> list[Waiting]:
    rows = draw(st.lists(st.tuples(st.integers(0, TOP), st.integers(0, 10_000), st.booleans(), names, names), max_size=most))
    return [Waiting(i, p, NOW - timedelta(minutes=m), u, c, r) for i, (p, m, u, c, r) in enumerate(rows)]


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    groups = [("band", "high"), ("band", URGENT), ("campaign", ""), ("campaign", "a"), ("requester", ""), ("requester", "b")]
    chosen = draw(st.dictionaries(st.sampled_from(groups), caps))
    return Policy(draw(st.integers(0, 12)), draw(st.sampled_from([0.0, 10.0, 1000.0])), bands=BANDS, caps=chosen)


@given(queues(), policies(), st.integers(0, 5))
def test_limits_are_kept_whatever_the_queue_and_nothing_that_may_start_is_left(
    queue: list[Waiting], policy: Policy, used: int
) -> None:
    state = State(NOW, used=used, running={("campaign", "a"): min(used, 2)})
    ranked = order(queue, state, policy)
    started = [row for row in ranked if not row.waits_for]
    assert len(started) <= max(policy.slots - used, 0)
    for rows, rules in (([row for row in started if not row.lent], policy), (started, policy.bent())):
        running, starts = Counter(state.running), Counter[tuple[str, str]]()
        for row in rows:
            running.update(row.groups)
            starts.update(row.groups)
        for group, number in starts.items():
            cap = rules.cap(group) or Cap()
            assert cap.most is None or running[group] <= cap.most
            assert cap.per_hour is None or number <= cap.burst
    left = len(started) < policy.slots - used
    within = after = state
    for row in started:
        after = after.after(row.groups, policy, lent=row.lent)
        within = within if row.lent else within.after(row.groups, policy)
    for row in ranked:
        if row.waits_for:
            assert not left or any(group in shut(after, policy.bent()) for group in row.groups), "a slot was left for it"
            lent = any(each.lent for each in started)
            assert not lent or any(group in shut(within, policy) for group in row.groups), "one within the limits comes first"
    assert sorted(row.place for row in ranked) == list(range(1, len(queue) + 1))


def test_what_nobody_within_the_limits_can_take_is_lent_and_given_back_at_the_next_pass() -> None:
    policy = Policy(
        6, caps={("campaign", "a"): Cap(most=2), ("campaign", "b"): Cap(most=1, hard=True), ("campaign", "z"): Cap(most=0)}
    )
    rows = [Waiting(f"{name}{n}", 9, NOW, campaign=name) for name in "abz" for n in range(4)]
    state, ranked = State(NOW), order(rows, State(NOW), policy)
    assert [row.waiting.key for row in ranked if not row.waits_for] == ["a0", "a1", "a2", "a3", "b0"]
    assert [row.waiting.key for row in ranked if row.lent] == ["a2", "a3"]
    for row in ranked:
        state = state if row.waits_for else state.after(row.groups, policy)
    more = [Waiting("a9", 9, NOW, campaign="a"), Waiting("c0", 1, NOW, campaign="c")]
    reported = {row.waiting.key: row.waits_for for row in order(more, state, policy)}
    limited = "limit of campaign a: 4 of 2 DAGs; above its limit it gets what others leave"
    assert reported == {"a9": limited, "c0": ""}, "the one within the limits has the slot"
    refused = {row.waiting.key: row.waits_for for row in order(more[:1], state, policy, lambda waiting: "no room")}
    assert refused == {"a9": "no room"}


def test_what_is_lent_takes_nothing_of_a_rate_that_bends_and_its_group_opens_at_its_ordinary_moment() -> None:
    policy = Policy(
        9, caps={("requester", "r"): Cap(per_hour=2, burst=3), ("campaign", "h"): Cap(per_hour=1, burst=5, hard=True)}
    )
    state = State(NOW)
    for row in order([Waiting(n, 1, NOW, requester="r", campaign="h" if n > 6 else "") for n in range(9)], state, policy):
        assert not row.waits_for and row.lent == (row.place > 3)
        state = state.after(row.groups, policy, lent=row.lent)
    assert state.full_at["requester", "r"] == NOW + 1.5 * HOUR
    assert state.full_at["campaign", "h"] == NOW + 2 * HOUR, "a hard one counts what another limit lent"
    assert (state.used, state.running["requester", "r"]) == (9, 9)
    later = replace(state, now=NOW + HOUR / 2, used=8)
    rows = [Waiting("r", 9, NOW, requester="r"), Waiting("low", 1, NOW)]
    assert [row.waiting.key for row in order(rows, later, policy) if not row.waits_for] == ["r"], "half an hour gives a start"


@given(queues(), policies(), st.randoms())
def test_the_order_is_urgent_first_then_by_what_priority_has_risen_to_and_does_not_hang_on_how_rows_come(
    queue: list[Waiting], policy: Policy, random: object
) -> None:
    ranked = order(queue, State(NOW), policy)
    stands = [(not row.waiting.urgent, -row.priority, row.waiting.queued_at) for row in ranked]
    assert stands == sorted(stands)
    shuffled = list(queue)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert order(shuffled, State(NOW), policy) == ranked


@given(queues(), policies(), st.data())
def test_more_priority_never_makes_a_place_worse(queue: list[Waiting], policy: Policy, data: st.DataObject) -> None:
    if not queue:
        return
    one = data.draw(st.sampled_from(queue))
    more = replace(one, priority=data.draw(st.integers(one.priority, TOP)))

    def place(rows: list[Waiting]) -> int:
        return next(row.place for row in order(rows, State(NOW), policy) if row.waiting.key == one.key)

    assert place([more if each is one else each for each in queue]) <= place(queue)


@given(queues(), policies(), st.sets(st.integers(0, 24)))
def test_who_cannot_be_placed_keeps_nobody_else_waiting(queue: list[Waiting], policy: Policy, never: set[int]) -> None:
    """All others start as if those who have no room were not there."""
    ranked = order(queue, State(NOW), policy, lambda waiting: "no room" if waiting.key in never else "")
    without = order([each for each in queue if each.key not in never], State(NOW), policy)
    assert [row.waiting for row in ranked if not row.waits_for] == [row.waiting for row in without if not row.waits_for]


@given(st.integers(0, TOP), st.floats(0.5, 1000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_priority_only_rises_and_ends_at_the_top(priority: int, aging: float, first: int, more: int) -> None:
    waiting = Waiting(1, priority, NOW - first * HOUR)
    now, later = risen(waiting, NOW, aging), risen(waiting, NOW + more * HOUR, aging)
    assert priority <= now <= later <= TOP


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5_000), st.sampled_from([50.0, 500.0]), st.integers(1, 3))
def test_nobody_starves_under_a_stream_of_higher_priorities(priority: int, aging: float, arrivals: int) -> None:
    """One slot an hour, and more than one request an hour that came with a higher priority: the low one starts all the same, no
    later than when those who came before it caught up are served.
    """
    policy = Policy(1, aging)
    low = Waiting("low", priority, NOW)
    queue, hour = [low], 0
    # whoever comes later than this is behind it; those before are at most `arrivals` an hour, and one is served an hour
    caught_up = (6_000 - priority) / aging + 1
    while low in queue:
        now = NOW + hour * HOUR
        queue += [Waiting(f"{hour}.{n}", 6_000, now) for n in range(arrivals)]
        started = next(row.waiting for row in order(queue, State(now), policy) if not row.waits_for)
        queue.remove(started)
        hour += 1
        assert hour <= caught_up * (arrivals + 1) + 2
    plain = Policy(1, 0.0)
    assert next(row for row in order([low, *queue], State(now), plain) if not row.waits_for).waiting != low or not queue


def test_a_stream_of_urgent_requests_leaves_what_its_limit_leaves() -> None:
    urgent = [Waiting(n, 1, NOW, urgent=True) for n in range(10)]
    low = Waiting("low", 0, NOW)
    policy = Policy(4, caps={("band", URGENT): Cap(most=3)})
    started = [row.waiting.key for row in order([*urgent, low], State(NOW), policy) if not row.waits_for]
    assert started == [0, 1, 2, "low"]


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    cap = Cap(per_hour=2, burst=3, hard=True)
    policy, full_at, starts = Policy(100, caps={("campaign", ""): cap}), {}, []
    for minute in range(0, 180, 10):
        now = NOW + timedelta(minutes=minute)
        state = State(now, full_at=full_at)
        queue = [Waiting(f"{minute}.{n}", 1, NOW, campaign="a") for n in range(5)]
        for row in order(queue, state, policy):
            if not row.waits_for:
                state = state.after(row.groups, policy)
                starts.append(minute)
        full_at = dict(state.full_at)
    assert starts == [0, 0, 0, 30, 60, 90, 120, 150]
    reported = next(row.waits_for for row in order(queue, state, policy))
    assert reported == "limit of campaign a: 2 starts an hour, the next at 2026-11-23 15:00:00 UTC"


def test_what_each_waits_for_is_said() -> None:
    policy = Policy(3, bands=BANDS, caps={("campaign", "a"): Cap(most=5), ("band", "high"): Cap(most=1, hard=True)})
    state = State(NOW, used=2, running={("campaign", "a"): 5})
    rows = (
        Waiting("full", 90_000, NOW, campaign="a"), Waiting("first", 200_000, NOW), Waiting("second", 150_000, NOW),
        Waiting("last", 1, NOW),
    )  # fmt: skip
    reported = {row.waiting.key: row.waits_for for row in order(rows, state, policy)}
    assert reported == {
        "first": "",
        "second": "limit of band high: 1 of 1 DAGs",
        "full": "limit of campaign a: 5 of 5 DAGs; above its limit it gets what others leave",
        "last": "its turn for a DAG slot",
    }


def test_watermarks_have_a_gap_between_them() -> None:
    policy = Policy(1, high_watermark=1.0, low_watermark=0.5)
    stored = AdmissionState()
    stopped = [flooded(stored, NOW, policy, jobs, 100) != "" for jobs in (90, 100, 60, 50, 49, 99)]
    assert stopped == [False, True, True, True, False, False]


def test_an_expected_start_follows_from_slots_that_became_free_limits_and_buckets() -> None:
    rate = Cap(per_hour=0.5, burst=1, hard=True)
    policy = Policy(2, caps={("campaign", "a"): Cap(most=1, hard=True), ("requester", "r"): rate})
    state = State(NOW, used=2, running={("campaign", "a"): 1}, full_at={("requester", "r"): NOW + HOUR})
    rows = [
        Waiting(1, 9, NOW), Waiting(2, 8, NOW, campaign="a"), Waiting(3, 7, NOW), Waiting(4, 6, NOW, requester="r"),
        Waiting(5, 5, NOW, campaign="b"),
    ]  # fmt: skip
    ended = {ALL: 48, ("campaign", "a"): 4}
    found = expected_starts(order(rows, state, policy), state, policy, ended)
    assert [found[key].at for key in (1, 2, 3, 4, 5)] == [
        NOW + HOUR / 2,
        NOW + 6 * HOUR,
        NOW + HOUR,
        NOW + 1.5 * HOUR,  # its bucket has the next start in an hour
        NOW + 1.5 * HOUR,  # the one before it is kept by its bucket, and counts no more
    ]
    assert found[2].basis == "4 slots of campaign a became free in the last 24 hours, 0 before it"
    unknown = expected_starts(order(rows, state, policy), state, policy, {})[1]
    assert (unknown.at, unknown.basis) == (None, "not known: no slot in all became free in the last 24 hours")


def test_above_a_limit_that_bends_a_start_follows_from_the_slots_that_become_free_alone() -> None:
    policy = Policy(2, caps={("campaign", "a"): Cap(most=1), ("requester", "r"): Cap(per_hour=0.001)})
    state = State(NOW, used=2, running={("campaign", "a"): 2}, full_at={("requester", "r"): NOW + 1000 * HOUR})
    rows = [Waiting(1, 9, NOW), Waiting(2, 8, NOW, campaign="a"), Waiting(3, 7, NOW, requester="r"), Waiting(4, 6, NOW)]
    found = expected_starts(order(rows, state, policy), state, policy, {ALL: 48})
    assert [found[key].at for key in (1, 2, 3, 4)] == [NOW + HOUR / 2, NOW + HOUR, NOW + 1.5 * HOUR, NOW + HOUR]
    assert found[3].basis == (
        "above its limit it gets what others leave: 48 slots in all became free in the last 24 hours, 2 before it"
    )
    unknown = expected_starts(order(rows, state, policy), state, policy, {})[2]
    assert unknown.at is None and unknown.basis.startswith("above its limit it gets what others leave: not known")


def test_who_starts_now_is_expected_now_and_nobody_while_all_are_stopped() -> None:
    rows = [Waiting(1, 1, NOW)]
    policy = Policy(1)
    assert expected_starts(order(rows, State(NOW), policy), State(NOW), policy, {})[1].at == NOW
    stopped = State(NOW, stopped="a new credential")
    reported = expected_starts(order(rows, stopped, policy), stopped, policy, {})[1]
    assert (reported.at, reported.basis) == (None, "not known: nothing starts now, for a new credential")
