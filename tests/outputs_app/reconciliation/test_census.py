"""The census: what the real Rucio says of all our rules, in a few calls."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from outputs_app.checks.reconciliation.run import comparisons_begin, comparisons_run
from outputs_app.checks.reconciliation.services import dataset_compare, drift_accept, drift_repair
from outputs_app.effects.handler import rule_comment
from outputs_app.effects.invalidation import invalidation_ask
from outputs_app.models import (
    Comparison,
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
from requests_app.services.invalidation import epoch_raise
from tests.support.adapters import adapters_forget
from tests.support.calls import overdue
from tests.support.registered import made_block, run_effects
from tests.support.rows import new_effect
from wms2.adapters import factory, rucio_rules
from wms2.errors import InvalidTransition

pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.xdist_group("rules in Rucio")]
K = DriftKind


@pytest.fixture(autouse=True)
def _an_installation_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rules of other tests have other comments."""
    monkeypatch.setenv("WMS2_INSTANCE", f"census-{uuid.uuid4().hex[:8]}")
    adapters_forget()
    yield
    adapters_forget()


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    return made_block()


def counted() -> dict[str, int]:
    """What a census tells, other than zeros."""
    comparisons_begin()
    Comparison.objects.filter(dataset=None).update(due_at=overdue())
    comparisons_run()
    row = Comparison.objects.get(dataset=None)
    assert row.last_error == ""
    return {name: number for name, number in row.result["rules"].items() if number}


def status_detail() -> list[tuple[str, str, str]]:
    rows = Drift.objects.filter(ended_at=None).order_by("kind", "name")
    return list(rows.values_list("kind", "name", "found"))


def test_where_all_is_well_nothing_is_told(block: ProcessingBlock) -> None:
    assert counted() == {}
    assert status_detail() == []


def test_rules_in_trouble_are_told_once_each(block: ProcessingBlock, admin: Any) -> None:
    admin.update_replication_rule(block.tape_rule_id, {"state": "SUSPENDED"})
    assert counted() == {"SUSPENDED": 1}
    ((kind, name, found),) = status_detail()
    assert (kind, name) == (K.RULE_TROUBLE, block.dbs_block_name) and found.startswith("SUSPENDED at ")
    assert Drift.objects.get().request == block.workflow.request
    counted()
    assert Drift.objects.count() == 1
    admin.update_replication_rule(block.tape_rule_id, {"state": "STUCK"})
    assert counted() == {"STUCK": 1}
    assert [found.split()[0] for _, _, found in status_detail()] == ["STUCK"]


@pytest.mark.parametrize("named", [True, False])
def test_rows_of_rules_that_cannot_be_read_hide_no_other_and_what_they_are_of_stays(
    block: ProcessingBlock, admin: Any, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    admin.update_replication_rule(block.tape_rule_id, {"state": "SUSPENDED"})
    counted()
    since, real = Comparison.objects.get(dataset=None).result["since"], rucio_rules.readable
    bad = {"copies": None} if named else {"id": 7}

    def with_bad_rows(rows: Iterable[Any], read: Any, **of: str) -> Any:
        others = [] if named else [None, {"id": None}]
        return real([*others, *(row | bad if row["id"] == block.tape_rule_id else row for row in rows)], read, **of)

    monkeypatch.setattr(rucio_rules, "readable", with_bad_rows)
    comparisons_begin()
    Comparison.objects.filter(dataset=None).update(due_at=overdue())
    comparisons_run()
    row = Comparison.objects.get(dataset=None)
    assert "rows cannot be read, the others count" in row.last_error
    assert row.result["since"] == since, "what was made since is listed again"
    assert [kind for kind, _, _ in status_detail()] == [K.RULE_TROUBLE], "nothing is known of it, so it stands"


def test_a_rule_on_a_block_that_is_gone_is_told(block: ProcessingBlock) -> None:
    ProcessingBlock.objects.filter(pk=block.pk).update(tape_rule_id="0" * 32)
    assert counted() == {"gone": 1, "unknown": 1}
    assert {(kind, name) for kind, name, _ in status_detail()} == {
        (K.RULE_GONE, block.dbs_block_name), (K.RULE_UNKNOWN, block.dbs_block_name)
    }  # fmt: skip
    Effect.objects.filter(kind=EffectKind.RUCIO_TAPE).update(state=EffectState.PENDING)
    counted()
    assert (K.RULE_GONE, block.dbs_block_name) in {(kind, name) for kind, name, _ in status_detail()}, (
        "being repaired, not gone by itself"
    )


def test_a_blocks_source_rule_that_is_gone_is_told_and_made_again() -> None:
    block = made_block(one_rule=True)
    assert counted() == {}
    assert set(block.files.values_list("rule_id", flat=True)) == {""}
    ProcessingBlock.objects.filter(pk=block.pk).update(source_rule_id="0" * 32)
    assert counted() == {"gone": 1, "unknown": 1}
    drift_repair(drift=Drift.objects.get(kind=K.RULE_GONE), actor="ann", reason="it is wanted")
    assert set(Effect.objects.filter(state=EffectState.PENDING).values_list("kind", flat=True)) == {EffectKind.RUCIO_SOURCE_BLOCK}
    run_effects()
    assert ProcessingBlock.objects.get(pk=block.pk).source_rule_id == block.source_rule_id
    assert counted() == {}


def test_a_containers_rule_that_is_gone_is_told_and_made_again_and_one_that_has_ended_is_not(block: ProcessingBlock) -> None:
    dataset, request = block.dataset, block.workflow.request
    payload = {"dataset_id": dataset.pk, "expression": "T1_US_FNAL_Disk", "copies": 1, "days": 30, "activity": ""}
    effect = new_effect(EffectState.DONE, request=request, kind=EffectKind.RUCIO_DISK, payload=payload)
    OutputDataset.objects.filter(pk=dataset.pk).update(disk_rule_id="0" * 32)
    assert counted() == {}, "its days may be over"
    Effect.objects.filter(pk=effect.pk).update(payload=payload | {"days": 0})
    assert counted() == {"gone": 1}
    row = Drift.objects.get()
    assert (row.kind, row.name, row.dataset, row.block) == (K.RULE_GONE, dataset.name, dataset, None)
    dataset_compare(dataset=dataset, actor="ann", reason="look")
    comparisons_run()
    assert Drift.objects.get().state == DriftState.UNSETTLED, "whether it stands is the census's to tell"
    drift_repair(drift=row, actor="ann", reason="it is wanted")
    counted()
    assert Drift.objects.get().state == DriftState.ASKED, "it is being made"
    run_effects()
    dataset.refresh_from_db()
    assert factory.rucio().rule(dataset.disk_rule_id).did_type == "CONTAINER"
    assert counted() == {}
    assert Drift.objects.get().state == DriftState.REPAIRED


def test_a_rule_whose_answer_was_lost_is_found_and_recorded_by_its_repair(block: ProcessingBlock) -> None:
    file = OutputFile.objects.filter(block=block).first()
    assert file is not None
    OutputFile.objects.filter(pk=file.pk).update(rule_id="")
    assert counted() == {"unknown": 1}
    row = Drift.objects.get()
    assert (row.kind, row.name, row.rule_id, row.block) == (K.RULE_UNKNOWN, file.lfn, file.rule_id, block)
    drift_repair(drift=row, actor="ann", reason="record it")
    run_effects()
    assert OutputFile.objects.get(pk=file.pk).rule_id == file.rule_id
    assert counted() == {}
    assert Drift.objects.get().state == DriftState.REPAIRED


def test_a_second_rule_of_ours_is_told_and_only_accepted(block: ProcessingBlock) -> None:
    file = OutputFile.objects.filter(block=block).first()
    assert file is not None
    comment = f"wms2 {factory.conf().instance} {block.workflow.request.request_name}"
    factory.rucio().protect_files("T2_US_Purdue", [file.lfn], comment)
    assert counted() == {"unknown": 1}
    with pytest.raises(InvalidTransition, match=f"know another rule, {file.rule_id}"):
        drift_repair(drift=Drift.objects.get(), actor="ann", reason="?")
    drift_accept(drift=Drift.objects.get(), actor="ann", reason="made by hand")
    dataset_compare(dataset=block.dataset, actor="ann", reason="test")
    comparisons_run()
    assert Drift.objects.get().state == DriftState.ACCEPTED, "whether it stands is the census's to tell"
    row = Comparison.objects.get(dataset=None)
    Comparison.objects.filter(pk=row.pk).update(result={**row.result, "since": (timezone.now() + timedelta(days=3)).isoformat()})
    assert counted() == {"unknown": 1}, "made before the time that is looked at, and asked for by its id"
    assert Drift.objects.get().state == DriftState.ACCEPTED


def test_a_rule_of_a_request_that_no_row_knows_is_told_and_those_of_others_are_not(block: ProcessingBlock) -> None:
    file = OutputFile.objects.filter(block=block).first()
    assert file is not None
    rucio = factory.rucio()
    rucio.protect_files("T2_US_Purdue", [file.lfn], "somebody else's")
    assert counted() == {}
    rucio.protect_files("T1_US_FNAL_Disk", [file.lfn], f"wms2 {factory.conf().instance} lost_request")
    OutputFile.objects.filter(pk=file.pk).update(lfn=f"{file.lfn}.other")
    assert counted()["unknown"] >= 1
    assert Drift.objects.get(request=None).name == file.lfn


def test_what_is_being_registered_is_not_unknown(block: ProcessingBlock) -> None:
    OutputFile.objects.update(rule_id="")
    Effect.objects.filter(kind=EffectKind.RUCIO_PROTECT).update(state=EffectState.CLAIMED, claim_expires_at=overdue())
    assert counted() == {}


def test_a_rule_of_outputs_that_were_taken_back_is_told_though_their_rows_know_it(block: ProcessingBlock) -> None:
    """Made by a worker that was paused meanwhile. What is left of the former epoch does not make the request busy for ever."""
    request, file = block.workflow.request, OutputFile.objects.filter(block=block).order_by("id")[0]
    with transaction.atomic():
        epoch_raise(request)
        invalidation_ask(request_id=request.pk, request_epoch=request.epoch, workflow_id=block.workflow.pk)
    run_effects()
    assert counted() == {}
    comment = rule_comment(Effect.objects.filter(request=request)[0])
    rules = factory.rucio().protect_files(file.rse, [file.lfn], comment=comment)
    OutputFile.objects.filter(pk=file.pk).update(rule_id=rules[file.lfn])
    left = new_effect(EffectState.REFUSED, request=request, key="former")
    Effect.objects.filter(pk=left.pk).update(epoch=request.epoch - 1)
    assert counted() == {"unknown": 1}
    row = Drift.objects.get()
    assert (row.kind, row.name, row.rule_id) == (K.RULE_UNKNOWN, file.lfn, rules[file.lfn])
    drift_repair(drift=row, actor="ann", reason="delete it again")
    run_effects()
    assert factory.rucio().rule(rules[file.lfn]).expires_at is not None
    assert counted() == {}
