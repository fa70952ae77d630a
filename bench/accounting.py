"""Units that finish: what their account, and what is owed for them, cost per unit.

The rounds are planned by WMS2 itself, the manifests lie on disk, two datasets each. CPU is that of this process and of its
PostgreSQL backend, from ``/proc/<pid>/stat``. Effects are claimed, run and recorded by the executor; their calls do nothing, so
that what remains is WMS2's own share. First units of one round that finish at once: ``BENCH_UNITS`` names other sizes,
``BENCH_LUMIS`` the lumis of a job. Medians of three rounds. Then units that finish one by one, the next of each of
``BENCH_REQUESTS`` requests in turn, with the whole evaluation, and with what is owed after ``BENCH_TURNS`` turns.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.costs import Cost, costs
from deploy.stack.environment import with_limits

SIZES = (1, 50, 200)
REQUESTS, TURNS = 20, 5
JOBS, LUMIS, RUNS = 8, 10, 3
SITES = {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN"}


def main() -> None:
    """Print a table."""
    import django

    with tempfile.TemporaryDirectory(prefix="bench-accounting-") as root:
        os.environ |= {"WMS2_SUBMIT_ROOT": root} | with_limits(os.environ, jobs_per_work_unit=JOBS)
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        _sites()
        _refuse_others()
        list(_measure(1))  # what is done once in a process
        print(f"{'units':>6} {'step':>8} {'statements/unit':>16} {'worker ms/unit':>15} {'backend ms/unit':>16}")
        for units in tuple(int(n) for n in os.environ.get("BENCH_UNITS", "").split(",") if n) or SIZES:
            runs = [dict(_measure(units)) for _ in range(RUNS)]
            for step in runs[0]:
                costs = [astuple(run[step]) for run in runs]
                statements, worker, backend = (median(values) / units for values in zip(*costs, strict=True))
                print(f"{units:6} {step:>8} {statements:16.2f} {1000 * worker:15.2f} {1000 * backend:16.2f}", flush=True)
        _one_by_one(*(int(os.environ.get(name, usual)) for name, usual in (("BENCH_REQUESTS", REQUESTS), ("BENCH_TURNS", TURNS))))


def _one_by_one(requests: int, turns: int) -> None:
    """The next unit of each request ends, and its request is woken, as a poll does; effects once they are due."""
    from dags_app.models import DAG, WorkUnit, WorkUnitState
    from requests_app.lifecycle.evaluator import evaluate_due
    from wms2.runtime.due import mark_due

    dags = [_running(turns + 1) for _ in range(requests)]
    account, pks = Cost(), [dag.workflow.request.pk for dag in dags]
    for turn in range(turns):
        for dag in dags:
            _finish(DAG.objects.get(pk=dag.pk), turn + 1)
        mark_due(pks, "bench")
        with costs() as cost:
            evaluate_due(seconds=600)
        account = Cost(*(sum(pair) for pair in zip(astuple(account), astuple(cost), strict=True)))
    if WorkUnit.objects.filter(dag__in=dags, state=WorkUnitState.DONE).count() != requests * turns:
        raise SystemExit("not all units were accounted")
    effects = _run_effects()
    for step, found in (("evaluated", account), ("effects", effects)):
        statements, worker, backend = (value / requests / turns for value in astuple(found))
        print(f"{'1 of':>6} {step:>9} {statements:15.2f} {1000 * worker:15.2f} {1000 * backend:16.2f}", flush=True)
    for dag in dags:
        _leave(dag)


def _measure(units: int) -> Iterator[tuple[str, Cost]]:
    from dags_app.models import WorkUnit, WorkUnitState
    from requests_app.lease import evaluating
    from requests_app.models import Request
    from requests_app.work.accounting import account

    dag = _finish(_running(units), units)
    request = Request.objects.get(workflow=dag.workflow_id)
    with evaluating(request.pk, owner="bench") as evaluation, costs() as cost:
        if evaluation is None:
            raise SystemExit("the request is being evaluated by another process")
        account(evaluation, dag)
    yield "account", cost
    if WorkUnit.objects.filter(dag=dag, state=WorkUnitState.DONE).count() != units:
        raise SystemExit("not all units were accounted")
    yield "effects", _run_effects()
    _leave(dag)


def _run_effects() -> Cost:
    """All that is owed, due or not."""
    from django.db.models import F
    from django.utils import timezone

    from outputs_app.effects import HANDLERS, Handler, executor
    from outputs_app.models import OPEN_EFFECT, Effect, EffectKind

    owed = Effect.objects.filter(state__in=OPEN_EFFECT, epoch=F("request__epoch"))
    owed.update(next_attempt_at=timezone.now())
    nothing = Handler(lambda effect: {}, lambda effect, result: None)
    real = dict(HANDLERS)
    HANDLERS.update(dict.fromkeys(EffectKind.values, nothing))
    try:
        with costs() as cost:
            while owed.exists():
                executor.effects_run_due(owner="bench")
    finally:
        HANDLERS.update(real)
    return cost


def _leave(dag: Any) -> None:
    """Nobody goes on with it."""
    from dags_app.models import DAG, DAGStatus
    from requests_app.models import Request, RequestStatus

    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.COMPLETED)
    Request.objects.filter(workflow=dag.workflow_id).update(status=RequestStatus.NEW)


def _running(units: int) -> Any:
    """A DAG that runs, with its units' manifests."""
    from dags_app.models import DAG, DAGHistory, DAGStatus, WorkUnit
    from dags_app.planning.specs import GenerationSpec
    from dags_app.services.submit import SUBMIT_INTENT
    from requests_app.lease import evaluating
    from requests_app.models import Request, RequestStatus
    from requests_app.work.planner import round_plan
    from tests.support.rows import generation_spec, output_spec, request_row, workflow_row
    from tests.support.scripted.dagman import Account, write_manifest, write_unit_metrics

    tag = uuid.uuid4().hex[:8]
    request = request_row(RequestStatus.PLANNING, request_name=f"bench_accounting_{tag}")
    lumis = int(os.environ.get("BENCH_LUMIS", LUMIS))
    spec = generation_spec(request.request_name, outputs=(output_spec(tag), output_spec(tag, tier="MINIAODSIM")))
    made = GenerationSpec(
        run=1, first_event=1, first_lumi=1, events=units * JOBS * 100, events_per_job=100, events_per_lumi=100 // lumis
    )
    workflow = workflow_row(request, replace(spec, generation=made))
    with evaluating(request.pk, owner="bench") as evaluation:
        dag = round_plan(evaluation) if evaluation is not None else None
    if dag is None:
        raise SystemExit("nothing was planned")
    fence = 1
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.RUNNING, dagman_cluster_id=tag, fence=fence, schedd=_schedd())
    DAGHistory.objects.create(dag=dag, event_type=SUBMIT_INTENT, detail={"fence": fence})
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.ACTIVE)
    directory = Path(dag.submit_dir)
    for name in WorkUnit.objects.filter(dag=dag).values_list("name", flat=True):
        write_manifest(directory, name, fence, Account.RIGHT)
        write_unit_metrics(directory, name, ended_at=time.time())
    return DAG.objects.select_related("workflow__request").get(pk=dag.pk, workflow=workflow)


def _finish(dag: Any, number: int) -> Any:
    """DAGMan's log says that the first so many units are done."""
    from dags_app.payload.contract import layout

    lines = [f"1 INTERNAL *** DAGMAN_STARTED {dag.dagman_cluster_id}.0 ***"]
    lines += [f"2 mg_{index:06d} JOB_SUCCESS 0 - - {index}" for index in range(number)]
    Path(dag.submit_dir, layout.JOBSTATE_LOG).write_text("\n".join(lines) + "\n")
    return dag


def _schedd() -> Any:
    from sites_app.models import Schedd
    from tests.support.rows import schedd_row

    return Schedd.objects.filter(name="schedd@bench").first() or schedd_row("schedd@bench", pool="bench")


def _refuse_others() -> None:
    """Effects are marked done without their calls: never anybody else's."""
    from outputs_app.models import OPEN_EFFECT, Effect

    if Effect.objects.filter(state__in=OPEN_EFFECT).exists():
        raise SystemExit("something is owed to DBS or Rucio in this database; measure on a stack of its own")


def _sites() -> None:
    from django.utils import timezone

    from sites_app.models import Site, SiteRse

    for name, rse in SITES.items():
        site, _ = Site.objects.get_or_create(name=name)
        SiteRse.objects.get_or_create(site=site, rse=rse, defaults={"seen_at": timezone.now()})
