"""What is exposed to Prometheus, and what an expression over it speaks of."""

from __future__ import annotations

import re

from prometheus_client import REGISTRY

from requests_app.monitoring.metrics import RowsCollector

METRIC = re.compile(r"\b((?:wms2|django)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
#: Prometheus's own: whether a scrape went well.
OWN = {"up": {"job", "instance"}}


def exposed() -> dict[str, set[str]]:
    """Name of a sample -> its labels."""
    found = dict(OWN)
    for collector in list(REGISTRY._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        name, kind = getattr(collector, "_name", ""), getattr(collector, "_type", "")
        if kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        elif kind:
            found[f"{name}_total" if kind == "counter" else name] = labels
    for family in RowsCollector().collect():
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found
