"""What the world of the test stack must look like once a request has ended, however rough its way was."""

from __future__ import annotations

from collections import Counter

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import BlockStatus, Effect, EffectState, OutputFile, ProcessingBlock
from requests_app.ledger import Ledger, ledger_check, ledger_of
from requests_app.models import Request, RequestStatus
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.conf import conf


def status(request: Request) -> str:
    """Its status now."""
    return Request.objects.values_list("status", flat=True).get(pk=request.pk)


def ended(request: Request) -> bool:
    """Whether it has come to rest."""
    return status(request) in (RequestStatus.COMPLETED, RequestStatus.HELD, RequestStatus.ABORTED, RequestStatus.FAILED)


def assert_completed_once(request: Request, *, dags: int = 1) -> None:
    """COMPLETED, and the world looks as if nothing had happened on the way."""
    request.refresh_from_db()
    assert request.status == RequestStatus.COMPLETED, f"{request.status}: {request.hold_reason} {request.last_error}"
    assert DAG.objects.filter(workflow=request.workflow).count() == dags
    _assert_one_job_each(request)
    assert_all_work_is_done(request)
    assert not Effect.objects.filter(request=request).exclude(state=EffectState.DONE).exists()
    _assert_registered_once(request)


def assert_all_work_is_done(request: Request) -> None:
    """The account adds up and nothing is planned, left or lost."""
    ledger = _ledger(request)
    lacking = (ledger.left_events, ledger.left_files, ledger.attempted_files, ledger.planned_events, ledger.planned_files)
    assert lacking == (0, 0, 0, 0, 0), ledger
    assert ledger.done_events == request.workflow.requested_events, ledger
    assert ledger.lost_events == 0, ledger


def assert_aborted(request: Request) -> None:
    """ABORTED, nothing runs, nothing is claimed for the future, the account adds up."""
    request.refresh_from_db()
    assert request.status == RequestStatus.ABORTED, f"{request.status}: {request.waiting_for}"
    assert_nothing_runs(request)
    if hasattr(request, "workflow"):
        assert _ledger(request).planned_events == 0


def assert_nothing_runs(request: Request) -> None:
    """No live DAG, no DAGMan job."""
    for dag in DAG.objects.filter(workflow__request=request):
        assert dag.status not in LIVE_DAG
        found = _condor().find_dag(str(dag.pk))
        assert found is None or found.in_queue == (), f"{dag} runs as {found}"


def _assert_one_job_each(request: Request) -> None:
    for dag in DAG.objects.filter(workflow=request.workflow, submitted_at__isnull=False):
        found = _condor().find_dag(str(dag.pk))
        assert found is not None
        assert found.in_queue == ()
        assert str(found.cluster) == dag.dagman_cluster_id


def _assert_registered_once(request: Request) -> None:
    """One DBS block for each block with exactly its files, one rule for each file, one tape rule for each block."""
    blocks = list(ProcessingBlock.objects.filter(workflow=request.workflow))
    assert {block.status for block in blocks} == {BlockStatus.ARCHIVED}
    assert len(blocks) == request.workflow.output_datasets.count(), "one block for each small dataset"
    wanted: Counter[str] = Counter()
    for block in blocks:
        files = list(OutputFile.objects.filter(block=block))
        in_dbs = factory.dbs().block(block.dbs_block_name)
        assert in_dbs is not None
        assert not in_dbs.is_open
        assert in_dbs.file_count == len(files)
        assert sorted(f.lfn for f in factory.dbs().block_files(block.dbs_block_name)) == sorted(f.lfn for f in files)
        assert all(f.rule_id for f in files)
        wanted.update(f.lfn for f in files)
        wanted[block.dbs_block_name] += 1
        assert len(list(factory.dbs().blocks(block.dataset_name))) == 1, "one block in DBS for the dataset"
    rules = factory.rucio().rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    assert Counter(rule.name for rule in rules) == wanted, "one rule a file, one tape rule a block"


def _ledger(request: Request) -> Ledger:
    ledger = ledger_of(request.workflow)
    ledger_check(ledger)
    return ledger


def _condor() -> HtcondorAdapter:
    return factory.htcondor(conf().schedd_name, conf().collector)
