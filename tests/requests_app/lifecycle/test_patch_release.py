"""Requests that differ in the release only: DBS finds a file's configuration without it, and every block is whole there."""

from __future__ import annotations

from pathlib import Path

import pytest

from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from requests_app.models import Request, RequestStatus
from requests_app.services.intake import Received, request_import
from tests.support.scripted import documents
from tests.support.scripted.progress import run_on
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
OLD, NEW = "CMSSW_14_0_0", "CMSSW_14_0_22"


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch)
    world.furnish()
    return world


def completed(world: World, request: Request) -> Request:
    run_on(world, request)
    assert request.status == RequestStatus.COMPLETED, (request.waiting_for, request.last_error)
    return request


def test_a_newer_patch_release_completes_and_says_what_dbs_shows(world: World) -> None:
    document = documents.generation()
    first = completed(world, world.request(document))
    assert first.warnings == []
    second = completed(
        world, world.request(document | {"RequestName": "tester_patch_release", "CMSSWVersion": NEW, "ProcessingVersion": 2})
    )
    names = set(OutputDataset.objects.filter(workflow__request=second).values_list("name", flat=True))
    assert len(second.warnings) == len(names) == 2, "once for each dataset, however many blocks it has"
    for name, warning in zip(sorted(names), sorted(second.warnings), strict=True):
        assert name in warning and OLD in warning and NEW in warning
    blocks = ProcessingBlock.objects.filter(workflow__request=second)
    assert blocks and {block.status for block in blocks} == {BlockStatus.ARCHIVED}
    for block in blocks:
        assert block.dbs_block_closed and block.tape_rule_id
        assert [block.dataset_name in each for each in block.warnings] == [True]
    registrations = Effect.objects.filter(request=second, kind=EffectKind.DBS_BLOCK)
    assert {(effect.state, len(effect.result["warnings"])) for effect in registrations} == {(EffectState.DONE, 1)}


def test_a_dataset_whose_files_have_another_release_is_warned_of_when_the_request_comes_in(world: World) -> None:
    document = documents.generation()
    first = completed(world, world.request(document))
    again = document | {"RequestName": "tester_mixed_release", "CMSSWVersion": NEW}
    asked = Received(family_of=first.request_name, family_reason="the rest of it with a patch")
    second = request_import(document=again, request_name=None, actor="tester", asked=asked)
    world.cycle()
    second.refresh_from_db()
    names = list(OutputDataset.objects.filter(workflow__request=first).values_list("name", flat=True))
    assert len(second.warnings) == len(names)
    assert all(f"made with {OLD}, not {NEW}" in warning for warning in second.warnings)
