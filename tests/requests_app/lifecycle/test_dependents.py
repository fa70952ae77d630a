"""Requests that depend on others begin when these have completed and read what they wrote; those of a group end together."""

from __future__ import annotations

from typing import Any

import pytest

from outputs_app.models import BlockValidation, OutputDataset
from requests_app.lifecycle import planning
from requests_app.models import HoldCode, InputFile, Request, RequestStatus, RequestTransition
from requests_app.services import Received, request_abort, request_depend, request_import, request_release, request_restart
from tests.support.scripted import documents, tour
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import cycles, fresh, held, run_on, started, status
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import DocumentRefused, InvalidTransition, ServiceUnavailable

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "reads its output"}


def written_by(request: Request, tier: str = "GEN-SIM") -> str:
    return OutputDataset.objects.get(workflow__request=request, tier=tier).name


def in_dbs(world: World, dataset: str) -> None:
    """As another DBS would show it to readers."""
    blocks = {f"{dataset}#0": [SourceFile(f"/store/made/{number}.root", 30, 3 * number + 1) for number in range(2)]}
    world.sources[dataset] = Source(blocks, {f"{dataset}#0": ("T2_CH_CERN",)})


def child_of(parent: Request, dataset: str = "", **more: Any) -> Request:
    document = documents.reprocessing(dataset or written_by(parent), files_per_job=1)
    return request_import(
        document=document, request_name=None, actor="olga", asked=Received(depends_on=(parent.request_name,), **more)
    )


def test_a_dependent_waits_however_long_and_begins_when_its_parent_has_completed(world: World) -> None:
    parent, _ = started(world)
    child = child_of(parent)
    cycles(world)
    assert fresh(child).waiting_for == f"what it depends on: {parent}"
    world.clock.advance(30 * 86_400)
    cycles(world)
    assert status(child) == S.SUBMITTED
    in_dbs(world, written_by(parent))
    assert run_on(world, parent) == S.COMPLETED, parent.waiting_for
    cycles(world)
    assert status(child) in (S.QUEUED, S.PLANNING, S.ACTIVE)
    assert InputFile.objects.filter(workflow__request=child).count() == 2


def test_the_time_limit_of_its_status_counts_from_when_it_may_begin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(**_: Any) -> None:
        raise ServiceUnavailable("dbs", "files", "silent")

    parent, _ = started(world)
    child = child_of(parent)
    cycles(world)
    world.clock.advance(10 * 86_400)
    with monkeypatch.context() as patch:
        patch.setattr(planning, "workflow_import", silent)
        assert run_on(world, parent) == S.COMPLETED, parent.waiting_for
        cycles(world)
        assert (status(child), child.last_error) == (S.SUBMITTED, "dbs files: silent")
        world.clock.advance(2 * 3600)
        cycles(world)
    assert (status(child), child.hold_code) == (S.HELD, HoldCode.TIMEOUT)


def test_a_parent_that_ends_otherwise_holds_it_until_its_dependency_is_changed(world: World) -> None:
    parent, _ = started(world)
    child = child_of(parent)
    request_abort(request=parent, **BY)
    cycles(world)
    assert (status(child), child.hold_code) == (S.HELD, HoldCode.PARENT)
    assert f"{parent} is Aborted" in child.hold_reason
    request_release(request=child, **BY)
    cycles(world)
    assert (status(child), child.hold_code) == (S.HELD, HoldCode.PARENT)
    in_dbs(world, child.input_dataset)
    request_depend(request=child, **BY)
    request_release(request=fresh(child), **BY)
    cycles(world)
    assert InputFile.objects.filter(workflow__request=child).exists()


def test_the_next_version_of_a_parent_takes_its_place_and_its_output_is_read(world: World) -> None:
    first = held(world)
    child = child_of(first)
    second = request_restart(request=first, **BY)
    cycles(world)
    assert list(child.depends_on.all()) == [second]
    in_dbs(world, written_by(second))
    assert written_by(second) != fresh(child).input_dataset
    assert run_on(world, second) == S.COMPLETED
    cycles(world)
    assert fresh(child).input_dataset == child.workflow.input_dataset == written_by(second)
    assert InputFile.objects.filter(workflow=child.workflow).count() == 2


def test_an_aborted_next_version_gives_its_dependents_back(world: World) -> None:
    first, _ = started(world)
    child = child_of(first)
    second = request_restart(request=first, **BY)
    request_abort(request=fresh(first), **BY)
    cycles(world)
    assert (status(second), list(child.depends_on.all())) == (S.ABORTED, [first])
    assert status(child) == S.HELD


def test_a_circle_is_refused_by_name(world: World) -> None:
    first, second, third = (world.request(documents.generation(), submit=False) for _ in range(3))
    request_depend(request=second, depends_on=[first.request_name], **BY)
    request_depend(request=third, depends_on=[second.request_name], **BY)
    with pytest.raises(DocumentRefused, match=f"wait for itself: {first} -> {third} -> {second} -> {first}"):
        request_depend(request=first, depends_on=[third.request_name], **BY)
    with pytest.raises(DocumentRefused, match=f"wait for itself: {first} -> {first}"):
        request_depend(request=first, depends_on=[first.request_name], **BY)
    with pytest.raises(DocumentRefused, match="no request nobody"):
        request_depend(request=first, depends_on=["nobody"], **BY)


def test_its_input_is_what_its_parents_write(world: World) -> None:
    parent, _ = started(world)
    with pytest.raises(DocumentRefused, match="do not write its input /Other"):
        child_of(parent, "/Other/Era-v1/RAW")
    assert not Request.objects.exclude(pk=parent.pk).exists()


def test_what_has_begun_depends_on_nobody_new(world: World) -> None:
    first, _ = started(world)
    second, _ = started(world)
    with pytest.raises(InvalidTransition, match="has begun"):
        request_depend(request=first, depends_on=[second.request_name], **BY)


def test_children_of_a_group_complete_together_though_one_is_short_and_goes_back(world: World) -> None:
    first, second = (
        request_import(document=documents.generation(200), request_name=None, actor="olga", asked=Received(in_group="sample"))
        for _ in range(2)
    )
    for each in (first, second):
        world.schedd.end(tour.runs(world, each), End.FINISHED)
        tour.until(world, each, S.VALIDATED_OUTPUTS)
        if each == first:
            world.evaluate(first)
            assert fresh(first).waiting_for == f"the others of its group sample: {second}"
    BlockValidation.objects.filter(block__workflow__request=second).update(events=150)
    tour.until(world, second, S.QUEUED)
    world.clock.advance(10 * 86_400)
    world.cycle()
    assert (status(first), first.alert_code) == (S.VALIDATED_OUTPUTS, "")
    world.schedd.end(tour.runs(world, second), End.FINISHED)
    for _ in range(12):
        world.cycle()
        check(world)
        world.clock.advance(60)
    assert (status(first), status(second)) == (S.COMPLETED, S.COMPLETED)
    moved = RequestTransition.objects.filter(to_status=S.REMOVING_FILES).order_by("id")
    assert [row.request for row in moved] == [first, second]
    assert moved[0].reason == f"all of group sample are there, {second} as the last"
