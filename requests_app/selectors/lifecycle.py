"""Whether the life cycle runs: who leads, when the last cycle was (docs/design/control.md, Leader)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from requests_app.models import LEADER_LEASE, Lease
from wms2.conf import conf
from wms2.runtime import clock
from wms2.runtime.credentials import CREDENTIAL_ALERT_SECONDS, Seen
from wms2.runtime.json_columns import mapping, moment_of, number, records, texts

#: A cycle this many times later than it is due means that the life cycle has stopped.
STALE_CYCLES = 3
#: The row that says what Rucio does not let our account do.
RUCIO_ACCOUNT = "rucio account"


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """The leader's lease and its last cycle that ended. Ages are in seconds; None before there was one."""

    lease: Lease
    leading: bool
    cycle_seconds: float
    last_cycle_started_at: datetime | None
    last_cycle_ended_at: datetime | None
    last_cycle_seconds: float | None
    cycle_age_seconds: float | None
    credentials: tuple[Seen, ...]  # as of the last cycle; the first to end comes first

    @property
    def credentials_ending(self) -> list[Seen]:
        """Those that must be renewed."""
        now = datetime.now(UTC)
        return [each for each in self.credentials if each.left_seconds(now) < CREDENTIAL_ALERT_SECONDS]

    @property
    def stale(self) -> bool:
        """No cycle for longer than may be: standbys take over within the lease, and then it is due at once."""
        allowed = STALE_CYCLES * self.cycle_seconds + conf().lease_seconds
        return self.cycle_age_seconds is None or self.cycle_age_seconds > allowed

    @property
    def undriven(self) -> str:
        """In words, that nothing on a page will change by itself now; empty while requests are driven."""
        if self.stale:
            return "the life cycle has stopped"
        return "" if self.leading else "the life cycle has no leader"


def leases_known(*names: str) -> QuerySet[Any]:
    """Of these names, with the database's ``moment``."""
    return Lease.objects.filter(name__in=names).annotate(moment=clock.in_sql())


def lifecycle_state() -> LifecycleState:
    """One query."""
    return lifecycle_of(leases_known(LEADER_LEASE).first())


def lifecycle_of(row: Any) -> LifecycleState:
    """As the leader's lease among ``leases_known`` says; None: no process has led yet."""
    now: datetime = row.moment if row else datetime.now(UTC)
    lease = row or Lease(name=LEADER_LEASE)
    data = mapping(lease.data)
    ended, took = moment_of(data.get("cycle_ended_at")), data.get("seconds")
    seconds = number(took) if took is not None else None
    credentials = records(data.get("credentials"), name=str, path=str, ends_at=str, problem=str)
    return LifecycleState(
        lease=lease,
        leading=bool(lease.owner and lease.expires_at and lease.expires_at > now),
        cycle_seconds=conf().cycle_seconds,
        last_cycle_started_at=ended - timedelta(seconds=seconds) if ended and seconds is not None else None,
        last_cycle_ended_at=ended,
        last_cycle_seconds=seconds,
        cycle_age_seconds=round((now - ended).total_seconds(), 3) if ended else None,
        credentials=tuple(sorted(map(Seen.from_dict, credentials), key=lambda each: each.left_seconds(now))),
    )


def rucio_account_problems() -> list[str]:
    """As Rucio said last; one query."""
    return account_problems_of(Lease.objects.filter(name=RUCIO_ACCOUNT).first())


def account_problems_of(row: Lease | None) -> list[str]:
    """As that lease says; None: Rucio has not been asked."""
    return texts(mapping(row.data).get("problems")) if row else []
