"""Units of a block that are done one by one share a registration and a protection, as long as nobody has begun it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dags_app.models import WorkUnit
from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
from outputs_app.effects import executor, requests
from outputs_app.models import Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
from outputs_app.services import effect_discard
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.models import RequestStatus, Workflow
from tests.support.calls import overdue
from tests.support.locking import paused
from tests.support.rows import dag_row, request_row, unit_register, unit_row, workflow_row

GATHERED = (EffectKind.RUCIO_FILES, EffectKind.RUCIO_PROTECT)
pytestmark = pytest.mark.django_db


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    return workflow_row(request_row(RequestStatus.ACTIVE))


@pytest.fixture(name="units")
def _units(workflow: Workflow) -> list[WorkUnit]:
    """Five in one block."""
    dag = dag_row(workflow)
    return [unit_row(dag, index) for index in range(5)]


def done(workflow: Workflow, unit: WorkUnit, epoch: int = 1) -> None:
    """The unit has brought a file."""
    file = MergedFile(
        workflow.output_datasets.get().name, f"/store/{unit.index}.root", "T2_CH_CERN", 100, "0000000a", 10, {"1": ((1, 10),)}
    )
    outputs = UnitOutputs(unit.pk, unit.name, (file,))
    unit_register(request_id=workflow.request.pk, request_epoch=epoch, outputs=outputs)


def gathered() -> list[list[int]]:
    """The units of each registration; each has a protection for the same."""
    units = {kind: [row.payload["units"] for row in Effect.objects.filter(kind=kind).order_by("id")] for kind in GATHERED}
    assert units[EffectKind.RUCIO_FILES] == units[EffectKind.RUCIO_PROTECT]
    return units[EffectKind.RUCIO_FILES]


def due_now() -> None:
    Effect.objects.filter(state=EffectState.PENDING).update(next_attempt_at=overdue())


def claim(*kinds: EffectKind) -> list[Effect]:
    """What a worker takes, until it has taken effects of these kinds."""
    taken: list[Effect] = []
    while not set(kinds) <= {effect.kind for effect in taken}:
        due_now()
        claimed = executor.effects_claim(owner="test", most=10)
        assert claimed
        for effect in claimed:
            if effect.kind not in kinds:
                Effect.objects.filter(pk=effect.pk).update(state=EffectState.DONE)
        taken += claimed
    return taken


def test_units_done_one_by_one_are_registered_and_protected_together(workflow: Workflow, units: list[WorkUnit]) -> None:
    for unit in units[:3]:
        done(workflow, unit)
    assert gathered() == [[unit.pk for unit in units[:3]]]
    waiting = Effect.objects.filter(kind__in=GATHERED)
    assert all(row.next_attempt_at > timezone.now() for row in waiting), "more may come"
    assert all(row.next_attempt_at < timezone.now() + timedelta(seconds=31) for row in waiting), "none of them puts it off"


def test_what_was_claimed_once_takes_nobody_in_even_when_it_is_given_back(workflow: Workflow, units: list[WorkUnit]) -> None:
    done(workflow, units[0])
    (*_, begun) = claim(EffectKind.RUCIO_FILES)
    done(workflow, units[1])
    done(workflow, units[2])
    assert gathered() == [[units[0].pk], [units[1].pk, units[2].pk]]
    executor._give_back([begun])
    done(workflow, units[3])
    assert gathered() == [[units[0].pk], [units[1].pk, units[2].pk, units[3].pk]]


def test_a_protection_that_waits_for_a_begun_registration_takes_nobody_in(workflow: Workflow, units: list[WorkUnit]) -> None:
    done(workflow, units[0])
    claim(EffectKind.RUCIO_FILES)
    Effect.objects.filter(kind=EffectKind.RUCIO_FILES).update(state=EffectState.DONE)
    done(workflow, units[1])
    assert gathered() == [[units[0].pk], [units[1].pk]]


def test_a_protection_that_was_discarded_takes_nobody_in(workflow: Workflow, units: list[WorkUnit]) -> None:
    done(workflow, units[0])
    for protect in Effect.objects.filter(kind=EffectKind.RUCIO_PROTECT):
        effect_discard(effect=protect, actor="olga", reason="these files need no rule")
    done(workflow, units[1])
    done(workflow, units[2])
    assert gathered() == [[units[0].pk], [units[1].pk, units[2].pk]]


@pytest.mark.django_db(transaction=True)
def test_a_worker_claims_all_units_or_comes_later(workflow: Workflow, units: list[WorkUnit]) -> None:
    done(workflow, units[0])
    due_now()
    block = ProcessingBlock.objects.get()
    statement = "SELECT id FROM processing_blocks WHERE id = %s FOR NO KEY UPDATE"  # as the account of a unit has it
    with paused(statement, block.pk):
        assert executor.effects_claim(owner="test", most=10) == []
    assert executor.effects_claim(owner="test", most=10) != []


def test_an_effect_takes_in_only_so_many_units(
    workflow: Workflow, units: list[WorkUnit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_UNITS", 2)
    for unit in units:
        done(workflow, unit)
    assert [len(some) for some in gathered()] == [2, 2, 1]


def test_a_newer_epoch_gathers_for_itself(workflow: Workflow, units: list[WorkUnit]) -> None:
    done(workflow, units[0])
    done(workflow, units[1], epoch=2)
    assert gathered() == [[units[0].pk], [units[1].pk]]


def test_a_block_that_is_whole_waits_for_nothing(workflow: Workflow, units: list[WorkUnit]) -> None:
    for unit in units:
        done(workflow, unit)
    blocks_seal_all(workflow_id=workflow.pk)
    blocks_register_sealed(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)
    assert not Effect.objects.filter(next_attempt_at__gt=timezone.now()).exists()


def test_all_files_of_the_units_are_told(workflow: Workflow, units: list[WorkUnit], monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[list[str]] = []

    class Rucio:
        def register_files(self, rse: str, block: str, files: list[object]) -> None:
            reported.append([file.lfn for file in files])

        def ensure_block(self, *names: str) -> None:
            pass

        def protect_files(self, rse: str, lfns: list[str], **said: str) -> dict[str, str]:
            return {lfn: f"rule-{lfn}" for lfn in lfns}

    monkeypatch.setattr("wms2.adapters.factory.rucio", Rucio)
    for unit in units[:2]:
        done(workflow, unit)
    for _ in range(3):
        due_now()
        executor.effects_run_due(owner="test")
    assert reported == [["/store/0.root", "/store/1.root"]]
    assert set(OutputFile.objects.values_list("rule_id", flat=True)) == {"rule-/store/0.root", "rule-/store/1.root"}
