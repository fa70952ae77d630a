"""When most schedds or sites of a pool turn bad at once, the fault is hardly theirs: then nothing is done to them (ADR 0026).

Owns the alerts about it, one a pool, which end by themselves, and what automatic bans ask before they ban. Does not own who is
admitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from django.db.models import Q, QuerySet, Value

from sites_app.bans import AUTOMATIC, BAN
from sites_app.models import BAD_HEALTH, PoolSite, PoolState, Schedd, ScheddState, Site, SystemicAlert
from wms2.audit import audit
from wms2.metrics.series import ALERTS_TOTAL
from wms2.models import AuditEntry
from wms2.runtime import clock
from wms2.runtime.grouping import grouped
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted

#: More than half of the schedds or sites that turn bad within this: the cause is elsewhere, and nothing is judged.
_SYSTEMIC_WINDOW_SECONDS = 120.0

log = structlog.get_logger(__name__)
#: Of so few nothing can be said by comparing them: a person is asked.
FEW = 2
#: The pool of what concerns all of them.
EVERYWHERE = ""
#: Where jobs of ours are.
_USED = Q(jobs_running__gt=0) | Q(jobs_idle__gt=0) | Q(jobs_held__gt=0)
_OBSERVED = Q(state__in=(ScheddState.ENABLED, ScheddState.DRAINING), asked_at__isnull=False)


@dataclass(frozen=True, slots=True)
class BadAtOnce:
    """Schedds or sites: those observed, those bad now, and of these those that turned bad within the window."""

    kind: str
    observed: int
    bad: frozenset[str]
    lately: frozenset[str] = field(default_factory=frozenset)

    @property
    def few(self) -> bool:
        """Whether there are too few to compare."""
        return self.observed <= FEW

    def begins(self) -> bool:
        """Whether most have turned bad at once."""
        return not self.few and len(self.lately) * 2 > self.observed

    def lasts(self) -> bool:
        """Whether most are still bad."""
        return not self.few and len(self.bad) * 2 > self.observed

    def __str__(self) -> str:
        return f"{len(self.bad)} of {counted(self.observed, self.kind)}: {', '.join(sorted(self.bad)[:5])}"


_NO_SCHEDD, _NO_SITE = (BadAtOnce(kind, 0, frozenset()) for kind in ("schedd", "site"))


def alerts_open() -> QuerySet[SystemicAlert]:
    """Those that go on, one a pool at most, those that hold new work first."""
    return SystemicAlert.objects.filter(ended_at=None).order_by("-holds", "pool")


def systemic_troubles() -> dict[str, str]:
    """Pool -> why nothing new is submitted there; ``EVERYWHERE`` for all. One query."""
    rows = alerts_open().filter(holds=True)
    return {alert.pool: f"the end of trouble that is not theirs: {alert.reason}" for alert in rows}


def systemic_trouble() -> str:
    """Why nothing new is submitted anywhere; empty where a pool that is in use may take some. Two queries at most."""
    found = systemic_troubles()
    if not found or EVERYWHERE in found:
        return found.get(EVERYWHERE, "")
    used = Schedd.objects.filter(state=ScheddState.ENABLED, pool__state=PoolState.ENABLED).values_list("pool", flat=True)
    return next(iter(found.values())) if found.keys() >= set(used) else ""


def guard_check(fenced: Fenced, unread: str = "") -> None:
    """Look at the schedds and sites of each pool; begin, change or end its alert. Once a cycle, when they have been looked at.
    ``unread``: input files that fail to be read in a wave, in words."""
    now, one = clock.now(), Value(1)
    bad = Schedd.objects.filter(_OBSERVED, health__in=BAD_HEALTH)
    troubles = (rows.order_by().values(one=one) for rows in (bad, _spoken_against(now)))
    # mostly no alert goes on, and neither a schedd nor a site is bad: one query
    if not unread and not alerts_open().order_by().values(one=one).union(*troubles, all=True).exists():
        return
    with fenced():
        alerts = {alert.pool: alert for alert in alerts_open()}
        schedds, sites = _schedds(now), _sites(now)
        for pool in sorted({EVERYWHERE, *alerts, *schedds, *sites}):
            alert = alerts.get(pool)
            lasting = alert is not None and alert.holds
            holds, reason = guard_judge(schedds.get(pool, _NO_SCHEDD), sites.get(pool, _NO_SITE), lasting=lasting)
            reason = "; ".join(each for each in (reason, unread if pool == EVERYWHERE else "") if each)
            if reason:
                _go_on(alert, pool, holds, reason, now)
            elif alert is not None:
                _calm(alert, now)


def guard_judge(schedds: BadAtOnce, sites: BadAtOnce, *, lasting: bool) -> tuple[bool, str]:
    """Whether new work is held, and why; without a reason all is well. Pure."""
    systemic = [each for each in (schedds, sites) if each.begins() or (lasting and each.lasts())]
    if systemic:
        return True, f"bad at once are {' and '.join(map(str, systemic))}; look for a common cause"
    if schedds.few and schedds.bad:
        return False, f"bad is {schedds}; with so few nothing is concluded, an operator decides"
    return False, ""


def ban_objection(failing: Collection[str], candidates: Collection[str]) -> str:
    """Why none of the sites that fail is banned by itself; empty when they may be. ``candidates``: where the work may run."""
    pools = {pool for pool, names in _in_pools(failing).items() if not names.isdisjoint(failing)}
    for pool, trouble in systemic_troubles().items():
        if pool in pools or not pools or pool == EVERYWHERE:
            return f"waits for {trouble}"
    lately = _failing(clock.now()).union(failing).intersection(candidates)
    if len(candidates) <= FEW:
        return f"it may run at {counted(len(candidates), 'site')} only; an operator decides"
    if len(lately) * 2 > len(candidates):
        return f"{len(lately)} of {len(candidates)} sites fail at once ({', '.join(sorted(lately)[:5])}): look for a common cause"
    return ""


def _schedds(now: datetime) -> dict[str, BadAtOnce]:
    """By pool. Pools too small to be judged alone are judged together, without those that are well."""
    rows = grouped(Schedd.objects.filter(_OBSERVED), lambda schedd: schedd.pool_id)
    small = [pool for pool, here in rows.items() if len(here) <= FEW and any(each.health in BAD_HEALTH for each in here)]
    together = [schedd for pool in small for schedd in rows[pool]]
    found = {}
    for pool, here in rows.items():
        seen = together if pool in small else here
        bad = [each for each in seen if each.health in BAD_HEALTH]
        lately = frozenset(each.name for each in bad if each.health_since is not None and each.health_since >= _window(now))
        found[pool] = BadAtOnce("schedd", len(seen), frozenset(each.name for each in bad), lately)
    return found


def _sites(now: datetime) -> dict[str, BadAtOnce]:
    """Those where jobs of ours are, or that fail, by pool; those of no pool stand for all."""
    failing = _failing(now)
    found = _in_pools(failing)
    of_none = Site.objects.filter(_USED | Q(name__in=failing)).exclude(pools__isnull=False)
    found[EVERYWHERE] = set(of_none.values_list("name", flat=True))
    return {pool: BadAtOnce("site", len(names), failing & names, failing & names) for pool, names in found.items()}


def _in_pools(failing: Collection[str]) -> defaultdict[str, set[str]]:
    """By enabled pool the sites where jobs of ours are. Those that fail and have none in any pool count in each pool that knows
    them and has jobs of ours, and where no pool has jobs in each that knows them.
    """
    rows, found = PoolSite.objects.filter(pool__state=PoolState.ENABLED), defaultdict[str, set[str]](set)
    for pool, name in rows.filter(_USED).values_list("pool", "site"):
        found[pool].add(name)
    busy, unused = set(found), set(failing).difference(*found.values())
    for pool, name in rows.filter(site__in=unused).values_list("pool", "site"):
        if pool in busy or not busy:
            found[pool].add(name)
    return found


def _failing(now: datetime) -> frozenset[str]:
    """Sites that failures spoke against within the window, banned or not."""
    return frozenset(_spoken_against(now).order_by().values_list("target", flat=True).distinct())


def _spoken_against(now: datetime) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(at__gte=_window(now), action=BAN, actor=AUTOMATIC, target_type="site")


def _window(now: datetime) -> datetime:
    return now - timedelta(seconds=_SYSTEMIC_WINDOW_SECONDS)


def _go_on(alert: SystemicAlert | None, pool: str, holds: bool, reason: str, now: datetime) -> None:
    values = {"holds": holds, "reason": reason, "calm_since": None}
    if alert is not None:
        SystemicAlert.objects.filter(pk=alert.pk).update(**values)
        if alert.holds or not holds:
            return
    else:
        SystemicAlert.objects.create(**values, pool=pool, began_at=now)
    ALERTS_TOTAL.labels("systemic").inc()
    _audit("systemic_alert", pool, reason, holds=holds)
    log.error("systemic trouble", pool=pool, why=reason, new_work_held=holds)


def _calm(alert: SystemicAlert, now: datetime) -> None:
    if alert.calm_since is None:
        SystemicAlert.objects.filter(pk=alert.pk).update(calm_since=now)
    elif alert.calm_since <= _window(now):
        SystemicAlert.objects.filter(pk=alert.pk).update(ended_at=now)
        _audit("systemic_alert_end", alert.pool, alert.reason)
        log.info("systemic trouble over", pool=alert.pool, was=alert.reason)


def _audit(action: str, pool: str, reason: str, **evidence: bool) -> None:
    kind = "installation" if pool == EVERYWHERE else "pool"
    audit(actor=AUTOMATIC, action=action, target=pool, target_type=kind, reason=reason, **evidence)
