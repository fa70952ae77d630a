"""When most schedds, or most sites, turn bad at once, the fault is hardly theirs: then nothing is done to them (ADR 0091).

Owns the one alert about it, which ends by itself, and what automatic bans ask before they ban. Does not own who is admitted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from sites_app.bans import AUTOMATIC, BAN
from sites_app.models import BAD_HEALTH, Schedd, ScheddState, Site, SystemicAlert
from wms2 import clock
from wms2.audit import audit
from wms2.conf import conf
from wms2.locks import Fenced
from wms2.metrics import ALERTS_TOTAL
from wms2.models import AuditEntry
from wms2.words import counted

log = structlog.get_logger(__name__)
#: Of so few nothing can be said by comparing them: a person is asked.
FEW = 2


@dataclass(frozen=True, slots=True)
class Turned:
    """Schedds or sites: those observed, those bad now, and of these those that turned bad within the window."""

    kind: str
    observed: int
    bad: frozenset[str]
    lately: frozenset[str] = field(default_factory=frozenset)

    @property
    def few(self) -> bool:
        """Whether comparing them tells nothing."""
        return self.observed <= FEW

    def begins(self) -> bool:
        """Whether most have turned bad at once."""
        return not self.few and len(self.lately) * 2 > self.observed

    def lasts(self) -> bool:
        """Whether most are still bad."""
        return not self.few and len(self.bad) * 2 > self.observed

    def __str__(self) -> str:
        return f"{len(self.bad)} of {counted(self.observed, self.kind)}: {', '.join(sorted(self.bad)[:5])}"


def alert_open() -> SystemicAlert | None:
    """The alert that goes on."""
    return SystemicAlert.objects.filter(ended_at=None).first()


def systemic_trouble() -> str:
    """Why nothing new is submitted and nothing banned by itself; empty otherwise. One query."""
    alert = alert_open()
    return f"the end of trouble that is not theirs: {alert.reason}" if alert is not None and alert.holds else ""


def guard_look(fenced: Fenced, unread: str = "") -> None:
    """Look at all schedds and sites together; begin, change or end the alert. Once a cycle, when they have been looked at.
    ``unread``: input files that fail to be read in a wave, in words."""
    now = clock.now()
    with fenced():
        alert = alert_open()
        holds, reason = guard_judge(_schedds(now), _sites(now), lasting=alert is not None and alert.holds)
        reason = "; ".join(each for each in (reason, unread) if each)
        if reason:
            _go_on(alert, holds, reason, now)
        elif alert is not None:
            _calm(alert, now)


def guard_judge(schedds: Turned, sites: Turned, *, lasting: bool) -> tuple[bool, str]:
    """Whether new work is held, and why; without a reason all is well. Pure."""
    systemic = [each for each in (schedds, sites) if each.begins() or (lasting and each.lasts())]
    if systemic:
        return True, f"bad at once are {' and '.join(map(str, systemic))}; look for a common cause"
    if schedds.few and schedds.bad:
        return False, f"bad is {schedds}; with so few nothing is concluded, an operator decides"
    return False, ""


def ban_objection(failing: Collection[str], candidates: Collection[str]) -> str:
    """Why none of the sites that fail is banned by itself; empty when they may be. ``candidates``: where the work may run."""
    if trouble := systemic_trouble():
        return f"waits for {trouble}"
    lately = _failing(clock.now()).union(failing).intersection(candidates)
    if len(candidates) <= FEW:
        return f"it may run at {counted(len(candidates), 'site')} only; an operator decides"
    if len(lately) * 2 > len(candidates):
        return f"{len(lately)} of {len(candidates)} sites fail at once ({', '.join(sorted(lately)[:5])}): look for a common cause"
    return ""


def _schedds(now: datetime) -> Turned:
    observed = Schedd.objects.filter(state__in=(ScheddState.ENABLED, ScheddState.DRAINING), asked_at__isnull=False)
    bad = dict(observed.filter(health__in=BAD_HEALTH).values_list("name", "health_since"))
    lately = frozenset(name for name, since in bad.items() if since is not None and since >= _window(now))
    return Turned("schedd", observed.count(), frozenset(bad), lately)


def _sites(now: datetime) -> Turned:
    failing = _failing(now)
    used = Q(jobs_running__gt=0) | Q(jobs_idle__gt=0) | Q(jobs_held__gt=0) | Q(name__in=failing)
    return Turned("site", Site.objects.filter(used).count(), failing, failing)


def _failing(now: datetime) -> frozenset[str]:
    """Sites that failures spoke against within the window, banned or not."""
    judged = AuditEntry.objects.filter(at__gte=_window(now), action=BAN, actor=AUTOMATIC, target_type="site")
    return frozenset(judged.order_by().values_list("target", flat=True).distinct())


def _window(now: datetime) -> datetime:
    return now - timedelta(seconds=conf().systemic_window_seconds)


def _go_on(alert: SystemicAlert | None, holds: bool, reason: str, now: datetime) -> None:
    told = {"holds": holds, "reason": reason, "calm_since": None}
    if alert is not None:
        SystemicAlert.objects.filter(pk=alert.pk).update(**told)
        if alert.holds or not holds:
            return
    else:
        SystemicAlert.objects.create(**told, began_at=now)
    ALERTS_TOTAL.labels("systemic").inc()
    audit(actor=AUTOMATIC, action="systemic_alert", target_type="installation", reason=reason, holds=holds)
    log.error("systemic trouble", why=reason, new_work_held=holds)


def _calm(alert: SystemicAlert, now: datetime) -> None:
    if alert.calm_since is None:
        SystemicAlert.objects.filter(pk=alert.pk).update(calm_since=now)
    elif alert.calm_since <= _window(now):
        SystemicAlert.objects.filter(pk=alert.pk).update(ended_at=now)
        audit(actor=AUTOMATIC, action="systemic_alert_end", target_type="installation", reason=alert.reason)
        log.info("systemic trouble over", was=alert.reason)
