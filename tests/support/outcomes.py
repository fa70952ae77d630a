"""What the world of the test stack must look like once a request has ended, however rough its way was."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.db.models import Sum

from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitState
from outputs_app.models import BlockStatus, Effect, EffectState, OutputFile, ProcessingBlock
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import request_import
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from sites_app.models import Pool
from sites_app.schedds import adapter
from tests.support.stack import small_request
from wms2.adapters import factory
from wms2.conf import conf

#: HTCondor's job states removed and completed.
_LEFT = (3, 4)


def imported(document: dict[str, Any] | None = None, **changes: int) -> Request:
    """A request of this document, by default of a small one with these changes."""
    return request_import(document=document or small_request(**changes), request_name=None, actor="tester")


def status(request: Request) -> str:
    """Its status now."""
    return Request.objects.values_list("status", flat=True).get(pk=request.pk)


def waiting_for(request: Request) -> str:
    """What it waits for now."""
    return Request.objects.values_list("waiting_for", flat=True).get(pk=request.pk)


def ended(request: Request) -> bool:
    """Whether it has come to rest."""
    return status(request) in (RequestStatus.COMPLETED, RequestStatus.HELD, RequestStatus.ABORTED, RequestStatus.FAILED)


def units_done(request: Request) -> int:
    """How many of its units are."""
    return WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.DONE).count()


def storage(rse: str, lfn: str) -> Path:
    """Where a site of the test stack keeps a file."""
    return conf().state_dir / "storage" / rse / lfn.lstrip("/")


def assert_completed_once(request: Request, *, dags: int = 1, blocks_each: int = 1) -> None:
    """COMPLETED, and the world looks as if nothing had happened on the way."""
    assert_completed(request, blocks_each=blocks_each)
    assert len(dagman_jobs(request)) == dags


def assert_completed(request: Request, *, blocks_each: int = 1, abandoned: int = 0) -> None:
    """COMPLETED, by however many DAGs one after the other: what they made is there once. ``abandoned``: numbers given up."""
    request.refresh_from_db()
    assert request.status == RequestStatus.COMPLETED, f"{request.status}: {request.hold_reason} {request.last_error}"
    assert_nothing_runs(request)
    assert_one_dagman_at_a_time(request)
    assert_all_work_is_done(request, abandoned)
    assert not Effect.objects.filter(request=request).exclude(state=EffectState.DONE).exists()
    for dataset in request.workflow.output_datasets.filter(files__isnull=False).distinct():
        assert (known := factory.dbs().dataset(dataset.name)) and known.access_type == "VALID", f"{dataset.name}: {known}"
    _assert_registered_once(request, blocks_each)


def assert_each_event_once(request: Request, events: int) -> None:
    """In every output dataset: as many events as were asked for, and no lumi twice."""
    for dataset in request.workflow.output_datasets.all():
        files = list(OutputFile.objects.filter(dataset=dataset))
        lumis = Counter((run, lumi) for file in files for run, pairs in file.lumis.items() for lumi, _ in pairs)
        assert (sum(file.events for file in files), set(lumis.values())) == (events, {1}), dataset


def assert_all_work_is_done(request: Request, abandoned: int) -> None:
    """The account adds up and nothing is planned or left; numbers are given up only with a DAG that never began.

    One that is removed before its DAGMan starts leaves no rescue file, so its work is planned anew under new numbers; so is what
    was open in one whose queue was lost.
    """
    ledger = _ledger(request)
    if ledger.by_lumi:
        assert not ledger.work_left, ledger
        assert ledger.done_lumis + ledger.excluded_lumis + ledger.refused_lumis == ledger.all_lumis, ledger
        return
    lacking = (ledger.left_events, ledger.left_files, ledger.attempted_files, ledger.planned_events, ledger.planned_files)
    assert lacking == (0, 0, 0, 0, 0), ledger
    assert ledger.done_events + ledger.excluded_events == request.workflow.requested_events, ledger
    dags = DAG.objects.filter(workflow=request.workflow)
    never_began = [dag for dag in dags if not _has_begun(dag) or dag.outcome.get("lost")]
    given_up = WorkUnit.objects.filter(dag__in=never_began).aggregate(events=Sum("events"))["events"] or 0
    assert ledger.lost_events <= given_up + abandoned, (ledger, never_began)


def _has_begun(dag: DAG) -> bool:
    return Path(f"{dag.dag_file_path}.dagman.out").exists()


def assert_aborted(request: Request) -> None:
    """ABORTED, nothing runs, nothing is claimed for the future, the account adds up."""
    request.refresh_from_db()
    assert request.status == RequestStatus.ABORTED, f"{request.status}: {request.waiting_for}"
    assert_nothing_runs(request)
    assert_one_dagman_at_a_time(request)
    if hasattr(request, "workflow"):
        assert _ledger(request).planned_events == 0


def assert_held(request: Request, code: HoldCode) -> None:
    """HELD for this reason and in words, nothing runs, the account adds up."""
    request.refresh_from_db()
    assert (request.status, request.hold_code) == (RequestStatus.HELD, code), f"{request.status}: {request.hold_reason}"
    assert request.hold_reason
    assert_nothing_runs(request)
    assert_one_dagman_at_a_time(request)
    if hasattr(request, "workflow"):
        _ledger(request)


def assert_nothing_runs(request: Request) -> None:
    """No live DAG, no DAGMan job."""
    for dag in DAG.objects.filter(workflow__request=request):
        assert dag.status not in LIVE_DAG
        found = adapter(dag.schedd).find_dag(str(dag.pk)) if dag.schedd is not None else None
        assert found is None or found.in_queue == (), f"{dag} runs as {found}"


def assert_one_dagman_at_a_time(request: Request) -> None:
    """By the schedd's own queue and history: a job for each submitted DAG, the recorded one, none beside another."""
    jobs = dagman_jobs(request)
    submitted = DAG.objects.filter(workflow__request=request, submitted_at__isnull=False)
    recorded = [dag for dag in submitted if not dag.outcome.get("lost")]  # with its queue
    assert sorted(str(job["ClusterId"]) for job in jobs) == sorted(dag.dagman_cluster_id for dag in recorded)
    for earlier, later in pairwise(jobs):
        left = earlier["CompletionDate"] or earlier["EnteredCurrentStatus"]
        assert earlier["JobStatus"] in _LEFT, f"{later} was submitted while {earlier} was in the queue"
        assert left <= later["QDate"], f"{later} was submitted before {earlier} had left"


def dagman_jobs(request: Request) -> list[dict[str, Any]]:
    """Every outer DAGMan job there ever was of the request, in the queues and histories of all schedds, oldest first."""
    pools = [pool.token_dir for pool in Pool.objects.filter(schedds__dags__workflow__request=request).distinct()]
    configs = [str(Path(tokens).parent / "condor_config") if tokens else os.environ["CONDOR_CONFIG"] for tokens in pools]
    return sorted((job for config in configs for job in _dagman_jobs(request, config)), key=lambda job: job["QDate"])


def _dagman_jobs(request: Request, config: str) -> list[dict[str, Any]]:
    constraint = f'JobUniverse == 7 && DAGManJobId =?= undefined && WMS2_Request == "{request.request_name}"'
    found: dict[int, dict[str, Any]] = {}
    for tool in ("condor_q", "condor_history"):  # in this order: what leaves the one meanwhile is in the other
        everybody = ("-allusers",) if tool == "condor_q" else ()
        attributes = ("-json", "-attributes", "ClusterId,QDate,JobStatus,CompletionDate,EnteredCurrentStatus,WMS2_DagID")
        argv = (tool, *everybody, "-constraint", constraint, *attributes)
        printed = subprocess.run(
            argv, env={**os.environ, "CONDOR_CONFIG": config}, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        found |= {job["ClusterId"]: job for job in json.loads(printed or "[]")}
    return [{"CompletionDate": 0} | found[cluster] for cluster in sorted(found)]


def _assert_registered_once(request: Request, blocks_each: int) -> None:
    """One DBS block for each block with exactly its files, one rule for each file, one tape rule for each block, one for each
    container that is placed on disk."""
    blocks = list(ProcessingBlock.objects.filter(workflow=request.workflow))
    assert {block.status for block in blocks} == {BlockStatus.ARCHIVED}
    for dataset in request.workflow.output_datasets.all():
        mine = {block.dbs_block_name: block.origin_rse for block in blocks if block.dataset_id == dataset.pk}
        assert len(mine) >= blocks_each
        at_one = max(Counter(mine.values()).values())
        assert at_one <= blocks_each, "one block of each small dataset at each RSE, unless its limits are smaller"
        assert {found.block_name for found in factory.dbs().blocks(dataset.name)} == mine.keys()
    placed = request.workflow.output_datasets.exclude(disk_rule_id="")
    wanted = Counter(placed.values_list("name", flat=True))
    for block in blocks:
        files = list(OutputFile.objects.filter(block=block))
        in_dbs = factory.dbs().block(block.dbs_block_name)
        assert in_dbs is not None
        assert not in_dbs.is_open
        assert in_dbs.file_count == len(files)
        assert sorted(f.lfn for f in factory.dbs().block_files(block.dbs_block_name)) == sorted(f.lfn for f in files)
        assert {(f.rse, f.rule_id) for f in files} == {(block.origin_rse, "")}
        wanted[block.dbs_block_name] += 2
    rules = factory.rucio().rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    standing = {rule.rule_id: rule for rule in rules if rule.expires_at is None}
    assert all(standing[block.source_rule_id].rse_expression == block.origin_rse for block in blocks)
    assert Counter(rule.name for rule in standing.values()) == wanted, "a block's at its RSE and on tape, a placed container's"


def _ledger(request: Request) -> Ledger:
    ledger = ledger_of(request.workflow)
    ledger_check(ledger)
    return ledger
