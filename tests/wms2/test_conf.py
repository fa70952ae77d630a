"""The settings' defaults, one beside the other."""

from __future__ import annotations

import pytest

from wms2.conf import Conf, Limits, from_environment
from wms2.errors import ConfigurationError


def test_ten_schedds_hold_all_dags_that_may_be_live_and_their_jobs_may_wait() -> None:
    usual, slots = Limits(), Conf.model_fields["max_dagman_slots_per_schedd"].default
    assert slots // (1 + usual.dag_max_merge_groups) * 10 >= usual.max_active_dags
    assert (usual.max_active_dags + 1) * usual.dag_max_merge_groups * usual.jobs_per_work_unit <= usual.idle_job_budget


def test_a_setting_that_became_a_constant_is_named_and_stops_the_start() -> None:
    gone = {"WMS2_RECONCILE_DAYS": "3", "WMS2_KEPT_LOGS_PER_DAG": "9", "WMS2_JOB_MAX_STARTS": ""}
    with pytest.raises(ConfigurationError, match=r"remove them .*: WMS2_KEPT_LOGS_PER_DAG, WMS2_RECONCILE_DAYS$"):
        from_environment(gone)


def test_what_has_another_variable_now_names_it_and_stops_the_start() -> None:
    gone = {"WMS2_RETRY_MERGE": "3", "WMS2_LINK_DAS": "https://das/{}", "WMS2_LINK_MCM": ""}
    with pytest.raises(ConfigurationError, match=r"WMS2_LINK_DAS in WMS2_LINKS, WMS2_RETRY_MERGE in WMS2_LIMITS$"):
        from_environment(gone)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ('{"retry_merge": -1}', "WMS2_LIMITS: retry_merge: Input should be greater than or equal to 0"),
        ('{"retry_merg": 1}', "WMS2_LIMITS: retry_merg: Extra inputs are not permitted"),
        ("retry_merge=1", "WMS2_LIMITS: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_limit_is_named(limits: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        from_environment({"WMS2_LIMITS": limits})


@pytest.mark.parametrize(
    ("environment", "seconds", "refused"), [("production", "59", True), ("demo", "60", False), ("test", "5", False)]
)
def test_a_claim_that_ends_before_an_idle_transaction_is_refused(environment: str, seconds: str, refused: bool) -> None:
    changed = {"WMS2_ENVIRONMENT": environment, "WMS2_EFFECT_LEASE_SECONDS": seconds}
    values = dict.fromkeys(("STATE_DIR", "SUBMIT_ROOT", "RUCIO_HOME"), "/srv/wms2")
    values |= dict.fromkeys(("REQMGR2_URL", "DBS_READER_URL", "DBS_WRITER_URL", "CRIC_URL"), "https://cms.example/x")
    values |= {"INSTANCE": "one", "RUCIO_ACCOUNT": "wms2", "SCHEDD_NAME": "schedd", "COLLECTOR": "h:1"}
    changed |= {f"WMS2_{name}": value for name, value in values.items()}
    problem = ""
    try:
        from_environment(changed)
    except ConfigurationError as error:
        problem = str(error)
    assert ("WMS2_EFFECT_LEASE_SECONDS: at least 60, the seconds after which the database ends" in problem) is refused
