"""``docs/runbook.md`` has an entry for each status, each hold code and each alert, and for nothing that does not exist."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from outputs_app.models import EffectState
from requests_app.lifecycle import timeouts
from requests_app.models import HoldCode, RequestStatus, ShownStatus
from requests_app.selectors.alert_texts import CONDITIONS
from tests.support import monitoring_rules
from tests.support.cases import in_one_test
from tests.support.places import ROOT

RULES = {rule["alert"]: rule for rule in monitoring_rules.RULES}
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
SPELLED = {
    "a quarter of an hour": 900, "half an hour": 1800, "an hour": 3600, "six hours": 21_600, "a day": 86_400,
    "two days": 172_800, "three days": 259_200,
}  # fmt: skip


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
        for code in re.findall(r"\b(?:alert|remind)\(\s*[\w.]+,\s*(f?\"[^\"]+\")", path.read_text()):
            (made if code.startswith("f") else written).add(code.removeprefix("f").strip('"'))
    assert made == {"stuck_{status.value}", "slow_{status.value}", "effect_{stuck.state}"}
    stuck = {f"stuck_{status.value}" for status in timeouts.HELD_AFTER_SECONDS}
    slow = {f"slow_{status.value}" for status in (*timeouts.ALERT_AFTER_SECONDS, *timeouts.ALERT_AFTER_LIMIT)}
    return written | stuck | slow | set(CONDITIONS) | {f"effect_{state}" for state in (EffectState.REFUSED, EffectState.DEAD)}


def test_every_status_has_an_entry() -> None:
    assert set(sections()["Statuses"]) == {*RequestStatus.values, *ShownStatus.values}


def test_every_hold_code_has_an_entry() -> None:
    assert set(sections()["Hold codes"]) == set(HoldCode.values)


def test_every_alert_has_an_entry() -> None:
    assert set(sections()["Alerts"]) == alert_codes()


def test_an_entry_says_what_to_do_unless_nothing_sets_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "requests_app").rglob("*.py") if path.name != "request.py")
    entries = {known: sections()["Hold codes"][known].strip() for known in HoldCode}
    used = {known for known in HoldCode if re.search(rf"HoldCode\.{known.name}\b", code)}
    assert {known for known, text in entries.items() if "**Do:**" in text} == used
    assert {known for known, text in entries.items() if text.startswith("Reserved")} == set(HoldCode) - used


def test_statuses_that_no_code_enters_are_marked_as_reserved() -> None:
    # only these take edges; other code may name any status
    texts = [p.read_text() for folder in ("lifecycle", "services") for p in (ROOT / "requests_app" / folder).rglob("*.py")]
    for status in RequestStatus:
        entered = any(re.search(rf"(?:\bS|RequestStatus)\.{status.name}\b", text) for text in texts)
        reserved = sections()["Statuses"][status.value].strip().startswith("Reserved")
        assert reserved != entered, status


def stated(text: str) -> set[float]:
    """Times in a text, in seconds."""
    found = {float(number) * SECONDS[unit if unit == "ms" else unit[0]] for number, unit in re.findall(TIME, text)}
    for words, seconds in SPELLED.items():
        if words in text:
            found.add(seconds)
            text = text.replace(words, "")
    return found


TIME = r"\b([\d.]+) (ms|second|minute|hour|day)s?\b"


def times_of(rule: dict[str, Any]) -> set[float]:
    """Those that a rule has: for how long, over which range, and what it compares with."""
    ranges = " ".join(re.findall(r"\[(\w+)\]", rule["expr"]))
    written = re.findall(r"(\d+)([smhd])\b", f"{rule.get('for', '')} {ranges}")
    compared = re.findall(r"[<>]\s*([\d.]+(?: \* [\d.]+)*)", rule["expr"])
    return {int(number) * SECONDS[unit] for number, unit in written} | {prod(map(float, c.split(" * "))) for c in compared}


@in_one_test("name", RULES)
def test_a_rule_says_what_it_means_and_its_times_and_leads_to_its_entry(name: str) -> None:
    rule, entries = RULES[name], sections()["Alerts of Prometheus"]
    reported = rule["annotations"]
    assert all(reported[key].strip() for key in ("summary", "impact", "description"))
    assert reported["runbook_url"].endswith(f"/docs/runbook.md#{name.lower()}")
    assert name in entries
    has = times_of(rule)
    assert stated(reported["description"]) <= has
    assert stated(entries[name].partition("**Do:**")[0].partition(".")[0]) <= has
    if "for" in rule:
        assert times_of({"for": rule["for"], "expr": ""}) <= stated(reported["description"])
