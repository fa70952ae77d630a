"""Settings that operators change at run time reach whoever uses them within seconds, without a query for each use."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.failure_rules import rules_in_force
from requests_app.limits import limit_set, limits_now
from requests_app.models import Limit
from requests_app.monitoring.health import health_warnings
from sites_app.bans import SiteFailures, problem_sites, site_ban
from sites_app.models import Site
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.runtime import clock, in_force

READ = in_force._changed
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _limits_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "_changed", READ)


def change(**values: float) -> None:
    for name, value in values.items():
        limit_set(name=name, value=value, actor="olga", reason="for a test")


def test_without_changes_the_settings_hold(django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "CACHE_SECONDS", 600.0)
    with django_assert_num_queries(1):
        assert in_force.in_force() == conf().limits
        assert in_force.in_force().site_ban_duration_days == 7
    assert type(in_force.in_force().retry_merge) is int


def test_a_change_holds_in_this_process_at_once_and_in_others_when_they_read_again(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    moment = [0.0]
    monkeypatch.setattr(in_force.time, "monotonic", lambda: moment[0])
    assert in_force.in_force().removal_tries == 3
    with django_capture_on_commit_callbacks(execute=True):
        change(removal_tries=5)
    assert in_force.in_force().removal_tries == 5
    Limit.objects.update(value=7)  # as if another process had done it
    assert in_force.in_force().removal_tries == 5
    moment[0] += in_force.CACHE_SECONDS
    assert in_force.in_force().removal_tries == 7


def test_bans_follow_the_limits(django_capture_on_commit_callbacks: Any) -> None:
    seen = {"T2_XX_Yonder": SiteFailures(attempts=20, against_site=4)}
    assert not problem_sites(seen)
    site = Site.objects.create(name="T2_XX_Yonder")
    with django_capture_on_commit_callbacks(execute=True):
        change(site_ban_failure_ratio=0.1, site_ban_min_failures=2, site_ban_duration_days=2)
    assert problem_sites(seen)
    ban = site_ban(site=site, workflow_id=None, reason="r", created_by="olga", insist=True)
    assert round((ban.expires_at - clock.now()).total_seconds() / 86_400) == 2


def test_the_failure_rules_of_a_dag_carry_the_limits_as_operators_have_changed_them(
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        change(cooloff_base_seconds=77, max_memory_per_core_mb=3456)
    limits = rules_in_force().limits
    assert (limits.cooloff_seconds, limits.max_memory_per_core_mb) == (77, 3456)


def test_bounds_are_those_of_the_setting_and_what_a_release_does_not_take_is_passed_over() -> None:
    for name, value in {"site_ban_failure_ratio": 1, "retry_merge": -1, "memory_margin": 3, "cooloff_base_seconds": 0}.items():
        with pytest.raises(ConfigurationError, match=name):
            change(**{name: value})
    Limit.objects.create(name="retry_merge", value=1000, actor="olga", reason="of a release with other bounds")
    assert in_force.in_force() == conf().limits


def test_one_limit_beyond_the_bounds_of_this_release_is_told_and_leaves_the_others_in_force() -> None:
    for name, value in {"default_memory_per_core_mb": 50, "jobs_per_work_unit": 3}.items():
        Limit.objects.create(name=name, value=value, actor="olga", reason="of a release with other bounds")
    for settings in (in_force.in_force(), limits_now()):
        assert (settings.jobs_per_work_unit, settings.default_memory_per_core_mb) == (3, conf().limits.default_memory_per_core_mb)
    reported = "Input should be greater than or equal to 100; its default holds until it is changed"
    assert health_warnings()["limit default_memory_per_core_mb"] == reported
    change(default_memory_per_core_mb=1500)
    assert "limit default_memory_per_core_mb" not in health_warnings()
