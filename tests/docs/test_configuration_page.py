"""``docs/configuration.md`` is what the code says, and no variable that the code reads is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.docs import configuration
from tests.support.places import ROOT
from wms2.conf import Conf, Limits

#: A variable's name as a whole string in the code, or what Django's settings ask for by a bare name.
QUOTED = re.compile(r"""["'](WMS2_[A-Z0-9_]+[A-Z0-9])["']""")

#: Set by programs for the programs they start; not for people.
INTERNAL = frozenset({
    "WMS2_STACK", "WMS2_ADMIN_PASSWORD", "WMS2_RUCIO_ACCOUNTS", "WMS2_MERGE_COMMAND", "WMS2_MERGE_REPORT", "WMS2_ATTEMPT",
    "WMS2_STEP", "WMS2_PROCESSES", "WMS2_STAGE_OUT_PAUSES",
})  # fmt: skip


def documented() -> set[str]:
    return set(re.findall(r"^\| `([A-Z0-9_]+)`", configuration.TARGET.read_text(), re.M))


def test_the_page_is_what_the_program_writes():
    assert configuration.TARGET.read_text() == configuration.page(), "run python -m deploy.docs.configuration"


def test_every_setting_is_on_the_page():
    assert {f"WMS2_{name.upper()}" for name in Conf.model_fields} <= documented()
    assert all(f": `{name}` |" in configuration.TARGET.read_text() for name in Limits.model_fields)


def test_a_setting_without_a_description_stops_the_program(monkeypatch):
    monkeypatch.setattr(Limits.model_fields["error_hold_threshold"], "description", None)
    with pytest.raises(ValueError, match="error_hold_threshold"):
        configuration.page()


def test_every_variable_that_the_code_reads_is_on_the_page():
    found: dict[str, Path] = {}
    for package in ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app", "deploy"):
        for path in (ROOT / package).rglob("*.py"):
            if path.parent != ROOT / "deploy/docs":
                found |= dict.fromkeys(QUOTED.findall(path.read_text()), path.relative_to(ROOT))
    unknown = {name: str(path) for name, path in found.items() if name not in documented() | INTERNAL}
    assert len(found) > 20
    assert unknown == {}


def test_the_text_patterns_tell_variables_from_job_attributes():
    assert QUOTED.findall('"WMS2_STATE_DIR" "WMS2_Fence" WMS2_X "WMS2_"') == ["WMS2_STATE_DIR"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("instance", "required"),
        ("x509_cert", "empty"),
        ("cycle_seconds", "60"),
        ("error_hold_threshold", "0.2"),
        ("effect_backoff_seconds", "60,300,1800,7200,14400,28800"),
        ("timeout_queued_seconds", "604800"),
    ],
)
def test_defaults_are_shown_as_they_would_be_written_in_the_environment(name, text):
    assert configuration.default_of((Conf.model_fields | Limits.model_fields)[name]) == text
