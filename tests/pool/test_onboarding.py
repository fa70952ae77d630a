"""A second pool comes into service: found by its collector, checked by questions and a canary DAG, then enabled. Or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dags_app.services.onboarding import onboardings_process, schedd_check
from deploy.htcondor.sites import SITES
from deploy.stack import paths
from sites_app.models import Onboarding, OnboardingState, Pool, PoolSite, Schedd, ScheddState, Site, SiteStatus
from sites_app.pools import pool_add, pools_refresh
from sites_app.schedds import adapter
from sites_app.services import schedd_change_state
from tests.support.second_pool import SecondPool
from tests.support.waiting import until
from wms2.conf import conf
from wms2.errors import InvalidTransition

pytestmark = [pytest.mark.pool, pytest.mark.simulators, pytest.mark.slow]
SHIFT = {"actor": "olga", "reason": "a second pool"}


@pytest.fixture
def schedd(ready: None, second_pool: SecondPool) -> Iterator[Schedd]:
    """The second pool's schedd, as its collector names it."""
    place = {"collector": second_pool.collector, "token_dir": second_pool.token_dir}
    pool_add(name="second", file_system=Pool.objects.get().name, **place, **SHIFT)
    assert pools_refresh() == dict.fromkeys(Pool.objects.values_list("name", flat=True), "")
    yield Schedd.objects.get(pool="second")
    shutil.rmtree(conf().submit_root / "canaries", ignore_errors=True)


def enable(schedd: Schedd) -> None:
    schedd.refresh_from_db()
    schedd_change_state(schedd=schedd, state=ScheddState.ENABLED, **SHIFT)


def checked(schedd: Schedd) -> Onboarding:
    row = schedd_check(schedd=schedd, **SHIFT)

    def ended() -> bool:
        onboardings_process()
        row.refresh_from_db()
        return row.ended_at is not None

    until(ended, "the checks have ended", seconds=180)
    return row


@pytest.fixture
def as_asked(second_pool: SecondPool) -> Iterator[None]:
    """The schedd with our example of a configuration, behind a pool's own that removes and holds what is not WMAgent's."""
    own, ours = (second_pool.directory / f"config.d/{name}.conf" for name in ("94-pool", "95-wms2"))
    own.write_text("SYSTEM_PERIODIC_REMOVE = JobUniverse == 7\nSYSTEM_PERIODIC_HOLD = true\nPERIODIC_EXPR_INTERVAL = 1\n")
    ours.write_text((paths.checkout() / "deploy/htcondor/schedd.conf.example").read_text())
    second_pool.run("condor_reconfig")
    reported = ("condor_status", "-schedd", "-af", "CMSGWMS_Type")
    until(lambda: (second_pool.run(*reported) or "").strip() == "prodschedd", "the schedd says what it is", seconds=60)
    yield
    own.unlink()
    ours.unlink()
    second_pool.run("condor_reconfig")


def test_a_schedd_that_its_collector_names_runs_a_canary_and_is_enabled(
    schedd: Schedd, second_pool: SecondPool, as_asked: None
) -> None:
    facts = adapter(schedd).facts()
    assert (facts.jobs_per_owner, facts.dagmans_per_owner, facts.dagmans) == (200_000, 3200, 3200)
    assert (schedd.name, schedd.state) == (second_pool.schedd_name, ScheddState.DISCOVERED)
    assert PoolSite.objects.filter(pool="second", total_slots__gt=0).count() >= len(SITES)
    with pytest.raises(InvalidTransition, match="they were not started"):
        enable(schedd)
    row = checked(schedd)
    assert row.state == OnboardingState.PASSED, row.checks
    assert [check["check"] for check in row.checks] == [
        "reachable", "version", "credential", "submit directory", "limits", "sites", "Rucio account",
        "spread of landings", "canary DAG",
    ]  # fmt: skip
    reported = next(check["told"] for check in row.checks if check["check"] == "spread of landings")
    rank = (second_pool.run("condor_config_val", "NEGOTIATOR_PRE_JOB_RANK") or "").strip()
    assert (rank, Pool.objects.get(pk=schedd.pool_id).spreads) == ("Cpus", True), reported
    assert not Path(row.directory).exists()
    found = adapter(schedd).find_dag(str(row.pk), row.created_at)
    assert found is not None
    assert found.history is not None
    enable(schedd)


def test_a_canary_that_finds_no_slot_is_removed_and_the_schedd_stays_out(schedd: Schedd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_CANARY_SECONDS", "10")
    conf.cache_clear()
    monkeypatch.setattr("dags_app.services.onboarding._sites_of", lambda schedd: frozenset({"T2_XX_Nowhere"}))
    row = checked(schedd)
    assert (row.state, row.checks[-1]["passed"]) == (OnboardingState.FAILED, False)
    assert "has had its time" in row.checks[-1]["told"]
    assert not adapter(schedd).watch(conf().instance).dagmans
    with pytest.raises(InvalidTransition, match="has had its time"):
        enable(schedd)


def test_what_can_be_asked_fails_before_anything_is_submitted(schedd: Schedd, tmp_path: Path) -> None:
    Schedd.objects.filter(pk=schedd.pk).update(submit_root=str(tmp_path / "nowhere"), max_dagman_slots=10**6)
    Site.objects.update(status=SiteStatus.DISABLED)
    row = checked(schedd)
    wrong = {check["check"]: check["told"] for check in row.checks if not check["passed"]}
    assert wrong.keys() == {"submit directory", "limits", "sites"}
    assert "No such file" in wrong["submit directory"]
    assert "MAX_JOBS_PER_OWNER" in wrong["limits"]
    assert (row.intent_at, row.directory) == (None, "")
    with pytest.raises(InvalidTransition, match="no enabled site has slots"):
        enable(schedd)


def test_a_silent_pool_costs_the_other_nothing_and_its_numbers_stay(schedd: Schedd, second_pool: SecondPool) -> None:
    before = dict(PoolSite.objects.filter(pool="second").values_list("site", "seen_at"))
    with second_pool.frozen():
        reported = pools_refresh()
    assert [name for name, why in reported.items() if why] == ["second"]
    assert Pool.objects.get(name="second").silent_since is not None
    assert dict(PoolSite.objects.filter(pool="second").values_list("site", "seen_at")) == before
    other = PoolSite.objects.exclude(pool="second").filter(site=SITES[0].cms_name).get()
    assert other.seen_at > before[SITES[0].cms_name]
    assert Site.objects.get(name=SITES[0].cms_name).total_slots == 2 * other.total_slots
