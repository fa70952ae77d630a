"""Storage checks, with the real payload: what a storage says is wrong is a case, what it does not say is asked again."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from django.utils import timezone

from dags_app.models import SiteJob, SiteJobPurpose, SiteJobState
from dags_app.payload.contract.site_tasks import SiteResult
from dags_app.services import site_jobs
from outputs_app.checks.cases import case_decide
from outputs_app.checks.validation import process, validation_again, validation_process
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    CaseAction,
    CaseState,
    Effect,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    StorageCheck,
)
from requests_app.lifecycle import storage_checks
from requests_app.lifecycle.storage_checks import storage_checks_run
from requests_app.models import Request, RequestStatus
from sites_app.models import Site, SiteRse
from tests.support.calls import overdue
from tests.support.payload_workbench import write_sites
from tests.support.rows import new_block, schedd_row
from tests.support.site_jobs import SiteSchedd
from wms2.models import Wake

pytestmark = pytest.mark.django_db
CERN, FNAL, FNAL_RSE = "T2_CH_CERN", "T1_US_FNAL", "T1_US_FNAL_Disk"
BYTES = b"0123456789"
P = FindingKind


class Killed(BaseException):
    """As kill -9 does, nothing after it runs."""


class Place:
    """Two sites, whose storage is below ``root``, and a schedd that runs jobs at once."""

    def __init__(self, root: Path) -> None:
        self.root, self.schedd = root, SiteSchedd(root)
        write_sites(root)

    def path(self, file: OutputFile) -> Path:
        return Path(f"{self.root}/storage/{file.rse}{file.lfn}")

    def block(self, files: int = 4, rse: str = CERN) -> ProcessingBlock:
        """A block whose files are there; rows of its validation, whose catalogues are fine."""
        block = new_block(units=files, done=files, status=BlockStatus.ARCHIVED, no_tape="test", sealed_at=timezone.now())
        block.files.update(rse=rse, size_bytes=len(BYTES), adler32=f"{zlib.adler32(BYTES):08x}")
        for file in block.files.all():
            self.path(file).parent.mkdir(parents=True, exist_ok=True)
            self.path(file).write_bytes(BYTES)
        processed(block)
        BlockValidation.objects.filter(block=block).update(catalogues_at=timezone.now())
        return block


def processed(block: ProcessingBlock) -> process.ValidationProgress:
    return validation_process(workflow_id=block.workflow_id, request_id=block.workflow.request.pk, request_epoch=1)


def settings(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    changed = site_jobs.conf().model_copy(update=values)
    for module in (storage_checks, site_jobs, process):
        monkeypatch.setattr(module, "conf", lambda: changed)


@pytest.fixture(name="place")
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    schedd_row()
    monkeypatch.setattr(site_jobs.factory, "htcondor", place.schedd)
    settings(monkeypatch, submit_root=tmp_path / "submit", storage_checks_enabled=True, storage_checksum_fraction=1.0)
    for site, rse in ((CERN, CERN), (FNAL, FNAL_RSE)):
        SiteRse.objects.create(site=Site.objects.create(name=site), rse=rse, seen_at=timezone.now())
    return place


def looked(times: int = 2) -> None:
    """Begun and submitted, then ended and read."""
    for _ in range(times):
        storage_checks_run()


def cases() -> dict[str, str]:
    return dict(IntegrityCase.objects.values_list("name", "prognosis"))


def test_files_that_are_there_and_right_validate_their_block(place: Place) -> None:
    block = place.block()
    assert processed(block).waiting_for == f"the storage of {CERN} to be compared with 4 files"
    Wake.objects.all().delete()
    looked()
    check = StorageCheck.objects.get()
    assert (check.site, check.files, check.looked_at, check.checksums, check.problem) == (CERN, 4, 4, 4, "")
    assert Wake.objects.filter(request_id=block.workflow.request.pk).exists()
    assert (processed(block).validated, cases()) == (1, {})
    job = SiteJob.objects.get()
    assert (job.purpose, job.state, job.items, job.result["looked_at"]) == (SiteJobPurpose.LIST, SiteJobState.DONE, 4, 4)


def test_everything_that_is_wrong_there_is_a_case(place: Place) -> None:
    block = place.block()
    missing, short, other, _ = block.files.order_by("pk")
    place.path(missing).unlink()
    place.path(short).write_bytes(BYTES[:-1])
    place.path(other).write_bytes(b"0123456780")
    looked()
    assert cases() == {missing.lfn: P.MISSING_REPLICA, short.lfn: P.SIZE_MISMATCH, other.lfn: P.CHECKSUM_MISMATCH}
    case = IntegrityCase.objects.get(name=short.lfn)
    assert (case.site, case.rse, case.evidence[0]["expected"], case.evidence[0]["found"]) == (
        CERN, CERN, "10 bytes", f"9 bytes at {CERN}"
    )  # fmt: skip
    assert (processed(block).validated, processed(block).open_cases) == (0, 3)


def test_an_answer_of_one_block_that_cannot_be_written_down_keeps_no_other_of_the_site(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.block()
    place.block()
    read = site_jobs.read_result

    def garbled(directory: Path) -> SiteResult:
        result = read(directory)
        bad, *others = result.listings
        return replace(result, listings=(bad._replace(checksums=10**12), *others))

    monkeypatch.setattr(site_jobs, "read_result", garbled)
    for check in StorageCheck.objects.all():
        place.path(check.validation.block.files.first()).unlink()
    looked()
    bad, good = StorageCheck.objects.order_by("pk")
    assert (bad.done_at, bad.job, bad.tries, "out of range" in bad.problem) == (None, None, 1, True), bad.problem
    assert good.done_at is not None and len(cases()) == 1
    assert SiteJob.objects.get().state == SiteJobState.DONE


def test_of_the_others_only_sizes_are_compared_unless_every_checksum_is_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, submit_root=place.root / "submit", storage_checks_enabled=True, storage_checksum_fraction=0.0)
    block = place.block()
    place.path(block.files.get(lfn__endswith="/0.root")).write_bytes(b"0123456780")
    looked()
    assert processed(block).validated == 1
    validation_again([block.pk], every_checksum=True)
    BlockValidation.objects.update(catalogues_at=timezone.now())
    looked()
    assert list(cases().values()) == [P.CHECKSUM_MISMATCH]


def test_a_storage_that_is_away_is_asked_again_and_is_no_finding(place: Place) -> None:
    block = place.block()
    (place.root / "storage" / CERN).rename(place.root / "away")
    (place.root / "storage" / CERN).mkdir()
    looked()
    check = StorageCheck.objects.get()
    assert (cases(), check.done_at, check.looked_at, check.tries) == ({}, None, 0, 1)
    assert "it may be away" in processed(block).waiting_for
    looked()
    assert SiteJob.objects.count() == 1, "not before the pause is over"
    first_pause = check.next_try_at - timezone.now()
    StorageCheck.objects.update(next_try_at=overdue())
    looked()
    assert StorageCheck.objects.get().next_try_at - timezone.now() > first_pause
    (place.root / "storage" / CERN).rmdir()
    (place.root / "away").rename(place.root / "storage" / CERN)
    StorageCheck.objects.update(next_try_at=overdue())
    looked()
    assert processed(block).validated == 1


def test_many_files_are_looked_at_in_portions_by_one_job_after_the_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_checks, "PORTION", 3)
    one, two = place.block(files=5), place.block(files=2)
    looked(times=1)
    assert SiteJob.objects.get().items == 3, "one job at a site"
    looked(times=3)  # a pass that ends a job begins the next
    assert list(StorageCheck.objects.order_by("id").values_list("looked_at", "files")) == [(5, 5), (2, 2)]
    assert (processed(one).validated, processed(two).validated, SiteJob.objects.count()) == (1, 1, 3)


def test_killed_in_the_middle_of_a_portion_everything_is_looked_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the submission, and after the job has ended; then another looks."""
    monkeypatch.setattr(storage_checks, "PORTION", 3)
    block = place.block(files=5)
    for point in ("site_job.called", "site_job.recorded"):
        with monkeypatch.context() as dying, pytest.raises(Killed):

            def kill(at: str, point: str = point) -> None:
                if at == point:
                    raise Killed

            dying.setattr(site_jobs, "crash_point", kill)
            looked()
    looked(times=3)
    assert (StorageCheck.objects.get().looked_at, SiteJob.objects.count()) == (5, 2)
    assert processed(block).validated == 1


def test_a_job_that_ends_without_a_result_has_said_nothing(place: Place) -> None:
    block = place.block()
    shutil.rmtree(place.root / "siteconf" / CERN)
    looked()
    check = StorageCheck.objects.get()
    assert (check.job, check.looked_at, check.tries, cases()) == (None, 0, 1, {})
    assert check.problem and check.problem in processed(block).waiting_for


def asked_of_catalogues() -> str:
    return str(Effect.objects.order_by("-id").values_list("key", flat=True)[0]).rpartition(":")[2]


def test_what_is_repaired_of_a_completed_request_is_looked_at_before_its_case_ends_and_its_block_counts(place: Place) -> None:
    block = place.block()
    Request.objects.update(status=RequestStatus.COMPLETED)
    file = block.files.get(lfn__endswith="/0.root")
    place.path(file).unlink()
    looked()
    for generation, repaired in (("2", False), ("3", True)):
        case = IntegrityCase.objects.get(state=CaseState.NEW)
        case_decide(case=case, action=CaseAction.RECOVERED, actor="olga", reason="copied back")
        looked(times=1)
        assert (IntegrityCase.objects.get().state, asked_of_catalogues()) == (CaseState.IN_PROGRESS, generation)
        assert BlockValidation.objects.get().validated_at is None
        if repaired:
            place.path(file).write_bytes(BYTES)
        looked(times=3)
        assert BlockValidation.objects.get().validated_at is None, "the catalogues have said nothing yet"
        BlockValidation.objects.update(catalogues_at=timezone.now())
        looked(times=1)
    assert (IntegrityCase.objects.get().state, processed(block).validated) == (CaseState.RESOLVED, 1)


def test_what_has_changed_while_it_was_looked_at_is_asked_for_again_of_a_request_at_its_end_too(place: Place) -> None:
    block = place.block()
    Request.objects.update(status=RequestStatus.COMPLETED)
    validation_again([block.pk])
    looked(times=1)
    assert asked_of_catalogues() == "2"
    validation_again([block.pk])
    Request.objects.update(status=RequestStatus.ARCHIVED)
    looked(times=1)
    assert asked_of_catalogues() == "2", "nothing is asked of what is archived"
    Request.objects.update(status=RequestStatus.ABORTED)
    looked(times=1)
    assert asked_of_catalogues() == "3"


def test_what_an_operator_switches_off_is_not_waited_for_and_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    block, waiting = place.block(), place.block(rse=FNAL_RSE)
    settings(monkeypatch, submit_root=place.root / "submit", storage_checks_enabled=True, storage_check_off_sites=(CERN,))
    looked()
    assert "storage checks are off" in StorageCheck.objects.get(site=CERN).problem
    assert (processed(block).validated, processed(waiting).validated, SiteJob.objects.count()) == (1, 1, 1)
    validation_again([block.pk])
    assert BlockValidation.objects.get(block=block).evidence["not_looked_at"] == {CERN: f"no site of it may be used: {CERN}"}


def test_files_that_no_source_rule_keeps_any_more_are_told_as_not_looked_at(place: Place) -> None:
    block = place.block()
    ended = block.files.order_by("pk")[:3]
    for file in ended:
        place.path(file).unlink()
    OutputFile.objects.filter(pk__in=[file.pk for file in ended]).update(rule_id="")
    looked()
    assert (cases(), StorageCheck.objects.get().checksums) == ({}, 1), "what no rule keeps may be gone"
    validation_again([block.pk], every_checksum=True)
    assert BlockValidation.objects.get().evidence["not_looked_at"] == {CERN: "no source rule keeps 3 files there any more"}
    assert StorageCheck.objects.get().files == 1
    block.files.update(rule_id="")
    validation_again([block.pk], every_checksum=True)
    assert BlockValidation.objects.get().evidence["not_looked_at"] == {CERN: "no source rule keeps 4 files there any more"}
    assert not StorageCheck.objects.exists()


def test_an_answer_of_before_it_was_asked_for_again_does_not_count(place: Place) -> None:
    block = place.block()
    looked(times=1)
    validation_again([block.pk])
    place.path(block.files.first()).unlink()  # type: ignore[arg-type]
    looked(times=1)
    assert (cases(), StorageCheck.objects.get().looked_at) == ({}, 0)
    looked()
    assert list(cases().values()) == [P.MISSING_REPLICA]


def test_what_its_rule_keeps_no_more_is_not_missed(place: Place) -> None:
    """Its source rule may end, and Rucio remove it, between the asking and the looking."""
    block = place.block()
    released = block.files.order_by("pk")[0]
    OutputFile.objects.filter(pk=released.pk).update(rule_id="")
    place.path(released).unlink()
    looked()
    assert cases() == {}
    assert processed(block).validated == 1
