"""Pages and series with 100,000 requests and a month of samples, as many times what ``/livez`` takes in the same run.

The rows are those of ``bench.api_load``, most of them copies, with 60 sites, 40 campaigns, failures of every twentieth request
over a month, alerts, and samples as ``bench.samples`` makes them. gunicorn answers one client over HTTP, each address by turns
with ``/livez``: at rest, then beside worker, ticker and beat; ``BENCH_TURNS`` (30) of each. Then, in one process without a
server: statements of a warm page without those of who is signed in, and the processor of Python and of PostgreSQL.
``BENCH_ONLY`` names some addresses by a part of their names. The end says which are above the aim.
"""

from __future__ import annotations

import http.client
import os
import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, NamedTuple

from bench import api_load, samples
from bench.costs import repeated
from deploy.stack.environment import with_limits
from tests.support.servers import free_port

TURNS, CALLS = 30, 7
#: As many times ``/livez``, and statements beside session, user and roles.
MOST_OF, MOST, MOST_STATEMENTS = {"overview": 25.0}, 20.0, 8
CODE, SITE, CAMPAIGN = 8001, "T2_XX_Site5", "Campaign7"

_SITES = """
INSERT INTO sites (name, status, status_reason, status_actor, total_slots, running_slots, config_data, updated_at)
SELECT 'T2_XX_Site' || n, 'enabled', '', '', 1000, 700, '{}', now() FROM generate_series(0, 59) n ON CONFLICT DO NOTHING
"""
#: Of every twentieth request six kinds, spread over a month; the first of each have samples.
_FAILURES = """
WITH failing AS (
  SELECT w.id, d.id AS dag, row_number() OVER (ORDER BY w.id) AS n FROM workflows w
  LEFT JOIN LATERAL (SELECT id FROM dags WHERE workflow_id = w.id LIMIT 1) d ON true
  WHERE substr(w.request_name, 13, 6)::int %% 20 = 0
), made AS (
  INSERT INTO failure_groups (workflow_id, category, code, site, step, rule, attempts, given_up, actions, rounds, reason,
    first_at, last_at)
  SELECT id, 'application', 8000 + (n * 7 + k * 3) %% 25, 'T2_XX_Site' || (n * 11 + k * 5) %% 60, 'Step' || k %% 12, '',
    1 + n %% 40, n %% 3, '{}', '{}', 'Fatal Root Error: @SUB=TStorageFactoryFile::Init',
    now() - (n * 37 + k * 101) %% 43200 * interval '1 minute' - interval '2 hours',
    now() - (n * 37 + k * 101) %% 43200 * interval '1 minute'
  FROM failing CROSS JOIN generate_series(0, 5) k RETURNING id, workflow_id, last_at
)
INSERT INTO failure_samples (group_id, dag_id, unit, node, attempt, job_id, final, at, message, bad_files, log_tail)
SELECT made.id, failing.dag, 'mg_000001', 'proc_000001', k, made.id || '.' || k, false, made.last_at,
  'Fatal Root Error ' || k || ': @SUB=TStorageFactoryFile::Init file:/store/data/' || made.id || '.root', '[]',
  repeat('log ', 500)
FROM made JOIN failing ON failing.id = made.workflow_id CROSS JOIN generate_series(1, 3) k WHERE failing.dag IS NOT NULL
"""
_ALERTS = """
INSERT INTO alerts (code, subject, cause, severity, request_id, site, schedd, pool, text, condition, since, last_seen, ended_at,
  count, owner, acknowledged_by, silenced_by, silence_reason)
SELECT 'request_held', request_name, 'threshold', 'warning', id, '', '', '', 'too many failed', false, status_since, now(),
  CASE WHEN n > 200 THEN now() - n * interval '10 minutes' END, 1, '', '', '', ''
FROM (SELECT *, row_number() OVER (ORDER BY request_name DESC) AS n FROM requests LIMIT 2000) r
"""
#: What a look finds: running and idle jobs in all, by site, campaign and pool; requests by status. Of a month, in all lengths.
_STATES = """
INSERT INTO state_samples (seconds, at, what, by, label, total)
SELECT seconds, at, what, by, label, 500 * seconds / 60 FROM unnest(%(lengths)s::int[], %(stays)s::int[]) kept(seconds, stays),
  LATERAL generate_series(
    to_timestamp(floor((extract(epoch FROM now()) - stays) / seconds) * seconds), now(), seconds * interval '1 second'
  ) at,
  LATERAL (
    SELECT 'looks' AS what, '' AS by, '' AS label
    UNION ALL SELECT what, '', '' FROM unnest(ARRAY['running', 'idle', 'queued', 'requests', 'effects']) what
    UNION ALL SELECT what, 'site', 'T2_XX_Site' || n FROM unnest(ARRAY['running', 'idle']) what, generate_series(0, 59) n
    UNION ALL SELECT what, 'campaign', 'Campaign' || n FROM unnest(ARRAY['running', 'idle']) what, generate_series(0, 19) n
    UNION ALL SELECT what, 'pool', 'bench' FROM unnest(ARRAY['running', 'idle']) what
    UNION ALL SELECT 'requests', 'status', status FROM unnest(ARRAY['active', 'queued', 'held', 'completed', 'archived']) status
  ) look
"""
_COURSES = """
WITH active AS (SELECT id FROM requests WHERE status = 'active'), summed AS (
  INSERT INTO progress (request_id, at, units, units_done, units_failed, jobs_running, jobs_idle, jobs_held, first_at,
    peak_running, job_seconds)
  SELECT id, now(), 2000, 900, 0, 300, 20, 0, now() - interval '2 days', 400, 1000000 FROM active
)
INSERT INTO progress_samples (request_id, mean, at, units, units_done, units_failed, jobs_running, jobs_idle, jobs_held)
SELECT id, n > 24, now() - n * interval '10 minutes', 2000, 1000 - n * 3, 0, 300 + n %% 7, 20, 0
FROM active CROSS JOIN generate_series(0, 288) n
"""


#: Requests that are built one by one; the others are copies.
BUILT = 10_000
_NAME = f"'tester_task_' || lpad((substr(request_name, 13, 6)::int + n * {BUILT})::text, 6, '0') || '_v1'"
_REQUEST = {
    "id": "md5(id::text || n)::uuid", "family": "md5(id::text || n)::uuid", "request_name": _NAME, "prep_id": "prep_id || n",
    "status": "CASE WHEN status IN ('active', 'queued', 'held') THEN 'archived' ELSE status END",
    "hold_code": "''", "hold_reason": "''",
    **{name: f"{name} - n * {BUILT} * interval '1 minute'" for name in ("created_at", "status_since", "queued_at")},
}  # fmt: skip
_WORKFLOW = {"id": "md5(id::text || n)::uuid", "request_name": _NAME}


class Found(NamedTuple):
    """Of one address: medians at rest and beside the life cycle as many times ``/livez``; milliseconds of the processor."""

    rest: float
    busy: float
    statements: int
    python: float
    backend: float
    kilobytes: float


def main() -> bool:
    """A line for each address; whether all are within the aim."""
    import django

    os.environ |= with_limits(os.environ, rate_limit_read=0)
    django.setup()
    from wms2.celery import app

    prepare()
    port = free_port()
    settings = {
        "PORT": str(port), "WMS2_CYCLE_SECONDS": api_load.CYCLE_SECONDS,
        "WMS2_METRICS_ROOT": f"{os.environ['WMS2_STATE_DIR']}/bench-metrics",
    }  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(api_load._process("web", settings))
        api_load._wait_for(port)
        paths, login = addresses(), {"Cookie": api_load._cookie()}
        _rounds(port, login, paths, 3)  # warm
        turns = int(os.environ.get("BENCH_TURNS", TURNS))
        rest, bare = _rounds(port, login, paths, turns)
        app.control.purge()  # hints of an earlier run
        for name in ("worker", "ticker", "beat"):
            stack.enter_context(api_load._process(name, settings))
        api_load._wait_for_cycles(port, _token(), 1)
        busy, bare_busy = _rounds(port, login, paths, turns)
    print(f"/livez: {bare * 1000:.1f} ms at rest, {bare_busy * 1000:.1f} ms beside the life cycle, in the median")
    costs = _costs(paths, login)
    found = {name: Found(rest[name] / bare, busy[name] / bare_busy, *costs[name]) for name in paths}
    print(f"{'':32} {'at rest':>8} {'beside':>8} {'statements':>11} {'python':>9} {'backend':>9} {'size':>9}")
    for name, each in found.items():
        print(
            f"{name:32} {each.rest:7.1f}x {each.busy:7.1f}x {each.statements:11} {each.python:6.1f} ms {each.backend:6.1f} ms"
            f" {each.kilobytes:6.0f} KB"
        )
    above = [
        name for name, each in found.items()
        if each.busy > MOST_OF.get(name.partition(",")[0], MOST) or each.statements > MOST_STATEMENTS
    ]  # fmt: skip
    print(f"above the aim: {', '.join(above) or 'none'}")
    return not above


def prepare() -> None:
    """All rows; a database that has them is used as it is, with samples up to now."""
    from django.db import transaction

    from dags_app.models import BUCKETS, FailureGroup, StateSample
    from wms2.metrics.row_counts import counts_fold

    number = int(os.environ.get("BENCH_REQUESTS", api_load.REQUESTS))
    api_load.build_rows(min(number, BUILT))
    _copy(number)
    api_load.prepare(number)
    if not FailureGroup.objects.exists():
        with transaction.atomic():
            for statement in (_SITES, _FAILURES, _ALERTS, _COURSES):
                _run(statement)
        samples.fill()
        StateSample.objects.all().delete()
        month = int(timedelta(days=31).total_seconds())
        stays = [int(stays.total_seconds()) if stays else month for stays, _ in BUCKETS.values()]
        _run(_STATES, lengths=list(BUCKETS), stays=stays)
    for counted in ((), ("campaign_counts", "campaign")):
        counts_fold(*counted)  # as each cycle does: a page reads what one cycle leaves, not what made all rows
    _run("VACUUM ANALYZE")


def _copy(number: int) -> None:
    """Requests that have ended, and their workflows, as copies of those that were built: 30 times as fast."""
    from django.db import connection, transaction

    from requests_app.models import Request, Workflow

    times = number // BUILT
    if Request.objects.count() >= number:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        for model, own in ((Request, _REQUEST), (Workflow, _WORKFLOW)):
            columns = [
                field.column for field in model._meta.concrete_fields if not field.generated and field.column != "number"
            ]  # the database gives it
            values = ", ".join(own.get(str(name), f'"{name}"') for name in columns)
            names = ", ".join(f'"{name}"' for name in columns)
            cursor.execute(
                f"INSERT INTO {model._meta.db_table} ({names}) SELECT {values} FROM {model._meta.db_table},"  # noqa: S608
                f" generate_series(1, %s) n WHERE substr(request_name, 13, 6)::int < %s",
                [times - 1, BUILT],
            )
        cursor.execute("ANALYZE")


def _run(statement: str, **values: Any) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def addresses() -> dict[str, str]:
    """Every page, and the series of each range."""
    from dags_app.models import DAG, LIVE_DAG, FailureGroup
    from requests_app.models import RequestStatus
    from wms2.web.time_range import RANGES

    failing = FailureGroup.objects.values("workflow")  # whose pages are the longer ones
    live = DAG.objects.filter(status__in=LIVE_DAG, workflow__request__status=RequestStatus.ACTIVE)
    dag = live.filter(workflow__in=failing).order_by("pk").first()
    if dag is None:
        raise SystemExit("no DAG with failures is live")
    request = dag.workflow.request_id
    found = {
        "overview": "/", **{f"overview, {name}": f"/?range={name}" for name in RANGES},
        "requests": "/requests/", "requests, held": "/requests/?status=held", "campaigns": "/campaigns/",
        **{f"campaign, {name}": f"/campaigns/{CAMPAIGN}/?range={name}" for name in RANGES},
        **{f"failures, {name}": f"/failures/?range={name}" for name in ("24h", "30d")},
        **{f"failures of a code, {name}": f"/failures/?code={CODE}&range={name}" for name in ("24h", "7d", "30d")},
        **{f"failures of a cell, {name}": f"/failures/?code={CODE}&site={SITE}&range={name}" for name in ("24h", "30d")},
        **{f"failures of a campaign, {name}": f"/failures/?campaign={CAMPAIGN}&range={name}" for name in ("24h", "7d", "30d")},
        "sites": "/sites/", **{f"site, {name}": f"/sites/{SITE}/?range={name}" for name in RANGES},
        "outputs": "/outputs/", "operations": "/operations/", "activity": "/operations/activity/", "alerts": "/alerts/",
        "request": f"/requests/{request}/", "DAG": f"/dags/{dag.pk}/",
    }  # fmt: skip
    for name in (*RANGES, "365d"):
        found[f"series, {name}"] = f"/api/v1/series?measure=events&range={name}"
        found[f"series by site, {name}"] = f"/api/v1/series?measure=failures&by=site&range={name}"
        found[f"series by code of a site, {name}"] = f"/api/v1/series?measure=failures&by=code&site={SITE}&range={name}"
        found[f"series of jobs by site, {name}"] = f"/api/v1/series?measure=running&by=site&range={name}"
    wanted = [part for part in os.environ.get("BENCH_ONLY", "").split(",") if part]
    return {name: path for name, path in found.items() if not wanted or any(part in name for part in wanted)}


def _token() -> str:
    from django.contrib.auth.models import User
    from rest_framework.authtoken.models import Token

    return str(Token.objects.get_or_create(user=User.objects.get(username="bench"))[0].key)


def _rounds(port: int, login: Mapping[str, str], paths: Mapping[str, str], turns: int) -> tuple[dict[str, float], float]:
    """Median seconds of each, and of ``/livez``, which is asked before each of them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    found: dict[str, list[float]] = {name: [] for name in paths}
    bare: list[float] = []
    for _ in range(turns):
        for name, path in paths.items():
            bare.append(api_load._answered(connection, api_load.BARE, {}))
            found[name].append(api_load._answered(connection, path, login))
    return {name: statistics.median(each) for name, each in found.items()}, statistics.median(bare)


def _costs(paths: Mapping[str, str], login: Mapping[str, str]) -> dict[str, tuple[int, float, float, float]]:
    """Of a warm page in this process: statements, milliseconds of Python and of its PostgreSQL backend, kilobytes."""
    import logging

    from django.test import Client

    from tests.support.statements import statements_of

    logging.disable(logging.CRITICAL)
    client = Client(headers={**login, "Host": "127.0.0.1"})
    found = {}
    for name, path in paths.items():
        size = len(client.get(path).content)
        asked = statements_of(client, path)
        if os.environ.get("BENCH_STATEMENTS"):
            print(name, *(f"  {each[:200]}" for each in asked), sep="\n")
        spent = repeated(lambda path=path: client.get(path), CALLS)  # type: ignore[misc]
        own = 1000 * statistics.median(cost.worker_seconds for cost in spent)
        backend = 1000 * statistics.mean(cost.backend_seconds for cost in spent)  # the kernel counts in hundredths
        found[name] = len(asked), own, backend, size / 1000
    return found
