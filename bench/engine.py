"""What the life cycle costs when nothing has changed, and for what has: CPU of this process and its database session, statements.

A table for ×1, ×10 and ×100 of 3 ACTIVE, 100 QUEUED and 1,000 other requests; ``BENCH_SIZES`` names other factors,
``BENCH_CYCLES`` how often an idle cycle is repeated to see whether memory grows. The schedd of the ACTIVE ones refuses
connections, and their DAGs are rows only. Then the same with real DAGMans and units that end (``bench.engine_live``), unless
``BENCH_ACTIVE=0``. The database is that of a stack of its own: it is emptied before each size.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import api_load
from bench.costs import Cost, costs, repeated

FACTORS = (1, 10, 100)
ACTIVE, QUEUED, OTHERS = 3, 100, 1_000
TURNS, ADMITTED, CYCLES = 9, 20, 200


def main() -> None:
    """Print a table."""
    import django

    django.setup()
    import logging

    from django.core.management import call_command

    from tests.support.scripted.snapshot import wipe

    logging.disable(logging.CRITICAL)
    call_command("migrate", verbosity=0)
    factors = [int(n) for n in os.environ.get("BENCH_SIZES", "").split(",") if n] or list(FACTORS)
    rows = []
    for factor in factors:
        wipe()
        api_load.build_rows(factor * (ACTIVE + QUEUED + OTHERS))
        api_load.make_live(factor * ACTIVE, factor * QUEUED)
        rows.append(_measure())
    names = list(rows[0])
    print("milliseconds of CPU, worker + database, and statements; and how often the first size's")
    print(f"{'':42}" + "".join(f"{f'x{factor}':>28}" for factor in factors))
    for name in names:
        cells = []
        for row in rows:
            seconds, statements = row[name]
            cells.append(f"{seconds * 1000:9.2f} ms {statements:6.1f} {seconds / max(rows[0][name][0], 1e-5):6.1f}x")
        print(f"{name:42}" + "".join(f"{cell:>28}" for cell in cells))
    _print_memory()
    if os.environ.get("BENCH_ACTIVE") != "0":
        subprocess.run([sys.executable, "-m", "bench.engine_live"], check=True)  # with settings of its own


def _measure() -> dict[str, tuple[float, float]]:
    from requests_app.lifecycle.evaluator import evaluate_due
    from requests_app.models import Request, RequestStatus
    from wms2.runtime.due import mark_due

    _come_to_rest()
    found = {"a poll in which nothing changed": _median(_poll), "a cycle in which nothing changed": _median(_cycle)}
    active = list(Request.objects.filter(status=RequestStatus.ACTIVE).values_list("pk", flat=True)[:ADMITTED])
    queued = list(Request.objects.filter(status=RequestStatus.QUEUED).values_list("pk", flat=True)[:ADMITTED])
    for name, pks in (("ACTIVE", active), ("QUEUED", queued)):
        with costs() as cost:
            mark_due(pks, "bench")
            count = evaluate_due(seconds=600)
        found[f"an evaluation of a woken {name} request"] = (cost.seconds / count, cost.statements / count)
    found["a request that is admitted"] = _admission()
    return found


def _admission() -> tuple[float, float]:
    """One slot becomes free at a time, and is taken: with as many DAGs at each size, on a schedd that answers."""
    from dags_app.models import DAG, LIVE_DAG, DAGStatus
    from requests_app.admission.ordering import ITS_TURN
    from requests_app.admission.queue import admit
    from requests_app.models import Limit, Request, RequestStatus
    from sites_app.models import Health, Schedd
    from wms2.runtime import clock

    others = DAG.objects.filter(status__in=LIVE_DAG).order_by("id").values_list("pk", flat=True)[ACTIVE:]
    DAG.objects.filter(pk__in=list(others)).update(status=DAGStatus.COMPLETED)
    Request.objects.filter(status=RequestStatus.ACTIVE).exclude(workflow__dags__status__in=LIVE_DAG).update(
        status=RequestStatus.ARCHIVED
    )
    Schedd.objects.update(unreachable_since=None, health=Health.HEALTHY, last_answer_at=clock.now())
    slots = Limit.objects.filter(name="max_active_dags")
    slots.update(value=ACTIVE)
    admit()  # each has the reason to wait that it keeps
    cost, admitted = Cost(), 0
    for number in range(ADMITTED):
        slots.update(value=ACTIVE + number + 1)
        with costs() as one:
            admitted += admit()
        cost += one
    if admitted != ADMITTED:
        waiting = Request.objects.filter(status=RequestStatus.QUEUED).exclude(waiting_for=ITS_TURN).first()
        raise SystemExit(f"{admitted} of {ADMITTED} were admitted; one waits for {waiting and waiting.waiting_for}")
    return cost.seconds / admitted, cost.statements / admitted


def _come_to_rest() -> None:
    """Every request is evaluated once, nothing is due, and what building has left in the tables is gone, as soon by itself."""
    from django.db import connection

    from requests_app.lifecycle.cycle import run_cycle
    from requests_app.lifecycle.evaluator import evaluate_due

    for _ in range(3):
        run_cycle(force=True)
        while evaluate_due(seconds=600):
            pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _poll() -> None:
    from requests_app.lifecycle.cycle import run_cycle

    run_cycle()


def _cycle() -> None:
    from requests_app.lifecycle.cycle import run_cycle

    run_cycle(force=True)


def _median(step: Callable[[], None]) -> tuple[float, float]:
    found = repeated(step, TURNS)
    return median(cost.seconds for cost in found), median(cost.statements for cost in found)


def _print_memory() -> None:
    """Of this process, before and after many idle cycles."""
    number = int(os.environ.get("BENCH_CYCLES", CYCLES))
    before, begun = _resident_mb(), time.monotonic()
    for _ in range(number):
        _cycle()
    print(f"memory: {before:.1f} MB; after {number} more cycles: {_resident_mb():.1f} MB ({time.monotonic() - begun:.0f} s)")


def _resident_mb() -> float:
    """Now; the peak was that of building the rows."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
