"""One life cycle at a time (ADR 0013): a lease row that belongs to a process, with an epoch that fences it.

Between cycles the lease keeps the life cycle at its node; during one it names the process and its database session. A process
that renews no more, because it is paused, hangs or is cut off, is replaced when the lease has expired: the epoch rises, and its
session is ended, since a transaction that it left open would hold up others. Four changes of node within a minute cool down.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models.expressions import RawSQL

from requests_app.models import LEADER_LEASE, Lease
from wms2.adapters import caller
from wms2.adapters.caller import HeldLease, working_under
from wms2.audit import audit
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.runtime import clock
from wms2.runtime.identity import node_name, process_name
from wms2.runtime.json_columns import mapping, moment_of, texts
from wms2.runtime.locks import lock_refused
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
FLAPPING_CHANGES, FLAPPING_SECONDS = 4, 60
#: Between two renewals the leader makes one outside call; the lease must outlast it.
MARGIN_SECONDS = 10.0
#: What a session needs to end after pg_terminate_backend.
_ENDING_SECONDS = 0.5
#: Number and start of the database's sessions of this process.
_sessions = WeakKeyDictionary[Any, tuple[int, datetime]]()


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of leading. Code that acts outside, or writes what was seen there, does so in or after ``fenced``."""

    process: str
    epoch: int
    lease: HeldLease = field(compare=False, repr=False)

    @contextmanager
    def fenced(self, **data: Any) -> Iterator[None]:
        """A transaction in which this process leads and no other can take over; renews the lease, and stores ``data`` with it.

        Raises:
            LeaseLost: another process leads by now; stop writing.
        """
        asked = caller.since_boot()
        with transaction.atomic():
            self._keep(data)
            yield
        self.lease.renewed(asked + lease_life().total_seconds())

    def renew(self, **data: Any) -> None:
        """The same, with nothing in the transaction."""
        with self.fenced(**data):
            pass

    def _keep(self, data: Mapping[str, Any]) -> None:
        now = clock.now()
        rows = Lease.objects.filter(name=LEADER_LEASE, process=self.process, epoch=self.epoch)
        stored = {"data": RawSQL("data || %s::jsonb", [json.dumps(data)])} if data else {}
        if rows.update(heartbeat_at=now, expires_at=now + lease_life(), **stored) != 1:
            row = Lease.objects.get(name=LEADER_LEASE)
            raise LeaseLost(f"the life cycle is led by {row.process or row.owner} with epoch {row.epoch}")


def lease_life() -> timedelta:
    """How long the leader may be silent: it must be able to wait for a schedd that does not answer."""
    return timedelta(seconds=max(conf().lease_seconds, conf().service_timeout_seconds + MARGIN_SECONDS))


@contextmanager
def leading() -> Iterator[Leadership | None]:
    """Lead for the length of the block, or yield None: another process is at it, or another node holds the lease.

    Nothing outside is called once the lease's life has passed since it was renewed last: a process that hangs or is cut off from
    the database leads no more, even if the row still names it.

    Raises:
        django.db.OperationalError: the database does not answer.
    """
    leadership = _take() or (_take() if _end_holder_of_the_row() else None)
    if leadership is None:
        yield None
        return
    try:
        with working_under(leadership.lease):
            yield leadership
    finally:
        _give_back(leadership)


def _take() -> Leadership | None:
    node, process, asked = node_name(), process_name(), caller.since_boot()
    try:
        with transaction.atomic():
            row, _ = Lease.objects.select_for_update(nowait=True).get_or_create(name=LEADER_LEASE)
            now = clock.now()
            former = row.process
            if not _is_free(row, node, now) or not _is_calm(row, node, now):
                return None
            if former or row.owner not in ("", node):
                _report_takeover(row, process)
            if former or row.owner != node:
                row.changes = _changes(row, now) + ([now.isoformat()] if row.owner != node else [])
                row.owner, row.epoch, row.acquired_at = node, row.epoch + 1, now
            replaced = (row.backend_pid, row.backend_started_at) if former else None
            row.process, (row.backend_pid, row.backend_started_at) = process, _own_session()
            row.heartbeat_at, row.expires_at = now, now + lease_life()
            row.data = mapping(row.data)
            row.save()
    except OperationalError as error:
        if not lock_refused(error):
            raise
        return None  # another process takes or renews it at this moment, or was paused while doing so
    if replaced is not None:
        _end_session(*replaced)
    return Leadership(process=process, epoch=row.epoch, lease=HeldLease(asked + lease_life().total_seconds()))


def _is_free(row: Lease, node: str, now: datetime) -> bool:
    """Expired, or the process of this node that had it is through with it, or gone with its session."""
    if row.expires_at is None or row.expires_at <= now:
        return True
    if row.owner != node or not row.process:
        return row.owner == node
    # a later session may be given the same number: by the moment of its start it is another
    session = [row.backend_pid, row.backend_started_at]
    return not sql_rows("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND backend_start = %s", session)


def _is_calm(row: Lease, node: str, now: datetime) -> bool:
    recent = _changes(row, now)
    if row.owner == node or len(recent) < FLAPPING_CHANGES:
        return True
    log.error("leadership is flapping, waiting", changes=len(recent), owner=row.owner, candidate=node)
    return False


def _changes(row: Lease, now: datetime) -> list[str]:
    since = now - timedelta(seconds=FLAPPING_SECONDS)
    return [moment for moment in texts(row.changes) if (at := moment_of(moment)) is not None and at > since]


def _report_takeover(row: Lease, process: str) -> None:
    former = row.process or row.owner
    audit(
        actor=process, action="leader_takeover", target=LEADER_LEASE, target_type="lease", former=former, epoch=row.epoch + 1,
        silent_since=row.heartbeat_at.isoformat() if row.heartbeat_at else "",
    )  # fmt: skip
    log.warning("taking over the life cycle", former=former, epoch=row.epoch + 1)


def _give_back(leadership: Leadership) -> None:
    """The node keeps the lease, the process does not; what cannot be written runs out by itself."""
    try:
        Lease.objects.filter(name=LEADER_LEASE, process=leadership.process, epoch=leadership.epoch).update(
            process="", backend_pid=None, backend_started_at=None
        )
    except DatabaseError as error:
        log.warning("the life cycle's lease is not given back, it will expire", error=str(error))


def _end_holder_of_the_row() -> bool:
    """A leader that was paused while it held the row's lock can be replaced only when its session has ended; True when it was."""
    row = Lease.objects.get(name=LEADER_LEASE)
    if not row.process or row.expires_at is None or row.expires_at > clock.now():
        return False
    if not _end_session(row.backend_pid, row.backend_started_at):
        return False
    time.sleep(_ENDING_SECONDS)
    return True


def _own_session() -> tuple[int, datetime]:
    """Asked once in each session."""
    if connection.connection not in _sessions:
        (session,) = sql_rows("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        _sessions[connection.connection] = (session[0], session[1])
    return _sessions[connection.connection]


def _end_session(pid: int | None, started_at: datetime | None) -> bool:
    """Ask the server to end it; without the right to, the epoch alone keeps the former leader from writing."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid = %s AND backend_start = %s AND pid <> pg_backend_pid()",
                [pid, started_at],
            )
            ended = cursor.fetchone() is not None
    except DatabaseError as error:
        log.warning("the former leader's session is not ended, its epoch is over all the same", pid=pid, error=str(error))
        return False
    if ended:
        log.warning("the former leader's session is ended", pid=pid)
    return ended
