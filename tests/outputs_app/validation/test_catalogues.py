"""Blocks are validated against the real Rucio and DBS: what is wrong is a case, what was told by WMS2 itself proves nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from outputs_app.checks.validation import (
    ValidationProgress,
    catalogues,
    events_in_catalogue,
    validation_again,
    validation_process,
)
from outputs_app.effects import time_slices
from outputs_app.effects.executor import effects_run_due
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    CaseAction,
    CaseState,
    Effect,
    EffectKind,
    EffectState,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from sites_app.models import Site, SiteRse
from tests.support.adapters import adapters_forget
from tests.support.calls import overdue
from tests.support.registered import DISK, made_block, run_effects
from tests.support.rucio import SCOPE, did
from tests.support.scripted.later_keys import KEY, VALUE
from wms2.adapters import factory
from wms2.adapters.dbs_queries import DbsQueries
from wms2.errors import ServiceUnavailable

pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.xdist_group("rules in Rucio")]
P = FindingKind


@pytest.fixture(name="block")
def _block() -> Iterator[ProcessingBlock]:
    """A block of three files in two units that is registered and protected everywhere."""
    adapters_forget()
    catalogues.known_rules.cache_clear()
    SiteRse.objects.create(site=Site.objects.create(name=DISK), rse=DISK, seen_at=timezone.now())
    yield made_block()
    adapters_forget()


def processed(block: ProcessingBlock) -> ValidationProgress:
    request = block.workflow.request
    return validation_process(workflow_id=block.workflow_id, request_id=request.pk, request_epoch=request.epoch)


def validated(block: ProcessingBlock) -> ValidationProgress:
    """How it stands after everything was asked."""
    processed(block)
    run_effects()
    return processed(block)


def cases() -> set[tuple[str, str]]:
    return set(IntegrityCase.objects.values_list("prognosis", "name"))


def lfns(block: ProcessingBlock) -> list[str]:
    return list(OutputFile.objects.filter(block=block).order_by("id").values_list("lfn", flat=True))


def test_a_block_that_is_right_everywhere_is_validated_with_evidence(block: ProcessingBlock) -> None:
    for file in OutputFile.objects.all():
        OutputFile.objects.filter(pk=file.pk).update(lumis=file.lumis | {KEY: VALUE})
    before = processed(block)
    assert (before.validated, before.waiting_for) == (0, "DBS and Rucio of 1 block")
    assert events_in_catalogue(block.workflow_id) == {}
    assert validated(block) == ValidationProgress(1, 1, 3, 3, 0, "")
    row = BlockValidation.objects.get()
    assert (row.files, row.events, row.validated_at is not None) == (3, 30, True)
    assert {name: row.evidence[name]["findings"] for name in ("dbs", "rucio", "lumis")} == {"dbs": 0, "rucio": 0, "lumis": 0}
    assert row.evidence["dbs"]["at"] and row.evidence["not_looked_at"] == {DISK: "storage_checks_enabled is off"}
    assert events_in_catalogue(block.workflow_id) == {block.dataset_name: (3, 30)}
    asked = Effect.objects.filter(kind=EffectKind.BLOCK_VALIDATE)
    processed(block)
    assert asked.count() == 1, "asked once"


def test_what_is_wrong_in_dbs_is_a_case_for_each_file(block: ProcessingBlock) -> None:
    first, second, third = lfns(block)
    factory.dbs().invalidate_files([first])
    OutputFile.objects.filter(lfn=second).update(lumis={"1": [[77, 10]]})
    OutputFile.objects.filter(lfn=third).update(lfn=f"{third}.new")
    progress = validated(block)
    assert (progress.validated, progress.open_cases) == (0, 4)
    assert progress.waiting_for == "4 integrity cases to be decided"
    assert cases() == {
        (P.CATALOGUE_DIFFERS, first),
        (P.CATALOGUE_DIFFERS, second),
        (P.NOT_IN_CATALOGUE, f"{third}.new"),
        (P.UNKNOWN_FILE, third),
    }
    case = IntegrityCase.objects.get(name=second)
    assert (case.request, case.block, case.file.lfn, case.rse, case.site) == (block.workflow.request, block, second, DISK, DISK)
    assert case.evidence[0]["found"] == "1 lumis; without 1:77; with 1:2"
    assert events_in_catalogue(block.workflow_id) == {}


def test_what_is_wrong_in_rucio_is_a_case_for_each_file(block: ProcessingBlock, admin: Any) -> None:
    first, second, third = lfns(block)
    admin.declare_bad_file_replicas([{"scope": SCOPE, "name": first, "rse": DISK}], "for a test")
    admin.delete_replication_rule(OutputFile.objects.get(lfn=second).rule_id)
    admin.set_status(SCOPE, block.dbs_block_name, open=True)
    admin.detach_dids(SCOPE, block.dbs_block_name, [did(third)])
    admin.set_status(SCOPE, block.dbs_block_name, open=False)
    validated(block)
    assert cases() >= {(P.MISSING_REPLICA, first), (P.UNPROTECTED, second), (P.NOT_IN_CATALOGUE, third)}


def test_events_and_parents_are_compared_too(block: ProcessingBlock) -> None:
    first, second, _ = lfns(block)
    files = OutputFile.objects.order_by("id")
    files.filter(lfn=first).update(events=0)
    files.filter(lfn=second).update(parents=["/store/data/nobody/knows.root"])
    validated(block)
    assert cases() == {
        (P.CATALOGUE_DIFFERS, first),  # DBS has events: worse than that there are none
        (P.CATALOGUE_DIFFERS, second),  # DBS knows of no parent
    }
    reported = {each["prognosis"] for each in IntegrityCase.objects.get(name=second).evidence}
    assert reported == {P.PARENT_MISSING, P.CATALOGUE_DIFFERS}
    assert {each["prognosis"] for each in IntegrityCase.objects.get(name=first).evidence} == {P.ZERO_EVENTS, P.CATALOGUE_DIFFERS}


def test_a_file_made_from_one_that_was_taken_back_is_a_case(block: ProcessingBlock) -> None:
    first, second, _ = lfns(block)
    OutputFile.objects.filter(lfn=first).update(validity=Validity.INVALID)
    factory.dbs().invalidate_files([first])
    OutputFile.objects.filter(lfn=second).update(parents=[first])
    validated(block)
    assert {each["prognosis"] for each in IntegrityCase.objects.get(name=second).evidence} >= {P.PARENT_MISSING}
    assert not IntegrityCase.objects.filter(name=first).exists(), "nobody wants it any more"


def test_a_file_that_was_taken_back_and_is_valid_in_dbs_is_a_case(block: ProcessingBlock) -> None:
    first = lfns(block)[0]
    OutputFile.objects.filter(lfn=first).update(validity=Validity.INVALID)
    validated(block)
    assert cases() == {(P.CATALOGUE_DIFFERS, first)}


def test_a_lumi_that_is_there_twice_is_a_case_of_the_younger_file(block: ProcessingBlock) -> None:
    """In another block of the same dataset, whichever of the blocks is validated first."""
    other = made_block()  # of another dataset, with the same lumis
    twice = OutputFile.objects.filter(block=other).order_by("id")
    assert validated(block).validated == 1
    ProcessingBlock.objects.filter(pk=other.pk).update(
        dataset_name=block.dataset_name, workflow=block.workflow, dataset=block.dataset, block_index=1
    )
    catalogues.spans_in_dbs.cache_clear()
    processed(block)
    request = block.workflow.request
    Effect.objects.filter(block=other).exclude(kind=EffectKind.BLOCK_VALIDATE).update(request=request)
    validation_again([block.pk])
    validated(block)
    assert IntegrityCase.objects.filter(block=block).count() == 0
    found = IntegrityCase.objects.filter(block=other, evidence__contains=[{"prognosis": P.DUPLICATE_LUMI}])
    assert set(found.values_list("name", flat=True)) == set(twice.values_list("lfn", flat=True))
    assert lfns(block)[0] in str(found.order_by("id")[0].evidence)


def with_the_same_lumis(block: ProcessingBlock) -> ProcessingBlock:
    """Another request's, in the same dataset; which is refused but while the block's files are not valid."""
    files = OutputFile.objects.filter(block=block)
    files.update(validity=Validity.INVALID)
    other = made_block(name=block.dataset_name.split("/")[1].removeprefix("Primary"))
    files.update(validity=Validity.VALID)
    return other


def test_a_lumi_that_is_there_in_a_block_that_was_never_validated_is_a_case(block: ProcessingBlock) -> None:
    """Its request was completed before blocks were validated, or has ended before its work was done."""
    former = with_the_same_lumis(block)
    assert former.dataset_name == block.dataset_name
    validated(block)
    assert cases() == {(P.DUPLICATE_LUMI, lfn) for lfn in lfns(block)}
    assert BlockValidation.objects.get().evidence["lumis"]["compared"] == 1
    IntegrityCase.objects.all().delete()
    OutputFile.objects.filter(block=former).update(validity=Validity.INVALID)
    validation_again([block.pk])
    validated(block)
    assert cases() == {(P.DUPLICATE_LUMI, lfn) for lfn in lfns(block)}, "DBS shows them, whatever became of their request"
    IntegrityCase.objects.all().delete()
    factory.dbs().invalidate_files(lfns(former))
    validation_again([block.pk])
    assert validated(block).validated == 1, "those were taken back"


def reads(block: ProcessingBlock, algorithm: str, parents: dict[str, str], held: dict[str, dict[str, list[list[int]]]]) -> None:
    """The request has input, split like that; which of it each output file names as parent."""
    workflow = block.workflow
    workflow.spec = {
        **workflow.spec,
        "generation": None,
        "splitting": {**workflow.spec.get("splitting", {}), "algorithm": algorithm},
    }
    workflow.save()
    for name, lumis in held.items():
        workflow.input_files.create(lfn=name, block_name=f"/In/Era-v1/RAW#{name[-1]}", size_bytes=1, events=40, lumis=lumis)
    for lfn, parent in parents.items():
        OutputFile.objects.filter(lfn=lfn).update(parents=[parent])
    block.refresh_from_db()


@pytest.mark.parametrize("algorithm", ["FileBased", "EventBased"])
@pytest.mark.parametrize("same", [True, False])
def test_lumis_of_work_that_is_not_by_lumi_are_compared_by_parents(block: ProcessingBlock, algorithm: str, same: bool) -> None:
    """With another request's block in the dataset: two input files hold the lumis, and both were read, or one twice."""
    former, held = with_the_same_lumis(block), {"1": [[1, 20]]}
    first, second = "/store/data/input/a", "/store/data/input/b"
    mine, theirs = dict.fromkeys(lfns(block), first), dict.fromkeys(lfns(former), first if same else second)
    reads(block, algorithm, mine | theirs, {first: held, second: held})
    validated(block)
    found = IntegrityCase.objects.filter(block=block, evidence__contains=[{"prognosis": P.DUPLICATE_LUMI}])
    assert set(found.values_list("name", flat=True)) == (set(mine) if same else set())


@pytest.mark.parametrize("shared", [True, False])
def test_in_a_file_of_nobody_known_a_lumi_that_one_input_file_has_is_there_twice(block: ProcessingBlock, shared: bool) -> None:
    stranger = f"{block.dataset_name}#{uuid.uuid4()}"
    OutputFile.objects.filter(block=block).exclude(lfn=lfns(block)[0]).delete()
    factory.dbs().invalidate_files(lfns(block)[1:])
    first, second = "/store/data/input/a", "/store/data/input/b"
    held = {first: {"1": [[1, 20]]}, second: {"1": [[1, 20]] if shared else [[30, 40]]}}
    reads(block, "FileBased", {lfns(block)[0]: first}, held)
    ProcessingBlock.objects.filter(pk=block.pk).update(dbs_block_name=stranger)
    validated(block)
    reported = {each["prognosis"] for each in IntegrityCase.objects.get(name=lfns(block)[0]).evidence}
    assert (P.DUPLICATE_LUMI in reported) is not shared


@pytest.mark.parametrize("as_many", [True, False])
def test_a_lumi_that_is_there_in_a_file_that_our_rows_do_not_know_is_a_case(block: ProcessingBlock, as_many: bool) -> None:
    """Of a block that they know, and in which DBS may have as many files as they do."""
    former = with_the_same_lumis(block)
    unknown = lfns(former)[1]
    factory.dbs().invalidate_files(sorted({*lfns(former)} - {unknown}))
    OutputFile.objects.filter(block=former).update(validity=Validity.INVALID)
    rows = OutputFile.objects.filter(block=former)
    if as_many:
        rows.filter(lfn=unknown).update(lfn=f"{unknown}.root")
        rows.update(validity=Validity.VALID, lumis={"9": [[1, 10]]})
    else:
        rows.filter(lfn=unknown).delete()
    validated(block)
    assert {prognosis for prognosis, _ in cases()} == {P.DUPLICATE_LUMI}
    assert unknown in str(IntegrityCase.objects.order_by("id")[0].evidence)


def test_of_a_block_of_the_request_that_was_given_up_the_younger_file_has_the_case(block: ProcessingBlock) -> None:
    former = with_the_same_lumis(block)
    same = {"workflow": block.workflow, "dataset": block.dataset, "block_index": 1}
    ProcessingBlock.objects.filter(pk=former.pk).update(status=BlockStatus.GIVEN_UP, **same)
    assert (validated(block).validated, cases()) == (1, set())


def test_a_lumi_that_is_there_in_a_file_of_nobody_known_is_a_case(
    block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, stranger = block.dbs_block_name, f"{block.dataset_name}#{uuid.uuid4()}"
    OutputFile.objects.filter(block=block).exclude(lfn=lfns(block)[0]).delete()
    factory.dbs().invalidate_files(lfns(block)[1:])
    ProcessingBlock.objects.filter(pk=block.pk).update(dbs_block_name=stranger)  # the one in DBS is nobody's now
    with monkeypatch.context() as while_it_was_empty:
        while_it_was_empty.setattr(DbsQueries, "file_lumis", lambda *_: [])
        while_it_was_empty.setattr(DbsQueries, "blocks", lambda *_: [SimpleNamespace(block_name=old, file_count=0)])
        validated(block)
    validation_again([block.pk])
    validated(block)
    case = IntegrityCase.objects.get(name=lfns(block)[0])
    assert P.DUPLICATE_LUMI in {each["prognosis"] for each in case.evidence}


def test_what_was_accepted_with_the_same_findings_is_not_opened_again(block: ProcessingBlock) -> None:
    first = lfns(block)[0]
    factory.dbs().invalidate_files([first])
    assert validated(block).open_cases == 1
    IntegrityCase.objects.update(state=CaseState.RESOLVED, action=CaseAction.ACCEPTED)
    validation_again([block.pk])
    assert validated(block).validated == 1
    OutputFile.objects.filter(lfn=first).update(events=11)
    validation_again([block.pk])
    assert validated(block).open_cases == 1, "something else is wrong with it"


def test_what_is_being_removed_stays_decided_and_what_did_not_help_is_a_new_case(block: ProcessingBlock) -> None:
    factory.dbs().invalidate_files([lfns(block)[0]])
    validated(block)
    IntegrityCase.objects.update(state=CaseState.IN_PROGRESS, action=CaseAction.REMOVED)
    validation_again([block.pk])
    validated(block)
    assert IntegrityCase.objects.get().state == CaseState.IN_PROGRESS
    decided = {"state": CaseState.IN_PROGRESS, "action": CaseAction.RECOVERED, "acted_at": timezone.now() - timedelta(seconds=1)}
    IntegrityCase.objects.update(**decided)
    validation_again([block.pk])
    validated(block)
    assert (IntegrityCase.objects.get().state, IntegrityCase.objects.get().action) == (CaseState.NEW, "")
    IntegrityCase.objects.update(state=CaseState.RESOLVED, action=CaseAction.RECOVERED)
    validation_again([block.pk])
    assert (validated(block).open_cases, IntegrityCase.objects.count()) == (1, 2)


@pytest.mark.parametrize("changes", ["asked for again", "an effect was done"])
def test_a_look_at_what_has_changed_meanwhile_does_not_count_and_is_made_again(
    changes: str, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = catalogues.BlockComparison.lumis

    def meanwhile(self: catalogues.BlockComparison) -> catalogues.Seen:
        if changes == "asked for again":
            validation_again([block.pk])
        else:
            Effect.objects.filter(kind=EffectKind.RUCIO_TAPE).update(done_at=timezone.now())
        return look(self)

    processed(block)
    with monkeypatch.context() as patch:
        patch.setattr(catalogues.BlockComparison, "lumis", meanwhile)
        Effect.objects.update(next_attempt_at=overdue())
        effects_run_due(owner="test")
    assert BlockValidation.objects.values_list("generation", "catalogues_at").get() == (2, None)
    assert validated(block).validated == 1


def test_what_one_service_said_is_kept_while_another_does_not_answer(
    block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(self: catalogues.BlockComparison) -> catalogues.Seen:
        raise ServiceUnavailable("rucio", "blocks_held", "no answer")

    def never(self: catalogues.BlockComparison) -> catalogues.Seen:
        raise AssertionError("it has answered")

    with monkeypatch.context() as patch:
        patch.setattr(catalogues.BlockComparison, "rucio", silent)
        assert validated(block).waiting_for == "DBS and Rucio of 1 block: rucio blocks_held: no answer"
    block.refresh_from_db()
    assert block.status == "archived"
    with monkeypatch.context() as patch:
        patch.setattr(catalogues.BlockComparison, "dbs", never)
        assert validated(block).validated == 1


def test_long_looks_take_several_turns(block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", -1.0)
    processed(block)
    for done in (["dbs"], ["dbs", "rucio"], ["dbs", "lumis", "rucio"]):
        Effect.objects.update(next_attempt_at=overdue())
        effects_run_due(owner="test", limit=1)
        effect = Effect.objects.get(kind=EffectKind.BLOCK_VALIDATE)
        assert sorted(effect.result.keys() - {"stamp"}) == done
    assert effect.state == EffectState.PENDING
    assert validated(block).validated == 1
