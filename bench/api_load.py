"""REST and pages with 100,000 requests: p50 and p99 over HTTP as ratios to ``/livez`` in the same run, at rest and beside the
life cycle at work; and what a view costs of the processor, compared with the view of ``/livez``.

Web, worker, ticker and beat are real processes (``deploy/run/process``), the web answers over HTTP to two clients with kept
connections. Of the requests 300 are ACTIVE with a live DAG and 10,000 QUEUED behind the limit; the others have ended. The pool
is not there: the schedd is silent, which is what a cycle costs most for. ``BENCH_REQUESTS`` and ``BENCH_SECONDS`` make it
smaller; a database that already holds as many requests (WMS2_DATABASE_URL) is used as it is.
"""

from __future__ import annotations

import http.client
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from deploy.stack.environment import with_limits
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[1]
REQUESTS, SECONDS, CLIENTS = 100_000, 30.0, 2
ACTIVE, QUEUED = 300, 10_000
CYCLE_SECONDS = "10"
SCHEDD = "bench-schedd"
START_SECONDS = 300.0
CYCLES = 'wms2_lifecycle_cycles_total{outcome="ok"}'
COUNTED = (CYCLES, "wms2_lifecycle_cycle_seconds_sum", "wms2_evaluations_total")
LIST = "/api/v1/requests?"
BARE = "/livez"
#: Calls of a view, and different addresses among them.
VIEWS, VIEWS_OF = 40, 10


def main() -> None:
    """Print a table and the ratios."""
    import django

    os.environ |= with_limits(os.environ, rate_limit_read=0)
    django.setup()
    from wms2.celery import app

    number = int(os.environ.get("BENCH_REQUESTS", REQUESTS))
    token = prepare(number)
    port = free_port()
    settings = {
        "PORT": str(port),
        "WMS2_CYCLE_SECONDS": CYCLE_SECONDS,
        "WMS2_METRICS_ROOT": f"{os.environ['WMS2_STATE_DIR']}/bench-metrics",
    }
    seconds = float(os.environ.get("BENCH_SECONDS", SECONDS))
    with ExitStack() as stack:
        stack.enter_context(_process("web", settings))
        _wait_for(port)
        paths, login = _paths(), {"Authorization": f"Token {token}", "Cookie": _cookie()}
        _measure(port, login, paths, 2.0)  # warm
        rest = _measure(port, login, paths, seconds)
        app.control.purge()  # hints of an earlier run
        for name in ("worker", "ticker", "beat"):
            stack.enter_context(_process(name, settings))
        _wait_for_cycles(port, token, 1)
        before = _counted(port, token)
        busy = _measure(port, login, paths, seconds)
        after = _counted(port, token)
    _print(number, rest, busy)
    cycles, cycle_seconds, evaluations = (after[name] - before[name] for name in COUNTED)
    print(f"meanwhile {cycles:.0f} cycles of {cycle_seconds / max(cycles, 1):.2f} s and {evaluations:,.0f} evaluations")
    _print_cpu(paths, login)


def prepare(number: int) -> str:
    """Rows, an installation, and a reader's token."""
    from django.contrib.auth.models import User
    from rest_framework.authtoken.models import Token

    build_rows(number)
    make_live()
    user, _ = User.objects.get_or_create(username="bench")
    return str(Token.objects.get_or_create(user=user)[0].key)


def build_rows(number: int) -> None:
    """An installation with so many requests, most of them at an end."""
    from django.core.management import call_command
    from django.utils import timezone

    from outputs_app.models import BlockStatus, ProcessingBlock
    from requests_app.installation import installation_claim
    from requests_app.models import Request

    call_command("migrate", verbosity=0)
    installation_claim()
    if Request.objects.count() < number:
        from tests.support.many import build

        begun = time.perf_counter()
        build(number)
        ProcessingBlock.objects.update(status=BlockStatus.COMPLETE, sealed_at=timezone.now())  # nothing is left to end
        print(f"built {number:,} requests in {time.perf_counter() - begun:.0f} s", flush=True)


def make_live(active_number: int = ACTIVE, queued_number: int = QUEUED) -> None:
    """Few are under way, as on any day; the limit is used up, so that nothing is planned."""
    from django.db import connection
    from django.utils import timezone

    from dags_app.models import DAG, DAGStatus
    from requests_app.feed import publish
    from requests_app.models import Limit, Request, RequestStatus
    from sites_app.models import Schedd, ScheddState
    from tests.support.rows import schedd_row

    schedd = Schedd.objects.filter(name=SCHEDD).first() or schedd_row(SCHEDD, pool="bench")
    Schedd.objects.exclude(pk=schedd.pk).update(state=ScheddState.DISABLED)
    DAG.objects.filter(schedd=schedd).update(status=DAGStatus.COMPLETED, schedd=None)
    dags = list(DAG.objects.order_by("id").values_list("pk", "workflow_id")[:active_number])
    DAG.objects.filter(pk__in=[pk for pk, _ in dags]).update(
        status=DAGStatus.RUNNING, schedd=schedd, schedd_name=SCHEDD, submitted_at=timezone.now(), completed_at=None
    )
    active = Request.objects.filter(workflow__pk__in=[workflow for _, workflow in dags])
    queued = list(Request.objects.exclude(pk__in=active).order_by("id").values_list("pk", flat=True)[:queued_number])
    Request.objects.filter(status__in=(RequestStatus.ACTIVE, RequestStatus.QUEUED)).update(status=RequestStatus.ARCHIVED)
    live = {"hold_code": "", "hold_reason": "", "alert_code": "", "status_since": timezone.now()}  # none is too late
    Request.objects.filter(pk__in=queued).update(status=RequestStatus.QUEUED, **live)
    active.update(status=RequestStatus.ACTIVE, **live)
    Limit.objects.update_or_create(name="max_active_dags", defaults={"value": active_number, "actor": "bench", "reason": "bench"})
    while publish():  # a backlog of events is not what is measured, nor what building leaves in the tables
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _paths() -> dict[str, list[str]]:
    """What is asked, by name; details of requests with work, and pages."""
    from requests_app.models import Request, RequestStatus

    def names(status: RequestStatus) -> list[str]:
        return list(Request.objects.filter(status=status).order_by("id").values_list("request_name", flat=True)[:ACTIVE])

    active, queued = names(RequestStatus.ACTIVE), names(RequestStatus.QUEUED)
    queries: dict[str, dict[str, str]] = {
        "list, newest": {},
        "list, held": {"status": "held"},
        "list, by status_since": {"ordering": "status_since"},
        "list, by priority": {"ordering": "-priority"},
        "search": {"search": "task_0777"},
        "search in vain": {"search": "nowhere"},
    }
    found = {BARE: ["/livez"]}
    found |= {name: [LIST + urlencode({"page_size": "50"} | query)] for name, query in queries.items()}
    found["detail"] = [f"/api/v1/requests/{name}" for name in active]
    found["detail, queued"] = [f"/api/v1/requests/{name}" for name in queued]
    found["status"] = ["/api/v1/status"]
    found["metrics"] = ["/api/v1/metrics"]
    found["overview"] = ["/"]
    found["board"] = ["/requests/"]
    found["request page"] = [f"/requests/{name}/" for name in active]
    found["page, queued"] = [f"/requests/{name}/" for name in queued]
    return found


def _cookie() -> str:
    """Of an operator's session, for the pages."""
    from django.contrib.auth.models import User
    from django.test import Client

    user, _ = User.objects.get_or_create(username="bench-operator", defaults={"is_staff": True, "is_superuser": True})
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


@contextmanager
def _process(kind: str, settings: Mapping[str, str]) -> Iterator[int]:
    """It runs in the block; its number."""
    log = Path(os.environ["WMS2_STATE_DIR"]) / "logs" / f"bench-{kind}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        child = subprocess.Popen(
            [ROOT / "deploy/run/process", kind], cwd=ROOT, env={**os.environ, **settings}, stdout=stream, stderr=stream
        )
    try:
        yield child.pid
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if _get(http.client.HTTPConnection("127.0.0.1", port, timeout=10), "/livez", {})[0] == 200:
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the web server did not start; see logs/bench-web.log")


def _counted(port: int, token: str) -> dict[str, float]:
    """Cycles, their seconds, and evaluations so far, of all processes, as Prometheus would read them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/v1/metrics", headers={"Authorization": f"Token {token}"})
    found: dict[str, float] = dict.fromkeys(COUNTED, 0.0)
    for line in connection.getresponse().read().decode().splitlines():
        name, _, number = line.rpartition(" ")
        for wanted in COUNTED:
            if name.startswith(wanted):
                found[wanted] += float(number)
    return found


def _wait_for_cycles(port: int, token: str, number: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    begun = _counted(port, token)[CYCLES]
    while _counted(port, token)[CYCLES] < begun + number:
        if time.monotonic() > deadline:
            raise SystemExit("no cycle ran; see logs/bench-ticker.log")
        time.sleep(0.5)


def _get(connection: http.client.HTTPConnection, path: str, login: Mapping[str, str]) -> tuple[int, float]:
    begun = time.perf_counter()
    connection.request("GET", path, headers=dict(login))
    answer = connection.getresponse()
    answer.read()
    return answer.status, time.perf_counter() - begun


def _answered(connection: http.client.HTTPConnection, path: str, login: Mapping[str, str]) -> float:
    """Seconds until what was asked for is there; anything else ends the bench."""
    status, took = _get(connection, path, login)
    if status != 200:
        raise SystemExit(f"{path} was answered {status}")
    return took


def _measure(port: int, login: Mapping[str, str], paths: Mapping[str, Sequence[str]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each answer by name; the clients go round over all names, so that each meets the same load."""

    def client(number: int) -> dict[str, list[float]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        found: dict[str, list[float]] = {name: [] for name in paths}
        deadline, turn = time.monotonic() + seconds, number
        while time.monotonic() < deadline:
            turn += 1
            for name, choices in paths.items():
                found[name].append(_answered(connection, choices[turn % len(choices)], login))
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = list(pool.map(client, range(CLIENTS)))
    return {name: [took for part in parts for took in part[name]] for name in paths}


def _print(number: int, rest: Mapping[str, list[float]], busy: Mapping[str, list[float]]) -> None:
    print(f"{number:,} requests, {CLIENTS} clients; milliseconds, and as many times what {BARE} takes in the same run")
    print(f"{'':20} {'at rest: n':>10} {'p50':>14} {'p99':>14}   {'beside the life cycle: n':>24} {'p50':>14} {'p99':>14}")
    for name in rest:
        cells = []
        for found in (rest, busy):
            bare, these = _quantiles(found[BARE]), _quantiles(found[name])
            cells += [len(found[name]), *(f"{value:7.1f} {value / base:5.1f}x" for value, base in zip(these, bare, strict=True))]
        print("{:20} {:10} {:>14} {:>14}   {:24} {:>14} {:>14}".format(name, *cells))


def _print_cpu(paths: Mapping[str, Sequence[str]], login: Mapping[str, str]) -> None:
    """The two by turns, in this process, without a server, so that both meet the same load; the median of each."""
    import logging

    from django.test import Client

    logging.disable(logging.CRITICAL)
    client = Client(headers={**login, "Host": "127.0.0.1"})
    print(f"processor of the web process alone, as many times what {BARE} costs")
    for name, choices in paths.items():
        own: list[float] = []
        bare: list[float] = []
        for turn in range(-3, VIEWS):
            for path, found in ((choices[turn % min(len(choices), VIEWS_OF)], own), (paths[BARE][0], bare)):
                begun = time.process_time()
                if client.get(path).status_code != 200:
                    raise SystemExit(f"{path} was not answered")
                found.append(time.process_time() - begun)
        median, base = statistics.median(own[3:]), statistics.median(bare[3:])
        print(f"{name:20} {median * 1000:7.2f} ms {median / base:6.1f}x")


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000
