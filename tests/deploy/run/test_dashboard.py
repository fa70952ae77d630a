"""Board and alert rules speak of metrics and labels that exist, and every alert is explained to whoever is woken by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from outputs_app.models import EffectState
from requests_app.models import RequestStatus
from requests_app.monitoring.metrics import RowsCollector
from sites_app.models import Health
from tests.support.exposed import MATCHER, METRIC, OWN, exposed, something_of_each
from tests.support.monitoring_rules import ALL, BOARD, RECORDED, RULES
from tests.support.places import ROOT

pytestmark = pytest.mark.django_db
SUMMED = re.compile(r"\bsum\s*(?:by\s*\([^)]*\)\s*)?\(\s*(?:\w+\()?(\w+)")
GROUPED = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    something_of_each(monkeypatch)
    return exposed()


def test_metrics_and_labels_exist(names: dict[str, set[str]]) -> None:
    assert [problem for each in ALL for problem in unknown(names, *each)] == []


def unknown(names: dict[str, set[str]], where: str, expression: str, text: str) -> Iterator[str]:
    """Metrics and labels of an expression that there are none of."""
    spoken_of = METRIC.findall(expression)
    if not spoken_of:
        yield f"{where} speaks of no metric"
        return
    possible: set[str] = set()
    for name, selector in spoken_of:
        if name not in names:
            yield f"{where}: there is no metric {name}"
        matched = {label for label, _, _ in MATCHER.findall(selector)}
        if matched - names.get(name, set()):
            yield f"{where}: {name} has no label {matched - names.get(name, set())}"
        possible |= names.get(name, set())
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",") if label.strip()}
    if grouped - possible:
        yield f"{where}: grouped by {grouped - possible}"
    shown = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text)) - {"value"}
    if not shown <= (possible if spoken_of[0][0] == "up" else grouped):
        yield f"{where} shows {shown - grouped}, which is summed away"


def test_gauges_that_each_web_process_has_alike_are_not_added_up(names: dict[str, set[str]]) -> None:
    gauges = {sample.name for family in RowsCollector().collect() for sample in family.samples}
    summed = [(where, name) for where, expression, _ in ALL for name in SUMMED.findall(expression)]
    assert summed and [found for found in summed if found[1] in gauges] == []


def test_values_of_statuses_and_outcomes_are_ones_that_occur() -> None:
    known = {
        "wms2_requests": {"status": set(RequestStatus.values)},
        "wms2_state_age_seconds": {"status": set(RequestStatus.values)},
        "wms2_workflows": {"status": set(RequestStatus.values)},
        "wms2_effects_open": {"state": set(EffectState.values)},
        "wms2_effects_oldest_age_seconds": {"state": set(EffectState.values)},
        "wms2_external_call_seconds_count": {
            "outcome": {"ok", "timeout", "unavailable", "circuit_open", "not_found", "rejected", "error"}
        },
        "wms2_schedd_health": {"health": set(Health.values)},
        "wms2_evaluations_total": {"outcome": {"ok", "stale", "error"}},
        "wms2_lifecycle_cycles_total": {"outcome": {"ok", "not_leader", "deposed", "error"}},
    }
    spoken_of = [(where, *found) for where, expression, _ in ALL for found in METRIC.findall(expression)]
    matched = [(where, name, *found) for where, name, selector in spoken_of for found in MATCHER.findall(selector)]
    wrong = [
        f"{where}: {label}={value}"
        for where, name, label, _, value in matched
        if label in known.get(name, {}) and not set(value.split("|")) <= known[name][label]
    ]
    assert matched and wrong == []


def test_the_patterns_see_what_they_should() -> None:
    assert METRIC.findall('sum by (le) (rate(wms2_x_bucket{a="b",c=~"d|e"}[5m])) > up') == [
        ("wms2_x_bucket", 'a="b",c=~"d|e"'), ("up", ""),
    ]  # fmt: skip


def test_every_alert_has_an_entry_in_the_runbook_and_no_entry_is_left_over() -> None:
    text = (ROOT / "docs/runbook.md").read_text().split("\n## Alerts of Prometheus\n")[1].split("\n## ")[0]
    entries = re.findall(r"^### `(\w+)`$", text, re.M)
    assert entries == [rule["alert"] for rule in RULES]


def test_every_alert_is_graded_and_says_what_it_saw() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_every_metric_of_wms2_is_on_the_board(names: dict[str, set[str]]) -> None:
    shown = {name for _, expression, _ in ALL for name, _ in METRIC.findall(expression)}
    ours = {name for name in names if name.startswith("wms2_")}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in ours}
    missing = {family for family in families if not any(name.startswith(family) for name in shown)}
    assert missing == set()


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_prometheus_reads_these_rules_and_asks_for_the_metrics_where_they_are() -> None:
    configuration = yaml.safe_load((ROOT / "deploy/run/prometheus/prometheus.yml").read_text())
    assert configuration["rule_files"] == ["rules.yml"]
    assert {rule["record"] for rule in RECORDED} == set(OWN) - {"up"}
    (job,) = configuration["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("wms2", "/api/v1/metrics")
    assert Path(job["authorization"]["credentials_file"]).name == "prometheus_token"
