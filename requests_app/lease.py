"""The right to evaluate requests: leases in rows of their own, kept alive while held (docs/design/control.md, Evaluations).

Taking one raises its ``epoch``; every write of the evaluation compares that epoch, so a paused and replaced evaluation changes
nothing when it resumes. A killed process's lease simply expires, and its request is due then. Leases are taken, kept and given
back many at a time. With them go the wakes seen by then: what is committed later has the request looked at once more (ADR
0013).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.utils import timezone

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import Effect
from outputs_app.selectors import STUCK
from outputs_app.values import BlocksDue
from requests_app import states
from requests_app.limits import limits_now
from requests_app.models import EvaluationLease, HoldCode, Request, RequestStatus
from sites_app.bans import bans_left
from wms2.conf import Limits, conf
from wms2.errors import LeaseLost, Wms2Error
from wms2.metrics.series import LOCKS_REFUSED_TOTAL, POOL_WAIT_SECONDS
from wms2.runtime import clock
from wms2.runtime.heartbeat import lease_kept_alive
from wms2.runtime.in_force import in_force
from wms2.runtime.locks import lock_refused
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
ACTOR = "lifecycle"
#: Whose workers evaluate what is due; operations have another, for what was just asked.
QUEUE = "celery"
#: Characters of what a request waits for, or of its last error.
MOST_WORDS = 4000
#: Of requests taken together, those that are not begun within this go back: an idle worker should have them.
TIME_SLICE_SECONDS = 1.0
#: The lease and its request, both locked, if it is still held; no key of them changes: rows that refer to them may be written by
#: others meanwhile.
_FENCE = """
SELECT status, stop_intent, complete_early, requests.epoch
FROM evaluation_leases lease JOIN requests ON requests.id = lease.request_id
WHERE request_id = %s AND lease.epoch = %s FOR NO KEY UPDATE
"""
#: What reading the requests of the last leases has taken in this process.
_reading_seconds = 0.0

#: A row that is found locked, the request's too, is left for later: a transaction that is paused must not hold up every worker.
_TAKE = """
WITH chosen AS (
  SELECT request_id, sweep AND due_at <= %(now)s AS swept, CASE WHEN due_at <= %(now)s THEN found ELSE '' END AS found
  FROM evaluation_leases lease
  JOIN requests ON requests.id = lease.request_id
  WHERE request_id = ANY(%(ids)s) AND (expires_at IS NULL OR expires_at < %(now)s)
  FOR NO KEY UPDATE SKIP LOCKED)
UPDATE evaluation_leases lease SET owner = %(owner)s, epoch = lease.epoch + 1, expires_at = %(until)s, due_at = %(until)s,
  sweep = false, found = ''
FROM chosen WHERE lease.request_id = chosen.request_id
RETURNING lease.request_id, lease.epoch, chosen.swept, chosen.found, lease.evaluated_at
"""
#: Due and not being evaluated. What has waited longest comes first.
_FROM_DUE = """
FROM (
  SELECT request_id, at AS since FROM wakes JOIN evaluation_leases USING (request_id)
  WHERE expires_at IS NULL OR expires_at < %(now)s
  UNION ALL SELECT request_id, due_at FROM evaluation_leases
  WHERE due_at <= %(now)s AND (expires_at IS NULL OR expires_at < %(now)s)) due
GROUP BY request_id
"""
_DUE = f"SELECT request_id {_FROM_DUE} ORDER BY min(since) LIMIT %(limit)s"
_COUNT_DUE = f"SELECT count(*) OVER (), min(since) {_FROM_DUE} ORDER BY 2 LIMIT 1"
_GIVE_BACK = """
UPDATE evaluation_leases lease SET owner = '', expires_at = NULL, due_at = ended.due_at, found = ended.found,
  evaluated_at = CASE WHEN ended.begun THEN %(now)s ELSE lease.evaluated_at END
FROM unnest(%(ids)s::uuid[], %(epochs)s::bigint[], %(due)s::timestamptz[], %(begun)s::boolean[], %(found)s::text[])
  AS ended(id, epoch, due_at, begun, found)
WHERE lease.request_id = ended.id AND lease.epoch = ended.epoch
"""


@dataclass(slots=True)
class Evaluation:
    """One held lease. Handlers write only through it, and say by ``again_at`` when time alone may change what they found.

    ``dag_id``: of the live DAG, for logs; ``stuck``: an effect waits for a person; ``sites_left``: sites were taken off the
    request's lists; all as of the lease. ``limits``: in force,
    read once after leases were taken, for all of them. ``dag``: what the handler has read as the live one. ``blocks``: when its
    blocks are due, if this step has just looked. ``fence``: inside ``fenced``.
    ``evaluated_at``: when the one before it ended, None for the first.
    ``swept``: nothing but a sweep made the request due. ``written``: what it has done, in words, without alerts. ``unexplained``:
    what a sweep has done before, and no wake has come for since; ``found``: the same of this one, for the next. ``failed``: it
    has noted an error.
    """

    request: Request
    lease_epoch: int
    evaluated_at: datetime | None = None
    swept: bool = False
    unexplained: str = ""
    found: str = ""
    dag_id: str = ""
    stuck: bool = False
    sites_left: bool = False
    limits: Callable[[], Limits] = limits_now
    dag: DAG | None = None
    blocks: BlocksDue | None = None
    due_at: datetime | None = None
    fence: bool = False
    written: list[str] = field(default_factory=list)
    failed: bool = False

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A transaction in which this evaluation still owns the request; the row is locked until commit. One inside is the same.

        Raises:
            StaleState: the lease, the status or what an operator wants of the request changed; nothing inside is written.
        """
        if self.fence:
            yield
            return
        request, before, written = self.request, dict(vars(self.request)), False
        try:
            with transaction.atomic():
                is_now = sql_rows(_FENCE, [request.pk, self.lease_epoch])
                if is_now != [(request.status, request.stop_intent, request.complete_early, request.epoch)]:
                    raise LeaseLost(f"{request.request_name}: evaluated by another process or changed by an operator")
                self.fence = True
                yield
            written = True
        finally:
            self.fence = False
            if not written:
                vars(request).update(before)  # what is taken back is not so

    def transition(
        self, to: RequestStatus, reason: str, evidence: dict[str, Any] | None = None, *, actor: str = ACTOR, **changes: Any
    ) -> None:
        """Take an edge as the life cycle, or as the part of it that ``actor`` names."""
        states.transition(
            self.request, to, actor=actor, reason=reason, evidence=evidence, lease_epoch=self.lease_epoch, **changes
        )
        self.written.append(f"status {to}")

    def hold(self, code: HoldCode, reason: str, evidence: dict[str, Any] | None = None, *, reported: str = "") -> None:
        """Take the edge to HELD; ``reported``: what is kept as the reason on the request, if that is longer."""
        self.transition(RequestStatus.HELD, reason, evidence, **states.hold_changes(code, reported or reason))

    def note(self, **fields: Any) -> None:
        """Update explaining fields (``waiting_for``, ``last_error``, ...) of the request, fenced; long texts are cut."""
        self.failed = self.failed or bool(fields.get("last_error"))
        words = {name: str(fields[name])[:MOST_WORDS] for name in ("waiting_for", "last_error") if name in fields}
        changed = {name: value for name, value in (fields | words).items() if getattr(self.request, name) != value}
        if not changed:
            return
        # the status too: what was noted of one status would stand as an untruth beside another
        with self.fenced():
            Request.objects.filter(pk=self.request.pk).update(updated_at=timezone.now(), **changed)
        for name, value in changed.items():
            setattr(self.request, name, value)
        if "waiting_for" in changed:
            self.written.append(f"waiting_for: {changed['waiting_for']}")

    def paused(self, error: Wms2Error) -> dict[str, Any]:
        """Fields of a request whose step failed for an outside reason: it is passed over for a while, each time twice as long."""
        limits, failed = in_force(), self.request.failed_attempts
        first, longest = limits.retry_after_failure_seconds, limits.retry_after_failure_max_seconds
        again = clock.now() + clock.pause(timedelta(seconds=first), timedelta(seconds=longest), failed)
        return {"next_attempt_at": again, "failed_attempts": failed + 1, "last_error": str(error)[:MOST_WORDS]}

    def pause(self, error: Wms2Error) -> None:
        """Stay in the status, try again later, say why."""
        fields = self.paused(error)
        self.note(**fields, waiting_for=f"next attempt after: {error}")
        until = fields["next_attempt_at"].isoformat()
        log.warning("paused", request_name=self.request.request_name, until=until, error=str(error))

    def again_at(self, moment: datetime) -> None:
        """Evaluate the request again at that moment, if nothing wakes it before."""
        self.due_at = moment if self.due_at is None else min(moment, self.due_at)

    def again_in(self, seconds: float) -> None:
        """The same, from now on."""
        self.again_at(clock.now() + timedelta(seconds=seconds))

    def again_next_cycle(self) -> None:
        """The same, for what is repeated until it is so."""
        self.again_in(conf().cycle_seconds)


@dataclass(slots=True)
class _Held:
    """A lease that was taken, and the evaluation under it once that has begun; ``judged`` when that has come to its end."""

    expires_at: datetime
    pk: uuid.UUID
    epoch: int
    swept: bool
    unexplained: str
    evaluated_at: datetime | None
    evaluation: Evaluation | None = None
    judged: bool = False

    def due_at(self, now: datetime) -> datetime | None:
        """When it is due after it is given back."""
        if self.evaluation is None:
            return now
        return self.evaluation.due_at if self.judged else now + timedelta(seconds=conf().cycle_seconds)


@contextmanager
def evaluating(pk: uuid.UUID, *, owner: str) -> Iterator[Evaluation | None]:
    """Hold one request's lease, due or not; yields None when another process holds it or the request is gone."""
    taken = _take([pk], owner)
    if not taken and Request.objects.filter(pk=pk, lease=None).exists():
        EvaluationLease.objects.bulk_create([EvaluationLease(request_id=pk)], ignore_conflicts=True)
        taken = _take([pk], owner)
    with _each(taken) as evaluations:
        yield next(evaluations, None)
        next(evaluations, None)


@contextmanager
def evaluating_due(*, owner: str, limit: int) -> Iterator[Iterator[Evaluation]]:
    """Hold the leases of at most so many requests that are due; those that have waited longest come first.

    What is not begun within ``TIME_SLICE_SECONDS`` is given back, and due at once.
    """
    with _each(_take(due_now(limit), owner)) as evaluations:
        yield evaluations


def due_now(limit: int) -> list[uuid.UUID]:
    """Requests that are due and not being evaluated, at most so many."""
    return [pk for (pk,) in sql_rows(_DUE, {"now": clock.now(), "limit": limit})]


def evaluations_due() -> tuple[int, datetime | None]:
    """How many requests are due and not being evaluated, and since when the first has been."""
    number, since = next(iter(sql_rows(_COUNT_DUE, {"now": timezone.now()})), (0, None))  # only shown
    return number, since


@contextmanager
def _each(taken: Sequence[_Held]) -> Iterator[Iterator[Evaluation]]:
    """One evaluation after the other; only the lease of the present one is kept alive."""
    global _reading_seconds  # noqa: PLW0603
    read_at = time.monotonic()
    requests = _requests().in_bulk([held.pk for held in taken]) if taken else {}
    _reading_seconds = time.monotonic() - read_at
    began, limits = time.monotonic(), cache(limits_now)

    def each() -> Generator[Evaluation]:
        for held in taken:
            if time.monotonic() - began > TIME_SLICE_SECONDS:
                return
            request = requests[held.pk]
            held.evaluation = Evaluation(
                request, held.epoch, dag_id=str(request.live_dag or ""), stuck=request.stuck, sites_left=request.sites_left,
                limits=limits, evaluated_at=held.evaluated_at, swept=held.swept, unexplained=held.unexplained,
            )  # fmt: skip
            with lease_kept_alive(partial(_renew, held), life_seconds=conf().lease_seconds, expires_at=held.expires_at):
                yield held.evaluation
            held.judged = True

    try:
        with closing(each()) as evaluations:
            yield evaluations
    finally:
        if taken:
            _give_back(taken)


def _requests() -> QuerySet[Any]:
    """With what every evaluation reads. Documents are large, and hardly ever read."""
    rows = Request.objects.select_related("workflow").defer("request_data", "workflow__psets")
    dag = DAG.objects.filter(workflow__request=OuterRef("request_name"), status__in=LIVE_DAG)
    stuck = Effect.objects.filter(request=OuterRef("pk"), state__in=STUCK, epoch=OuterRef("epoch"))
    left = bans_left(OuterRef("workflow"))
    return rows.annotate(live_dag=Subquery(dag.values("pk")[:1]), stuck=Exists(stuck), sites_left=Exists(left))


def _take(pks: Sequence[uuid.UUID], owner: str) -> list[_Held]:
    if not pks:
        return []
    # of several taken together those not begun must soon be free for others, should this process die or hang; not while their
    # requests are read, or workers take them from each other
    short = 3 * TIME_SLICE_SECONDS + 2 * max(0.0, _reading_seconds - TIME_SLICE_SECONDS)
    life_seconds = conf().lease_seconds if len(pks) == 1 else min(conf().lease_seconds, short)
    with transaction.atomic(), connection.cursor() as cursor:
        now = clock.now()
        until = now + timedelta(seconds=life_seconds)
        cursor.execute(_TAKE, {"ids": list(pks), "now": now, "owner": owner, "until": until})
        taken = {row[0]: _Held(until, *row) for row in cursor.fetchall()}
        # what comes after this statement has the request looked at once more
        cursor.execute("DELETE FROM wakes WHERE request_id = ANY(%s) RETURNING request_id, at", [list(taken)])
        for pk, at in cursor.fetchall():
            taken[pk].swept, taken[pk].unexplained = False, ""
            POOL_WAIT_SECONDS.labels(QUEUE).observe(max(0.0, (now - at).total_seconds()))
    return [taken[pk] for pk in pks if pk in taken]


def _give_back(taken: Sequence[_Held]) -> None:
    """What cannot be written runs out by itself, and is due then."""
    now = clock.now()
    values: dict[str, Any] = {
        "ids": [held.pk for held in taken],
        "epochs": [held.epoch for held in taken],
        "due": [held.due_at(now) for held in taken],
        "begun": [held.evaluation is not None for held in taken],
        "found": [held.evaluation.found if held.evaluation is not None else held.unexplained for held in taken],
        "now": now,
    }
    try:
        sql_rows(_GIVE_BACK, values)
    except OperationalError as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels("evaluation").inc()
        log.warning("leases not given back, they will expire", leases=len(taken), error=str(error).splitlines()[0])


def _renew(held: _Held) -> bool:
    until = clock.now() + timedelta(seconds=conf().lease_seconds)
    row = EvaluationLease.objects.filter(pk=held.pk, epoch=held.epoch, expires_at__gte=clock.in_sql())
    return row.update(expires_at=until, due_at=until) == 1
