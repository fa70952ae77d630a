"""Who may start next (spec 4.4; docs/design/control.md, Admission).

One pass reads as many requests as slots are free and some more, in the order of ``admission.ordering``. Of the others only the
reason to wait is written, by one statement, where it has changed. The query leaves out what a limit stops; where nothing that was
read can be placed, the next pass goes on behind it (ADR 0025). Slots that are left are lent, in the same way, to requests whose
limit is not hard. A pass is made only when triggers record a change of something that it rests on. It counts live DAG rows, never
statuses. A request that pauses has ``next_attempt_at`` and is passed over until its own evaluation removes that. One advisory
lock keeps two passes from taking the same last slot. ``admission.placement`` chooses the schedd.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, reduce
from operator import attrgetter, or_
from typing import Any

import structlog
from django.db import transaction
from django.db.models import (
    BooleanField,
    Case,
    DurationField,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Greatest, Least
from django.db.models.lookups import GreaterThan

from dags_app.models import DAG, LIVE_DAG
from dags_app.services.submit import credential_obstacle
from requests_app.admission.fair_share import Share, share_of
from requests_app.admission.ordering import (
    ITS_TURN,
    LIMIT,
    TOP,
    TURN,
    URGENT,
    Cap,
    Group,
    GroupKind,
    Policy,
    Ranked,
    State,
    Waiting,
    opens_at,
    order,
    order_within,
    shut,
)
from requests_app.admission.placement import (
    Decision,
    Room,
    Wanted,
    dags_to_rescue,
    place,
    running_now,
    taking_slot,
)
from requests_app.alerts import BROKEN, report_broken
from requests_app.lease import MOST_WORDS
from requests_app.limits import limits_now
from requests_app.models import AdmissionBucket, AdmissionLimit, AdmissionState, Request, RequestStatus, Workflow
from requests_app.service_level import no_new_work
from requests_app.states import transition
from sites_app.guard import systemic_trouble
from sites_app.services import NO_SITE, without_site
from wms2.conf import Conf, Limits, conf
from wms2.errors import StaleState
from wms2.metrics.series import FORGOTTEN_TOTAL
from wms2.models import Wake
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.grouping import grouped
from wms2.runtime.levels import Level
from wms2.runtime.locks import Fenced, LockKey, lock_until_commit
from wms2.runtime.passes import row_by_itself
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
#: Requests that a pass looks at beside as many as slots are free.
FURTHER = 50
#: The key of the wakes that triggers write for the whole queue.
ADMISSION = uuid.UUID(int=0)
#: Reasons of such wakes where sites were opened or closed, or bans made or lifted.
_SITES = ("admission: sites", "admission: site_bans", "admission: workflows")
#: How the reason of all begins while passes break.
BROKEN_OFF = "a repair of WMS2; admission breaks, and is tried again every few seconds:"
#: Of a request that another session holds, or has changed.
_CHANGED = "what has changed of it just now"
#: How the reason begins while too many jobs wait.
_FLOOD = "the idle-job budget"
#: This process's settings at its last pass: after a restart they may be others.
_settings: deque[Conf] = deque(maxlen=1)
#: What limits and order rest on.
_ABOUT = ("urgent", "priority", "campaign", "requestor")
#: The same of a DAG.
ABOUT_DAG = tuple(f"workflow__request__{name}" for name in _ABOUT)
#: Columns of a queued request on which its turn rests, as ``Waiting`` has them.
WAITING = ("id", "priority", "queued_at", "urgent", "campaign", "requestor")
#: The lower one comes first.
Key = tuple[bool, float, datetime, uuid.UUID]
KEY = ("urgent", "risen", "since", "id")
_KEY = Func(
    ExpressionWrapper(Q(urgent=False), output_field=BooleanField()), 0.0 - F("risen"), "since", "id",
    function="ROW", output_field=TextField(),
)  # fmt: skip


def eligible() -> QuerySet[Request]:
    """QUEUED requests without those that pause."""
    return Request.objects.filter(status=RequestStatus.QUEUED, next_attempt_at__isnull=True)


def in_order(rows: QuerySet[Request], policy: Policy, now: datetime) -> QuerySet[Request]:
    """As ``ordering.order`` has them; ``date_part``, because EXTRACT counts in decimals, which takes five times as long."""
    waited = ExpressionWrapper(Value(now) - F("since"), output_field=DurationField())
    seconds = Func(waited, template="date_part('epoch', %(expressions)s)", output_field=FloatField())
    hours = Greatest(seconds / Value(3600.0), Value(0.0), output_field=FloatField())
    risen = Least(F("priority") + Value(policy.aging_per_hour) * hours, Value(float(TOP)), output_field=FloatField())
    return rows.annotate(since=Coalesce("queued_at", Value(now)), risen=risen).order_by("-urgent", "-risen", "since", "id")


def key_of(urgent: bool, risen: float, since: datetime, pk: uuid.UUID) -> Key:
    """Made of the columns ``KEY`` of ``in_order``."""
    return not urgent, -risen, since, pk


def comes_after(key: Key) -> GreaterThan:
    """For rows of ``in_order``."""
    return GreaterThan(_KEY, Func(*map(Value, key), function="ROW"))


def waiting_of(values: Sequence[Any], now: datetime) -> Waiting:
    """Made of the columns ``WAITING``."""
    key, priority, queued_at, *others = values
    return Waiting(key, priority, queued_at or now, *others)


def policy_now(limits: Limits | None = None) -> Policy:
    """As operators have set it."""
    now = limits or limits_now()
    policy = Policy(now.max_active_dags, now.admission_aging_per_hour, now.admission_high_watermark, now.admission_low_watermark)
    return with_limits(policy, AdmissionLimit.objects.all())


def with_limits(policy: Policy, rows: Iterable[AdmissionLimit]) -> Policy:
    """With these limits and bands alone, each the only one of its kind and name."""
    rows = list(rows)
    bands = sorted(((row.least_priority, row.name) for row in rows if row.least_priority is not None), reverse=True)
    caps = {(row.kind, row.name): Cap(row.max_dags, row.rate_per_hour, row.burst, row.hard) for row in rows}
    return replace(policy, bands=tuple((name, least) for least, name in bands), caps=caps)


def state_now(policy: Policy, now: datetime, *, stopped: str = "") -> State:
    """What holds slots, a request each: live DAGs, and requests that have taken one and have no live DAG; and the buckets."""
    here = DAG.objects.filter(status__in=LIVE_DAG).order_by().values_list(*ABOUT_DAG)
    holders = list(here.union(taking_slot().order_by().values_list(*_ABOUT), all=True))
    running = in_groups(policy, holders)
    buckets = AdmissionBucket.objects.filter(full_at__gt=now)
    return State(now, len(holders), running, {(each.kind, each.name): each.full_at for each in buckets}, stopped)


def in_groups(policy: Policy, rows: Iterable[tuple[Any, ...]]) -> Counter[Group]:
    """How many of these requests are in each group, by the columns that limits rest on."""
    found: Counter[Group] = Counter()
    for urgent, priority, campaign, requester in rows:
        found.update(policy.groups(urgent=urgent, priority=priority, campaign=campaign, requester=requester))
    return found


def _restraint(stored: Any) -> str:
    """Why no request may start, apart from the credential; empty: the next in order may."""
    return no_new_work() or systemic_trouble() if stored.restrained else ""


def open_groups(rows: QuerySet[Request], policy: Policy, state: State) -> QuerySet[Request]:
    """Without those that a limit stops."""
    return rows.exclude(of_groups(shut(state, policy), policy))


def of_groups(groups: Iterable[Group], policy: Policy) -> Q:
    """The requests of any of these."""
    return reduce(or_, (of_group(group, policy) for group in groups), Q(pk__in=()))


def admit_if_changed(*, fenced: Fenced = transaction.atomic) -> int:
    """A pass if something has changed that the last one rested on; else a few statements, however long the queue is."""
    stored = _stored()
    changed = _has_changed(stored, lambda: _restraint(stored) or credential_obstacle(), clock.now())
    return admit(fenced=fenced) if changed else 0


def _has_changed(stored: Any, stopped: Callable[[], str], now: datetime) -> bool:
    """A wake, what stops all, this process's settings; or the time that the last pass set has come."""
    before = "" if stored.stopped.startswith(_FLOOD) else stored.stopped
    is_time = stored.again_at is not None and stored.again_at <= now
    return is_time or stored.woken or conf() not in _settings or stopped() != before


#: The one row, or its defaults before there is one; whether there are wakes since the last pass; and whether there is anything
#: that may stop all requests: mostly there is not, and the reason is not read.
_STORED = f"""
SELECT id, coalesce(stopped, '') AS stopped, flooded_since, coalesce(passed_over, 0) AS passed_over, again_at,
  EXISTS (SELECT FROM wakes WHERE request_id = %s) AS woken,
  EXISTS (SELECT FROM service_levels WHERE stopped_by <> '' OR level <> '{Level.NORMAL}')
  OR EXISTS (SELECT FROM systemic_alerts WHERE ended_at IS NULL AND holds) AS restrained
FROM (VALUES (1)) AS one (id) LEFT JOIN admission_state USING (id)
"""  # noqa: S608  (only a constant)


def _stored() -> Any:
    return AdmissionState.objects.raw(_STORED, [ADMISSION])[0]


def _due_marks_read() -> set[str]:
    return set(Wake.objects.filter(request_id=ADMISSION).values_list("why", flat=True))


def admit(*, fenced: Fenced = transaction.atomic) -> int:
    """One pass over the queue: requests that start take their slot and become PLANNING; the others get their reason to wait. What
    is found although nothing has changed was forgotten: a trigger is missing.

    Args:
        fenced: the transaction to write in, e.g. the leader's.

    Returns:
        How many were admitted.
    """
    settings, credential = conf(), credential_obstacle()  # read while no lock is held
    with fenced():
        lock_until_commit(LockKey.ADMISSION)
        stored = _stored()
        stopped = _restraint(stored) or credential
        before, expected = dict(vars(stored)), _has_changed(stored, lambda: stopped, clock.now())
        # first of all: what is committed later is there at the next; and passes that go on have not looked at all yet
        if stored.passed_over:
            whys = _due_marks_read()
        else:  # those that are deleted are those that are returned, however many arrive meanwhile
            whys = {why for (why,) in sql_rows("DELETE FROM wakes WHERE request_id = %s RETURNING why", [ADMISSION])}
        if not whys.isdisjoint(_SITES):  # a site that they wait for may be open again
            paused = Request.objects.filter(status=RequestStatus.QUEUED, last_error__startswith=NO_SITE)
            expected |= (
                paused.exclude(next_attempt_at=None).update(next_attempt_at=None, waiting_for="", updated_at=clock.now()) > 0
            )
        expected |= not stored.passed_over and bool(whys)
        started, changed = list[Request](), 0
        if stored.flooded_since is not None or eligible().exists():
            started, changed = _pass(stored, stopped)
        else:  # an arrival is a wake
            stored.stopped, stored.passed_over, stored.again_at = stopped, 0, None
        if vars(stored) != before:
            stored.save()
        mark_due([request.pk for request in started], "admitted")
        if (started or changed) and not expected and not _due_marks_read():
            FORGOTTEN_TOTAL.inc()
            log.error("forgotten request: admission was not woken", admitted=len(started), reported=changed)
    _settings.append(settings)
    return len(started)


def report_pass_broken(error: Exception, *, fenced: Fenced) -> None:
    """Else those that wait would go on saying what they waited for before. The next pass writes their reasons again."""
    why = f"{BROKEN_OFF} {type(error).__name__}: {error}".replace("\0", "")[:MOST_WORDS]
    with fenced():
        if eligible().exclude(waiting_for=why).update(waiting_for=why, updated_at=clock.now()):
            mark_due([ADMISSION], "admission: broken off")


def _pass(stored: AdmissionState, stopped: str) -> tuple[list[Request], int]:
    """The requests that started, and of how many the reason has changed; ``stored`` has what the next pass needs."""
    limits = limits_now()
    policy = policy_now(limits)
    state = state_now(policy, clock.now(), stopped=stopped)
    started: list[Request] = []
    waits: dict[uuid.UUID, str] = {}
    further = False
    if not stopped and state.used < policy.slots:
        state, started, waits, further = _start_some(policy, limits, state, stored)
    changed = _report(policy, state, waits, stored.stopped)
    stored.stopped, stored.passed_over = state.stopped, stored.passed_over if further else 0
    stored.again_at = state.now if further else opens_at(state, policy)
    return started, changed


def _start_some(
    policy: Policy, limits: Limits, state: State, stored: AdmissionState
) -> tuple[State, list[Request], dict[uuid.UUID, str], bool]:
    """Starts requests in order, as long as slots are left. Returns the new state, the requests that started, why others were
    refused, and whether there are more to read.
    """
    free, running = policy.slots - state.used, running_now(limits)
    if stopped := flooded(stored, state.now, policy, sum(each.taken for each in running), limits.idle_job_budget):
        return replace(state, stopped=stopped), [], {}, False
    room: Room | None = None  # read when there is a request
    started, refused = list[Request](), list[Request]()
    # a locked request must not stop the others: the next pass comes to it
    queue = in_order(open_groups(eligible(), policy, state), policy, state.now)
    size, skipped = free + FURTHER, stored.passed_over

    def pick(queue: QuerySet[Request], first: int, rank: Callable[..., list[Ranked]]) -> list[Ranked]:
        """Start what can be started of a part of the queue."""
        nonlocal state, room
        left = policy.slots - state.used
        # the whole queue is sorted by its keys alone: rows that are to be locked would be sorted with all their columns
        window = queue.filter(pk__in=queue.values("pk")[first : first + left + FURTHER])
        rows = list(window.select_for_update(skip_locked=True, no_key=True).defer("request_data", "prepared"))
        if not rows:
            return []
        room = room or Room.now()
        share = share_of(limits.idle_job_budget, running, sharers=state.used + min(left, len(rows)))
        this_pass = _Pass(rows, room, limits, share)
        ranked = rank((waiting_of(attrgetter(*WAITING)(request), state.now) for request in rows), state, policy, this_pass.fits)
        for row in ranked:
            if not row.waits_for:
                state = state.after(row.groups, policy, lent=row.lent)
        started.extend(this_pass.started)
        refused.extend(this_pass.refused)
        return ranked

    ranked = pick(queue, skipped, order_within)
    # fewer were read than there are where the window was full, or one is locked
    further = len(started) < free and queue[skipped + len(ranked) - len(started) :].exists()
    stored.passed_over = skipped + len(refused) if further and len(ranked) == size else 0
    closed = shut(state, policy)
    if closed and not further and state.used < policy.slots:
        limited = open_groups(eligible().filter(of_groups(closed, policy)), policy.bent(), state)
        before, size = len(refused), policy.slots - state.used + FURTHER
        within = open_groups(eligible(), policy, state).count() if skipped or limited.count() > size else 0
        behind = max(skipped - within, 0)
        lent = pick(in_order(limited, policy, state.now), behind, order)
        further = len(lent) == size and state.used < policy.slots
        stored.passed_over = within + behind + len(refused) - before if further else 0
        ranked += lent
    _take_tokens(state, {group for row in ranked if not row.waits_for for group in row.groups})
    return state, started, {row.waiting.key: row.waits_for for row in ranked if row.waits_for}, further


class _Pass:
    """A part of the queue: what was read for all of it at once, and which requests started or were refused."""

    def __init__(self, rows: list[Request], room: Room, limits: Limits, share: Share) -> None:
        self._by_key = {request.pk: request for request in rows}
        self._room, self._limits, self._share = room, limits, share
        self._rescued = dags_to_rescue(rows)
        ran = DAG.objects.filter(workflow__request__in=rows, submitted_at__isnull=False).order_by("workflow_id", "-fence")
        newest = ran.distinct("workflow_id").annotate(request_key=F("workflow__request__pk"))
        self._before = {dag.request_key: dag for dag in newest.defer("observed", "outcome", "jobs")}
        self.started: list[Request] = []
        self.refused: list[Request] = []

    @cached_property
    def _without_site(self) -> Mapping[str, str]:
        """Read when the first one would start. A request that plans nothing more needs no site."""
        return without_site(Workflow.objects.filter(request__in=[row for row in self._by_key.values() if not row.complete_early]))

    def fits(self, waiting: Waiting) -> str:
        """Start it; else why it cannot be placed."""
        request, reasons = self._by_key[waiting.key], list[str]()

        def report(what: str) -> None:
            reasons.append(f"{BROKEN} {what}")
            report_broken(what, pk=request.pk)

        with row_by_itself("admission", request, report):
            reasons.append(self._starts(request))
        if reasons != [""]:
            self.refused.append(request)
        return reasons[0] if reasons else _CHANGED

    def _starts(self, request: Request) -> str:
        wanted = Wanted.of(request, self._before.get(request.pk), self._limits, self._share)
        decision = place(self._rescued.get(request.pk), self._room, wanted, reserved=None)
        if decision.schedd is None:
            return decision.waits_for
        if why := self._without_site.get(request.request_name):
            return why
        if not _start(request, decision):
            return _CHANGED
        self._room.take(decision.schedd, decision.slots)
        self.started.append(request)
        return ""


def flooded(stored: AdmissionState, now: datetime, policy: Policy, jobs: int, budget: int) -> str:
    """Why admission stops: at the high watermark, and from then on until less than the low one waits."""
    again = budget * min(policy.high_watermark, policy.low_watermark)
    if jobs < (budget * policy.high_watermark if stored.flooded_since is None else again):
        stored.flooded_since = None
        return ""
    stored.flooded_since = stored.flooded_since or now
    return f"{_FLOOD}: nothing starts until fewer than {again:.0f} jobs wait for a slot, or soon will"


def _take_tokens(state: State, groups: Collection[Group]) -> None:
    """Keep the buckets from which was taken, and no longer those that are full by now."""
    taken = [AdmissionBucket(kind=each[0], name=each[1], full_at=state.full_at[each]) for each in groups if each in state.full_at]
    if taken:
        AdmissionBucket.objects.filter(full_at__lte=state.now).delete()
        AdmissionBucket.objects.bulk_create(
            taken, update_conflicts=True, unique_fields=("kind", "name"), update_fields=("full_at",)
        )


def _start(request: Request, decision: Decision) -> bool:
    """Take the slot; False when the request has changed just now."""
    try:
        with transaction.atomic():
            transition(
                request,
                RequestStatus.PLANNING,
                actor="lifecycle",
                reason="admitted: a DAG slot is free and it is this request's turn",
                evidence=decision.placement,
                reserved_schedd=decision.schedd,
                reserved_slots=decision.slots,
            )
    except StaleState as error:
        log.info("not admitted", request_name=request.request_name, why=str(error))
        return False
    return True


def of_group(group: Group, policy: Policy) -> Q:
    """The requests of a group."""
    kind, name = group
    if kind != GroupKind.BAND:
        return Q(campaign=name) if kind == GroupKind.CAMPAIGN else Q(requestor=name)
    if name == URGENT:
        return Q(urgent=True)
    above, found = TOP + 1, Q(pk__in=())
    for band, least in policy.bands:
        if band == name:
            found = Q(urgent=False, priority__gte=least, priority__lt=above)
        above = least
    return found


def _report(policy: Policy, state: State, waits: Mapping[uuid.UUID, str], before: str) -> int:
    """Write the reasons to wait: for those that were read what was found; for the others their limit, else their turn or what
    they were refused for earlier. ``before``: what all waited for. Returns how many have changed.
    """

    def write(rows: QuerySet[Request], why: Any) -> int:
        return rows.exclude(waiting_for=why).update(waiting_for=why, updated_at=state.now)

    if state.stopped:
        return write(eligible(), Value(state.stopped, output_field=TextField()))
    closed, others, changed = shut(state, policy), eligible(), 0
    if waits:
        said = grouped(waits, waits.__getitem__)
        own = Case(*(When(pk__in=keys, then=Value(reason)) for reason, keys in said.items()), output_field=TextField())
        changed, others = write(others.filter(pk__in=waits), own), others.exclude(pk__in=waits)
    if not closed:  # those that wait for their turn, as most do, are not read: an index has the others
        others = others.exclude(waiting_for=ITS_TURN)
    cases = [When(of_group(group, policy), then=Value(reason)) for group, reason in closed.items()]
    plain = Q(waiting_for__in=(ITS_TURN, "", before))
    plain |= reduce(or_, (Q(waiting_for__startswith=begin) for begin in (LIMIT, TURN, BROKEN_OFF)))
    why = Case(*cases, When(plain, then=Value(ITS_TURN)), default=F("waiting_for"), output_field=TextField())
    return changed + write(others, why)
