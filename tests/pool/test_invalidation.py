"""Fail, invalidate and restart on the real stack: rules really end in Rucio, files and datasets are really INVALID in DBS."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outputs_app.models import (
    RULED,
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from requests_app.models import CleanupPolicy, Request, RequestStatus
from requests_app.services import request_fail, request_invalidate, request_invalidate_files, request_restart
from tests.support.outcomes import assert_completed_once, assert_nothing_runs, ended, imported, status
from tests.support.stack import Worker, worker
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo
from wms2.conf import conf

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
S = RequestStatus
WHO = {"actor": "olga", "reason": "wrong global tag"}
KINDS = (EffectKind.INVALIDATION_MANIFEST, EffectKind.DBS_INVALIDATE, EffectKind.RUCIO_RELEASE)
POINTS = tuple(f"{kind}.{point}" for kind in KINDS for point in ("claimed", "called", "recorded"))
#: One work unit at a time and a block for each, so that one is registered while the other is still to be done.
ONE_BY_ONE = {"jobs_per_work_unit": 1, "dag_max_merge_groups": 1, "block_max_files": 1}


def rules(request: Request) -> list[RuleInfo]:
    """Those that stay: Rucio keeps a deleted rule for an hour, with its end set."""
    found = factory.rucio().rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    return [rule for rule in found if rule.expires_at is None]


def half_registered(request: Request) -> bool:
    """Each of its datasets has a file that is registered, with a rule that protects it."""
    files = OutputFile.objects.filter(block__workflow__request=request)
    protected = set(files.filter(RULED).values_list("dataset_id", flat=True))
    registering = Effect.objects.filter(request=request).exclude(state=EffectState.DONE)
    return len(protected) == 2 and not registering.exists()


def stopped_half_way(request: Request, running: Worker) -> None:
    running.wait(lambda: half_registered(request) or ended(request), seconds=180)
    request.refresh_from_db()
    assert request.status == S.ACTIVE, "it has not ended before the other unit was done"
    assert rules(request)


def manifest(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((conf().state_dir / "invalidations" / f"{request.request_name}.json").read_text())
    return document


def listed_rules(document: dict[str, Any]) -> set[str]:
    return {rule["id"] for dataset in document["datasets"] for block in dataset["blocks"] for rule in block["rules"]}


def assert_untouched(request: Request, document: dict[str, Any]) -> None:
    """A failure lists what there is, and takes nothing back."""
    assert listed_rules(document) == {rule.rule_id for rule in rules(request)}
    for block in ProcessingBlock.objects.filter(workflow__request=request):
        assert block.status == (BlockStatus.ARCHIVED if block.dbs_block_closed else BlockStatus.FAILED)
        assert all(file.is_valid for file in factory.dbs().block_files(block.dbs_block_name))


def invalidated(request: Request) -> bool:
    """In DBS, and every rule deleted, which comes after it."""
    wanted = request.workflow.output_datasets.count()
    if Effect.objects.filter(request=request, kind__in=KINDS).exclude(state=EffectState.DONE).exists():
        return False
    return request.workflow.output_datasets.filter(state=DatasetState.INVALIDATED).count() == wanted == 2


def assert_taken_back(request: Request, document: dict[str, Any]) -> None:
    """Of everything that was listed: no rule lives on, no file is valid; each was asked for once."""
    assert listed_rules(document) and not rules(request)
    for dataset in request.workflow.output_datasets.all():
        in_dbs = factory.dbs().dataset(dataset.name)
        assert in_dbs is not None
        assert in_dbs.access_type == "INVALID"
        for block in ProcessingBlock.objects.filter(dataset=dataset):
            files = factory.dbs().block_files(block.dbs_block_name)
            assert {file.lfn for file in files} == set(block.files.values_list("lfn", flat=True))
            assert not any(file.is_valid for file in files)
            assert (block.status, block.tape_rule_id) == (BlockStatus.INVALIDATED, "")
        rows = OutputFile.objects.filter(dataset=dataset)
        assert {(row.validity, row.rule_id) for row in rows} == {(Validity.INVALID, "")}
    asked = Counter(Effect.objects.filter(request=request, kind__in=KINDS).values_list("kind", "state"))
    assert asked == {
        (EffectKind.INVALIDATION_MANIFEST, EffectState.DONE): 1,
        (EffectKind.RUCIO_RELEASE, EffectState.DONE): 2,
        (EffectKind.DBS_INVALIDATE, EffectState.DONE): 2,
    }


def test_killed_at_every_point_of_an_invalidation_the_outputs_are_taken_back_once(ready: None, tmp_path: Path) -> None:
    request = imported(steps=3)
    mark = tmp_path / "mark"
    crash = {"WMS2_CRASH_AT": ",".join(POINTS), "WMS2_CRASH_MARK": str(mark), **ONE_BY_ONE}

    with worker(**crash, WMS2_NODE="one") as first, worker(**crash, WMS2_NODE="two") as second:

        def alive(done: bool) -> bool:
            second.revive()
            return done

        stopped_half_way(request, first)
        request_fail(request=request, **WHO)
        written = Effect.objects.filter(request=request, kind=EffectKind.INVALIDATION_MANIFEST, state=EffectState.DONE)
        first.wait(lambda: alive(status(request) == S.FAILED and written.exists()), seconds=120, restart=True)
        assert_nothing_runs(request)
        document = manifest(request)
        assert_untouched(request, document)

        request.refresh_from_db()
        assert request_invalidate(request=request, **WHO) == 2
        request_invalidate(request=request, **WHO)
        first.wait(lambda: alive(invalidated(request)), seconds=180, restart=True)
        effects = Effect.objects.filter(request=request, kind__in=KINDS).exclude(state=EffectState.DONE)
        first.wait(lambda: alive(not effects.exists()), seconds=120, restart=True)
    assert set(mark.read_text().split()) == set(POINTS), "every kill point was met"
    assert_taken_back(request, document)


@pytest.mark.deep(
    "tests/requests_app/services/test_recovery_verbs.py::"
    "test_with_immediate_cleanup_the_old_outputs_are_invalidated_when_the_new_version_is_complete"
)
def test_a_restart_with_immediate_cleanup_takes_the_old_outputs_back_once_the_new_are_complete(ready: None) -> None:
    old = imported(steps=3)
    with worker(**ONE_BY_ONE) as running:
        stopped_half_way(old, running)
        new = request_restart(request=old, cleanup_policy=CleanupPolicy.IMMEDIATE_CLEANUP, **WHO)  # type: ignore[arg-type]
        running.wait(lambda: status(old) == S.FAILED, seconds=120)
        running.wait(lambda: ended(new), seconds=240)
        document = manifest(old)
        running.wait(lambda: invalidated(old), seconds=120)
    assert_completed_once(new, blocks_each=2)
    assert_taken_back(old, document)
    assert {dataset.state for dataset in new.workflow.output_datasets.all()} == {DatasetState.ACTIVE}
    assert rules(new)
    old_names = set(old.workflow.output_datasets.values_list("name", flat=True))
    new_names = set(new.workflow.output_datasets.values_list("name", flat=True))
    assert {name.replace("-v1/", "-v2/") for name in old_names} == new_names


def test_killed_at_every_point_a_block_of_a_completed_request_is_taken_back_once_and_the_others_stay(
    ready: None, tmp_path: Path
) -> None:
    request = imported(steps=3)
    mark = tmp_path / "mark"
    points = [f"{EffectKind.FILES_INVALIDATE}.{point}" for point in ("claimed", "called", "recorded")]
    crash = {"WMS2_CRASH_AT": ",".join(points), "WMS2_CRASH_MARK": str(mark), **ONE_BY_ONE}
    with worker(**crash) as running:
        running.wait(lambda: ended(request), seconds=240)
        request.refresh_from_db()
        assert request.status == S.COMPLETED
        block, *others = ProcessingBlock.objects.filter(workflow=request.workflow).order_by("-dataset_name", "block_index")
        mine = {block.tape_rule_id, block.source_rule_id}
        request_invalidate_files(request=request, blocks=[block.dbs_block_name], accept_children=True, **WHO)
        asked = Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE)
        running.wait(lambda: not asked.exclude(state=EffectState.DONE).exists(), seconds=120, restart=True)
        running.wait(lambda: len(mark.read_text().split()) == len(points), seconds=30)
    block.refresh_from_db()
    assert (asked.count(), block.status, block.tape_rule_id) == (1, BlockStatus.INVALIDATED, "")
    assert not any(file.is_valid for file in factory.dbs().block_files(block.dbs_block_name))
    left = {rule.rule_id for rule in rules(request)}
    assert "" not in mine and not mine & left
    for other in others:
        assert {other.tape_rule_id, other.source_rule_id} <= left and other.status == BlockStatus.ARCHIVED
        assert all(file.is_valid for file in factory.dbs().block_files(other.dbs_block_name))
