"""Comparisons with the real Rucio and DBS: what differs is a row; what is under way, and what a service does not say, is none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from outputs_app.checks.reconciliation import run as running
from outputs_app.checks.reconciliation.rule_check import RuleCheck
from outputs_app.checks.reconciliation.run import comparisons_begin, comparisons_run
from outputs_app.checks.reconciliation.services import dataset_compare, drift_accept, drift_repair
from outputs_app.effects.invalidation import invalidation_ask
from outputs_app.models import (
    Comparison,
    DatasetState,
    Drift,
    DriftKind,
    DriftState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.services import datasets_publish
from requests_app.services.invalidation import epoch_raise
from tests.support.adapters import adapters_forget
from tests.support.calls import overdue
from tests.support.registered import DISK, made_block, run_effects
from tests.support.rucio import SCOPE, did
from tests.support.waiting import until
from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.metrics.series import ROWS_BROKEN_TOTAL

pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.xdist_group("rules in Rucio")]
OTHER = "T2_US_Purdue"
K = DriftKind


@pytest.fixture(name="block")
def _block() -> Iterator[ProcessingBlock]:
    """A block of three files in two units that is registered and protected everywhere."""
    adapters_forget()
    yield made_block()
    adapters_forget()


def compared(block: ProcessingBlock) -> list[tuple[str, str, str]]:
    """The kinds, names and states that stand after another comparison."""
    block.refresh_from_db()
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    comparisons_run()
    comparison = Comparison.objects.get(dataset=block.dataset_id)
    assert (comparison.last_error, comparison.begun_at) == ("", None)
    status_detail = Drift.objects.filter(dataset=block.dataset_id, ended_at=None).order_by("kind", "name")
    return [(row.kind, row.name, row.state) for row in status_detail]


def lfns(block: ProcessingBlock) -> list[str]:
    return list(OutputFile.objects.filter(block=block).order_by("id").values_list("lfn", flat=True))


def drift(kind: DriftKind) -> Drift:
    return Drift.objects.get(kind=kind, ended_at=None)


def test_what_is_registered_everywhere_differs_nowhere(block: ProcessingBlock) -> None:
    assert compared(block) == []
    result = Comparison.objects.get(dataset=block.dataset_id).result
    assert (result["blocks"], result["files"], result["in_flight"]) == (1, 3, 0)


def test_everything_that_differs_in_dbs_is_a_row(block: ProcessingBlock) -> None:
    first, second, third = lfns(block)
    factory.dbs().invalidate_files([first])
    OutputFile.objects.filter(lfn=second).update(events=11)
    OutputFile.objects.filter(lfn=third).update(lfn=f"{third}.new")
    factory.dbs().set_dataset_access_type(block.dataset_name, "DEPRECATED")
    found = {(kind, name) for kind, name, _ in compared(block) if kind.startswith("d")}
    assert found == {
        (K.DBS_FILE_INVALID, first),
        (K.DBS_FILE_DIFFERS, second),
        (K.DBS_FILE_MISSING, f"{third}.new"),
        (K.DBS_FILE_EXTRA, third),
        (K.DATASET_TYPE, block.dataset_name),
    }
    row = drift(K.DBS_FILE_DIFFERS)
    assert (row.expected, row.found) == ("100 bytes, adler32 0000000a, 11 events", "100 bytes, adler32 0000000a, 10 events")
    assert (row.request, row.block) == (block.workflow.request, block)


def test_everything_that_differs_in_rucio_is_a_row(block: ProcessingBlock, admin: Any) -> None:
    first, second, third = lfns(block)
    admin.declare_bad_file_replicas([{"scope": SCOPE, "name": first, "rse": DISK}], "for a test")
    OutputFile.objects.filter(lfn=second).update(rse=OTHER)
    admin.delete_replication_rule(OutputFile.objects.get(lfn=third).rule_id)
    admin.set_status(SCOPE, block.dbs_block_name, open=True)
    admin.detach_dids(SCOPE, block.dbs_block_name, [did(third)])
    found = {(kind, name) for kind, name, _ in compared(block)}
    assert found >= {
        (K.REPLICA_UNAVAILABLE, first),
        (K.REPLICA_MISSING, second),
        (K.RULE_ELSEWHERE, second),
        (K.RULE_GONE, third),
        (K.RUCIO_FILE_MISSING, third),
        (K.RUCIO_BLOCK_OPEN, block.dbs_block_name),
    }
    assert f"BAD at {DISK}" in drift(K.REPLICA_UNAVAILABLE).found


def test_one_bad_copy_in_a_block_is_seen(block: ProcessingBlock, admin: Any) -> None:
    admin.declare_bad_file_replicas([{"scope": SCOPE, "name": lfns(block)[1], "rse": DISK}], "for a test")
    assert compared(block) == [(K.REPLICA_UNAVAILABLE, lfns(block)[1], DriftState.UNSETTLED)]


def test_a_block_that_dbs_does_not_have_is_registered_again(block: ProcessingBlock) -> None:
    other = made_block()
    name = f"{block.dataset_name}#{uuid.uuid4()}"
    ProcessingBlock.objects.filter(pk=block.pk).update(dbs_block_name=name)  # nobody outside has heard of it
    assert {kind for kind, _, _ in compared(block)} == {K.DBS_BLOCK_MISSING, K.RUCIO_BLOCK_MISSING, K.DBS_BLOCK_EXTRA}
    ProcessingBlock.objects.filter(pk=block.pk).update(dbs_block_name=drift(K.DBS_BLOCK_EXTRA).name)
    assert compared(block) == []
    assert set(Drift.objects.values_list("state", flat=True)) == {DriftState.GONE}
    assert compared(other) == []


def test_a_rule_that_somebody_deleted_is_made_again_and_the_difference_is_repaired(block: ProcessingBlock, admin: Any) -> None:
    rule_id = OutputFile.objects.get(lfn=lfns(block)[0]).rule_id
    admin.delete_replication_rule(rule_id)
    assert compared(block) == [(K.RULE_GONE, lfns(block)[0], DriftState.UNSETTLED)]
    drift_repair(drift=drift(K.RULE_GONE), actor="ann", reason="a mistake")
    assert [*Effect.objects.filter(state=EffectState.PENDING).values_list("kind", flat=True)] == [EffectKind.RUCIO_PROTECT]
    assert compared(block) == [(K.RULE_GONE, lfns(block)[0], DriftState.ASKED)], "its repair is under way: not looked at"
    run_effects()
    assert compared(block) == []
    row = Drift.objects.get()
    assert (row.state, row.actor, row.reason) == (DriftState.REPAIRED, "ann", "a mistake")
    assert admin.get_replication_rule(rule_id)["expires_at"] is None


@pytest.mark.parametrize(
    ("column", "again"), [("tape_rule_id", EffectKind.RUCIO_TAPE), ("source_rule_id", EffectKind.RUCIO_SOURCE_BLOCK)]
)
def test_a_blocks_rule_that_somebody_deleted_is_made_again(admin: Any, column: str, again: EffectKind) -> None:
    adapters_forget()
    block = made_block(one_rule=True)
    assert compared(block) == [], "its files are kept by its rule"
    rule = getattr(block, column)
    admin.update_replication_rule(rule, {"locked": False})
    admin.delete_replication_rule(rule)
    assert compared(block) == [(K.RULE_GONE, block.dbs_block_name, DriftState.UNSETTLED)]
    drift_repair(drift=drift(K.RULE_GONE), actor="ann", reason="a mistake")
    assert [*Effect.objects.filter(state=EffectState.PENDING).values_list("kind", flat=True)] == [again]
    run_effects()
    assert compared(block) == []


def test_a_repair_that_has_not_helped_is_open_again(block: ProcessingBlock, admin: Any) -> None:
    admin.set_status(SCOPE, block.dbs_block_name, open=True)
    compared(block)
    drift_repair(drift=drift(K.RUCIO_BLOCK_OPEN), actor="ann", reason="close it")
    run_effects()
    admin.set_status(SCOPE, block.dbs_block_name, open=True)
    assert compared(block) == [(K.RUCIO_BLOCK_OPEN, block.dbs_block_name, DriftState.UNSETTLED)]
    drift_repair(drift=drift(K.RUCIO_BLOCK_OPEN), actor="ann", reason="close it again")
    run_effects()
    assert compared(block) == []


def test_a_replica_is_registered_again_only_where_our_rule_is(block: ProcessingBlock) -> None:
    lfn = lfns(block)[0]
    OutputFile.objects.filter(lfn=lfn).update(rse=OTHER)
    assert {(kind, name) for kind, name, _ in compared(block)} == {(K.REPLICA_MISSING, lfn), (K.RULE_ELSEWHERE, lfn)}
    drift_repair(drift=drift(K.REPLICA_MISSING), actor="ann", reason="it is there")
    run_effects()
    assert compared(block) == [(K.RULE_ELSEWHERE, lfn, DriftState.UNSETTLED)]
    with pytest.raises(InvalidTransition, match="no repair"):
        drift_repair(drift=drift(K.RULE_ELSEWHERE), actor="ann", reason="?")
    OutputFile.objects.filter(lfn=lfn).update(rule_id="")
    assert compared(block) == [], "released: a copy anywhere is enough"


def test_a_dataset_that_was_not_made_valid_is_made_valid_and_a_decision_stays(block: ProcessingBlock) -> None:
    workflow, dbs = block.workflow, factory.dbs()
    datasets_publish(request_id=workflow.request.pk, request_epoch=1, workflow_id=workflow.pk)
    assert compared(block) == [], "it is to be made VALID just now"
    run_effects()
    assert compared(block) == []
    dbs.set_dataset_access_type(block.dataset_name, "PRODUCTION")
    assert compared(block) == [(K.DATASET_TYPE, block.dataset_name, DriftState.UNSETTLED)]
    drift_repair(drift=drift(K.DATASET_TYPE), actor="ann", reason="make it so")
    run_effects()
    assert compared(block) == []
    dbs.set_dataset_access_type(block.dataset_name, "DEPRECATED")
    compared(block)
    with pytest.raises(InvalidTransition, match="a person's decision"):
        drift_repair(drift=drift(K.DATASET_TYPE), actor="ann", reason="?")
    drift_accept(drift=drift(K.DATASET_TYPE), actor="ann", reason="known")
    assert compared(block) == [(K.DATASET_TYPE, block.dataset_name, DriftState.ACCEPTED)]
    dbs.set_dataset_access_type(block.dataset_name, "INVALID")
    assert (K.DATASET_TYPE, block.dataset_name, DriftState.UNSETTLED) in compared(block), "another one than was accepted"


def test_what_is_under_way_or_not_wanted_any_more_is_no_difference(block: ProcessingBlock, admin: Any) -> None:
    admin.delete_replication_rule(OutputFile.objects.get(lfn=lfns(block)[0]).rule_id)
    Effect.objects.filter(kind=EffectKind.RUCIO_PROTECT).update(state=EffectState.PENDING)
    assert compared(block) == []
    assert Comparison.objects.get(dataset=block.dataset_id).result["in_flight"] == 1
    Effect.objects.update(state=EffectState.DONE)
    assert compared(block) != []
    OutputDataset.objects.update(state=DatasetState.INVALIDATED)
    assert compared(block) == []


def test_what_was_taken_back_and_is_valid_in_dbs_is_a_difference_and_is_taken_back_again(block: ProcessingBlock) -> None:
    """A worker that was paused comes late, when the request has ended and nobody evaluates it."""
    request = block.workflow.request
    with transaction.atomic():
        epoch_raise(request)
        invalidation_ask(request_id=request.pk, request_epoch=request.epoch, workflow_id=block.workflow.pk)
    run_effects()
    assert compared(block) == []
    assert OutputDataset.objects.get(pk=block.dataset_id).state == DatasetState.INVALIDATED
    late = lfns(block)[0]
    factory.dbs()._put("/files", "test", body={"logical_file_name": late, "is_file_valid": 1})
    assert compared(block) == [(K.DBS_FILE_DIFFERS, late, DriftState.UNSETTLED)]
    drift_repair(drift=drift(K.DBS_FILE_DIFFERS), actor="ann", reason="take it back again")
    run_effects()
    assert compared(block) == []
    assert not any(file.is_valid for file in factory.dbs().block_files(block.dbs_block_name))


def test_what_an_effect_changes_meanwhile_is_left_to_the_next_comparison(
    block: ProcessingBlock, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.delete_replication_rule(OutputFile.objects.get(lfn=lfns(block)[0]).rule_id)
    judge = running.in_rucio

    def meanwhile(*given: Any) -> Iterator[Any]:
        Effect.objects.filter(kind=EffectKind.RUCIO_PROTECT).update(claim_epoch=F("claim_epoch") + 1)
        return judge(*given)

    monkeypatch.setattr(running, "in_rucio", meanwhile)
    assert compared(block) == []


def test_a_silent_service_changes_nothing_and_the_comparison_goes_on_where_it_was(
    block: ProcessingBlock, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.delete_replication_rule(OutputFile.objects.get(lfn=lfns(block)[0]).rule_id)
    compared(block)

    def silent(*names: Any) -> None:
        raise ServiceUnavailable("rucio", "blocks_held", "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(factory.rucio()), "blocks_held", silent)
        dataset_compare(dataset=block.dataset, actor="ann", reason="test")
        comparisons_run()
    comparison = Comparison.objects.get(dataset=block.dataset_id)
    assert "no answer" in comparison.last_error
    assert (comparison.up_to_block, comparison.claim_expires_at) == (-1, None)
    assert drift(K.RULE_GONE).state == DriftState.UNSETTLED
    begun = comparison.begun_at
    Comparison.objects.update(due_at=overdue())
    comparisons_run()
    comparison.refresh_from_db()
    assert (comparison.begun_at, comparison.last_error) == (None, "") and comparison.ended_at > begun


def test_a_comparison_that_breaks_is_counted_put_off_and_keeps_no_other_waiting(
    block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons_begin()
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    Comparison.objects.update(due_at=overdue())
    broken = ROWS_BROKEN_TOTAL.labels("comparisons")._value

    def breaks(*names: Any) -> None:
        raise ValueError("no number")

    before = broken.get()
    monkeypatch.setattr(type(factory.rucio()), "blocks_held", breaks)
    comparisons_run()
    comparison, rules = Comparison.objects.get(dataset=block.dataset_id), Comparison.objects.get(dataset=None)
    assert (comparison.last_error, comparison.claim_expires_at) == ("ValueError: no number", None)
    assert comparison.due_at > timezone.now() and rules.ended_at is not None
    assert broken.get() == before + 1


def test_many_blocks_take_several_turns(block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(1, 6):
        ProcessingBlock.objects.create(
            workflow=block.workflow, dataset=block.dataset, block_index=index, dataset_name=block.dataset_name,
            dbs_block_name=f"{block.dataset_name}#{index}", sealed_at=timezone.now(),
        )  # fmt: skip
    monkeypatch.setattr(running, "PORTION", 2)
    over = iter([False, False, True])
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    comparison = running._claim()
    assert comparison is not None
    running.Run(comparison).go(lambda: next(over))
    comparison.refresh_from_db()
    assert (comparison.up_to_block, comparison.result["blocks"], comparison.result["in_flight"]) == (3, 1, 3)
    assert comparison.begun_at is not None and comparison.claim_expires_at is None
    comparisons_run()
    comparison.refresh_from_db()
    assert (comparison.begun_at, comparison.result["in_flight"]) == (None, 5)


def test_a_worker_that_lost_its_claim_records_nothing(block: ProcessingBlock, admin: Any) -> None:
    admin.delete_replication_rule(OutputFile.objects.get(lfn=lfns(block)[0]).rule_id)
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    comparison = running._claim()
    assert comparison is not None and running._claim() is None, "one worker at a time"
    Comparison.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
    assert running._claim() is not None
    with pytest.raises(running.LeaseLost):
        running.Run(comparison).go(lambda: False)
    assert not Drift.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_no_other_worker_takes_over_while_an_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rules of an account may take Rucio longer than a claim lasts; each worker would begin anew and none end."""
    monkeypatch.setenv("WMS2_EFFECT_LEASE_SECONDS", "1")
    conf.cache_clear()
    comparisons_begin()
    Comparison.objects.update(due_at=overdue())

    def late(since: str | None) -> RuleCheck:
        ends_at = Comparison.objects.get().claim_expires_at + timedelta(seconds=1)
        until(lambda: timezone.now() > ends_at)
        assert running._claim() is None
        return RuleCheck([], Q(), {}, "")

    monkeypatch.setattr(running, "check_rules", late)
    comparisons_run()
    comparison = Comparison.objects.get()
    assert (comparison.last_error, comparison.ended_at is not None) == ("", True)


def test_a_comparison_asked_for_while_one_runs_is_made_after_it(block: ProcessingBlock) -> None:
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    comparison = running._claim()
    assert comparison is not None
    run = running.Run(comparison)

    def asked() -> bool:
        dataset_compare(dataset=block.dataset, actor="ben", reason="once more")
        return False

    run.go(asked)
    assert Comparison.objects.get(dataset=block.dataset_id).due_at <= timezone.now()


def test_by_itself_a_dataset_is_compared_by_the_interval_as_long_as_its_blocks_change(block: ProcessingBlock) -> None:
    running.comparisons_begin()
    comparison = Comparison.objects.get(dataset=block.dataset_id)
    assert comparison.due_at > timezone.now() + timedelta(hours=23)
    compared(block)
    comparison.refresh_from_db()
    assert comparison.due_at > timezone.now() + timedelta(hours=23)
    ProcessingBlock.objects.update(updated_at=timezone.now() - timedelta(days=31))
    compared(block)
    comparison.refresh_from_db()
    assert comparison.due_at is None
