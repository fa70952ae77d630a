"""What the collectors of the pools say: schedds that are there, slots of the sites; operators' changes of pools (ADR 0026).

A collector that is silent costs the other pools nothing, and its numbers stay with their time. What a collector names no more is
noted and never acted on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Min, OuterRef, ProtectedError, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from sites_app.bans import AUTOMATIC
from sites_app.models import Pool, PoolSite, PoolState, Schedd, ScheddState, Site
from sites_app.schedds import as_configured, state_refused
from sites_app.services import written
from wms2.actions import must_apply
from wms2.adapters import factory
from wms2.adapters.types import PoolAnswer
from wms2.audit import audit, audited
from wms2.errors import FieldRefused, InvalidTransition, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.parallel import side_by_side
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
_FORMS = {
    "name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}"), "letters, digits and ._:@- only, at most 100"),
    "collector": (re.compile(r"[A-Za-z0-9._\[\]:-]+:\d{1,5}"), "host:port"),
    "token_dir": (re.compile(r"(/[A-Za-z0-9_.@+/-]+)?"), "the path of a directory, from / on, or nothing"),
    "file_system": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,99}"), "a name of letters, digits and ._:@/-"),
    "submit_root": (re.compile(r"/[A-Za-z0-9_.@+/-]+"), "the path of a directory, from / on"),
}


def pools_refresh(pools: Iterable[Pool] | None = None) -> dict[str, str]:
    """Ask the collectors of these pools, or of all that are enabled, side by side; pool -> why it did not answer, or ""."""
    asked = {pool: partial(_ask, pool) for pool in (Pool.objects.filter(state=PoolState.ENABLED) if pools is None else pools)}
    found: dict[str, str] = {}
    for pool, said in side_by_side(asked, lambda: None):
        broken = [said] if isinstance(said, str) else []
        if isinstance(said, PoolAnswer):
            with row_by_itself("pools", pool.name, broken.append):
                _heard(pool, said)
        if broken:
            log.warning("pool does not answer", pool=pool.name, error=broken[0])
            since = pool.silent_since or clock.now()
            Pool.objects.filter(pk=pool.pk).update(silent_since=since, last_error=broken[0])
        found[pool.name] = "".join(broken)
    return found


@transaction.atomic
def _heard(pool: Pool, said: PoolAnswer) -> None:
    _schedds_heard(pool, said)
    _slots_heard(pool, said)
    _sum_up()
    jobs = {
        "jobs_idle": sum(ad.jobs_idle for ad in said.schedds),
        "jobs_running": sum(ad.jobs_running for ad in said.schedds),
    }
    Pool.objects.filter(pk=pool.pk).update(answered_at=clock.now(), silent_since=None, last_error=said.unread, **jobs)


def pool_ask(*, pool: Pool, actor: str, reason: str) -> None:
    """Ask its collector now. Raises ServiceUnavailable: it does not answer."""
    with audited(actor=actor, action="pool_ask", target=pool.name, target_type="pool", reason=reason):
        pass
    if why := pools_refresh([pool])[pool.name]:
        raise ServiceUnavailable("htcondor", "pool", why)


def _ask(pool: Pool) -> PoolAnswer | str:
    """May run in any thread: touches no row."""
    said: list[PoolAnswer | str] = []
    with row_by_itself("pools", pool.name, said.append):
        said.append(factory.htcondor("", pool.collector, pool.token_dir).pool())
    return said[0]


def _schedds_heard(pool: Pool, said: PoolAnswer) -> None:
    here, names = Schedd.objects.filter(pool=pool), [ad.name for ad in said.schedds]
    known = set(here.values_list("name", flat=True))
    for ad in said.schedds:
        if ad.name not in known:
            _, new = Schedd.objects.get_or_create(pool=pool, name=ad.name, defaults={**as_configured(), "version": ad.version})
            if new:
                why = "its collector names it; disabled until an operator enables it"
                audit(actor=AUTOMATIC, action="schedd_discover", target=ad.name, target_type="schedd", reason=why, pool=pool.name)
    for schedd in here.filter(unlisted_since=None).exclude(name__in=names):
        log.warning("the collector names the schedd no more; nothing is concluded from that", schedd=schedd.name, pool=pool.name)
    here.filter(unlisted_since=None).exclude(name__in=names).update(unlisted_since=clock.now())
    here.filter(unlisted_since__isnull=False, name__in=names).update(unlisted_since=None)


def _slots_heard(pool: Pool, said: PoolAnswer) -> None:
    slots, now = {row.site: row for row in said.slots}, clock.now()
    rows = []
    for name in Site.objects.filter(Q(name__in=slots) | Q(pools__pool=pool)).distinct().values_list("name", flat=True):
        row = slots.get(name)
        total, running = (row.cpus, row.cpus - row.free_cpus) if row else (0, 0)
        rows.append(PoolSite(pool=pool, site_id=name, total_slots=total, running_slots=running, seen_at=now))
    written = ["total_slots", "running_slots", "seen_at"]
    PoolSite.objects.bulk_create(rows, update_conflicts=True, unique_fields=["pool", "site"], update_fields=written)


def _sum_up() -> None:
    """A site's slots are those of all pools that are enabled, as old as the oldest of them."""

    def over(value: Any) -> Subquery:
        rows: QuerySet[Any] = PoolSite.objects.filter(site=OuterRef("pk"), pool__state=PoolState.ENABLED).order_by()
        return Subquery(rows.values("site").annotate(n=value).values("n"))

    Site.objects.filter(Q(pk__in=PoolSite.objects.values("site")) | Q(total_slots__gt=0)).update(
        total_slots=Coalesce(over(Sum("total_slots")), 0),
        running_slots=Coalesce(over(Sum("running_slots")), 0),
        slots_seen_at=over(Min("seen_at")),
    )


# --- what operators change


def pool_change_state(*, pool: Pool, state: PoolState, actor: str, reason: str) -> None:
    """Ask its collector and let DAGs go to its schedds, or not. DAGs that are there are watched in either state. Raises
    InvalidTransition: it is so already."""
    with audited(actor=actor, action="pool_change_state", target=pool.name, target_type="pool", reason=reason, new=state):
        must_apply(pool.name, state_refused(pool, state))
        written(pool, state=state)


def pool_add(*, name: str, actor: str, reason: str, **values: str) -> Pool:
    """A pool whose collector is asked from now on; without a file system's name its schedds share one of its own. Raises
    FieldRefused: a value has another form; InvalidTransition: there is one of this name."""
    _refuse_forms({"name": name, **values})
    with audited(actor=actor, action="pool_add", target=name, target_type="pool", reason=reason, **values):
        if Pool.objects.filter(name=name).exists():
            raise InvalidTransition(f"there is a pool {name} already")
        return Pool.objects.create(name=name, **{**values, "file_system": values.get("file_system") or name})


def pool_change(*, pool: Pool, actor: str, reason: str, **values: Any) -> None:
    """Where and how it is asked, from the next question on. Raises FieldRefused: a value has another form."""
    _refuse_forms(values)
    with audited(
        actor=actor, action="pool_change", target=pool.name, target_type="pool", reason=reason, **_changed(pool, values)
    ):
        written(pool, **values)


def schedd_add(*, pool: Pool, name: str, actor: str, reason: str, **values: Any) -> Schedd:
    """A schedd that its collector need not have named yet; disabled until its checks have passed and an operator enables it.
    Raises FieldRefused: a value has another form; InvalidTransition: the pool has one of this name."""
    _refuse_forms({"name": name, **values})
    with audited(actor=actor, action="schedd_add", target=name, target_type="schedd", reason=reason, pool=pool.name, **values):
        if Schedd.objects.filter(pool=pool, name=name).exists():
            raise InvalidTransition(f"pool {pool.name} has a schedd {name} already")
        return Schedd.objects.create(pool=pool, name=name, **{**as_configured(), **values})


def schedd_change(*, schedd: Schedd, actor: str, reason: str, **values: Any) -> None:
    """Other limits; another directory has to be checked before the schedd is enabled again. Raises FieldRefused: a value has
    another form; InvalidTransition: another directory, while the schedd gets DAGs."""
    _refuse_forms(values)
    changed = _changed(schedd, values)
    with audited(actor=actor, action="schedd_change", target=schedd.name, target_type="schedd", reason=reason, **changed):
        if values.get("submit_root", schedd.submit_root) != schedd.submit_root:
            if schedd.state == ScheddState.ENABLED:
                raise InvalidTransition(f"{schedd.name} is enabled: disable it first, another submit_root has to be checked")
            values |= {"onboarded_at": None, "onboarding": "its submit_root was changed since"}
        written(schedd, **values)


def row_remove(*, row: Pool | Schedd, actor: str, reason: str) -> None:
    """Forget a pool or a schedd that nothing refers to. A schedd that its collector still names is discovered again. Raises
    InvalidTransition: it is in service, or DAGs ran there: then it is kept, disabled."""
    kind = type(row).__name__.lower()
    with audited(actor=actor, action=f"{kind}_remove", target=row.name, target_type=kind, reason=reason):
        must_apply(row.name, remove_refused(row))
        try:
            with transaction.atomic():
                type(row).objects.filter(pk=row.pk).delete()
        except ProtectedError as error:
            kinds = sorted({str(each._meta.verbose_name_plural) for each in error.protected_objects})
            raise InvalidTransition(f"{row.name} is kept as evidence: it has {', '.join(kinds)}; leave it disabled") from error


def remove_refused(row: Pool | Schedd) -> str:
    """Why it cannot be removed as it stands; what refers to it is found when it is tried."""
    if row.state in (PoolState.ENABLED, ScheddState.DRAINING):  # "enabled" is the word of both
        return "Disable it first."
    if isinstance(row, Schedd) and row.onboardings.filter(ended_at=None).exists():
        return "Its checks are under way."
    return ""


def _refuse_forms(values: dict[str, Any]) -> None:
    for name, (form, rule) in _FORMS.items():
        if name in values and not form.fullmatch(values[name]):
            raise FieldRefused(name, rule)


def _changed(row: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {name: [getattr(row, name), value] for name, value in values.items() if getattr(row, name) != value}
