"""Files that are lost at the storage while they are validated: removed, their lumis made again, once in each tier."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dags_app.models import SiteJob, WorkUnitClaim
from outputs_app.checks.validation import process
from outputs_app.models import CaseState, FindingKind, IntegrityCase, OutputFile, ProcessingBlock, StorageCheck, Validity
from requests_app.lifecycle import storage_checks
from requests_app.lifecycle.storage_checks import storage_checks_run
from requests_app.models import Request, RequestStatus
from requests_app.services.cases import case_remove, removal_preview
from requests_app.services.decisions import block_validate, request_validate
from requests_app.work.ledger import ledger_check, ledger_of
from tests.support.faults import fault
from tests.support.inputs import caller
from tests.support.outcomes import assert_nothing_runs, assert_one_dagman_at_a_time, imported, status, storage
from tests.support.simulators import READER, WRITER
from tests.support.stack import Worker, worker
from wms2.adapters import factory

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "the site has lost it"}
WITH_CHECKS = {
    "WMS2_STORAGE_CHECKS_ENABLED": "1", "WMS2_STORAGE_CHECKSUM_FRACTION": "1", "jobs_per_work_unit": 1,
    "generation_excess_factor": 10,
}  # fmt: skip


def path_of(file: OutputFile) -> Path:
    return storage(file.rse, file.lfn)


def until(running: Worker, reached: Callable[[], bool], seconds: float = 240) -> None:
    """With jobs at the sites begun and looked at meanwhile."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, (
            list(Request.objects.values("status", "waiting_for", "hold_reason")),
            list(StorageCheck.objects.values("site", "problem", "done_at")), list(SiteJob.objects.values("state", "problem")),
            list(IntegrityCase.objects.values("name", "prognosis", "evidence")),
        )  # fmt: skip
        storage_checks_run()
        running.wait(lambda: True, seconds=5)
        time.sleep(1)


def valid(request: Request) -> list[OutputFile]:
    return list(OutputFile.objects.filter(block__workflow__request=request, validity=Validity.VALID).order_by("id"))


def lumis(request: Request) -> dict[str, Counter[tuple[str, int]]]:
    """By tier, how often each is valid."""
    found: dict[str, Counter[tuple[str, int]]] = {}
    for file in OutputFile.objects.filter(pk__in=[file.pk for file in valid(request)]).select_related("dataset"):
        found.setdefault(file.dataset.tier, Counter()).update((run, lumi) for run, each in file.lumis.items() for lumi, _ in each)
    return found


def registered_again(file: OutputFile) -> None:
    """Somebody else tells DBS of a block in the same dataset that has a file with the same lumis."""
    tester = caller("tester")
    assert file.block is not None
    body = tester.json("GET", f"{READER}/blockdump?block_name={quote(file.block.dbs_block_name)}")
    other = f"{file.lfn.rpartition('/')[0]}/{uuid.uuid4()}.root"
    body |= {"file_parent_list": [], "block_parent_list": []}
    for part, name in (("files", "logical_file_name"), ("file_conf_list", "lfn")):
        body[part] = [each | {name: other} for each in body[part] if each[name] == file.lfn]
    body["block"] |= {
        "block_name": f"{file.dataset.name}#{uuid.uuid4()}", "file_count": 1, "block_size": file.size_bytes,
    }  # fmt: skip
    tester.json("POST", f"{WRITER}/bulkblocks", body)


def lumis_in_dbs(dataset: str) -> Counter[tuple[int, int]]:
    """How often each is in a valid file, whoever registered it."""
    outputs, found = factory.dbs().outputs, Counter[tuple[int, int]]()
    for block in outputs.blocks(dataset):
        valid = {file.lfn for file in outputs.files(block.block_name, operation="test")}
        found.update((row.run, row.lumi) for row in outputs.file_lumis(block.block_name) if row.lfn in valid)
    return found


@fault(
    "output files lost after their registration",
    done="of five merged files one is removed at the storage, one gets longer, one has bits turned, one is made invalid in DBS by"
    " somebody else, of one somebody else registers the lumis again; an operator removes them",
    spec="ADR 0021",
    afterwards="each is a case; what held the same work is INVALID, it is done again: COMPLETED, each lumi once in each tier",
)
@pytest.mark.deep(
    "tests/requests_app/work/test_cutting.py::test_whatever_is_lost_every_piece_is_in_one_valid_file_of_each_output"
)
def test_what_is_lost_at_the_storage_is_removed_and_made_again_once_in_each_tier(
    ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = storage_checks.conf().model_copy(update={"storage_checks_enabled": True, "storage_checksum_fraction": 1.0})
    for module in (storage_checks, process):
        monkeypatch.setattr(module, "conf", lambda: checking)
    request = imported(events=120, per_job=20, steps=3)
    with worker(**WITH_CHECKS) as running:
        running.wait(lambda: status(request) in (S.VALIDATING_OUTPUTS, S.HELD), seconds=300)
        assert status(request) == S.VALIDATING_OUTPUTS
        files = valid(request)
        units = sorted({file.unit_id for file in files})
        tiers = {file.dataset_id for file in files}
        assert (len(units), len(tiers)) == (6, 2)
        gone, short, bent, foreign, twice = (next(file for file in files if file.unit_id == unit) for unit in units[:5])
        factory.dbs().invalidate_files([foreign.lfn])
        registered_again(twice)
        request_validate(request=request, actor="olga", reason="somebody was at DBS")
        running.wait(lambda: IntegrityCase.objects.count() > 1 and status(request) == S.WAITING_INTEGRITY, seconds=120)
        cases = list(IntegrityCase.objects.all())
        assert {case.name: case.prognosis for case in cases} == {
            foreign.lfn: FindingKind.CATALOGUE_DIFFERS, twice.lfn: FindingKind.DUPLICATE_LUMI
        }  # fmt: skip
        path_of(gone).unlink()
        with path_of(short).open("ab") as file:
            file.write(b"more")
        content = bytearray(path_of(bent).read_bytes())
        content[len(content) // 2] ^= 0xFF
        path_of(bent).write_bytes(content)
        before, sealed = lumis(request), set(ProcessingBlock.objects.values_list("pk", flat=True))
        for case in cases:
            case_remove(case=case, **BY)
        for file in (gone, short, bent):
            assert file.block is not None
            block_validate(block=file.block, every_checksum=True, **BY)
        until(
            running,
            lambda: (
                IntegrityCase.objects.filter(state=CaseState.NEW).count() == 3
                and not StorageCheck.objects.filter(done_at=None).exists()
            ),
        )
        found = {case.name: case.prognosis for case in IntegrityCase.objects.filter(state=CaseState.NEW)}
        assert found == {
            gone.lfn: FindingKind.MISSING_REPLICA, short.lfn: FindingKind.SIZE_MISMATCH, bent.lfn: FindingKind.CHECKSUM_MISMATCH
        }  # fmt: skip
        running.wait(lambda: status(request) == S.WAITING_INTEGRITY, seconds=60)
        reported = removal_preview(list(IntegrityCase.objects.filter(state=CaseState.NEW)))
        assert all("2 files INVALID" in lines[0] for lines in reported.values()), reported
        for case in IntegrityCase.objects.filter(state=CaseState.NEW):
            case_remove(case=case, **BY)
        until(running, lambda: status(request) in (S.COMPLETED, S.HELD), seconds=400)
    request.refresh_from_db()
    assert status(request) == S.COMPLETED, (request.hold_reason, request.waiting_for)
    assert_nothing_runs(request)
    assert_one_dagman_at_a_time(request)
    removed = OutputFile.objects.filter(validity=Validity.INVALID)
    assert {file.unit_id for file in removed} == set(units[:5])
    assert removed.count() == 10
    assert set(IntegrityCase.objects.values_list("state", flat=True)) == {CaseState.REMOVED}
    assert set(WorkUnitClaim.objects.filter(live=False).values_list("unit_id", flat=True)) == set(units[:5])
    ledger = ledger_of(request.workflow)
    ledger_check(ledger)
    assert (ledger.done_events, ledger.lost_events) == (120, 100)
    after = lumis(request)
    assert len(after) == 2
    (one, other) = after.values()
    assert one == other
    assert max(one.values()) == 1
    assert len(one) == len(next(iter(before.values())))
    assert not set(valid(request)) & set(removed)
    assert OutputFile.objects.filter(validity=Validity.VALID).exclude(block__in=sealed).count() == 10
    for block in ProcessingBlock.objects.all():
        ours = {file.lfn for file in valid(request) if file.block_id == block.pk}
        assert {file.lfn for file in factory.dbs().block_files(block.dbs_block_name) if file.is_valid} == ours
        (held,) = factory.rucio().blocks_held({block.dbs_block_name: []}).values()
        assert held.files.keys() == ours
    assert set(lumis_in_dbs(twice.dataset.name).values()) == {1}, "with those that somebody else has registered"
