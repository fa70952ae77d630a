"""What is exposed to Prometheus, and what an expression over it speaks of."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from dags_app.models import DAGStatus, Leftover
from outputs_app.models import Comparison
from requests_app.models import Lease, RequestStatus
from requests_app.monitoring.metrics import RowsCollector
from requests_app.selectors.reqmgr2 import POLL
from tests.support.rows import dag_row, request_row, schedd_row, unit_row, workflow_row
from wms2.conf import conf
from wms2.runtime.circuits import circuits

METRIC = re.compile(r"\b((?:wms2|django)_[a-z0-9_]+|wms2:[a-z0-9_:]+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
#: Prometheus's own: whether a scrape went well, and what rules record.
OWN: dict[str, set[str]] = {"up": {"job", "instance"}, "wms2:available": set()}


def something_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and settings of which gauges speak that are absent without any."""
    monkeypatch.setenv("WMS2_REQMGR2_FOLLOW", "1")
    monkeypatch.setenv("WMS2_TEAM", "wms2")
    conf.cache_clear()
    Lease.objects.create(name=POLL, heartbeat_at=timezone.now())
    circuits().failed("dbs", opens_at=3, pause_seconds=60.0)
    schedd = schedd_row()
    dag = dag_row(
        workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name,
        total_work_units=1,
    )  # fmt: skip
    Leftover.objects.create(unit=unit_row(dag), site="T1_US_FNAL", next_try_at=timezone.now())
    ends = {"name": "services", "path": "/x", "ends_at": "2026-01-01T00:00:00+00:00", "problem": ""}
    Lease.objects.create(name="lifecycle", data={"cycle_ended_at": "2026-01-01T00:00:00+00:00", "credentials": [ends]})
    Comparison.objects.create(ended_at=timezone.now(), due_at=timezone.now())  # of nothing: the census
    Client().get("/livez")  # the web's own metrics begin with its first request


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
