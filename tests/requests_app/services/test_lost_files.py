"""Lost files of requests that have completed, over several of them: what is concerned, and made again in all of them."""

from __future__ import annotations

import io
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from outputs_app.checks.cases import case_decide
from outputs_app.models import (
    CaseAction,
    CaseState,
    Effect,
    EffectKind,
    FindingKind,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    Validity,
)
from requests_app.models import ExcludedBecause, HoldCode, InputFile, Request, RequestStatus
from requests_app.services import lost_files, request_complete, request_fail, request_hold, request_release
from requests_app.services.cases import case_remove
from requests_app.services.lost_files import lost_files_make_again, lost_files_plan
from requests_app.services.release import Changes
from requests_app.states import transition
from requests_app.work.ledger import ledger_of
from tests.support.problems import problem
from tests.support.rest_clients import operator
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.failures import inputs_of
from tests.support.scripted.made_again import published
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition, StaleState
from wms2.identities.grants import OPERATORS
from wms2.models import AuditEntry
from wms2.runtime import clock

__all__ = ("operator",)
pytestmark = pytest.mark.django_db(transaction=True)
CHAIN = pytest.mark.deep(
    "tests/requests_app/services/test_lost_files.py::test_what_was_made_from_lost_files_is_made_again_from_what_replaces_them"
)
REPLACED = (
    "tests/requests_app/services/test_lost_files.py::"
    "test_what_replaces_lost_input_is_read_when_nothing_is_left_that_was_made_from_any_of_it"
)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "the disk is gone"}


def completed(world: World, *requests: Request) -> list[Request]:
    """All of them; each reads what those before it wrote."""
    for _ in range(40):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        for request in requests[:-1]:
            published(world, request)
        world.cycle()
        world.clock.advance(60)
        rows = [Request.objects.get(pk=request.pk) for request in requests]
        if {row.status for row in rows} == {S.COMPLETED}:
            return rows
    raise AssertionError([(row.status, row.hold_reason, row.waiting_for) for row in rows], world.errors[:1])


def _held(world: World, parent: Request, child: Request) -> list[Request]:
    """The second is held."""
    for _ in range(20):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        published(world, parent)
        world.cycle()
        world.clock.advance(60)
        rows = [Request.objects.get(pk=request.pk) for request in (parent, child)]
        if rows[1].status == S.HELD:
            return rows
    raise AssertionError([(row.status, row.waiting_for) for row in rows])


@once
def chain(world: World, *splits: dict[str, int]) -> list[Request]:
    """Requests of which each reads the one before; all are completed."""
    made = completed(world, world.request(documents.reprocessing(world.source("First", 60, 60, 60), lumis_per_job=3)))
    for split in splits:
        child = world.request(documents.reprocessing(published(world, made[-1]), **split))
        made = [*made, *completed(world, child)]
    return made


def valid(request: Request) -> list[OutputFile]:
    return list(OutputFile.objects.filter(block__workflow__request=request, validity=Validity.VALID).order_by("lfn"))


def lumis_of(request: Request) -> Counter[tuple[str, int]]:
    return Counter((run, lumi) for file in valid(request) for run, pairs in file.lumis.items() for lumi, _ in pairs)


def all_or_nothing(monkeypatch: pytest.MonkeyPatch, lost: str, confirm: str) -> None:
    """A process that dies when half of it is asked for has asked for nothing."""
    begin, begun = lost_files._begin, []

    def dies(each: Any, actor: str, reason: str) -> None:
        begin(each, actor, reason)
        begun.append(each.request.request_name)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lost_files, "_begin", dies)
        with pytest.raises(KeyboardInterrupt):
            lost_files_make_again(lfns=[lost], confirm=confirm, **BY)
    assert {row.status for row in Request.objects.all()} == {S.COMPLETED}
    assert not IntegrityCase.objects.exists()
    assert not Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE).exists()


@pytest.mark.dear("requests that read each other: what is lost of the first is made again down to the last, once")
@pytest.mark.parametrize(
    "splits",
    [
        [{"lumis_per_job": 2}],
        pytest.param([{"lumis_per_job": 2}, {"files_per_job": 1}], marks=CHAIN),
        pytest.param([{"events_per_job": 20}, {"files_per_job": 2}], marks=CHAIN),
        pytest.param([{"files_per_job": 2}, {"files_per_job": 1}], marks=CHAIN),
    ],
)
def test_what_was_made_from_lost_files_is_made_again_from_what_replaces_them(
    world: World, operator: APIClient, splits: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = chain(world, *splits)
    before = {request.pk: lumis_of(request) for request in requests}
    events = {request.pk: sum(file.events for file in valid(request)) for request in requests}
    lost = valid(requests[0])[1]
    names = {"files": [lost.lfn, "/store/mc/other.root", lost.lfn]}
    body = operator.post("/api/v1/lost-files/preview", names, format="json").json()
    assert body["unknown"] == ["/store/mc/other.root"]
    assert [each["request_name"] for each in body["requests"]] == [request.request_name for request in requests]
    mine, theirs, *_ = body["requests"]
    assert (mine["datasets"][0]["lost"], mine["files"], mine["lumis"]) == (1, {lost.lfn: ""}, 3)
    assert all(f"made from {lost.lfn}" in why for why in theirs["files"].values())
    for each in body["requests"][1:]:
        assert each["datasets"][0]["made_from_lost"] == len(each["files"]) >= 1
    all_or_nothing(monkeypatch, lost.lfn, body["confirm"])
    wrong = operator.post("/api/v1/lost-files", {**names, "confirm": "other", "reason": "lost"}, format="json")
    assert problem(wrong, 409, "stale_state")
    done = operator.post("/api/v1/lost-files", {**names, "confirm": body["confirm"], "reason": "lost"}, format="json")
    assert (done.status_code, done.json()["confirm"]) == (202, body["confirm"])
    assert [each["files"] for each in done.json()["requests"]] == [each["files"] for each in body["requests"]]
    assert {row.get_status_display() for row in Request.objects.all()} == {"Recovering"}
    again = operator.post("/api/v1/lost-files", {**names, "confirm": body["confirm"], "reason": "lost"}, format="json")
    assert (again.status_code, again.json()["requests"], list(again.json()["already"])) == (202, [], [lost.lfn])
    assert AuditEntry.objects.filter(action="lost_files_make_again", outcome="done").count() == len(requests)
    gone = {lfn for each in body["requests"] for lfn in each["files"]}
    requests = completed(world, *requests)
    invalid = set(OutputFile.objects.filter(validity=Validity.INVALID).values_list("lfn", flat=True))
    assert invalid == gone
    assert gone <= world.dbs.invalid
    assert {request.pk: lumis_of(request) for request in requests} == before
    assert all(set(lumis_of(request).values()) <= {1} for request in requests)
    assert {request.pk: sum(file.events for file in valid(request)) for request in requests} == events
    parents = {lfn for request in requests for file in valid(request) for lfn in file.parents}
    assert not parents & gone, "nothing valid was made from what is invalid"
    left_out = InputFile.objects.filter(lfn__in=gone)
    assert set(left_out.values_list("excluded_kind", flat=True)) == {ExcludedBecause.UNWANTED}
    assert {row.status for row in requests} == {S.COMPLETED}


@CHAIN
@pytest.mark.parametrize("way", ["completed early", "failed"])
def test_what_reads_a_lost_file_that_is_not_made_again_is_held_and_says_so(world: World, way: str) -> None:
    parent, child = chain(world, {"lumis_per_job": 3})
    lost = [valid(parent)[0].lfn]
    lost_files_make_again(lfns=lost, confirm=lost_files_plan(lost).confirm, **BY)
    parent, child = (Request.objects.get(pk=request.pk) for request in (parent, child))
    if way == "failed":
        request_hold(request=parent, **BY)
        request_fail(request=parent, **BY)
    else:
        request_complete(request=parent, **BY)
    for _ in range(12):
        world.cycle()
        world.clock.advance(700)
    child.refresh_from_db()
    assert (child.status, child.hold_code) == (S.HELD, HoldCode.EXCLUDED)
    assert parent.request_name in child.hold_reason
    changes = Changes(accept_excluded=True) if way != "failed" else Changes(excluded_files=tuple(lost))
    request_release(request=child, mode=None, changes=changes, **BY)
    (child,) = completed(world, child)
    assert not child.is_recovering


def test_files_that_cannot_be_made_again_are_named_with_the_reason(world: World) -> None:
    (request,) = chain(world)
    first, second, third = valid(request)[:3]
    Request.objects.filter(pk=request.pk).update(status=S.REMOVING_FILES)
    assert "about to complete" in lost_files_plan([first.lfn]).refused[first.lfn]
    Request.objects.filter(pk=request.pk).update(status=S.FAILED)
    with pytest.raises(InvalidTransition, match="is Failed: nothing of it is planned again"):
        lost_files_make_again(lfns=[first.lfn], confirm="", **BY)
    Request.objects.filter(pk=request.pk).update(status=S.COMPLETED)
    OutputDataset.objects.update(state="superseded")
    assert "superseded" in lost_files_plan([first.lfn]).refused[first.lfn]
    OutputDataset.objects.update(state="active")
    OutputFile.objects.filter(pk=second.pk).update(validity=Validity.INVALID)
    third.unit.dag.work_units.filter(pk=third.unit_id).update(manifest_sha256="f" * 64)
    plan = lost_files_plan([first.lfn, second.lfn, third.lfn])
    assert ([*plan.already], [*plan.refused], len(plan.requests)) == ([second.lfn], [third.lfn], 1)
    transition(Request.objects.get(pk=request.pk), S.ARCHIVED, actor="archiver", reason="for a test")
    with pytest.raises(StaleState, match="look at the preview again"):
        lost_files_make_again(lfns=[first.lfn, second.lfn, third.lfn], confirm=plan.confirm, **BY)


def test_the_page_takes_a_pasted_list_shows_what_is_concerned_and_does_what_was_shown(world: World) -> None:
    (request,) = chain(world)
    first, _, third = valid(request)[:3]
    page, reader = Client(), Client()
    page.force_login(with_role("paula", OPERATORS))
    reader.force_login(User.objects.create_user("rita"))
    path = "/cases/lost-files/"
    assert path in page.get("/cases/").content.decode()
    assert (reader.get(path).status_code, reader.post(path, {"files": first.lfn}).status_code) == (403, 403)
    for wrong in ("", "/etc/passwd", "\0"):
        assert page.post(path, {"files": wrong}).status_code == 400
    pasted = f"{first.lfn}\r\n\r\n {first.lfn}\n/store/mc/other.root"
    said = page.post(path, {"files": pasted}).content.decode()
    for words in (request.request_name, first.block.dbs_block_name, first.block.dataset_name, "/store/mc/other.root</code>"):
        assert words in said, words
    confirm = re.findall(r'name="confirm" value="(\w+)"', said)[0]
    for reason in ("", "r" * 2001):
        assert page.post(path, {"files": pasted, "confirm": confirm, "reason": reason}).status_code == 400, len(reason)
    other = page.post(path, {"files": f"{pasted} {third.lfn}", "confirm": confirm, "reason": "gone"})
    assert (other.status_code, "look at the preview again" in other.content.decode()) == (409, True)
    done = page.post(path, {"files": pasted, "confirm": confirm, "reason": "the disk\0is gone"}, follow=True)
    assert "will be made again" in done.content.decode()
    assert Request.objects.get(pk=request.pk).status != S.COMPLETED
    assert AuditEntry.objects.filter(action="lost_files_make_again", actor="paula", reason="the disk is gone").exists()


def with_role(name: str, group: str) -> User:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def test_the_command_shows_and_does_what_is_confirmed(world: World, tmp_path: Path) -> None:
    (request,) = chain(world)
    lost = valid(request)[0].lfn
    names = tmp_path / "lost.txt"
    names.write_text(f"{lost}\n\n{lost}\n/store/mc/other.root\n")

    def said(*options: str) -> str:
        out = io.StringIO()
        call_command("lost_files", str(names), *options, stdout=out)
        return out.getvalue()

    text = said("--names")
    assert f"{lost}: lost" in text
    assert "not made by WMS2: /store/mc/other.root" in text
    word = text.partition("--confirm ")[2].split()[0]
    with pytest.raises(CommandError, match="--reason"):
        said("--confirm", word)
    with pytest.raises(CommandError, match="look at the preview again"):
        said("--confirm", "another", "--reason", "lost")
    assert "Done: asked for." in said("--confirm", word, "--reason", "lost")
    assert "Done before" in said("--confirm", word, "--reason", "lost")
    row = IntegrityCase.objects.get()
    assert (row.name, row.prognosis, row.state) == (lost, FindingKind.MISSING_REPLICA, CaseState.IN_PROGRESS)
    names.write_text("lost.root\n")
    with pytest.raises(CommandError, match="is no LFN"):
        said()


@CHAIN
@pytest.mark.parametrize("way", ["generated", "lumis"])
def test_of_a_request_that_was_completed_early_only_what_was_lost_is_made_again(world: World, way: str) -> None:
    source = documents.reprocessing(world.source("First", *[30] * 6), lumis_per_job=3)
    request = world.request(documents.generation(800) if way == "generated" else source)
    world.cycle()
    world.schedd.unit_done(world.job_of(request), "mg_000000")
    world.cycle()
    request_complete(request=Request.objects.get(pk=request.pk), **BY)
    (request,) = completed(world, request)
    before, lost = ledger_of(request.workflow), valid(request)[0]
    assert before.work_left
    events = sum(file.events for file in valid(request))
    plan = lost_files_plan([lost.lfn])
    lost_files_make_again(lfns=[lost.lfn], confirm=plan.confirm, **BY)
    (request,) = completed(world, request)
    after = ledger_of(request.workflow)
    assert (after.done_events, after.done_lumis) == (before.done_events, before.done_lumis)
    assert not after.work_left
    assert not OutputFile.objects.get(pk=lost.pk).is_valid
    assert sum(file.events for file in valid(request)) == events


@pytest.mark.parametrize("held", [False, True])
def test_what_is_lost_of_a_request_that_completes_early_is_made_again_before_it_has(world: World, held: bool) -> None:
    request = world.request(documents.generation(800))
    world.cycle()
    world.schedd.unit_done(world.job_of(request), "mg_000000")
    world.cycle()
    request_complete(request=Request.objects.get(pk=request.pk), **BY)
    for _ in range(40):
        world.cycle()
        world.clock.advance(10)
        request = Request.objects.get(pk=request.pk)
        if request.status == S.VALIDATING_OUTPUTS:
            break
    if held:
        request_hold(request=request, **BY)
    events, lost = sum(file.events for file in valid(request)), valid(request)[0]
    plan = lost_files_plan([lost.lfn])
    lost_files_make_again(lfns=[lost.lfn], confirm=plan.confirm, **BY)
    if held:
        request_release(request=Request.objects.get(pk=request.pk), mode=None, **BY)
    else:
        assert plan.requests[0].then.endswith("this is made again before it completes")
    (request,) = completed(world, request)
    assert not OutputFile.objects.get(pk=lost.pk).is_valid
    assert sum(file.events for file in valid(request)) == events


def test_what_is_done_from_a_lost_file_before_that_is_invalid_outside_waits_for_a_decision(world: World) -> None:
    """Its files come after the list was looked at, and DBS is slow to take the lost one back."""
    (parent,) = chain(world)
    child = world.request(documents.reprocessing(published(world, parent), lumis_per_job=3))
    world.cycle()
    job = world.job_of(child)
    lost = inputs_of(job, job.open_nodes[0])[0]
    plan = lost_files_plan([lost])
    assert [each.request for each in plan.requests] == [parent]
    lost_files_make_again(lfns=[lost], confirm=plan.confirm, **BY)
    slow = Effect.objects.filter(kind=EffectKind.FILES_INVALIDATE)
    slow.update(next_attempt_at=clock.now() + timedelta(days=1))
    for _ in range(20):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
        child.refresh_from_db()
        if child.status in (S.WAITING_INTEGRITY, S.COMPLETED):
            break
    assert child.status == S.WAITING_INTEGRITY, (child.status, child.waiting_for)
    row = IntegrityCase.objects.get(request=child)
    assert (row.prognosis, row.state, row.file.parents) == (FindingKind.PARENT_MISSING, CaseState.NEW, [lost])
    case_remove(case=row, **BY)
    world.clock.advance(86_400)
    parent, child = completed(world, parent, child)
    assert not {lfn for file in valid(child) for lfn in file.parents} & world.dbs.invalid
    assert lumis_of(child) == lumis_of(parent)
    assert set(lumis_of(child).values()) == {1}


@pytest.mark.parametrize("decided", ["removed", pytest.param("accepted", marks=pytest.mark.deep(REPLACED))])
def test_what_replaces_lost_input_is_read_when_nothing_is_left_that_was_made_from_any_of_it(world: World, decided: str) -> None:
    """Of two files one is done as both are lost, the other is to be planned: which new file holds what of which is not known."""
    (parent,) = chain(world)
    child = world.request(documents.reprocessing(published(world, parent), files_per_job=1))
    world.cycle()
    job = world.job_of(child)
    planned = [lfn for unit in job.open_nodes for lfn in inputs_of(job, unit)]
    lost = [planned[0], next(file.lfn for file in valid(parent) if file.lfn not in planned)]
    world.schedd.unit_done(job, job.open_nodes[0])
    lost_files_make_again(lfns=lost, confirm=lost_files_plan(lost).confirm, **BY)
    for _ in range(30):
        for each in world.schedd.live:
            world.schedd.end(each, End.FINISHED)
        published(world, parent)
        world.cycle()
        world.clock.advance(60)
        child.refresh_from_db()
        assert set(lumis_of(child).values()) <= {1}, "read twice"
        if child.status == S.WAITING_INTEGRITY:
            break
    row = IntegrityCase.objects.get(request=child)
    assert (row.prognosis, row.state, row.file.parents) == (FindingKind.PARENT_MISSING, CaseState.NEW, lost[:1])
    if decided == "accepted":
        case_decide(case=row, action=CaseAction.ACCEPTED, **BY)
        parent, child = _held(world, parent, child)
        assert child.hold_code == HoldCode.EXCLUDED
        assert "may hold what was accepted here" in child.hold_reason
        request_release(request=child, mode=None, changes=Changes(accept_excluded=True), **BY)
        parent, child = completed(world, parent, child)
        assert set(lumis_of(child).values()) == {1}
        assert lumis_of(child).total() == lumis_of(parent).total() - 3
        return
    case_remove(case=row, **BY)
    parent, child = completed(world, parent, child)
    assert not {lfn for file in valid(child) for lfn in file.parents} & world.dbs.invalid
    assert lumis_of(child) == lumis_of(parent)
    assert set(lumis_of(child).values()) == {1}
    assert set(InputFile.objects.filter(lfn__in=lost).values_list("excluded_kind", flat=True)) == {ExcludedBecause.UNWANTED}


def test_what_is_lost_while_other_files_are_made_again_and_what_replaced_them_is_made_again_too(world: World) -> None:
    (request,) = chain(world)
    before, first, second = lumis_of(request), *valid(request)[:2]

    def lose(*lfns: str) -> lost_files.LostPlan:
        return lost_files_make_again(lfns=lfns, confirm=lost_files_plan(lfns).confirm, **BY)

    lose(first.lfn)
    world.cycle()
    names = [first.lfn, second.lfn, "/store/data/other.root", *InputFile.objects.values_list("lfn", flat=True)[:1]]
    plan = lose(*names)
    assert ([*plan.already], [*plan.requests[0].files], set(plan.unknown)) == ([first.lfn], [second.lfn], set(names[2:]))
    assert not lose(*names).requests, "once"
    (request,) = completed(world, request)
    assert lumis_of(request) == before
    (replaced,) = [file for file in valid(request) if file.lumis == first.lumis]
    assert not lose(first.lfn, second.lfn).requests, "made again before"
    lose(first.lfn, replaced.lfn)
    (request,) = completed(world, request)
    assert lumis_of(request) == before
    gone = OutputFile.objects.filter(validity=Validity.INVALID).values_list("lfn", flat=True)
    assert set(gone) == {first.lfn, second.lfn, replaced.lfn}
