"""The defaults of error handling are those of the specification (error-handling 8.1, 8.2), and reach the DAG files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dags_app.payload.contract import codes
from tests.support.scripted import documents
from tests.support.scripted.world import World
from wms2.conf import Limits

DEFAULTS = {
    "error_hold_threshold": 0.20,
    "error_max_rescue_attempts": 3,
    "site_ban_duration_days": 7,
    "site_ban_promotion_threshold": 3,
    "site_ban_min_failures": 3,
    "site_ban_failure_ratio": 0.50,
    "retry_processing": 3,
    "retry_merge": 2,
    "cooloff_base_seconds": 60,
}


def test_defaults_and_codes_of_post_scripts_are_those_of_the_specification() -> None:
    assert {name: Limits.model_fields[name].default for name in DEFAULTS} == DEFAULTS
    assert (codes.POST_PERMANENT, codes.POST_ABORT_DAG, codes.POST_CALL_AGAIN) == (42, 43, 44)


@pytest.mark.django_db(transaction=True)
def test_configured_retries_and_cool_off_are_rendered(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world_root, monkeypatch, RETRY_PROCESSING="5", RETRY_MERGE="4", COOLOFF_BASE_SECONDS="7")
    world.furnish()
    request = world.request(documents.generation(100))
    world.cycle()
    unit = (world.job_of(request).directory / "mg_000000" / "group.dag").read_text()
    assert "RETRY proc_000000 5 UNLESS-EXIT 42\nABORT-DAG-ON proc_000000 43 RETURN 2\n" in unit
    assert "RETRY merge 4 UNLESS-EXIT 42\nABORT-DAG-ON merge 43 RETURN 2\n" in unit
    assert "SCRIPT DEFER 44 7 POST proc_000000 " in unit
