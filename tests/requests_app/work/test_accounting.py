"""Units that finish together are accounted together: each exactly once, whatever is wrong with others, at a constant cost."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAG, FRESH, DAGHistory, DAGStatus, FailureGroup, Sample, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.planning.specs import GenerationSpec
from dags_app.services import failures
from dags_app.services.submit import SUBMIT_INTENT
from outputs_app import services
from outputs_app.models import BlockWorkUnit, Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
from requests_app.lease import evaluating
from requests_app.models import EvaluationLease, Request, RequestStatus
from requests_app.work import accounting, planner
from requests_app.work.accounting import account
from requests_app.work.planner import round_plan
from sites_app.models import Site, SiteRse
from tests.support.rows import generation_spec, output_spec, request_row, workflow_row
from tests.support.scene_failures import line
from tests.support.scripted.dagman import Account, NodeState, write_manifest, write_status
from tests.support.statements import statements
from wms2.errors import LeaseLost, LedgerViolation, StaleState
from wms2.runtime.notify import RUN_EFFECTS

pytestmark = pytest.mark.django_db(transaction=True)
DATASETS = 2


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = planner.conf().model_copy(update={"submit_root": tmp_path})
    monkeypatch.setattr(planner, "conf", lambda: settings)
    for name in ("T1_US_FNAL", "T2_CH_CERN"):
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=name, seen_at="2026-01-01T00:00:00Z")


def finished(units: int, **accounts: Account) -> DAG:
    """A DAG of which DAGMan says that all units are done, each with its manifest."""
    Sample.objects.all().delete()
    request = request_row(RequestStatus.PLANNING)
    tag = request.request_name.rpartition("_")[2]
    made = GenerationSpec(run=1, first_event=1, first_lumi=1, events=800 * units, events_per_job=100, events_per_lumi=10)
    outputs = (output_spec(tag), output_spec(tag, tier="MINIAODSIM"))
    workflow_row(request, generation_spec(request.request_name, outputs=outputs, generation=made))
    with evaluating(request.pk, owner="planner") as evaluation:
        assert evaluation is not None
        dag = round_plan(evaluation)
    assert dag is not None
    DAGHistory.objects.create(dag=dag, event_type=SUBMIT_INTENT, detail={"fence": 1})
    changes = {"status": DAGStatus.RUNNING, "dagman_cluster_id": tag, "fence": 1, "observed": {"nodes_done": units}}
    DAG.objects.filter(pk=dag.pk).update(**changes)
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.ACTIVE)
    names = list(WorkUnit.objects.filter(dag=dag).order_by("index").values_list("name", flat=True))
    assert len(names) == units
    for name in names:
        write_manifest(Path(dag.submit_dir), name, 1, accounts.get(name, Account.RIGHT))
    write_status(Path(dag.submit_dir), dict.fromkeys(names, NodeState.DONE), final=False)
    return DAG.objects.get(pk=dag.pk)


def account_for(dag: DAG) -> int:
    with evaluating(Request.objects.get(workflow=dag.workflow_id).pk, owner="test") as evaluation:
        assert evaluation is not None
        return account(evaluation, dag)


def states(dag: DAG) -> list[str]:
    return list(WorkUnit.objects.filter(dag=dag).order_by("index").values_list("state", flat=True))


def assert_accounted(dag: DAG, *, units: int) -> None:
    """So many units are done, and all that follows from a unit is there once for each of them."""
    sampled = Sample.objects.filter(seconds=FRESH, step="").aggregate(Sum("units"), Sum("files"), Sum("events"))
    assert sampled == {"units__sum": units, "files__sum": units * DATASETS, "events__sum": units * 800}
    done = set(WorkUnit.objects.filter(dag=dag, state=WorkUnitState.DONE).values_list("pk", flat=True))
    dag.refresh_from_db()
    assert (len(done), dag.units_done) == (units, units)
    files = Counter(OutputFile.objects.filter(unit__dag=dag).values_list("unit_id", flat=True))
    assert files == Counter(dict.fromkeys(done, DATASETS))
    assert set(BlockWorkUnit.objects.filter(unit__dag=dag, done=True).values_list("unit_id", flat=True)) == done
    for kind in (EffectKind.RUCIO_FILES, EffectKind.RUCIO_PROTECT):
        owed = Effect.objects.filter(kind=kind, block__workflow=dag.workflow_id).values_list("block_id", "payload")
        asked = Counter((block, unit) for block, payload in owed for unit in payload["units"])
        held = BlockWorkUnit.objects.filter(unit_id__in=done).values_list("block_id", "unit_id")
        assert asked == Counter(held), "every file is registered by exactly one effect"
    for block in ProcessingBlock.objects.filter(workflow=dag.workflow_id):
        members = list(block.members.values_list("size_bytes", flat=True))
        assert (block.total_work_units, block.planned_bytes) == (len(members), sum(members))


def test_the_number_of_statements_does_not_grow_with_the_units() -> None:
    numbers = []
    for units in (1, 1, 50):
        dag = finished(units)
        with CaptureQueriesContext(connection) as captured:
            assert account_for(dag) == units
        assert_accounted(dag, units=units)
        numbers.append(len(statements(captured)))
    assert numbers[1] == numbers[2]


@pytest.mark.parametrize("gather_seconds", [30.0, 0.0])
def test_workers_are_told_of_effects_that_are_due_not_of_those_that_gather(gather_seconds: float, monkeypatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr("wms2.runtime.notify._send", lambda name, args: reported.append(name))
    settings = services.conf().model_copy(update={"effect_gather_seconds": gather_seconds})
    monkeypatch.setattr(services, "conf", lambda: settings)
    dag = finished(3)
    names = list(WorkUnit.objects.filter(dag=dag).order_by("index").values_list("name", flat=True))
    hints = []
    for number in (1, 2):
        write_status(Path(dag.submit_dir), dict.fromkeys(names[:number], NodeState.DONE), final=False)
        assert account_for(dag) == 1
        hints.append(reported.count(RUN_EFFECTS))
        Effect.objects.update(state=EffectState.DONE, claim_epoch=1)
    assert hints == ([1, 1] if gather_seconds else [1, 2]), "the first is for the block itself"


def test_more_units_than_one_batch_are_all_accounted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "BATCH", 3)
    dag = finished(7)
    assert account_for(dag) == 7
    assert account_for(dag) == 0
    assert_accounted(dag, units=7)


@pytest.mark.parametrize("lost", [False, True])
def test_what_failed_in_a_dag_that_has_ended_is_counted_to_the_end_of_its_log(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag, text = finished(1), json.dumps(line()) + "\n"
    monkeypatch.setattr(failures, "PORTION_BYTES", 2 * len(text))
    (Path(dag.submit_dir) / layout.FAILURES_FILE).write_text(text * 7)
    account_for(dag)
    assert FailureGroup.objects.get().attempts == 2, "what is left is the next sweep's"
    with evaluating(Request.objects.get(workflow=dag.workflow_id).pk, owner="test") as evaluation:
        assert evaluation is not None
        accounting.account_lost(evaluation, dag) if lost else accounting.account_final(evaluation, dag, completed=True)
    assert FailureGroup.objects.get().attempts == 7, "there is no next one"


def test_a_wrong_manifest_and_a_violation_keep_nobody_else_from_being_accounted() -> None:
    dag = finished(4, mg_000001=Account.SHORT, mg_000002=Account.EXTRA)
    with pytest.raises(LedgerViolation, match="mg_000002"):
        account_for(dag)
    assert states(dag) == ["done", "done_unaccounted", "planned", "done"]
    assert Request.objects.get(workflow=dag.workflow_id).alert_code == "units_unaccounted"
    assert_accounted(dag, units=2)

    write_manifest(Path(dag.submit_dir), "mg_000001", 1, Account.RIGHT)
    write_manifest(Path(dag.submit_dir), "mg_000002", 1, Account.RIGHT)
    assert account_for(dag) == 2
    assert_accounted(dag, units=4)


@pytest.mark.parametrize("damage", ["size", "rse", "events", "twice"])
def test_a_manifest_that_cannot_be_right_keeps_nobody_else_from_being_accounted(damage: str) -> None:
    dag = finished(3)
    path = Path(dag.submit_dir) / "mg_000001" / layout.MANIFEST_FILE
    manifest: dict[str, Any] = json.loads(path.read_text())
    file = manifest["outputs"][0]["files"][0]
    if damage == "size":
        file["size_bytes"] = 2**63
    elif damage == "events":
        file["events"] = 2**63
    elif damage == "rse":
        manifest["rse"] = "T2_" + "x" * 200
    else:
        manifest["outputs"][0]["files"].append(file | {"size_bytes": file["size_bytes"] + 1, "adler32": "00000001"})
    path.write_text(json.dumps(manifest))
    assert account_for(dag) == 2
    assert states(dag) == ["done", "done_unaccounted", "done"]
    assert_accounted(dag, units=2)


def test_a_file_is_accounted_where_it_lies_also_at_a_fallback() -> None:
    dag = finished(1)
    path = Path(dag.submit_dir) / "mg_000000" / layout.MANIFEST_FILE
    manifest = json.loads(path.read_text())
    strayed, at_home = (output["files"][0] for output in manifest["outputs"])
    strayed["rse"] = "T1_US_FNAL"
    path.write_text(json.dumps(manifest))
    assert account_for(dag) == 1
    assert dict(OutputFile.objects.values_list("lfn", "rse")) == {strayed["lfn"]: "T1_US_FNAL", at_home["lfn"]: "T2_CH_CERN"}


def test_of_two_units_that_bring_one_file_the_second_is_refused_and_the_others_stay() -> None:
    dag = finished(3)
    first, second = (Path(dag.submit_dir) / name / layout.MANIFEST_FILE for name in ("mg_000000", "mg_000001"))
    stolen: dict[str, Any] = json.loads(second.read_text())
    stolen["outputs"][0]["files"][0]["lfn"] = json.loads(first.read_text())["outputs"][0]["files"][0]["lfn"]
    second.write_text(json.dumps(stolen))
    with pytest.raises(LedgerViolation, match=r"mg_000001: .* is already known with other content"):
        account_for(dag)
    assert states(dag) == ["done", "planned", "done"]
    assert_accounted(dag, units=2)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Something happens once, after the manifests were compared and before anything is written."""
    left = [happens]

    def point(name: str) -> None:
        if name == "register.claimed" and left:
            left.pop()()

    monkeypatch.setattr(accounting, "crash_point", point)


def test_a_unit_that_is_no_longer_open_undoes_its_batch_and_the_next_look_accounts_the_others(monkeypatch) -> None:
    dag = finished(3)
    unit = WorkUnit.objects.filter(dag=dag, name="mg_000001")
    meanwhile(monkeypatch, lambda: unit.update(state=WorkUnitState.ABANDONED))
    with pytest.raises(StaleState, match="mg_000001"):
        account_for(dag)
    assert states(dag) == ["planned", "abandoned", "planned"]
    assert not OutputFile.objects.exists()
    assert not Effect.objects.exists()
    assert account_for(dag) == 2
    assert_accounted(dag, units=2)


def test_of_two_workers_that_account_the_same_units_one_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = finished(5)

    def another() -> None:
        EvaluationLease.objects.filter(request__workflow=dag.workflow_id).update(expires_at=timezone.now() - timedelta(seconds=1))
        assert account_for(dag) == 5

    meanwhile(monkeypatch, another)
    with pytest.raises(LeaseLost):
        account_for(dag)
    assert_accounted(dag, units=5)
