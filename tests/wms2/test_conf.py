"""The settings' defaults, one beside the other."""

from __future__ import annotations

from typing import Any

from wms2.conf import Conf


def test_ten_schedds_hold_all_dags_that_may_be_live_and_their_jobs_may_wait() -> None:
    default: dict[str, Any] = {name: field.default for name, field in Conf.model_fields.items()}
    dags, units = default["max_active_dags"], default["dag_max_merge_groups"]
    assert default["max_dagman_slots_per_schedd"] // (1 + units) * 10 >= dags
    assert (dags + 1) * units * default["jobs_per_work_unit"] <= default["idle_job_budget"]
