"""Queries of the board, alert rules and recording rules, as ``deploy/run`` ships them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.places import ROOT

BOARD: dict[str, Any] = json.loads((ROOT / "deploy/run/grafana/wms2.json").read_text())
ALL_RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "deploy/run/prometheus/rules.yml").read_text())["groups"] for rule in group["rules"]
]
RULES = [rule for rule in ALL_RULES if "alert" in rule]
RECORDED = [rule for rule in ALL_RULES if "record" in rule]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str, str]]:
    """Where, expression, and what is written beside it from its labels."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"], target["legendFormat"]
    for rule in RULES:
        yield f"alert {rule['alert']}", rule["expr"], json.dumps(rule["annotations"])
    for rule in RECORDED:
        yield f"record {rule['record']}", rule["expr"], ""


ALL = list(expressions())
