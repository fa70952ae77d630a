"""Registration in the real Rucio where a storage element is blocked for writing or wants approval: it is not refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.utils import timezone

from outputs_app import turns
from outputs_app.blocks import blocks_advance, blocks_seal, units_join_blocks
from outputs_app.effects import taking_back
from outputs_app.executor import effects_run_due
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputDataset, OutputFile, ProcessingBlock
from outputs_app.values import Membership, MergedFile, UnitOutputs
from requests_app.models import RequestStatus
from tests.support.adapters import adapters_forget
from tests.support.faults import fault
from tests.support.rows import dag_row, request_row, unit_register, unit_row, workflow_row
from tests.support.rucio import APPROVED_TAPE, SCOPE, did, plain_client, rucio_home

# They close or use the same storage elements: in one process, one after the other.
pytestmark = [pytest.mark.django_db, pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]

DISK, TAPE = "T2_US_Purdue", "T1_DE_KIT_Tape"
RUCIO = [kind.value for kind in EffectKind if kind.value.startswith("rucio_")]


@pytest.fixture(name="admin", scope="module")
def _admin() -> Any:
    """Rucio's root: whoever blocks storage elements and approves rules."""
    return plain_client(rucio_home().parent / "admin")


@pytest.fixture(name="blocked")
def _blocked(admin: Any) -> Iterator[Callable[..., None]]:
    """Blocks storage elements for writing, or opens them again; all are open at the end."""

    def block(*rses: str, blocked: bool = True) -> None:
        for rse in rses:
            admin.update_rse(rse, {"availability_write": not blocked})

    yield block
    block(DISK, TAPE, blocked=False)


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    """A complete block with one file at the disk, of which only what is owed to Rucio is left."""
    adapters_forget()
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    unit, dataset = unit_row(dag_row(workflow)), workflow.output_datasets.get()
    request = workflow.request
    units_join_blocks(workflow_id=workflow.pk, memberships=[Membership(unit.pk, dataset.name, 0, 1)])
    lfn = f"/store/mc/Era/PrimaryTester/GEN-SIM/Proc-v1/00000/{uuid.uuid4()}.root"
    file = MergedFile(dataset.name, lfn, 100, "0000000a", 10, {"1": ((1, 10),)})
    unit_register(request_id=request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, DISK, (file,)))
    blocks_seal(workflow_id=workflow.pk)
    blocks_advance(workflow_id=workflow.pk, request_id=request.pk, request_epoch=1)
    Effect.objects.exclude(kind__in=RUCIO).update(state=EffectState.DONE)
    return ProcessingBlock.objects.get()


def run() -> dict[str, str]:
    """What is owed to Rucio, tried once more; kind -> state."""
    Effect.objects.filter(state=EffectState.PENDING).update(next_attempt_at=timezone.now())
    effects_run_due(owner="test", limit=10)
    return dict(Effect.objects.filter(kind__in=RUCIO).values_list("kind", "state"))


def tape_at(rse: str) -> None:
    OutputDataset.objects.update(tape_rse=rse)


@fault(
    "RSE write-blocked",
    done="the disk where a unit's files lie, and the tape chosen for them, are blocked for writing in Rucio",
    spec="docs/design/services.md, Rules",
    afterwards="the files get their source rules at once; the tape rule is made when the tape is open again, not refused",
)
def test_source_rules_are_made_where_writing_is_blocked_and_tape_rules_wait(admin: Any, block: ProcessingBlock, blocked) -> None:
    tape_at(TAPE)
    blocked(DISK, TAPE)
    states = run()
    assert states == dict.fromkeys(RUCIO[:4], "done") | {"rucio_tape": "pending"}
    rule = admin.get_replication_rule(OutputFile.objects.get().rule_id)
    assert (rule["state"], rule["rse_expression"]) == ("OK", DISK)
    assert "RSEWriteBlocked" in Effect.objects.get(kind=EffectKind.RUCIO_TAPE).last_error
    blocked(TAPE, blocked=False)
    assert run()["rucio_tape"] == "done"
    block.refresh_from_db()
    assert block.status == BlockStatus.ARCHIVED


def test_a_tape_rule_that_waits_for_approval_is_shown_and_no_failure(admin: Any, block: ProcessingBlock) -> None:
    tape_at(APPROVED_TAPE)
    for _ in range(2):
        assert run()["rucio_tape"] == "pending"
        block.refresh_from_db()
        effect = Effect.objects.get(kind=EffectKind.RUCIO_TAPE)
        assert f"waits for approval at {APPROVED_TAPE}" in effect.last_error
        assert (effect.first_failed_at, block.status, block.rucio_attempt_count) == (None, BlockStatus.COMPLETE, 0)
    (rule,) = admin.list_replication_rules({"scope": SCOPE, "name": block.dbs_block_name})
    admin.approve_replication_rule(rule["id"])
    assert run()["rucio_tape"] == "done"
    block.refresh_from_db()
    assert (block.status, block.tape_rule_id) == (BlockStatus.ARCHIVED, rule["id"])


def test_rules_that_take_several_turns_to_release_are_released_once_each(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rucio keeps a deleted rule for an hour, from its last deletion on: who began with those again would never end."""
    tape_at(TAPE)
    assert set(run().values()) == {"done"}
    request = block.workflow.request
    release = Effect.objects.create(
        request=request, kind=EffectKind.RUCIO_RELEASE, key="release", payload={"dataset_id": block.dataset_id}
    )
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(taking_back, "_PORTION", 1)
    run()
    release.refresh_from_db()
    assert (release.state, release.result, release.attempts) == ("done", {"rules": 2, "deleted": 2}, 1)
    rules = admin.list_replication_rules({"scope": SCOPE, "name": block.dbs_block_name})
    assert all(rule["expires_at"] for rule in rules)


@pytest.mark.parametrize(
    ("environment", "setting", "document", "project"),
    [
        ("production", "", {}, "Production"),
        ("production", "", {"SubRequestType": "RelVal"}, "RelVal"),
        ("test", "", {"SubRequestType": "RelVal"}, "Test"),
        ("production", "Test", {"SubRequestType": "RelVal"}, "Test"),
    ],
)
def test_containers_and_blocks_say_which_project_they_are_of(
    admin: Any, block: ProcessingBlock, monkeypatch: pytest.MonkeyPatch, environment: str, setting: str, document, project: str
) -> None:
    monkeypatch.setenv("WMS2_ENVIRONMENT", environment)
    for name in ("URL", "ALLOWED_URLS"):  # production asks no other way
        monkeypatch.setenv(f"WMS2_CONFIGCACHE_{name}", "https://cms.example/couchdb")
    monkeypatch.setenv("WMS2_RUCIO_PROJECT", setting)
    adapters_forget()
    request = block.workflow.request
    request.request_data = document
    request.save()
    dataset = f"/Primary{uuid.uuid4().hex[:8]}/Era-Proc-v1/GEN-SIM"
    ProcessingBlock.objects.update(dataset_name=dataset, dbs_block_name=f"{dataset}#{uuid.uuid4()}")
    block.refresh_from_db()
    run()
    adapters_forget()
    for name in (dataset, block.dbs_block_name):
        assert admin.get_metadata(SCOPE, name)["project"] == project
    assert did(block.dbs_block_name) in [{k: row[k] for k in ("scope", "name")} for row in admin.list_content(SCOPE, dataset)]
