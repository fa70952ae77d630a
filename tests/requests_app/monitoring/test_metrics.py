"""GET /metrics: gauges from rows at scrape time, counters of every process, labels that do not grow."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAGStatus, Leftover, WorkUnit
from outputs_app.models import Comparison, DriftState, Effect, EffectKind, EffectState, ProcessingBlock
from requests_app.models import Lease, ReqMgr2Request, RequestStatus
from requests_app.monitoring import metrics as gauges
from requests_app.selectors.reqmgr2 import POLL
from requests_app.work.groups import PARENTS
from sites_app.models import Health, PoolSite, ScheddState, Site, SystemicAlert
from tests.support.places import ROOT
from tests.support.rows import dag_row, drift_row, new_block, pool_row, request_row, schedd_row, workflow_row
from tests.support.scraping import scrape, value
from wms2.adapters.caller import observed
from wms2.conf import conf
from wms2.errors import ServiceRejected
from wms2.metrics import files, series
from wms2.runtime import cached
from wms2.runtime.circuits import FAILURES, circuits

pytestmark = pytest.mark.django_db
S = RequestStatus


def test_gauges_are_counted_from_rows_with_every_status(reader: APIClient) -> None:
    now = timezone.now()
    request_row(S.QUEUED, status_since=now - timedelta(hours=2))
    request_row(S.QUEUED)
    request_row(S.SUBMITTED, status_since=now - timedelta(days=3), waiting_for=f"{PARENTS} a request that takes its time")
    request_row(S.COMPLETED, status_since=now - timedelta(days=90))
    held = request_row(S.HELD, alert_code="x")
    schedd, silent = schedd_row("schedd@a"), schedd_row("schedd@b", unreachable_since=now)
    schedd_row("schedd@gone", state=ScheddState.DISABLED, unreachable_since=now, health=Health.DEGRADED)
    dag = dag_row(workflow_row(request_row(S.ACTIVE)), schedd=schedd, schedd_name="schedd@a", total_work_units=4, units_done=1)
    type(dag).objects.filter(pk=dag.pk).update(observed_at=now - timedelta(seconds=90))
    dag_row(workflow_row(request_row(S.FAILED)), DAGStatus.FAILED, schedd=silent, schedd_name="schedd@b")
    dataset = dag.workflow.output_datasets.get()
    ProcessingBlock.objects.create(
        workflow=dag.workflow, dataset=dataset, block_index=0, dataset_name=dataset.name, dbs_block_name="/a/b/c#1"
    )
    effect = Effect.objects.create(request=held, kind=EffectKind.RUCIO_TAPE, key="k", state=EffectState.DEAD)
    Effect.objects.filter(pk=effect.pk).update(first_failed_at=now - timedelta(hours=3), created_at=now - timedelta(days=9))
    given_up = Effect.objects.create(
        request=held, kind=EffectKind.DBS_BLOCK, key="of an epoch that is over", epoch=held.epoch - 1
    )
    Effect.objects.filter(pk=given_up.pk).update(first_failed_at=now - timedelta(days=30))
    waits = Effect.objects.create(request=held, kind=EffectKind.DBS_BLOCK, key="waits for its predecessor", epoch=held.epoch)
    Effect.objects.filter(pk=waits.pk).update(created_at=now - timedelta(days=9))
    Lease.objects.create(
        name="lifecycle", owner="n", epoch=4, expires_at=now + timedelta(seconds=30),
        data={"cycle_ended_at": (now - timedelta(seconds=7)).isoformat()},
    )  # fmt: skip

    found = scrape(reader)

    assert value(found, "wms2_requests", status="queued") == 2
    assert value(found, "wms2_requests", status="cleaned") == 0
    assert value(found, "wms2_workflows", status="new") == 2
    assert value(found, "wms2_blocks", status="open") == 1
    assert 7200 <= value(found, "wms2_state_age_seconds", status="queued") < 7300
    assert value(found, "wms2_state_age_seconds", status="planning") == 0
    assert value(found, "wms2_state_age_seconds", status="submitted") == 0, "what it depends on may take as long as it needs"
    assert value(found, "wms2_state_limit_seconds", status="resubmitting") == 600
    assert ("wms2_state_age_seconds", frozenset({("status", "completed")})) not in found, "an end has no age that matters"
    assert value(found, "wms2_requests_alerted") == 1
    assert value(found, "wms2_admission_queue_depth") == 2
    assert (value(found, "wms2_admission_slots_used"), value(found, "wms2_admission_slots_limit")) == (1, 300)
    assert (value(found, "wms2_dags_live", schedd="schedd@a"), value(found, "wms2_dags_live", schedd="schedd@b")) == (1, 0)
    assert (value(found, "wms2_schedd_up", schedd="schedd@a"), value(found, "wms2_schedd_up", schedd="schedd@b")) == (1, 0)
    assert value(found, "wms2_schedd_up", schedd="schedd@gone") == 1, "it is asked no more"
    assert value(found, "wms2_schedd_health", schedd="schedd@gone", health="degraded") == 0
    assert value(found, "wms2_dags_suspected", schedd="schedd@a") == 0
    assert value(found, "wms2_dag_progress", schedd="schedd@a") == 0.25
    assert 90 <= value(found, "wms2_dag_observed_age_seconds", schedd="schedd@a") < 150
    assert value(found, "wms2_effects_open", kind="rucio_tape", state="dead") == 1
    assert value(found, "wms2_effects_open", kind="dbs_block", state="pending") == 1
    assert value(found, "wms2_effects_failing_seconds", kind="dbs_block", state="pending") == 0, "it has not failed"
    assert 10_800 <= value(found, "wms2_effects_failing_seconds", kind="rucio_tape", state="dead") < 10_900
    assert 7 <= value(found, "wms2_lifecycle_cycle_age_seconds") < 60
    assert (value(found, "wms2_lifecycle_leading"), value(found, "wms2_lifecycle_epoch")) == (1, 4)


def test_what_outside_services_and_sites_need_somebody_for_is_counted(reader: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    now, block = timezone.now(), new_block(units=3)
    monkeypatch.setenv("WMS2_TEAM", "wms2")
    monkeypatch.setenv("WMS2_REQMGR2_FOLLOW", "1")
    monkeypatch.setenv("WMS2_CLEANER_OFF_SITES", "T2_GONE")
    conf.cache_clear()
    drift_row(block)
    drift_row(block, state=DriftState.ACCEPTED, actor="olga", reason="so be it")
    Comparison.objects.create(ended_at=now - timedelta(hours=30), due_at=now - timedelta(hours=6), result={"rules": {"STUCK": 2}})
    units = WorkUnit.objects.order_by("index")
    for unit, site, tries in zip(units, ("T2_A", "T2_A", "T2_GONE"), (0, 3, 9), strict=True):
        Leftover.objects.create(unit=unit, site=site, tries=tries, next_try_at=now)
    ReqMgr2Request.objects.create(name="refused", problem="no such site")
    Lease.objects.create(name=POLL, heartbeat_at=now - timedelta(hours=1))

    found = scrape(reader)

    assert value(found, "wms2_drift_open", kind="dbs_file_invalid") == 1, "accepted ones need nobody"
    assert (value(found, "wms2_rules", state="STUCK"), value(found, "wms2_rules", state="SUSPENDED")) == (2, 0)
    assert 108_000 <= value(found, "wms2_census_age_seconds") < 108_100
    assert 21_600 <= value(found, "wms2_comparisons_late_seconds") < 21_700
    waiting, failing = (value(found, "wms2_leftovers", site="T2_A", state=state) for state in ("waiting", "failing"))
    assert (waiting, failing) == (1, 1)
    assert ("wms2_leftovers", frozenset({("site", "T2_GONE"), ("state", "failing")})) not in found, "it is switched off"
    assert value(found, "wms2_reqmgr2_problems") == 1
    assert 3600 <= value(found, "wms2_reqmgr2_poll_age_seconds") < 3700


def test_no_cycle_yet_is_no_number_at_all(reader: APIClient) -> None:
    assert "wms2_lifecycle_cycle_age_seconds" not in {name for name, _ in scrape(reader)}


def test_labels_are_bounded_and_a_scrape_costs_the_same_with_more_rows(reader: APIClient, django_assert_num_queries: Any) -> None:
    def ours() -> set[Any]:
        return {key for key in scrape(reader) if key[0].startswith("wms2_")}

    request_row(S.QUEUED)
    before = ours()
    for _ in range(10):
        dag_row(workflow_row(request_row(S.ACTIVE)))
    with django_assert_num_queries(7):  # one of them is the database's clock
        assert ours() == before
    labels = {label for _, pairs in before for label, _ in pairs}
    assert labels <= {
        "status",
        "pool",
        "signal",
        "why",
        "kind",
        "state",
        "prognosis",
        "at",
        "result",
        "schedd",
        "health",
        "what",
        "service",
        "operation",
        "outcome",
        "type",
        "le",
        "step",
        "way",
        "site",
        "purpose",
        "table",
        "resource",
        "call",
        "rate",
        "severity",
    }


def test_schedds_of_two_pools_with_one_name_are_one_sample(reader: APIClient) -> None:
    here, there = (schedd_row("schedd@both", pool=pool) for pool in ("here", "there"))
    there.unreachable_since = timezone.now()
    there.save()
    for schedd in (here, there):
        dag_row(workflow_row(), DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name)
    lines = reader.get("/api/v1/metrics").content.decode().splitlines()
    for name, number in (("wms2_dags_live", 2.0), ("wms2_dags_suspected", 0.0), ("wms2_schedd_up", 0.0)):
        samples = [line for line in lines if line.startswith(f'{name}{{schedd="schedd@both"}}')]
        assert [float(line.split()[-1]) for line in samples] == [number], name


def test_scrapes_within_seconds_share_the_gauges_and_not_the_counters(
    reader: APIClient, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    moment = [1000.0]
    monkeypatch.setattr(cached, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    monkeypatch.setattr(gauges, "CACHED_SECONDS", 5.0)
    monkeypatch.setattr(gauges, "_gauges", cached.Cached())
    counted = value(scrape(reader), "wms2_requests", status="queued")
    request_row(S.QUEUED)
    series.ALERTS_TOTAL.labels("of_two_scrapes").inc()
    moment[0] += 4.9
    with django_assert_num_queries(1):  # whose token it is
        found = scrape(reader)
    assert value(found, "wms2_requests", status="queued") == counted
    assert value(found, "wms2_alerts_total", type="of_two_scrapes") == 1
    moment[0] += 0.1
    assert value(scrape(reader), "wms2_requests", status="queued") == counted + 1


def test_calls_to_outside_services_are_timed_by_outcome(reader: APIClient) -> None:
    labels = {"service": "dbs", "operation": "probe_of_a_test", "outcome": "rejected"}
    with pytest.raises(ServiceRejected), observed("dbs", "probe_of_a_test"):
        raise ServiceRejected("dbs", "probe_of_a_test", "no")
    assert value(scrape(reader), "wms2_external_call_seconds_count", **labels) == 1


def test_counters_of_this_process_are_there(reader: APIClient) -> None:
    series.ALERTS_TOTAL.labels("of_a_test").inc(3)
    assert value(scrape(reader), "wms2_alerts_total", type="of_a_test") == 3


COUNT = """
import django; django.setup()
from wms2.metrics import series as metrics
metrics.CYCLES_TOTAL.labels("ok").inc({n})
"""


def test_counters_of_all_processes_are_summed_dead_ones_included(
    reader: APIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, files.OWN: str(tmp_path)}
    for number in (2, 5):
        subprocess.run([sys.executable, "-c", COUNT.format(n=number)], cwd=ROOT, env=environment, check=True, timeout=120)
    monkeypatch.setenv(files.OWN, str(tmp_path))
    found = scrape(reader)
    assert value(found, "wms2_lifecycle_cycles_total", outcome="ok") == 7
    assert ("wms2_requests", frozenset({("status", "new")})) in found, "gauges over rows come with them"


def test_openmetrics_is_spoken_with_those_who_ask_for_it(reader: APIClient) -> None:
    response = reader.get("/api/v1/metrics", HTTP_ACCEPT="application/openmetrics-text; version=1.0.0")
    assert response["Content-Type"].startswith("application/openmetrics-text")
    assert response.content.endswith(b"# EOF\n")


def test_a_service_that_is_left_alone_is_shown(reader: APIClient) -> None:
    circuits().failed("dbs:host/DBSReader", FAILURES, 10.0)
    for _ in range(FAILURES):
        circuits().failed("htcondor:schedd@a", FAILURES, 10.0)
    found = scrape(reader)
    assert value(found, "wms2_circuit_failures", circuit="dbs:host/DBSReader") == 1
    assert value(found, "wms2_circuit_open", circuit="dbs:host/DBSReader") == 0
    assert value(found, "wms2_circuit_open", circuit="htcondor:schedd@a") == 1


def test_pools_tell_slots_and_jobs_as_their_collectors_did(reader: APIClient) -> None:
    first = pool_row("first", jobs_idle=7, jobs_running=5)
    pool_row("silent", silent_since=timezone.now())
    for name, total in (("T1_US_FNAL", 10), ("T2_CH_CERN", 20)):
        site = Site.objects.create(name=name)
        PoolSite.objects.create(pool=first, site=site, total_slots=total, running_slots=4, seen_at=timezone.now())
    found = scrape(reader)
    assert (value(found, "wms2_pool_up", pool="first"), value(found, "wms2_pool_up", pool="silent")) == (1, 0)
    slots = [value(found, "wms2_pool_slots", pool="first", state=state) for state in ("running", "free")]
    jobs = [value(found, "wms2_pool_jobs", pool="first", state=state) for state in ("running", "idle")]
    assert (slots, jobs) == ([8, 22], [5, 7])


def test_trouble_of_each_pool_is_told_by_its_name(reader: APIClient) -> None:
    for pool, holds in (("A", True), ("B", True), ("C", False)):
        SystemicAlert.objects.create(pool=pool, holds=holds, reason="bad at once", began_at=timezone.now())

    found = scrape(reader)

    def held(pool: str) -> float:
        return value(found, "wms2_systemic_trouble", what="new work is held", pool=pool)

    assert [held(pool) for pool in ("", "A", "B", "C")] == [0, 1, 1, 0]
    assert value(found, "wms2_systemic_trouble", what="an operator is asked", pool="C") == 1


def test_drains_that_go_on_and_requests_that_a_limit_keeps_are_told(reader: APIClient) -> None:
    since = timezone.now() - timedelta(hours=2)
    schedd_row("schedd@goes-on", state=ScheddState.DRAINING, drain_since=since)
    schedd_row("schedd@empty", state=ScheddState.DRAINING, drain_since=since, drained_at=since)
    request_row(S.QUEUED, waiting_for="limit of campaign Run3: 2 of 2 DAGs")
    request_row(S.QUEUED, waiting_for="its turn for a DAG slot")

    found = scrape(reader)

    assert 7200 <= value(found, "wms2_schedd_drain_seconds", schedd="schedd@goes-on") < 7300
    assert value(found, "wms2_schedd_drain_seconds", schedd="schedd@empty") == 0
    assert value(found, "wms2_admission_kept") == 1
