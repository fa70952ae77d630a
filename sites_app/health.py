"""Health of a schedd, from three separate signals: it is there, it can take more, its jobs get on (ADR 0026).

Pure: what one look has found and how it stood before come in, how it stands now comes out. A verdict needs several looks that
agree, so that neither a lost answer nor a lucky one changes where DAGs go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sites_app.models import Health

#: Looks in a row that make it so bad, and that make it better again.
_CHECKS_WORSE = {Health.BUSY: 1, Health.DEGRADED: 2, Health.UNREACHABLE: 3}
_CHECKS_BETTER = 3
_ORDER = list(Health)
#: A job that takes so many times what is expected of the longest has hung.
_HUNG = 2.0


class Rules(NamedTuple):
    """Limits: ``duty_cycle`` 0 to 1, the others in seconds."""

    duty_cycle: float = 0.98
    unheard_seconds: float = 900.0
    stalled_seconds: float = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What one look has found; None where it is unknown.

    Attributes:
        silent: why it did not answer; empty when it did.
        unheard_seconds: since the collector heard of it last.
        accepting: whether it starts further DAGMans by its own rule.
        duty_cycle: share of its time that it works, 0 to 1.
        dagmans: everybody's that run, of at most ``dagmans_most``; ``ours`` of these, of at most ``ours_most``.
        jobs_running: ours; ``jobs_ended``: ours that ended, of the DAGMans there; another number is progress, a smaller one too,
            since those that end leave.
        longest_seconds: what our longest job there is expected to take.
        new_queue: that its queue is another one than at the look before; empty when it is not.
    """

    silent: str = ""
    unheard_seconds: float | None = None
    accepting: bool | None = None
    duty_cycle: float | None = None
    dagmans: int = 0
    dagmans_most: int | None = None
    ours: int = 0
    ours_most: int | None = None
    jobs_running: int = 0
    jobs_ended: int | None = None
    longest_seconds: float = 0.0
    new_queue: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict in force, why and since when; ``looks`` in a row have found it otherwise by now; ``doubt`` says so in words.

    ``moved_at``: when the number of ended jobs last changed, or none of ours ran.
    """

    health: Health = Health.HEALTHY
    reason: str = ""
    since: datetime | None = None
    looks: int = 0
    worse: bool = False
    doubt: str = ""
    jobs_ended: int | None = None
    moved_at: datetime | None = None

    @property
    def reported(self) -> str:
        """Reason and doubt."""
        return "; ".join(filter(None, (self.reason, self.doubt)))


def judge(signals: Signals, before: Verdict, now: datetime, rules: Rules) -> Verdict:
    """How it stands after this look."""
    if not signals.silent:
        moved = signals.jobs_ended != before.jobs_ended or not signals.jobs_running or signals.jobs_ended is None
        before = replace(before, jobs_ended=signals.jobs_ended, moved_at=now if moved else before.moved_at)
    seen, why = _seen(signals, before.moved_at, now, rules)
    if seen == before.health and not signals.new_queue:
        return replace(before, reason=why or before.reason, looks=0, doubt="", since=before.since or now)
    worse = _ORDER.index(seen) > _ORDER.index(before.health)
    looks = before.looks + 1 if before.looks and before.worse == worse else 1
    needed = _CHECKS_WORSE[seen] if worse else _CHECKS_BETTER
    if looks >= needed or signals.new_queue:
        return replace(before, health=seen, reason=why, since=now, looks=0, doubt="")
    doubt = f"{'suspected' if worse else 'seen'} {seen.label.lower()}, {looks} of {needed} looks{': ' if why else ''}{why}"
    return replace(before, looks=looks, worse=worse, doubt=doubt, since=before.since or now)


def _seen(signals: Signals, moved_at: datetime | None, now: datetime, rules: Rules) -> tuple[Health, str]:
    """By this look alone, the worst first."""
    if signals.silent:
        return Health.UNREACHABLE, f"it does not answer: {signals.silent}"
    if signals.new_queue:
        return Health.DEGRADED, signals.new_queue
    if (unheard := signals.unheard_seconds or 0.0) > rules.unheard_seconds:
        why = f"it answers, but the collector has not heard of it for {unheard:.0f} s: its jobs are matched no more"
        return Health.DEGRADED, why
    if why := _stalled(signals, moved_at, now, rules):
        return Health.DEGRADED, why
    why = _no_headroom(signals, rules)
    return (Health.BUSY, why) if why else (Health.HEALTHY, "")


def _stalled(signals: Signals, moved_at: datetime | None, now: datetime, rules: Rules) -> str:
    allowed = timedelta(seconds=max(rules.stalled_seconds, _HUNG * signals.longest_seconds))
    if moved_at is None or now - moved_at <= allowed:
        return ""
    hours, longest = (now - moved_at).total_seconds() / 3600, signals.longest_seconds / 3600
    return f"{signals.jobs_running} jobs run and none has ended for {hours:.1f} h; the longest should take {longest:.1f} h"


def _no_headroom(signals: Signals, rules: Rules) -> str:
    if signals.duty_cycle is not None and signals.duty_cycle > rules.duty_cycle:
        return f"its duty cycle is {signals.duty_cycle:.2f}, more than {rules.duty_cycle:.2f}"
    if signals.dagmans_most is not None and signals.dagmans >= signals.dagmans_most:
        return f"{signals.dagmans} DAGMans of everybody run, of {signals.dagmans_most}"
    if signals.ours_most is not None and signals.ours >= signals.ours_most:
        return f"{signals.ours} DAGMans of ours run, of {signals.ours_most} for one owner"
    return "it starts no further DAGMan, by its own rule" if signals.accepting is False else ""
