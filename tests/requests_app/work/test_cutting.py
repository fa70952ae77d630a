"""Lost files are removed and their work is done again: in the end every piece is in one valid file of each output."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from outputs_app.checks.cases import case_decide
from outputs_app.models import (
    OPEN_CASE,
    BlockStatus,
    BlockValidation,
    CaseAction,
    CaseState,
    DatasetOwner,
    Effect,
    EffectKind,
    EffectState,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.services import effect_discard
from requests_app.lease import evaluating
from requests_app.lifecycle.packing import dags_pack, requests_archive
from requests_app.models import Event, InputFile, Request, RequestStatus, Workflow, WorkflowStatus
from requests_app.services.cases import case_remove, removal_preview
from requests_app.services.lost_files import lost_files_make_again, lost_files_plan
from requests_app.work.cutting import cases_settle
from requests_app.work.recount import recount
from tests.support.html import text
from tests.support.scripted import dagman, documents, made_again
from tests.support.scripted.branching import once
from tests.support.scripted.made_again import POINTS, Merges, account, assert_whole, document, fresh, valid
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.runtime.due import mark_due

HERE = "tests/requests_app/work/test_cutting.py"
#: For the long run.
DEEP = pytest.mark.deep(f"{HERE}::test_whatever_is_lost_every_piece_is_in_one_valid_file_of_each_output")
AFTER = pytest.mark.deep(f"{HERE}::test_a_file_lost_after_the_end_is_made_again_and_nothing_else")
KILLED = pytest.mark.deep(f"{HERE}::test_killed_once_at_every_step_of_a_removal_its_work_is_given_back_once")
pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "the disk is gone"}
WORLD = made_again.WORLD


_merges = Merges()


def _dealt(directory: Path, unit: str, fence: int, account: dagman.Account) -> None:
    _merges.write(directory, unit, fence, account)


@pytest.fixture(autouse=True)
def _by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dagman, "write_manifest", _dealt)


def completed(world: World, request: Request) -> Request:
    for _ in range(20):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
        if fresh(request).status == S.COMPLETED:
            return fresh(request)
    raise AssertionError((fresh(request).status, fresh(request).hold_reason, fresh(request).waiting_for, world.errors[:1]))


def made(world: World, way: str = "generated", *, seed: int = 0, events: int = 400, tells: bool = True) -> Request:
    """One that is complete."""
    _merges.seed, _merges.tells = seed, tells
    return _made(world, way, seed, events, tells)


@once
def _made(world: World, way: str, seed: int, events: int, tells: bool) -> Request:
    assert (_merges.seed, _merges.tells) == (seed, tells)
    return completed(world, world.request(document(world, way, seed, events)))


def waiting(request: Request) -> Request:
    """As validation leaves it when it has found something."""
    Request.objects.filter(pk=request.pk).update(status=S.WAITING_INTEGRITY, completed_at=None)
    Workflow.objects.filter(request=request).update(status=WorkflowStatus.HELD)
    return fresh(request)


def case(file: OutputFile) -> IntegrityCase:
    row = IntegrityCase.objects.filter(name=file.lfn, state__in=OPEN_CASE).first()
    return row or IntegrityCase.objects.create(
        request=file.block.workflow.request, block=file.block, file=file, name=file.lfn, rse=file.rse, site="T2_CH_CERN",
        prognosis=FindingKind.MISSING_REPLICA,
        evidence=[{"prognosis": "missing_replica", "expected": "there", "found": "not there", "generation": 1}],
    )  # fmt: skip


def settle(world: World, request: Request) -> int:
    found = []
    with world.process(), evaluating(request.pk, owner="test") as evaluation:
        assert evaluation is not None
        found.append(cases_settle(evaluation))
    return found[0] if found else -1


def again(world: World, request: Request) -> Request:
    """It goes on by itself: validated again, planned, completed."""
    mark_due([request.pk], "test")
    return completed(world, request)


@pytest.mark.dear("what is lost is made again once, whatever it was made of")
@pytest.mark.parametrize(
    ("way", "seed", "times"),
    [
        ("events", 0, 1), ("lumis", 0, 2), ("files", 0, 1), pytest.param("generated", 0, 1, marks=KILLED),
        *(pytest.param(way, 1, 2, marks=DEEP) for way in ("generated", "events", "lumis", "files")),
    ],
)  # fmt: skip
def test_whatever_is_lost_every_piece_is_in_one_valid_file_of_each_output(world: World, way: str, seed: int, times: int) -> None:
    chance = random.Random(seed)
    request = made(world, way, seed=seed, events=1100)
    assert_whole(world, request)
    sealed = set(ProcessingBlock.objects.filter(workflow__request=request).values_list("pk", flat=True))
    for _ in range(times):
        before, request = account(request), waiting(request)
        lost = chance.sample(valid(request), 2)
        for file in lost:
            case_remove(case=case(file), **BY)
        assert account(request) == before, "nothing is given back before it is INVALID outside"
        assert settle(world, request) > 0
        world.effects()
        assert settle(world, request) == 0
        gone = OutputFile.objects.filter(block__workflow__request=request, validity=Validity.INVALID)
        assert {file.lfn for file in lost} <= set(gone.values_list("lfn", flat=True))
        assert account(request).work_left
        assert account(request).done_events < before.done_events or before.all_events == 0
        touched = gone.filter(lfn__in=[file.lfn for file in lost]).values("block")
        assert not BlockValidation.objects.filter(block__in=touched, validated_at__isnull=False).exists()
        request = again(world, request)
        assert_whole(world, request)
    new = OutputFile.objects.filter(block__workflow__request=request).exclude(block__in=sealed)
    assert new.exists(), "replacements are in new blocks"
    removed = IntegrityCase.objects.filter(request=request)
    assert set(removed.values_list("state", "action")) == {(CaseState.REMOVED, CaseAction.REMOVED)}
    assert set(removed.values_list("name", flat=True)) == set(gone.values_list("lfn", flat=True))


@pytest.mark.parametrize("point", [pytest.param(point, marks=AFTER) for point in POINTS])
def test_killed_on_the_way_back_a_completed_request_makes_what_was_lost_once(world: World, point: str) -> None:
    request = made(world, "lumis", events=1100)
    lost = [valid(request)[0].lfn]
    world.crash_at = point
    lost_files_make_again(lfns=lost, confirm=lost_files_plan(lost).confirm, **BY)
    mark_due([request.pk], "test")
    request = completed(world, request)
    assert world.deaths == 1
    assert_whole(world, request)


def archived(request: Request, monkeypatch: pytest.MonkeyPatch, root: Path) -> Request:
    """Its directories are packed and moved away."""
    monkeypatch.setenv("WMS2_ARCHIVE_AFTER_DAYS", "0.001")
    monkeypatch.setenv("WMS2_ARCHIVE_ROOT", str(root))
    conf.cache_clear()
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    dags_pack()
    assert requests_archive() == 1
    return fresh(request)


@pytest.mark.parametrize(
    ("way", "end"),
    [
        ("generated", S.ARCHIVED),
        *(pytest.param(way, S.COMPLETED, marks=AFTER) for way in ("generated", "events", "lumis", "files")),
        *(pytest.param(way, S.ARCHIVED, marks=AFTER) for way in ("lumis", "files")),
    ],
)
def test_a_file_lost_after_the_end_is_made_again_and_nothing_else(
    world: World, way: str, end: RequestStatus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request = made(world, way, events=1100)
    if end == S.ARCHIVED:
        request = archived(request, monkeypatch, tmp_path / "archive")
    before, all_before = account(request), valid(request)
    lost = random.Random(2).sample(all_before, 2)
    plan = lost_files_plan([file.lfn for file in lost])
    (each,) = plan.requests
    assert {lfn for lfn, why in each.files.items() if not why} == {file.lfn for file in lost}
    assert fresh(request).status == end
    assert not IntegrityCase.objects.exists(), "looking changes nothing"
    lost_files_make_again(lfns=[file.lfn for file in lost], confirm=plan.confirm, **BY)
    assert (fresh(request).status, fresh(request).get_status_display()) == (S.WAITING_INTEGRITY, "Recovering")
    assert DatasetOwner.objects.filter(request=request).count() == 2
    mark_due([request.pk], "test")
    request = completed(world, request)
    assert_whole(world, request)
    gone = set(OutputFile.objects.filter(validity=Validity.INVALID).values_list("lfn", flat=True))
    assert gone == each.files.keys()
    assert {file.lfn for file in all_before} - gone < {file.lfn for file in valid(request)}, "what was well is what it was"
    after = account(request)
    made_again = WorkUnitClaim.objects.filter(unit__workflow__request=request, live=False)
    assert made_again.exists()
    assert (after.done_events, after.done_files, after.done_lumis) == (before.done_events, before.done_files, before.done_lumis)
    assert list(request.transitions.order_by("-id").values_list("to_status", flat=True))[:3] == [
        S.COMPLETED, S.REMOVING_FILES, S.VALIDATED_OUTPUTS,
    ]  # fmt: skip
    twice = lost_files_make_again(lfns=[file.lfn for file in lost], confirm=plan.confirm, **BY)
    assert not twice.requests
    assert set(twice.already) == {file.lfn for file in lost}
    assert fresh(request).status == S.COMPLETED


@pytest.mark.parametrize("way", ["generated", "lumis"])
def test_killed_once_at_every_step_of_a_removal_its_work_is_given_back_once(world: World, way: str, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    killed_while_removed(world, way, ",".join(POINTS), mark)
    assert set(mark.read_text().split()) == set(POINTS)


@KILLED
@pytest.mark.parametrize("way", ["generated", "lumis"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_one_step_of_a_removal_its_work_is_given_back_once(world: World, way: str, point: str) -> None:
    killed_while_removed(world, way, point, None)
    assert world.deaths == 1


def killed_while_removed(world: World, way: str, points: str, mark: Path | None) -> None:
    request = waiting(made(world, way, events=1100))
    before, world.crash_at, world.crash_mark = account(request), points, str(mark or "")
    case_remove(case=case(valid(request)[0]), **BY)
    for _ in range(8 + points.count(",")):
        world.effects()
        left = settle(world, request)
        cut, asked = account(request) != before, Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE, request=request)
        assert not cut or not asked.exclude(state=EffectState.DONE).exists(), "cut only when all is INVALID outside"
        if left == 0:
            break
        world.clock.advance(600)
    assert left == 0
    assert settle(world, request) == 0
    assert_whole(world, again(world, request))


def test_the_preview_says_what_goes_with_a_file_and_what_is_planned_again_and_another_manifest_is_refused(world: World) -> None:
    request = waiting(made(world))
    unit = WorkUnit.objects.get(workflow__request=request)
    row = case(OutputFile.objects.filter(unit=unit).order_by("lfn")[0])
    (reported,) = removal_preview([row]).values()
    WorkUnit.objects.update(manifest_sha256="f" * 64)
    with pytest.raises(InvalidTransition, match="no longer the one that was accounted"):
        case_remove(case=row, **BY)
    assert not Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE).exists(), "its manifest is another by now"
    WorkUnit.objects.update(manifest_sha256=unit.manifest_sha256)
    case_remove(case=row, **BY)
    names = sorted(IntegrityCase.objects.exclude(pk=row.pk).values_list("name", flat=True))
    row.refresh_from_db()
    (each,) = row.cut["units"]
    assert f"{unit.name}: {len(names) + 1} file" in reported[0]
    assert all(name in reported[0] for name in names)
    assert f"The work of {each['lumis']} lumi" in reported[1]
    drawn = IntegrityCase.objects.exclude(pk=row.pk)
    assert {(one.prognosis, one.state, one.cut["with"]) for one in drawn} <= {("drawn_in", "in_progress", row.pk)}


def test_two_files_of_a_unit_are_removed_at_once_though_the_first_draws_the_second_in(world: World, admin_client: Client) -> None:
    """Of units whose manifests tell no pieces everything is removed."""
    request = waiting(made(world, tells=False))
    unit = WorkUnit.objects.filter(workflow__request=request).order_by("pk")[0]
    files = list(OutputFile.objects.filter(unit=unit).order_by("lfn"))
    assert len(files) > 2
    rows, page = [case(file) for file in files[:2]], "/admin/outputs_app/integritycase/verb/remove/"
    asked = text(admin_client.get(page, {"id": [row.pk for row in rows]}).content.decode())
    assert "Remove applies to 2 of 2" in asked
    assert asked.count(f"{unit.name}: {len(files)} files INVALID in DBS") == 2
    data = {"id": [row.pk for row in rows], "seen": ["new missing_replica"] * 2, "reason": "the disk is gone"}
    response = admin_client.post(page, data)
    assert response.status_code == 302, text(response.content.decode())
    (said,) = [str(message) for message in get_messages(response.wsgi_request)]
    assert said == "Remove: 2 integrity cases. Now 2 In progress."
    cases = IntegrityCase.objects.order_by("name")
    assert list(cases.values_list("name", flat=True)) == [file.lfn for file in files], "one for each file"
    assert ["units" in row.cut for row in cases] == [True] + [False] * (len(files) - 1)
    assert {row.cut.get("with") for row in cases} == {None, rows[0].pk}
    asked_for = Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE, request=request).values_list("payload", flat=True)
    taken = Counter(pk for payload in asked_for for pk in payload["files"])
    assert taken == Counter(file.pk for file in files), "each is taken back once"
    world.effects()
    assert settle(world, request) == 0
    assert set(OutputFile.objects.filter(unit=unit).values_list("validity", flat=True)) == {Validity.INVALID}
    assert not WorkUnitClaim.objects.filter(unit=unit, live=True).exists()
    unit.refresh_from_db()
    assert (unit.state, unit.events) == (WorkUnitState.DONE, 0)
    assert Event.objects.filter(kind="work_unit.cut").count() == 1
    assert again(world, request).status == S.COMPLETED
    assert account(request).done_events == 400


def test_what_was_made_of_removed_files_gets_cases_of_its_own(world: World) -> None:
    request = made(world)
    file = OutputFile.objects.filter(block__workflow__request=request, dataset__tier="GEN-SIM").order_by("lfn")[0]
    child = completed(world, world.request(documents.reprocessing(world.source("Child", 100), events_per_job=100)))
    child_file, other = valid(child)[0], valid(child)[-1]
    Workflow.objects.filter(request=child).update(input_dataset=file.dataset.name)
    InputFile.objects.filter(workflow__request=child).update(lfn=file.lfn)
    OutputFile.objects.filter(pk=child_file.pk).update(parents=[file.lfn])
    case_remove(case=case(OutputFile.objects.get(pk=waiting(request) and file.pk)), **BY)
    (row,) = IntegrityCase.objects.filter(request=child)
    assert (row.name, row.prognosis, row.state) == (child_file.lfn, FindingKind.PARENT_MISSING, CaseState.NEW)
    assert other.lfn == child_file.lfn or not IntegrityCase.objects.filter(name=other.lfn).exists()
    assert settle(world, request) > 0
    Request.objects.filter(pk=child.pk, status=S.COMPLETED).update(status=S.FAILED)
    case_remove(case=IntegrityCase.objects.get(pk=row.pk), **BY)
    row.refresh_from_db()
    assert (row.state, row.cut) == (CaseState.REMOVED, {}), "of a failed request nothing is planned again"
    world.effects()
    assert child_file.lfn in world.dbs.invalid
    assert not account(child).work_left


def test_a_removal_that_was_discarded_is_decided_anew_and_in_part_only_when_the_rest_is_done(world: World) -> None:
    """Accepted while the rest is still taken back, its work would be in no valid file and never given back."""
    request = waiting(made(world))
    row = case(valid(request)[0])
    case_remove(case=row, **BY)
    before = account(request)
    for effect in Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE):
        effect_discard(effect=effect, **BY)
    assert settle(world, request) > 0
    assert account(request) == before, "all of it was discarded"
    assert not IntegrityCase.objects.exclude(state=CaseState.NEW).exists(), "waits for another decision"
    row.refresh_from_db()
    case_remove(case=row, **BY)
    discarded, *rest = Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE, state=EffectState.PENDING).order_by("id")
    assert rest
    effect_discard(effect=discarded, **BY)
    assert settle(world, request) > 0
    assert not IntegrityCase.objects.filter(request=request, state=CaseState.NEW).exists()
    world.effects()
    assert settle(world, request) > 0
    lost = IntegrityCase.objects.filter(request=request, state=CaseState.NEW, file__validity=Validity.INVALID).first()
    assert lost is not None
    with pytest.raises(InvalidTransition, match="remove it, so that its work is done again"):
        case_decide(action=CaseAction.ACCEPTED, case=lost, **BY)
    case_remove(case=lost, **BY)
    world.effects()
    assert settle(world, request) == 0
    assert_whole(world, again(world, request))


def test_a_file_goes_also_where_a_sibling_is_in_a_block_that_was_given_up(world: World) -> None:
    request = waiting(made(world))
    file, sibling = (OutputFile.objects.filter(dataset=each).first() for each in request.workflow.output_datasets.order_by("pk"))
    assert file is not None and sibling is not None and sibling.unit_id == file.unit_id
    given_up = ProcessingBlock.objects.filter(dataset=sibling.dataset)
    for block in given_up:
        del world.dbs.registered[block.dbs_block_name]
    given_up.update(status=BlockStatus.GIVEN_UP, dbs_block_closed=False)
    case_remove(case=case(file), **BY)
    world.effects()
    assert settle(world, request) == 0
    assert account(request).work_left
    gone = OutputFile.objects.filter(unit=file.unit_id, validity=Validity.INVALID)
    assert set(gone.values_list("dataset", flat=True)) == {file.dataset_id, sibling.dataset_id}
    counted = {each.dataset: each.given_up for each in recount(fresh(request), {})}
    left = OutputFile.objects.filter(dataset=sibling.dataset, validity=Validity.VALID)
    assert counted == {file.dataset.name: 0, sibling.dataset.name: sum(each.events for each in left)}
