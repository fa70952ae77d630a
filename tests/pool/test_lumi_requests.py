"""Requests split by lumi on the pool: masks, shared lumis, a dataset that grows, parents; completed with the ledger closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG
from outputs_app.models import OutputFile
from requests_app.models import InputFile, Request, RequestStatus
from requests_app.services import request_hold, request_release
from requests_app.services.release import Changes
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from tests.support.inputs import EVENTS_PER_LUMI, InputDataset, SourceFile, small_reprocessing
from tests.support.outcomes import assert_completed, ended, imported, status
from tests.support.stack import worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
FNAL, CERN, PURDUE = "T1_US_FNAL_Disk", "T2_CH_CERN", "T2_US_Purdue"
Lumi = tuple[int, int]


def lumi_request(dataset: InputDataset, **changes: Any) -> Request:
    document = small_reprocessing(dataset.name)
    document["createRequest"].pop("FilesPerJob")
    document["createRequest"] |= changes
    return imported(document)


def waiting_for(request: Request) -> str:
    request.refresh_from_db()
    return request.waiting_for if request.status == RequestStatus.QUEUED else ""


def closed_ledger(request: Request) -> Ledger:
    ledger = ledger_of(request.workflow)
    ledger_check(ledger)
    assert not ledger.work_left
    assert ledger.planned_lumis == 0
    return ledger


def outputs(request: Request) -> dict[Lumi, int]:
    """Events by (run, lumi) of every output dataset, which must all be the same."""
    made: list[dict[Lumi, int]] = []
    for dataset in request.workflow.output_datasets.all():
        counts: dict[Lumi, int] = {}
        for file in OutputFile.objects.filter(dataset=dataset):
            for run, pairs in file.lumis.items():
                for lumi, events in pairs:
                    counts[int(run), lumi] = counts.get((int(run), lumi), 0) + events
        made.append(counts)
    assert all(counts == made[0] for counts in made)
    return made[0]


def test_a_masked_lumi_based_request_over_a_growing_dataset_completes(ready: None, tmp_path: Path) -> None:
    dataset = InputDataset(tmp_path)
    dataset.add_block(
        SourceFile([(1, n) for n in range(1, 6)], FNAL),
        SourceFile([(1, n) for n in range(5, 9)], FNAL, first_event=101),  # lumi 5 lies in both
        SourceFile([(1, 30), (1, 31)], FNAL, first_event=201),  # nothing of it is wanted
    )
    dataset.add_block(SourceFile([(1, 9), (2, 1), (2, 2)], CERN, first_event=301))
    mask = {"1": [[2, 6], [8, 10]], "2": [[1, 1], [3, 9]]}
    request = lumi_request(
        dataset, SplittingAlgo="LumiBased", LumisPerJob=3, LumiList=mask, RunBlacklist=[7], OpenRunningTimeout=20
    )
    with worker(WMS2_INPUT_REREAD_SECONDS="2", jobs_per_work_unit=1) as running:
        running.wait(lambda: status(request) == RequestStatus.ACTIVE or ended(request), seconds=120)
        dataset.add_block(SourceFile([(2, n) for n in range(2, 6)], PURDUE, first_event=401))  # 3 to 5 are wanted
        running.wait(lambda: ended(request), seconds=420)
    assert_completed(request)
    ledger = closed_ledger(request)
    wanted = [(1, n) for n in (2, 3, 4, 5, 6, 8, 9)] + [(2, n) for n in (1, 3, 4, 5)]
    assert (ledger.all_lumis, ledger.done_lumis) == (11, 11), ledger.summary()
    assert outputs(request) == {lumi: EVENTS_PER_LUMI * (2 if lumi == (1, 5) else 1) for lumi in wanted}
    assert DAG.objects.filter(workflow__request=request).count() == 2, "one round for what was there, one for what came"
    assert request.workflow.input_closed_at is not None


@pytest.mark.deep("tests/pool/test_lumi_requests.py::test_a_masked_lumi_based_request_over_a_growing_dataset_completes")
def test_an_event_aware_request_with_parents_runs_where_both_are(ready: None, tmp_path: Path) -> None:
    parents, dataset = InputDataset(tmp_path), InputDataset(tmp_path, tier="RECO")
    at_fnal = parents.add_block(SourceFile([(1, n) for n in range(1, 9)], FNAL))
    at_cern = parents.add_block(SourceFile([(1, n) for n in range(9, 13)], CERN, first_event=101))
    dataset.add_block(
        SourceFile([(1, n) for n in range(1, 5)], FNAL, parents=tuple(at_fnal)),
        SourceFile([(1, n) for n in range(5, 9)], FNAL, first_event=21, parents=tuple(at_fnal)),
        SourceFile([(1, n) for n in range(9, 11)], FNAL, first_event=101, parents=tuple(at_cern)),  # apart from its parents
        SourceFile([(1, 20)], FNAL, events_per_lumi=0, parents=tuple(at_fnal)),  # a lumi without events
    )
    dataset.add_block(SourceFile([(1, 11), (1, 12)], CERN, first_event=111, parents=tuple(at_cern)))
    request = lumi_request(dataset, SplittingAlgo="EventAwareLumiBased", EventsPerJob=15, IncludeParents=True)
    with worker() as running:
        running.wait(lambda: "waits for a site of 1 input file" in waiting_for(request), seconds=300)
        apart = InputFile.objects.get(workflow=request.workflow, waiting_since__isnull=False)
        request_hold(request=request, actor="olga", reason="it is not going to move")
        request_release(request=request, actor="olga", reason="not needed", changes=Changes(excluded_files=(apart.lfn,)))
        running.wait(lambda: ended(request), seconds=120)
    assert_completed(request)
    ledger = closed_ledger(request)
    assert ledger.summary() == "11 lumis done, 0 planned, 0 attempted, 2 excluded, 0 left of 13"
    made = outputs(request)
    assert made == {(1, n): EVENTS_PER_LUMI for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12)} | {(1, 20): 0}
    assert "no site has both the file and its parents" in apart.waiting_reason
    assert InputFile.objects.get(workflow=request.workflow, excluded_at__isnull=False).lfn == apart.lfn
    (dag,) = DAG.objects.filter(workflow__request=request)
    jobs = [job for unit in Path(dag.submit_dir).glob("mg_*/unit.json") for job in json.loads(unit.read_text())["jobs"]]
    assert {tuple(file["parents"]) for job in jobs for file in job["files"]} == {tuple(at_fnal), tuple(at_cern)}
