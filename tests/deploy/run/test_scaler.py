"""The example for autoscalers asks for metrics that exist, in its comment too."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from deploy.stack import paths
from tests.support.exposed import MATCHER, METRIC, exposed
from wms2.models import WorkerPool

pytestmark = pytest.mark.django_db
TEXT = (paths.checkout() / "deploy/run/kubernetes/scaler.yml").read_text()


def commented() -> dict[str, Any]:
    """The manifest in the comment at the end."""
    tail = TEXT[TEXT.index("# apiVersion:") :]
    found: dict[str, Any] = yaml.safe_load(re.sub(r"^# ?", "", tail, flags=re.M))
    return found


def test_queries_name_metrics_labels_and_pools_that_exist() -> None:
    scaled = yaml.safe_load(TEXT)
    assert scaled["kind"] == "ScaledObject"
    names, pools = exposed(), set(WorkerPool.objects.values_list("queue", flat=True))
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"] if trigger["type"] == "prometheus"]
    assert len(queries) == 3
    for query in queries:
        ((name, selector),) = METRIC.findall(query)
        ((label, _, value),) = MATCHER.findall(selector)
        assert label in names[name], query
        assert value in pools, query


def test_the_alternative_is_a_manifest_of_its_own_over_the_same_metric() -> None:
    plain = commented()
    assert plain["kind"] == "HorizontalPodAutoscaler"
    (metric,) = plain["spec"]["metrics"]
    wanted = metric["external"]["metric"]
    assert wanted["name"] in exposed()
    assert WorkerPool.objects.filter(pk=wanted["selector"]["matchLabels"]["pool"]).exists()
