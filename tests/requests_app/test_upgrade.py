"""A database as it was before datasets had owners and DBS was told of whole blocks, with rows of every kind in use, migrated.

The rows are written through the models of that time; what is checked is what today's code reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.apps.registry import Apps
from django.db import IntegrityError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from dags_app.models import DAG, WorkUnitClaim
from outputs_app.blocks import blocks_advance, blocks_seal
from outputs_app.executor import due_effects
from outputs_app.models import BlockStatus, DatasetOwner, Effect, EffectState, ProcessingBlock
from outputs_app.owning import lumi_next, names_refuse
from requests_app.lifecycle import leader
from requests_app.limits import limits_now
from requests_app.models import LEADER_LEASE, InputFile, Limit, Request
from requests_app.work.exclusions import exclusions_open
from requests_app.work.spec import spec_of, spec_to_json
from sites_app.models import PoolState, Schedd
from tests.support.rows import generation_spec
from wms2.errors import DocumentRefused

BEFORE = [("dags_app", "0005_lost_queues"), ("outputs_app", "0003_dataset_state_and_invalidation"),
          ("requests_app", "0008_search_trigrams"), ("sites_app", "0003_lost_queues")]  # fmt: skip
AFTER_SPEC = ("merge", "block_closing", "algorithm", "lumis_per_job", "files_per_job", "file_lumis")

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(name="database")
def _database(django_db_blocker: Any) -> Iterator[None]:
    """A database of the test's own, as it was: a migration that breaks must not break it for others."""
    mine, alone = connection.settings_dict["NAME"], f"{connection.settings_dict['NAME']}_upgrade"
    connection.close()
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{alone}"')
        cursor.execute(f'CREATE DATABASE "{alone}" TEMPLATE "{mine}"')
    connection.settings_dict["NAME"] = alone
    try:
        MigrationExecutor(connection).migrate(BEFORE)
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = mine
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{alone}"')


def upgrade() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


class Old:
    """Rows by the models of then."""

    def __init__(self) -> None:
        self.apps: Apps = MigrationExecutor(connection).loader.project_state(BEFORE).apps

    def __call__(self, model: str, **fields: Any) -> Any:
        return self.apps.get_model(model).objects.create(**fields)

    def request(self, name: str, status: str, **fields: Any) -> Any:
        if status == "held":
            fields |= {"hold_code": "operator", "hold_reason": "for a test"}
        return self("requests_app.Request", request_name=name, requestor="somebody", request_data={}, status=status, **fields)

    def workflow(self, request: Any, *datasets: str, **fields: Any) -> Any:
        """With one DAG that has run or runs."""
        spec = {key: value for key, value in spec_to_json(generation_spec()).items() if key not in AFTER_SPEC}
        workflow = self(
            "requests_app.Workflow", request=request, splitting_algo="EventBased", spec=spec, requested_events=100, **fields
        )
        workflow.refresh_from_db()
        for name in datasets:
            self("outputs_app.OutputDataset", workflow=workflow, name=name, step="GenSim", module="RAWSIMoutput", tier="GEN-SIM")
        round_ = self("requests_app.Round", workflow=workflow, index=0)
        pk = uuid.uuid4()
        live = request.status == "active"
        self(
            "dags_app.DAG", id=pk, directory_id=pk, workflow=workflow, round=round_, dag_file_path="/x/workflow.dag",
            submit_dir="/x", instance="test", status="running" if live else "completed", dagman_cluster_id=str(workflow.number),
            fence=1, nodes_running=4, submitted_at=timezone.now(),
        )  # fmt: skip
        return workflow

    def block(self, workflow: Any, status: str, *, index: int = 0, sealed: bool = True, **fields: Any) -> Any:
        dataset = workflow.output_datasets.get()
        if status == "archived":
            fields |= {"tape_rule_id": "tape"}
        return self(
            "outputs_app.ProcessingBlock", workflow=workflow, dataset=dataset, block_index=index, dataset_name=dataset.name,
            dbs_block_name=f"{dataset.name}#{uuid.uuid4()}", status=status, sealed_at=timezone.now() if sealed else None,
            **fields,
        )  # fmt: skip

    def unit(self, block: Any, *, done: bool = True, told: str = "done", parents: tuple[str, ...] = ()) -> Any:
        """A member of the block; a file of one that is done is in Rucio with its rule, and ``told`` to DBS or not."""
        workflow = block.workflow
        dag, number = workflow.dags.get(), self.apps.get_model("dags_app.WorkUnit").objects.count()
        ended = {"state": "done", "manifest_sha256": "0", "fence": 1} if done else {}
        unit = self(
            "dags_app.WorkUnit", workflow=workflow, round=dag.round, dag=dag, index=number, name=f"mg_{number:06d}", jobs=8,
            **ended,
        )  # fmt: skip
        self("outputs_app.BlockWorkUnit", block=block, unit=unit, dataset=block.dataset, done=done, size_bytes=10)
        if done:
            self(
                "outputs_app.OutputFile", lfn=f"/store/mc/{block.pk}/{number}.root", dataset=block.dataset, block=block,
                unit=unit, rse="T2_CH_CERN", size_bytes=10, adler32="0000000a", events=10, lumis={"1": [[number + 1, 10]]},
                rule_id="rule", parents=list(parents),
            )  # fmt: skip
            dataset = self.effect(block, "dbs_dataset", str(block.dataset_id), block=None)
            opened = self.effect(block, "dbs_block_open", str(block.pk), after=dataset)
            self.effect(block, "dbs_files", f"{block.pk}:{unit.pk}", unit=unit, state=told, after=opened)
            there = self.effect(block, "rucio_block", str(block.pk))
            for kind in ("rucio_files", "rucio_protect"):
                there = self.effect(block, kind, f"{block.pk}:{unit.pk}", unit=unit, after=there)
        return unit

    def claim(self, unit: Any, kind: int, scope: int, run: int, first: int, last: int, **fields: Any) -> None:
        """As it was written then: ranges of one point, and one of events or lumis."""
        points = {"kind": (kind, kind + 1), "scope": (scope, scope + 1), "run": (run, run + 1)}
        self("dags_app.WorkUnitClaim", unit=unit, **points, span=(first, last + 1), **fields)

    def ending(self, block: Any, *, dbs: str, tape: str) -> None:
        """What a block that is whole has asked for."""
        self.effect(block, "dbs_block_close", str(block.pk), state=dbs)
        closed = self.effect(block, "rucio_block_close", str(block.pk))
        self.effect(block, "rucio_tape", str(block.pk), state=tape, after=closed)

    def effect(self, of: Any, kind: str, key: str, *, state: str = "done", after: Any = None, **fields: Any) -> Any:
        effects = self.apps.get_model("outputs_app.Effect").objects
        effect, _ = effects.get_or_create(
            key=f"{kind}:{key}", defaults={"kind": kind, "request": of.workflow.request, "block": of, "state": state, **fields}
        )
        if after is not None:
            effect.depends_on.add(after)
        return effect


def advance(name: str) -> None:
    """What the life cycle does with a request of which nothing is left to plan."""
    request = Request.objects.get(request_name=name)
    blocks_seal(workflow_id=request.workflow.pk)
    blocks_advance(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)


def blocks(name: str) -> list[ProcessingBlock]:
    return list(ProcessingBlock.objects.filter(workflow__request__request_name=name).order_by("dataset_name", "block_index"))


def files(block: ProcessingBlock) -> int:
    return block.files.count()


def asked(block: ProcessingBlock, kind: str = "dbs_block") -> Effect:
    return Effect.objects.get(block=block, kind=kind)


def test_a_filled_database_comes_along(database: None) -> None:
    old = Old()

    # Begun in DBS and still taking units: one unit DBS knows, of one it was to be told, one is not done.
    active = old.workflow(old.request("active", "active"), "/A/E-v1/T")
    begun = old.block(active, "open", sealed=False, dbs_block_open=True)
    claiming = old.unit(begun)
    old.unit(begun, told="pending")
    planned = old.unit(begun, done=False)

    # Whole, and DBS was not told of everything; or only to be closed there; or already closed, with a child's block to come.
    whole = old.workflow(old.request("whole", "active"), "/W/E-v1/T")
    lacking = old.block(whole, "complete", dbs_block_open=True)
    old.unit(lacking)
    old.unit(lacking, told="refused")
    old.ending(lacking, dbs="pending", tape="pending")
    to_close = old.block(whole, "complete", index=1, dbs_block_open=True)
    old.unit(to_close)
    old.ending(to_close, dbs="pending", tape="pending")
    closed = old.block(whole, "archived", index=2, dbs_block_open=True, dbs_block_closed=True)
    old.unit(closed)
    old.ending(closed, dbs="done", tape="done")
    child = old.block(whole, "open", index=3)
    old.unit(child, told="pending", parents=(closed.files.get().lfn,))
    archived = old.block(whole, "archived", index=4, dbs_block_open=True)
    old.unit(archived)
    old.ending(archived, dbs="pending", tape="done")

    # DBS did not take a unit's files for days: the block has failed over an effect that there is no more.
    failing = old.workflow(old.request("failing", "active"), "/F/E-v1/T")
    dead = old.block(failing, "failed", dbs_block_open=True)
    old.unit(dead)
    old.unit(dead, told="dead")
    unprotected = old.unit(old.block(failing, "failed", index=1, dbs_block_open=True), told="pending")
    unprotected.effects.filter(kind="rucio_protect").update(state="dead")
    unprotected.output_files.update(rule_id="")

    # Two that write into one dataset; a next version; one that has ended with files, one without; one that has no workflow yet.
    first, clone = old.request("first", "completed"), old.request("clone", "held")
    old.unit(old.block(old.workflow(first, "/S/E-v1/T", next_first_lumi=70), "archived", dbs_block_closed=True))
    old.workflow(clone, "/S/E-v1/T", next_first_lumi=40)
    old.workflow(old.request("next", "queued", previous_version_request=first), "/S/E-v2/T")
    old.unit(old.block(old.workflow(old.request("failed", "failed"), "/D/E-v1/T"), "failed", dbs_block_open=True))
    old.workflow(old.request("aborted", "aborted"), "/N/E-v1/T")
    old.request("new", "submitted")

    # Input files, read or left out.
    now = timezone.now()
    for lfn, by, why in (
        ("/a", "", ""),
        ("/b", "import", "no lumi of the file survives LumiList and the run lists"),
        ("/c", "planner", "no site has a replica"),
        ("/d", "operator", "1:2 of the file came late: that lumi is done, from other files"),
        ("/e", "somebody", "it is bad"),
    ):
        gone = {"excluded_at": now, "excluded_by": by, "excluded_reason": why} if why else {}
        old("requests_app.InputFile", workflow=active, lfn=lfn, block_name="/I#1", size_bytes=1, events=1, **gone)
    (claimed,) = old.apps.get_model("requests_app.InputFile").objects.filter(lfn="/a")
    old.claim(claiming, WorkUnitClaim.KIND_FILE_EVENTS, claimed.pk, 0, 0, 9, input_file=claimed, events=10)
    old.claim(claiming, WorkUnitClaim.KIND_RUN_LUMIS, active.number, 3, 5, 8)
    old.claim(planned, WorkUnitClaim.KIND_RUN_LUMIS, active.number, 3, 7, 12, live=False)
    old("requests_app.Lease", name=LEADER_LEASE, owner="another", epoch=4, expires_at=now - timedelta(hours=1), heartbeat_at=now)

    old("requests_app.Limit", name="dag_max_merge_groups", value=40, actor="olga", reason="a larger schedd")

    upgrade()

    # -- owners and numbers
    owners = {(row.dataset.name, row.request.request_name) for row in DatasetOwner.objects.select_related("dataset", "request")}
    assert owners == {
        ("/A/E-v1/T", "active"), ("/W/E-v1/T", "whole"), ("/F/E-v1/T", "failing"), ("/S/E-v1/T", "first"), ("/S/E-v1/T", "clone"),
        ("/S/E-v2/T", "next"), ("/D/E-v1/T", "failed"),
    }  # fmt: skip
    family = {request.request_name: request.family for request in Request.objects.all()}
    assert family["first"] == family["clone"] == family["next"]
    assert len(set(family.values())) == len(family) - 2
    names_refuse(family=family["clone"], names=["/S/E-v1/T", "/N/E-v1/T"])
    with pytest.raises(DocumentRefused, match="belongs to first"):
        names_refuse(family=family["new"], names=["/S/E-v1/T"])
    assert lumi_next(request_id=clone.pk) == 70
    assert spec_of(Request.objects.get(pk=clone.pk).workflow) == generation_spec()

    # -- blocks: what DBS has stays there, the rest goes to another one, and all end
    for name in ("active", "whole", "failing"):
        advance(name)
    known, rest = blocks("active")
    assert (known.pk, known.status, files(known)) == (begun.pk, BlockStatus.COMPLETE, 1)
    assert (rest.status, files(rest), rest.members.filter(done=False).count()) == (BlockStatus.OPEN, 1, 1)

    lacked, only_to_close, was_closed, of_child, on_tape, others = blocks("whole")
    assert [files(block) for block in (lacked, only_to_close, was_closed, of_child, on_tape, others)] == [1] * 6
    for block in (lacked, only_to_close, of_child, others):
        assert block.status == BlockStatus.COMPLETE
        assert asked(block).state == EffectState.PENDING
        assert asked(block) in asked(block, "rucio_tape").depends_on.all(), "nothing goes to tape that DBS refuses"
    assert asked(was_closed).state == EffectState.DONE
    assert not asked(of_child).depends_on.filter(kind="dbs_block").exclude(state=EffectState.DONE).exists(), "its parent is there"
    assert (on_tape.status, asked(on_tape).state) == (BlockStatus.ARCHIVED, EffectState.PENDING)

    good, again = blocks("failing")
    assert {good.status, again.status} == {BlockStatus.COMPLETE}
    assert (files(good), files(again), good.failure_context) == (1, 2, {})
    assert blocks("failed")[0].status == BlockStatus.FAILED

    kinds = set(Effect.objects.values_list("kind", flat=True))
    assert kinds == {"rucio_block", "rucio_files", "rucio_protect", "rucio_block_close", "dbs_block", "rucio_tape"}
    _all_can_be_carried_out()
    again_protected = Effect.objects.filter(kind="rucio_protect", block=again)
    assert list(again_protected.values_list("unit", flat=True)) == [unprotected.pk], "what has its rule keeps it"

    # -- claims
    fields = ("unit", "input_file", "kind", "scope", "run", "first", "last", "events", "live")
    assert list(WorkUnitClaim.objects.order_by("id").values_list(*fields)) == [
        (claiming.pk, claimed.pk, WorkUnitClaim.KIND_FILE_EVENTS, claimed.pk, 0, 0, 9, 10, True),
        (claiming.pk, None, WorkUnitClaim.KIND_RUN_LUMIS, active.number, 3, 5, 8, 0, True),
        (planned.pk, None, WorkUnitClaim.KIND_RUN_LUMIS, active.number, 3, 7, 12, 0, False),
    ]
    with pytest.raises(IntegrityError, match="lumis of run 3, 7 to 12, of which mg_000000 has 5 to 8"):
        WorkUnitClaim.objects.filter(unit=planned.pk).update(live=True)

    # -- the rest
    kinds_of = dict(InputFile.objects.values_list("lfn", "excluded_kind"))
    assert kinds_of == {"/a": "", "/b": "unwanted", "/c": "lost", "/d": "late", "/e": "operator"}
    left_out = exclusions_open(Request.objects.get(request_name="active").workflow)
    assert [file.lfn for file in left_out.files] == ["/c"], "it is held over this one before it completes"
    running = {dag.workflow.request_id: dag.nodes_running for dag in DAG.objects.select_related("workflow")}
    assert (running["active"], running["first"]) == (4, 0)
    assert set(DAG.objects.values_list("merge_groups", flat=True)) == {40}, "their slots are counted as before"
    with leader.leading() as leadership:
        assert leadership is not None
        assert leadership.epoch == 5


@pytest.mark.deep("tests/requests_app/test_upgrade.py::test_a_filled_database_comes_along")
def test_the_slots_of_a_known_schedd_are_not_filled_by_a_new_default(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dag_max_merge_groups"
    monkeypatch.delenv("WMS2_DAG_MAX_MERGE_GROUPS", raising=False)
    Old()("sites_app.Schedd", pool="c:9618", collector="c:9618", name="s", submit_root="/x", max_dagman_slots=500)
    upgrade()
    schedd = Schedd.objects.get()
    assert schedd.max_dagman_slots == 500
    assert (schedd.pool.name, schedd.pool.collector, schedd.pool.state) == ("c:9618", "c:9618", PoolState.ENABLED)
    with connection.cursor() as cursor:  # processes of the version before read it
        cursor.execute("SELECT collector FROM schedds")
        assert cursor.fetchall() == [("c:9618",)]
    assert (getattr(limits_now(), name), Limit.objects.get().pk) == (10, name)

    decide = import_module("requests_app.migrations.0025_merge_groups").as_by_default_so_far
    Limit.objects.update(value=40)
    decide(apps, None)
    assert getattr(limits_now(), name) == 40, "an operator's limit stays"
    Limit.objects.all().delete()
    with monkeypatch.context() as chosen:
        chosen.setenv("WMS2_DAG_MAX_MERGE_GROUPS", "40")
        decide(apps, None)
    Schedd.objects.all().delete()
    decide(apps, None)
    assert not Limit.objects.exists(), "the environment's choice is not hidden, and a new installation has the new default"


def _all_can_be_carried_out() -> None:
    """One after the other, in any order that dependencies allow, every effect that is owed comes to its turn."""
    while (effect := due_effects().first()) is not None:
        Effect.objects.filter(pk=effect.pk).update(state=EffectState.DONE)
    assert not Effect.objects.exclude(state=EffectState.DONE).exists()
