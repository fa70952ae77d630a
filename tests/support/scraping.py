"""Reading the metrics as Prometheus does."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient


def scrape(client: APIClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    response = client.get("/api/v1/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    families = text_string_to_metric_families(response.content.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]
