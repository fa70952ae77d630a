"""Registered files compared with two storages by jobs at their sites: a file system that is mounted, and a server behind root://."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.models import SiteJob, SiteJobPurpose, SiteJobState, WorkUnit
from outputs_app.models import BlockValidation, FindingKind, IntegrityCase, OutputFile, StorageCheck
from requests_app.models import RequestStatus
from requests_app.services import request_validate
from tests.support.faults import fault
from tests.support.outcomes import ended, imported, status
from tests.support.stack import small_request, worker
from tests.support.xrootd import of_the_stack
from wms2.conf import conf

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
SERVER_SITE = "T2_DE_DESY"


@fault(
    "output files damaged after their validation",
    done="at a mounted storage and at one over root:// a file is removed, one cut, one has bits turned; all is validated again",
    spec="ADR 0019",
    afterwards="each is a case of its kind, no other file is one, and their blocks are not validated",
)
@pytest.mark.deep("tests/requests_app/lifecycle/test_storage_checks.py::test_everything_that_is_wrong_there_is_a_case")
def test_what_is_missing_or_damaged_is_found_at_once_by_either_way(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_STORAGE_CHECKS_ENABLED", "1")
    monkeypatch.setenv("WMS2_STORAGE_CHECKSUM_FRACTION", "0")
    conf.cache_clear()
    requests = []
    for sites in (["T2_CH_CERN"], [SERVER_SITE]):
        document = small_request(events=60)
        document["assignRequest"]["SiteWhitelist"] = sites
        requests.append(imported(document))
    with worker(jobs_per_work_unit=1) as running:
        running.wait(lambda: all(ended(request) for request in requests), seconds=420)
        assert {status(request) for request in requests} == {RequestStatus.COMPLETED}
        files = OutputFile.objects.order_by("pk")
        assert not BlockValidation.objects.filter(validated_at=None).exists(), "all of it was right"
        assert sum(StorageCheck.objects.values_list("looked_at", flat=True)) == files.count()

        expected: dict[str, str] = {}
        for request in requests:
            for file, wrong in zip(files.filter(block__workflow__request=request), KINDS, strict=False):
                damage(path_of(file), wrong)
                expected[file.lfn] = wrong
            request_validate(request=request, every_checksum=True, actor="tester", reason="damage")
        running.wait(lambda: not StorageCheck.objects.filter(done_at=None).exists(), seconds=240)
    assert len(expected) == 2 * len(KINDS)
    assert dict(IntegrityCase.objects.values_list("name", "prognosis")) == expected
    jobs = SiteJob.objects.filter(purpose=SiteJobPurpose.LIST)
    assert set(jobs.values_list("state", flat=True)) == {SiteJobState.DONE}
    wrong_blocks = set(files.filter(lfn__in=expected).values_list("block_id", flat=True))
    assert set(BlockValidation.objects.filter(validated_at=None).values_list("pk", flat=True)) >= wrong_blocks


KINDS = (FindingKind.MISSING_REPLICA, FindingKind.SIZE_MISMATCH, FindingKind.CHECKSUM_MISMATCH)


def path_of(file: OutputFile) -> Path:
    """Where the storage keeps it; of a mounted one, as its merge job told."""
    served = Path(f"{of_the_stack().storage}{file.lfn}")
    if served.is_file():
        return served
    unit = WorkUnit.objects.select_related("dag").get(pk=file.unit_id)
    for report in (Path(unit.dag.submit_dir) / unit.name).glob("merge.*.report.json"):
        for stored in json.loads(report.read_text())["outputs"]:
            if stored["lfn"] == file.lfn:
                return Path(stored["pfn"].removeprefix("file://"))
    raise AssertionError(f"no merge has told of {file.lfn}")


def damage(path: Path, kind: FindingKind) -> None:
    """As a storage might."""
    content = bytearray(path.read_bytes())
    path.unlink()
    if kind == FindingKind.SIZE_MISMATCH:
        path.write_bytes(content[:-1])
    elif kind == FindingKind.CHECKSUM_MISMATCH:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
