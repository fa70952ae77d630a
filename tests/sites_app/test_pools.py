"""What collectors say: schedds that are new are written down, disabled; slots of several pools; silence changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.utils import timezone

from sites_app.models import Pool, PoolSite, PoolState, Schedd, ScheddState, Site
from sites_app.pools import pools_refresh, row_remove, schedd_add
from sites_app.services import schedd_change_state
from sites_app.sync import schedd_ensure_configured
from tests.support.rows import dag_row, pool_row, schedd_row, workflow_row
from wms2.adapters import factory
from wms2.adapters.types import PoolAnswer, ScheddAd, SiteSlots
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
FNAL, CERN = "T1_US_FNAL", "T2_CH_CERN"
WHO = {"actor": "olga", "reason": "because"}


@dataclass
class Collector:
    """What it says; silent when asked to be."""

    schedds: list[str] = field(default_factory=list)
    slots: dict[str, tuple[int, int]] = field(default_factory=dict)
    silent: bool = False

    def pool(self) -> PoolAnswer:
        if self.silent:
            raise ServiceUnavailable("htcondor", "pool", "timed out", "timeout")
        ads = [ScheddAd(name, "25.14.1", 1, jobs_idle=3, jobs_running=2) for name in self.schedds]
        return PoolAnswer(tuple(ads), tuple(SiteSlots(site, cpus, free) for site, (cpus, free) in self.slots.items()))


@pytest.fixture(name="collectors")
def _collectors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Collector]:
    """By address; each pool is called as its collector, and its tokens lie where its name says."""
    found = {"a:1": Collector(["schedd@a"], {FNAL: (100, 40)}), "b:1": Collector(["schedd@b"], {FNAL: (10, 0), CERN: (50, 50)})}
    asked = {("", address, f"/tokens/{address[0]}"): each for address, each in found.items()}
    monkeypatch.setattr(factory, "htcondor", lambda *place: asked[place])
    for address in found:
        pool_row(address, collector=address, token_dir=f"/tokens/{address[0]}")
    for name in (FNAL, CERN):
        Site.objects.create(name=name)
    return found


def slots() -> dict[str, tuple[int, int]]:
    return {site.name: (site.total_slots, site.running_slots) for site in Site.objects.all()}


def test_schedds_are_discovered_once_and_get_nothing(collectors: dict[str, Collector]) -> None:
    for _ in range(2):
        assert pools_refresh() == {"a:1": "", "b:1": ""}
    found = {(row.pool_id, row.name, row.state) for row in Schedd.objects.all()}
    assert found == {("a:1", "schedd@a", ScheddState.DISCOVERED), ("b:1", "schedd@b", ScheddState.DISCOVERED)}
    assert AuditEntry.objects.filter(action="schedd_discover").count() == 2
    with pytest.raises(InvalidTransition, match="checks have not passed"):
        schedd_change_state(schedd=Schedd.objects.get(name="schedd@a"), state=ScheddState.ENABLED, **WHO)
    pool = Pool.objects.get(name="a:1")
    assert (pool.jobs_idle, pool.jobs_running, pool.silent_since) == (3, 2, None)


def test_a_schedd_that_is_named_no_more_is_noted_and_left(collectors: dict[str, Collector]) -> None:
    schedd = schedd_row("schedd@gone", pool="a:1")
    pools_refresh()
    schedd.refresh_from_db()
    first = schedd.unlisted_since
    assert first is not None and schedd.state == ScheddState.ENABLED
    pools_refresh()
    schedd.refresh_from_db()
    assert schedd.unlisted_since == first
    collectors["a:1"].schedds.append("schedd@gone")
    pools_refresh()
    schedd.refresh_from_db()
    assert schedd.unlisted_since is None


def test_slots_are_summed_over_pools_and_a_silent_ones_stay_with_their_time(collectors: dict[str, Collector]) -> None:
    pools_refresh()
    assert slots() == {FNAL: (110, 70), CERN: (50, 0)}
    before = PoolSite.objects.get(pool="b:1", site=FNAL).seen_at
    collectors["b:1"].silent, collectors["a:1"].slots = True, {FNAL: (200, 0)}
    reported = pools_refresh()
    assert reported["a:1"] == "" and "timed out" in reported["b:1"]
    assert slots() == {FNAL: (210, 210), CERN: (50, 0)}
    assert Site.objects.get(name=FNAL).slots_seen_at == before, "as old as the oldest"
    assert Pool.objects.get(name="b:1").silent_since is not None
    Pool.objects.filter(name="b:1").update(state=PoolState.DISABLED)
    collectors["a:1"].slots = {}
    assert pools_refresh() == {"a:1": ""}
    assert slots() == {FNAL: (0, 0), CERN: (0, 0)}, "a disabled pool counts no more"


def test_only_what_nothing_ran_at_is_removed(collectors: dict[str, Collector]) -> None:
    schedd = schedd_row("schedd@a", pool="a:1")
    dag = dag_row(workflow_row(), schedd=schedd)
    with pytest.raises(InvalidTransition, match="Disable it first"):
        row_remove(row=schedd, **WHO)
    schedd_change_state(schedd=schedd, state=ScheddState.DISABLED, **WHO)
    with pytest.raises(InvalidTransition, match="kept as evidence: it has DAGs"):
        row_remove(row=schedd, **WHO)
    assert AuditEntry.objects.filter(action="schedd_remove", outcome="refused").count() == 2
    dag.schedd = None
    dag.save()
    row_remove(row=schedd, **WHO)
    pool = Pool.objects.get(name="a:1")
    Pool.objects.update(state=PoolState.DISABLED)
    pool.refresh_from_db()
    added = schedd_add(pool=pool, name="schedd@other", **WHO)
    with pytest.raises(InvalidTransition, match="it has schedds"):
        row_remove(row=pool, **WHO)
    row_remove(row=added, **WHO)
    row_remove(row=pool, **WHO)
    assert not Pool.objects.filter(name="a:1").exists()


def test_the_configured_schedd_is_enabled_without_checks_and_its_pool_may_be_changed(db: None) -> None:
    first = schedd_ensure_configured()
    assert (first.state, first.pool.collector, first.onboarded_at is not None) == (ScheddState.ENABLED, conf().collector, True)
    long_ago = timezone.now() - timedelta(days=1)
    Schedd.objects.update(state=ScheddState.DISABLED, onboarded_at=long_ago)
    Pool.objects.update(token_dir="/elsewhere")
    again = schedd_ensure_configured()
    assert (again.pk, again.state, again.pool.token_dir) == (first.pk, ScheddState.DISABLED, "/elsewhere")
