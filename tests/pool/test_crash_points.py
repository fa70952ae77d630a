"""The worker is killed at every kill point; afterwards there is one DAGMan job, one block, one rule a file, and COMPLETED."""

from __future__ import annotations

from pathlib import Path

import pytest

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
from requests_app.ledger import ledger_check, ledger_of
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort, request_import
from tests.support.stack import small_request, worker
from wms2.adapters import factory
from wms2.conf import conf

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
SUBMISSION = ("submit.claimed", "submit.called", "submit.recorded")
ON_THE_WAY = (
    "import.claimed", "import.recorded", "plan.claimed", "plan.called", "plan.recorded", *SUBMISSION,
    "poll.called", "poll.recorded",
    "register.claimed", "register.recorded",
    *(f"{kind}.{point}" for kind in EffectKind.values for point in ("claimed", "called", "recorded")),
)  # fmt: skip


def imported(**changes: int) -> Request:
    return request_import(document=small_request(**changes), request_name=None, actor="tester")


def status(request: Request) -> str:
    return Request.objects.values_list("status", flat=True).get(pk=request.pk)


def ended(request: Request) -> bool:
    return status(request) in (RequestStatus.COMPLETED, RequestStatus.HELD, RequestStatus.ABORTED, RequestStatus.FAILED)


def assert_completed_once(request: Request) -> None:
    """Whatever happened on the way, the world looks as if nothing had."""
    request.refresh_from_db()
    assert request.status == RequestStatus.COMPLETED, f"{request.status}: {request.hold_reason} {request.last_error}"
    workflow = request.workflow
    (dag,) = DAG.objects.filter(workflow=workflow)
    condor = factory.htcondor(conf().schedd_name, conf().collector)
    found = condor.find_dag(str(dag.pk))
    assert found is not None
    assert found.in_queue == ()
    assert str(found.cluster) == dag.dagman_cluster_id
    ledger = ledger_of(workflow)
    ledger_check(ledger)
    assert (ledger.done_events, ledger.left_events, ledger.lost_events) == (workflow.requested_events, 0, 0)
    blocks = ProcessingBlock.objects.filter(workflow=workflow)
    assert {b.status for b in blocks} == {BlockStatus.ARCHIVED}
    assert blocks.count() == 2, "one block for each kept dataset"
    assert not Effect.objects.filter(request=request).exclude(state=EffectState.DONE).exists()
    for block in blocks:
        files = list(OutputFile.objects.filter(block=block))
        in_dbs = factory.dbs().block_files(block.dbs_block_name)
        assert {f.lfn for f in in_dbs} == {f.lfn for f in files}
        assert len(in_dbs) == len(files)
        assert all(f.rule_id for f in files)
    rules = factory.rucio().rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    assert len(rules) == OutputFile.objects.filter(dataset__workflow=workflow).count() + blocks.count(), (
        "one rule a file, one a block"
    )


@pytest.mark.parametrize("point", SUBMISSION)
def test_killed_while_submitting_the_request_completes_with_one_dagman_job(ready: None, tmp_path: Path, point: str) -> None:
    request = imported(events=20)
    with worker(WMS2_CRASH_AT=point, WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:
        running.wait(lambda: running.was_killed, seconds=60)
        assert DAG.objects.filter(workflow__request=request, status__in=LIVE_DAG).count() == 1
        running.start()
        running.wait(lambda: ended(request), seconds=180)
    assert_completed_once(request)


def test_killed_once_at_every_point_of_its_way_the_request_completes_as_if_nothing_had_happened(
    ready: None, tmp_path: Path
) -> None:
    request = imported(events=20)
    mark = tmp_path / "mark"
    with worker(WMS2_CRASH_AT=",".join(ON_THE_WAY), WMS2_CRASH_MARK=str(mark)) as running:
        running.wait(lambda: ended(request), seconds=480, restart=True)
    assert set(mark.read_text().split()) == set(ON_THE_WAY), "every kill point was met"
    assert_completed_once(request)


@pytest.mark.parametrize("point", ["stop.claimed", "stop.called"])
def test_killed_while_aborting_the_request_ends_aborted_and_nothing_runs(ready: None, tmp_path: Path, point: str) -> None:
    request = imported()
    with worker(WMS2_CRASH_AT=point, WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:
        running.wait(lambda: status(request) == RequestStatus.ACTIVE, seconds=60)
        request.refresh_from_db()
        request_abort(request=request, actor="tester", reason="for the test")
        running.wait(lambda: running.was_killed, seconds=60)
        running.start()
        running.wait(lambda: ended(request), seconds=90)
    assert_aborted(request)


def assert_aborted(request: Request) -> None:
    """Nothing runs, nothing is claimed for the future, the account adds up."""
    request.refresh_from_db()
    assert request.status == RequestStatus.ABORTED
    condor = factory.htcondor(conf().schedd_name, conf().collector)
    for dag in DAG.objects.filter(workflow__request=request):
        assert dag.status not in LIVE_DAG
        found = condor.find_dag(str(dag.pk))
        assert found is None or found.in_queue == ()
    ledger = ledger_of(request.workflow)
    ledger_check(ledger)
    assert ledger.planned_events == 0
