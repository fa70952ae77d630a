"""An effect that an operator discards never runs, and nothing is claimed registered or protected because of it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.utils import timezone

from outputs_app.actions import _discard
from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.effects import Handler, executor
from outputs_app.models import (
    OPEN_EFFECT,
    BlockStatus,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.services import datasets_publish, effect_discard, effect_discard_refused, effect_retry_now
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.models import Request, RequestStatus, Workflow
from tests.support.cases import in_one_test
from tests.support.rows import dag_row, request_row, unit_register, unit_row, workflow_row
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.models import AuditEntry, Wake

pytestmark = pytest.mark.django_db
K, E = EffectKind, EffectState
BY = {"actor": "olga", "reason": "the site is gone"}


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    return workflow_row(request_row(RequestStatus.ACTIVE))


def whole(workflow: Workflow, *units: str, sealed: bool = True) -> ProcessingBlock:
    """A block with a file for each of these units."""
    dataset, dag = workflow.output_datasets.get(), workflow.dags.first() or dag_row(workflow)
    index = dataset.blocks.count()
    rows = [unit_row(dag, index * 100 + number) for number, _ in enumerate(units)]
    for row, lfn in zip(rows, units, strict=True):
        file = MergedFile(dataset.name, lfn, "T2_CH_CERN", 100, "0000000a", 10, {"1": ((row.pk, 10),)})
        outputs = UnitOutputs(row.pk, row.name, (file,))
        unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=outputs)
    if sealed:
        blocks_seal_all(workflow_id=workflow.pk)
        advance(workflow)
    return ProcessingBlock.objects.get(dataset=dataset, block_index=index)


def advance(workflow: Workflow) -> None:
    blocks_register_sealed(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)


def discard(kind: EffectKind, block: ProcessingBlock) -> Effect:
    effect = Effect.objects.get(kind=kind, block=block)
    effect_discard(effect=effect, **BY)
    effect.refresh_from_db()
    block.refresh_from_db()
    return effect


def states(block: ProcessingBlock) -> dict[str, str]:
    return dict(Effect.objects.filter(block=block).values_list("kind", "state"))


def done(block: ProcessingBlock, *kinds: EffectKind) -> None:
    Effect.objects.filter(block=block, kind__in=kinds).update(state=E.DONE)


@pytest.mark.parametrize("kind", [K.RUCIO_BLOCK, K.RUCIO_FILES, K.RUCIO_BLOCK_CLOSE, K.DBS_BLOCK])
def test_without_what_its_registration_rests_on_a_block_is_given_up_as_a_whole(workflow: Workflow, kind: EffectKind) -> None:
    block = whole(workflow, "/store/a.root")
    Effect.objects.filter(kind=kind).update(state=E.REFUSED, last_error="no such RSE", attempts=1)
    effect = discard(kind, block)
    assert effect.last_error == "Discarded by olga: the site is gone. Last error: no such RSE"
    assert set(states(block).values()) == {E.DISCARDED}
    assert (block.status, block.tape_rule_id, block.dbs_block_closed) == (BlockStatus.GIVEN_UP, "", False)
    assert (block.failure_context["by"], block.failure_context["reason"]) == ("olga", "the site is gone")
    assert OutputFile.objects.get().rule_id == ""
    assert not Effect.objects.filter(state__in=OPEN_EFFECT).exists()
    assert AuditEntry.objects.get(action="effect_discard").actor == "olga"
    assert Wake.objects.filter(request_id=workflow.request.pk).exists()


def test_what_was_discarded_never_runs_and_is_not_tried_again(workflow: Workflow, monkeypatch) -> None:
    called: list[str] = []

    def call(effect: Effect) -> dict[str, str]:
        called.append(effect.kind)
        return {}

    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(K.values, Handler(call, lambda effect, result: None)))
    block = whole(workflow, "/store/a.root")
    effect = discard(K.RUCIO_PROTECT, block)
    for _ in range(9):
        executor.effects_run_due(owner="test")
    assert set(called) == {K.RUCIO_BLOCK, K.RUCIO_FILES, K.RUCIO_BLOCK_CLOSE, K.DBS_BLOCK, K.RUCIO_TAPE, K.RUCIO_SOURCE_BLOCK}
    for action in (effect_retry_now, effect_discard):
        with pytest.raises(InvalidTransition, match="discarded"):
            action(effect=effect, **BY)


def test_a_block_that_is_given_up_takes_no_more_and_what_comes_is_registered_in_another(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root", sealed=False)
    discard(K.RUCIO_FILES, block)
    other = whole(workflow, "/store/b.root")
    assert other != block and other.origin_rse == block.origin_rse
    assert (block.total_work_units, other.total_work_units, other.status) == (1, 1, BlockStatus.COMPLETE)
    assert states(other)[K.DBS_BLOCK] == E.PENDING


def test_a_block_without_its_tape_rule_is_archived_and_says_so(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root")
    with pytest.raises(InvalidTransition, match="not registered yet"):
        discard(K.RUCIO_TAPE, block)
    done(block, K.RUCIO_BLOCK, K.RUCIO_FILES, K.RUCIO_BLOCK_CLOSE, K.DBS_BLOCK)
    Effect.objects.filter(kind=K.RUCIO_TAPE).update(state=E.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED)
    discard(K.RUCIO_TAPE, block)
    assert (block.status, block.tape_rule_id, block.no_tape) == (
        BlockStatus.ARCHIVED, "", "Discarded by olga: the site is gone",
    )  # fmt: skip
    assert states(block)[K.RUCIO_PROTECT] == E.PENDING, "its files are still to be protected"


def test_a_block_that_a_dead_protection_had_failed_goes_on_without_it(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root", sealed=False)
    Effect.objects.filter(kind=K.RUCIO_PROTECT).update(state=E.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED)
    discard(K.RUCIO_PROTECT, block)
    assert block.status == BlockStatus.OPEN


def test_what_runs_just_now_keeps_its_block_from_being_given_up(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root")
    Effect.objects.filter(kind=K.RUCIO_FILES).update(state=E.CLAIMED, claim_expires_at=timezone.now() + timedelta(minutes=5))
    with pytest.raises(InvalidTransition, match="runs just now"):
        discard(K.DBS_BLOCK, block)
    assert states(block)[K.DBS_BLOCK] == E.PENDING
    block.refresh_from_db()
    assert block.status == BlockStatus.COMPLETE


def test_what_belongs_to_an_older_epoch_needs_no_discard(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root")
    Request.objects.update(epoch=2)
    assert "taken back" in effect_discard_refused(Effect.objects.get(kind=K.DBS_BLOCK, block=block))


def test_children_of_a_block_that_is_given_up_are_asked_of_dbs_which_refuses_them(workflow: Workflow) -> None:
    """Nothing stands still: who made the decision hears what follows from it."""
    parent = whole(workflow, "/store/a.root")
    child = whole(workflow, "/store/b.root", sealed=False)
    OutputFile.objects.filter(block=child).update(parents=["/store/a.root"])
    discard(K.DBS_BLOCK, parent)
    blocks_seal_all(workflow_id=workflow.pk)
    advance(workflow)
    registration = Effect.objects.get(kind=K.DBS_BLOCK, block=child)
    assert not registration.depends_on.filter(block=parent).exists()
    Effect.objects.filter(block=child).exclude(kind__in=(K.DBS_BLOCK, K.RUCIO_TAPE)).update(state=E.DONE)
    assert registration in executor.due_effects()


def test_a_dataset_becomes_valid_only_with_a_registered_block_and_a_discarded_wish_holds_nobody_up(workflow: Workflow) -> None:
    block = whole(workflow, "/store/a.root")
    reported = {"request_id": workflow.request.pk, "request_epoch": 1, "workflow_id": workflow.pk}
    assert datasets_publish(**reported), "DBS knows none of its datasets"
    ProcessingBlock.objects.filter(pk=block.pk).update(dbs_block_closed=True)
    assert not datasets_publish(**reported)
    effect_discard(effect=Effect.objects.get(kind=K.DBS_VALID), **BY)
    assert datasets_publish(**reported)


def test_a_request_that_has_ended_goes_on_without_an_evaluation(workflow: Workflow) -> None:
    """Nobody evaluates it: what its discarded effect held up is asked for by the operation."""
    block = whole(workflow, "/store/a.root", sealed=False)
    Effect.objects.filter(kind=K.RUCIO_PROTECT).update(state=E.DEAD)
    ProcessingBlock.objects.update(status=BlockStatus.FAILED, sealed_at=timezone.now())
    Request.objects.update(status=RequestStatus.ABORTED)
    discard(K.RUCIO_PROTECT, block)
    assert block.status == BlockStatus.COMPLETE
    assert states(block)[K.DBS_BLOCK] == E.PENDING


@in_one_test("kind", list(K), rows=True)
def test_every_kind_says_what_is_lost_by_discarding_it(workflow: Workflow, kind: EffectKind) -> None:
    block = whole(workflow, "/store/a.root")
    effect = Effect(request=workflow.request, block=block, kind=kind, key="k", attempts=1)
    assert _discard(effect)[:2] == [
        f"{effect.get_kind_display()}: never run. The request does not wait for it.",
        "It was tried before, and may have been done all the same: look outside.",
    ]


def test_retries_are_spread_end_at_the_limit_and_follow_the_requests_own(workflow: Workflow, monkeypatch) -> None:
    def call(effect: Effect) -> dict[str, str]:
        raise ServiceUnavailable("dbs", "x", "down")

    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(K.values, Handler(call, lambda effect, result: None)))
    monkeypatch.setenv("WMS2_EFFECT_BACKOFF_SECONDS", "60,7200")
    monkeypatch.setattr(executor.random, "uniform", lambda low, high, draw=random.uniform: draw(high / 2, high))
    conf.cache_clear()
    Request.objects.update(overrides={"effect_max_retry_seconds": 3600})
    first = timezone.now() - timedelta(seconds=3000)
    reported = {"request": workflow.request, "kind": K.DBS_VALID, "attempts": 5}
    rows = [Effect.objects.create(key=f"k{number}", first_failed_at=first, **reported) for number in range(2)]
    young = [Effect.objects.create(key=f"y{number}", **(reported | {"attempts": 1})) for number in range(20)]
    executor.effects_run_due(owner="test")
    at_the_limit = set(Effect.objects.filter(pk__in=[row.pk for row in rows]).values_list("next_attempt_at", flat=True))
    assert at_the_limit == {first + timedelta(seconds=3600)}
    assert len(set(Effect.objects.filter(pk__in=[row.pk for row in young]).values_list("next_attempt_at", flat=True))) == 20
    Effect.objects.filter(key="k0").update(
        first_failed_at=timezone.now() - timedelta(seconds=3601), next_attempt_at=timezone.now()
    )
    executor.effects_run_due(owner="test")
    assert Effect.objects.get(key="k0").state == E.DEAD
    assert OutputDataset.objects.count() == 1


@pytest.mark.parametrize("failed", [False, True])
def test_a_repair_of_an_archived_block_that_is_discarded_leaves_it_archived(workflow: Workflow, failed: bool) -> None:
    block = whole(workflow, "/store/a.root")
    Effect.objects.update(state=E.DONE)
    status = BlockStatus.FAILED if failed else BlockStatus.ARCHIVED
    ProcessingBlock.objects.update(status=status, tape_rule_id="tape", dbs_block_closed=True)
    Effect.objects.create(request=workflow.request, block=block, kind=K.RUCIO_UNPROTECT, key="end")
    Effect.objects.create(request=workflow.request, block=block, kind=K.FILES_INVALIDATE, key="back", state=E.DEAD)
    repaired = [K.RUCIO_BLOCK, K.RUCIO_FILES]
    Effect.objects.filter(kind__in=repaired).update(state=E.DEAD if failed else E.PENDING)
    reported = " ".join(_discard(Effect.objects.get(kind=K.RUCIO_FILES)))
    assert "given up" not in reported and "1 other effect that its block is owed; the block stays archived" in reported
    discard(K.RUCIO_FILES, block)
    assert (block.status, block.failure_context, block.tape_rule_id) == (BlockStatus.ARCHIVED, {}, "tape")
    assert {kind for kind, state in states(block).items() if state == E.DISCARDED} == set(repaired)
    assert states(block)[K.RUCIO_UNPROTECT] == E.PENDING, "the end of its source rules was asked for once, and comes"
    assert states(block)[K.FILES_INVALIDATE] == E.DEAD, "that files are taken back registers nothing"
