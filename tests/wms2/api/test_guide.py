"""docs/api.md speaks of what is there: its addresses, parameters, problem codes and metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from tests.support.places import ROOT
from wms2.api import exceptions, preconditions, problems, rate_limits, tokens, views
from wms2.identities import bearer, front_end
from wms2.web import idempotency, shedding
from wms2.work.api import workers as work

GUIDE = (ROOT / "docs/api.md").read_text()


@pytest.fixture(scope="module")
def paths() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return {re.sub(r"\{\w+\}", "{}", path): operations for path, operations in found.items()}


def test_every_address_and_query_parameter_in_it_exists(paths: dict[str, Any]) -> None:
    reported = {word.rstrip(".,") for word in re.findall(r"/api/v1/[\w/{}$?=&.,*%:-]*", GUIDE)} - {
        "/api/v1/",
        "/api/v1/schema/",
        "/api/v1/docs/",
    }
    assert len(reported) > 15
    for address in reported:
        parts = urlsplit(address)
        path = re.sub(r"\{\w+\}|\$\w+", "{}", parts.path)
        assert path in paths, address
        known = {p["name"] for operation in paths[path].values() for p in operation.get("parameters", []) if p["in"] == "query"}
        assert {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} <= known, address


def test_every_problem_code_is_explained_and_every_explained_one_exists() -> None:
    source = "".join(
        Path(str(module.__file__)).read_text()
        for module in (
            bearer,
            exceptions,
            front_end,
            idempotency,
            preconditions,
            problems,
            rate_limits,
            shedding,
            tokens,
            views,
            work,
        )
    )
    ours = set(re.findall(r'(?:Problem\(\s*|\w, )\d{3}, "(\w+)"', source)) | set(
        re.findall(r'code(?:: str)? ?= ?"(\w+)"', source)
    )
    ours |= {"malformed", "not_authenticated", "authentication_failed"}
    table = GUIDE[GUIDE.index("| status | code |") : GUIDE.index("## Health")]
    explained = set(re.findall(r"`(\w+)`", table)) - {"field", "problems"}
    frameworks = {"method_not_allowed", "not_acceptable", "unsupported_media_type"}
    assert ours <= explained
    assert explained - ours <= frameworks | {"too_large"}


@pytest.mark.django_db
def test_every_metric_in_it_is_exposed(reader: APIClient) -> None:
    text = reader.get("/api/v1/metrics").content.decode()
    exposed = set(re.findall(r"^# HELP (\w+)", text, re.MULTILINE))
    for name in set(re.findall(r"`(wms2_\w+?)(?:\{[\w,]+\})?`", GUIDE)) - {
        "wms2_lifecycle_cycle_age_seconds",
        "wms2_reqmgr2_poll_age_seconds",
    }:
        assert name in exposed or name.removesuffix("_total") in exposed, name
