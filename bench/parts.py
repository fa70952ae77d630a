"""Small parts of a cycle, each measured alone: CPU of this process and its database session, medians of ``TIMES``.

A question to a schedd, by a child that lives on and by a new one (wall time, a pool of its own); what a poll looks at of
``BENCH_DAGS`` DAGs of which none has moved; a change of a status (2,000 in one statement), with the triggers that count and tell
and without.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.costs import costs, repeated
from bench.dag_shapes import running_pool
from bench.engine_live import schedds_alone, schedds_there
from deploy.htcondor.pool import DOMAIN

TIMES, REQUESTS, CHANGES = 7, 10_000, 2_000
_CHANGE = "UPDATE requests SET status = 'completed' WHERE id IN (SELECT id FROM requests WHERE status = 'archived' LIMIT %s)"


def main() -> None:
    """A line for each part."""
    import django

    django.setup()
    from tests.support.scripted.snapshot import wipe

    base = Path(os.environ["WMS2_STATE_DIR"]) / "parts"
    shutil.rmtree(base, ignore_errors=True)
    _question(base / "pool")
    wipe()
    _moves(base, int(os.environ.get("BENCH_DAGS", "300")))
    wipe()
    _triggers()


def _question(directory: Path) -> None:
    from wms2.adapters.htcondor_process import Place, ask, ask_apart, end_all

    schedd = f"schedd@{DOMAIN}"
    with running_pool(directory, schedds_alone([schedd]), lambda pool: schedds_there(pool) == {schedd}) as pool:
        os.environ |= {name: value for name, value in pool.environment.items() if name.startswith("CONDOR")}
        place = Place(schedd, pool.collector, str(pool.tokens))
        calls = [{"op": "schedd_ad", "projection": ["Name", "TotalIdleJobs"]}]
        for name, how in (("a child that lives on", ask), ("a new one", ask_apart)):
            seconds = [_wall(partial(how, place, calls, operation="bench", limit_seconds=60)) for _ in range(TIMES + 1)]
            print(f"a question to a schedd, {name}: {1000 * median(seconds[1:]):.0f} ms", flush=True)
        end_all()


def _wall(step: Callable[[], object]) -> float:
    begun = time.monotonic()
    step()
    return time.monotonic() - begun


def _cpu(step: Callable[[], object]) -> str:
    found = repeated(step, TIMES)
    own, theirs = (1000 * median(values) for values in zip(*((c.worker_seconds, c.backend_seconds) for c in found), strict=True))
    return f"{own:.1f} + {theirs:.1f} ms, {median(cost.statements for cost in found):.0f} statements"


def _moves(base: Path, number: int) -> None:
    from dags_app.models import DAG
    from dags_app.payload.contract.layout import FAILURES_FILE, JOBSTATE_LOG
    from dags_app.services.activity import DagActivity
    from requests_app.models import RequestStatus
    from tests.support.rows import dag_row, request_row, workflow_row

    for index in range(number):
        place = base / f"dag{index}"
        (place / FAILURES_FILE).parent.mkdir(parents=True, exist_ok=True)
        (place / JOBSTATE_LOG).write_text("1 INTERNAL *** DAGMAN_STARTED 1.0 ***\n")
        (place / FAILURES_FILE).write_text("")
        dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(place))
    moves = DagActivity()
    if len(moves.check()) != DAG.objects.count():
        raise SystemExit("after a start each has moved once")
    print(f"what a poll looks at of {number} DAGs, none moved: {_cpu(moves.check)}", flush=True)


def _triggers() -> None:
    from django.db import connection, transaction

    from tests.support.many import build

    build(REQUESTS)
    for triggers, name in (("ENABLE", "with"), ("DISABLE", "without")):
        spent = []
        for _ in range(TIMES):
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE requests {triggers} TRIGGER USER")
                with costs() as cost:
                    cursor.execute(_CHANGE, [CHANGES])
                spent.append(cost.backend_seconds / cursor.rowcount)
                transaction.set_rollback(True)
        print(f"a change of a status, {name} triggers: {1e6 * median(spent):.0f} µs", flush=True)
