"""``docs/runbook.md`` has an entry for each status, each hold code and each alert, and for nothing that does not exist."""

from __future__ import annotations

import re

import pytest

from deploy.stack import paths
from outputs_app.models import EffectState
from requests_app.lifecycle import timeouts
from requests_app.models import HoldCode, RequestStatus, ShownStatus

ROOT = paths.checkout()


def sections() -> dict[str, dict[str, str]]:
    """Heading -> {entry: its text}."""
    found: dict[str, dict[str, str]] = {}
    for part in (ROOT / "docs/runbook.md").read_text().split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        pieces = re.split(r"^### `([^`]+)`$", text, flags=re.M)[1:]
        found[heading] = dict(zip(pieces[::2], pieces[1::2], strict=True))
    return found


def alert_codes() -> set[str]:
    """Codes that the code raises; those that it makes up of a status or state are made up here too."""
    written, made = set(), set()
    for path in (ROOT / "requests_app").rglob("*.py"):
        for code in re.findall(r"\balert\(\s*[\w.]+,\s*(f?\"[^\"]+\")", path.read_text()):
            (made if code.startswith("f") else written).add(code.strip('f"'))
    assert made == {"stuck_{status.value}", "slow_{status.value}", "effect_{stuck.state}"}
    stuck = {f"stuck_{status.value}" for status in timeouts.HELD_AFTER}
    slow = {f"slow_{status.value}" for status in timeouts.ALERT_AFTER}
    return written | stuck | slow | {f"effect_{state}" for state in (EffectState.REFUSED, EffectState.DEAD)}


def test_every_status_has_an_entry():
    assert set(sections()["Statuses"]) == {*RequestStatus.values, *ShownStatus.values}


def test_every_hold_code_has_an_entry():
    assert set(sections()["Hold codes"]) == set(HoldCode.values)


def test_every_alert_has_an_entry():
    assert set(sections()["Alerts"]) == alert_codes()


@pytest.mark.parametrize("code", HoldCode.values)
def test_an_entry_says_what_to_do_unless_nothing_sets_the_code(code):
    text = sections()["Hold codes"][code]
    used = any(
        f"HoldCode.{HoldCode(code).name}" in p.read_text()
        for p in (ROOT / "requests_app").rglob("*.py")
        if p.name != "request.py"
    )
    assert ("**Do:**" in text) == used
    assert text.strip().startswith("Reserved") != used


def test_statuses_that_no_code_enters_are_marked_as_reserved():
    # only these take edges; other code may name any status
    texts = [p.read_text() for folder in ("lifecycle", "services") for p in (ROOT / "requests_app" / folder).rglob("*.py")]
    for status in RequestStatus:
        entered = any(re.search(rf"(?:\bS|RequestStatus)\.{status.name}\b", text) for text in texts)
        reserved = sections()["Statuses"][status.value].strip().startswith("Reserved")
        assert reserved != entered, status
