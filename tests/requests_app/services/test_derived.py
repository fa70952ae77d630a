"""Derived requests: the work of one divided between two. Each piece is left in at most one, and what both do is all, once."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.payload.contract import layout
from outputs_app.models import CaseAction, CaseState, Effect, EffectState, FindingKind, IntegrityCase, OutputFile, Validity
from requests_app.models import InputFile, InputLumis, Request, RequestStatus, Workflow
from requests_app.pages.request import request_page
from requests_app.selectors.requests import requests_with_workflow
from requests_app.services import (
    request_abort,
    request_derive,
    request_fail,
    request_hold,
    request_invalidate,
    request_release,
    request_restart,
)
from requests_app.services.derive import derive_preview, derive_refused
from requests_app.services.intake import Received, request_receive
from requests_app.services.release import ReleaseMode
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.overrides import Overrides
from requests_app.work.spec import spec_of
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.catalogues import SourceFile
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import fresh, status
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import DocumentRefused, InvalidTransition, RequestKnown

HERE = "tests/requests_app/services/test_derived.py"
#: For the long run.
RESUBMITTED = pytest.mark.deep(f"{HERE}::test_a_resubmission_does_what_its_original_has_given_up")
DEEP = pytest.mark.deep(f"{HERE}::test_each_piece_of_work_is_done_once_by_one_of_the_two")
MORE = [pytest.param(seed, marks=DEEP) for seed in range(1, 5)]
pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "it takes too much memory"}
EVENTS = 750
FILES = (90, 0, 250, 40, 120, 1, 300, 75)
KINDS: dict[str, dict[str, int]] = {
    "generation": {}, "files": {"files_per_job": 1}, "events": {"events_per_job": 150}, "lumis": {"lumis_per_job": 8},
}  # fmt: skip


def ask(world: World, kind: str) -> Request:
    if kind == "generation":
        return world.request(documents.generation(EVENTS))
    return world.request(documents.reprocessing(world.source(f"Source{len(world.sources)}", *FILES), **KINDS[kind]))


def step(world: World, request: Request, dice: random.Random) -> None:
    """A cycle; then units of its DAG end well or badly, and mostly the DAG, too."""
    world.cycle()
    check(world)
    for job in world.schedd.live:
        for unit in list(job.open_nodes):
            if dice.random() < 0.4:
                world.schedd.unit_failed(job, unit)
        if dice.random() < 0.8:
            world.schedd.end(job, End.FINISHED)
    world.clock.advance(60)


def to_rest(world: World, *requests: Request) -> None:
    """All go on to their end; what is held is released."""
    for _ in range(60):
        world.cycle()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        for request in requests:
            if status(request) is S.HELD:
                request_release(request=request, mode=ReleaseMode.NEXT_ROUND, **BY)
        world.clock.advance(60)
        if all(status(request) in (S.COMPLETED, S.FAILED, S.ABORTED) for request in requests):
            check(world)
            return
    raise AssertionError([(r.request_name, r.status, r.waiting_for, r.hold_reason) for r in requests])


@once
def held(world: World, kind: str, seed: int) -> Request:
    """After some rounds, nothing pending."""
    request, dice = ask(world, kind), random.Random(f"{kind}{seed}")
    for _ in range(dice.randint(1, 3)):
        step(world, request, dice)
    if status(request) is not S.HELD:
        request_hold(request=request, **BY)
    quiet(world, request)
    return request


def quiet(world: World, request: Request) -> None:
    for _ in range(12):
        if status(request) in (S.HELD, S.FAILED, S.ABORTED) and not derive_refused(request):
            return
        world.cycle()
        world.clock.advance(60)
    raise AssertionError((request.status, derive_refused(request)))


def account(request: Request) -> Ledger:
    ledger = ledger_of(Workflow.objects.get(request=request))
    ledger_check(ledger)
    return ledger


def left_pieces(request: Request) -> set[Any]:
    """Files or lumis that are the request's own: neither left out nor the other's."""
    workflow = request.workflow
    if account(request).by_lumi:
        rows = InputLumis.objects.filter(workflow=workflow, fate="wanted")
        return {(row.run, lumi) for row in rows for lumi in range(row.span.lower, row.span.upper)}
    return set(InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True).values_list("lfn", flat=True))


def conserved(before: Ledger, old: Ledger, new: Ledger) -> None:
    """Nothing is lost, doubled or invented by dividing it."""
    if before.all_lumis:
        assert old.all_lumis == new.all_lumis == before.all_lumis
        assert old.done_lumis == before.done_lumis
        own = new.all_lumis - new.inherited_lumis
        assert own == new.left_lumis == old.excluded_lumis - before.excluded_lumis
    elif before.all_files:
        assert old.all_files == new.all_files == before.all_files
        assert (old.done_files, old.done_events) == (before.done_files, before.done_events)
        own = new.all_files - new.inherited_files
        assert own == new.left_files == old.excluded_files - before.excluded_files
        assert new.all_events - new.inherited_events == old.excluded_events - before.excluded_events
    else:
        assert old.all_events + new.all_events == before.all_events
        assert (old.done_events, new.inherited_events) == (before.done_events, old.all_events)


def lumis_of(requests: list[Request]) -> Counter[Any]:
    """Of each dataset that the requests have written."""
    found: Counter[Any] = Counter()
    for file in OutputFile.objects.filter(dataset__workflow__request__in=requests).select_related("dataset"):
        found.update((file.dataset.name, run, lumi) for run, pairs in file.lumis.items() for lumi, _ in pairs)
    return found


def events_read(requests: list[Request]) -> Counter[tuple[str, int]]:
    """By the manifests of the units that count."""
    found: Counter[tuple[str, int]] = Counter()
    for unit in WorkUnit.objects.filter(workflow__request__in=requests, state=WorkUnitState.DONE).select_related("dag"):
        manifest = json.loads((Path(unit.dag.submit_dir) / unit.name / layout.MANIFEST_FILE).read_text())
        for job in manifest["jobs"]:
            for file in job["processed"]["files"]:
                if "first_event" in file:
                    found.update((file["lfn"], event) for event in range(file["first_event"], file["last_event"] + 1))
    return found


@pytest.mark.dear("work that is divided between two requests is neither lost nor doubled")
@pytest.mark.parametrize("seed", [0, *MORE])
@pytest.mark.parametrize("kind", KINDS)
def test_each_piece_of_work_is_done_once_by_one_of_the_two(world: World, kind: str, seed: int) -> None:
    request, dice = held(world, kind, seed), random.Random(f"then {kind}{seed}")
    ends = dice.choice(["runs", "runs", "failed", "fails", "aborted"])
    if ends in ("fails", "aborted"):
        (request_fail if ends == "fails" else request_abort)(request=request, **BY)
        quiet(world, request)
    before = account(request)
    if not before.work_left and not before.planned_files + before.planned_events + before.planned_lumis:
        pytest.skip("all of it was done")
    try:
        new = request_derive(request=fresh(request), failed=ends == "failed", **BY)
    except InvalidTransition as refused:
        assert "no work" in str(refused)
        assert not Request.objects.exclude(pk=request.pk).exists()
        return
    old, its = account(request), account(new)
    conserved(before, old, its)
    check(world)
    if kind != "generation":
        assert not left_pieces(fresh(request)) & left_pieces(new)
    to_rest(world, request, new)
    twice = [lumi for lumi, times in lumis_of([request, new]).items() if times > 1]
    assert not twice or kind == "events", "lumis of a file that is read in ranges are in several merged files"
    if request.status == S.COMPLETED:
        assert request.get_status_display() == "Completed", "no more Completing"
    old, its = account(request), account(new)
    if kind == "generation":
        assert old.done_events + its.done_events == EVENTS
        numbers_once(request, new)
    elif kind == "lumis":
        assert old.done_lumis + its.done_lumis == before.all_lumis
    elif ends in ("runs", "failed") or kind == "files":
        assert old.done_files + its.done_files == len(FILES)
        assert its.inherited_files + its.done_files == len(FILES)
        assert events_read([request, new]).total() == len(events_read([request, new])) == sum(FILES)


def numbers_once(*requests: Request) -> None:
    """No event number was ever taken twice."""
    rows = WorkUnitClaim.objects.filter(unit__workflow__request__in=requests, kind=WorkUnitClaim.KIND_GENERATED)
    spans = sorted(rows.values_list("first", "last"))
    assert all(before[1] < after[0] for before, after in pairwise(spans)), spans


def test_the_old_one_is_shown_as_completing_once_it_is_released(world: World) -> None:
    request = held(world, "files", 0)
    new = request_derive(request=request, priority=7, overrides=Overrides(memory_mb=3000), **BY)
    assert (new.request_name, new.derived_from_id, new.priority) == (f"{request.request_name}_d1", request.request_name, 7)
    assert (new.overrides, new.family) == ({"memory_mb": 3000}, request.family)
    assert spec_of(new.workflow).outputs == spec_of(request.workflow).outputs
    assert fresh(request).get_status_display() == "Held", "that it is held counts more"
    request_release(request=request, **BY)
    assert (request.status, request.get_status_display()) == (S.QUEUED, "Completing")


def test_files_that_share_a_lumi_with_a_file_that_stays_stay_too(world: World) -> None:
    dataset = world.source("Shared", *FILES)
    files = [file for block in world.sources[dataset].blocks.values() for file in block]
    blocks = world.sources[dataset].blocks
    for name, held_ in blocks.items():
        blocks[name] = [SourceFile(f.lfn, f.events, 1, ((1, 1 + (1 + files.index(f)) // 2),)) for f in held_]
    request = world.request(documents.reprocessing(dataset, files_per_job=1))
    world.cycle()
    (job,) = world.schedd.live
    world.schedd.end(job, End.FINISHED)
    world.cycle()
    request_hold(request=fresh(request), **BY)  # three files are done, three planned; the seventh shares the sixth one's lumi
    quiet(world, request)
    new = request_derive(request=request, **BY)
    assert (account(new).left_files, account(request).left_files) == (1, 1)


def test_the_old_one_does_not_wait_for_files_of_which_the_other_reads_what_is_left(world: World) -> None:
    dataset = world.source("Waits", *[30] * 6)
    source, block = world.sources[dataset], f"{dataset}#1"
    places = source.locations.pop(block)
    old = world.request(documents.reprocessing(dataset, lumis_per_job=3))
    for _ in range(6):
        world.cycle()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
    assert (status(old), "waits for a site of 3 input files" in old.waiting_for) == (S.QUEUED, True)
    new = request_derive(request=old, **BY)
    assert (account(old).left_lumis, account(new).left_lumis) == (0, 9)
    assert not InputFile.objects.filter(waiting_since__isnull=False).exists(), "planning says of which of the two it is true"
    for _ in range(12):
        world.cycle()
        world.clock.advance(1200)
    assert (status(old), status(new)) == (S.COMPLETED, S.QUEUED), old.waiting_for
    source.locations[block] = places
    to_rest(world, new)


@pytest.mark.dear("work that is divided twice is neither lost nor doubled")
def test_derived_requests_can_be_derived_from(world: World) -> None:
    first = held(world, "generation", 0)
    second = request_derive(request=first, **BY)
    step(world, second, random.Random(3))
    step(world, second, random.Random(3))
    request_hold(request=fresh(second), **BY)
    quiet(world, second)
    third = request_derive(request=second, **BY)
    assert third.request_name == f"{first.request_name}_d2"
    to_rest(world, first, second, third)
    made = [account(fresh(each)) for each in (first, second, third)]
    assert sum(ledger.done_events for ledger in made) == EVENTS
    assert made[2].inherited_events + made[2].all_events == EVENTS
    numbers_once(first, second, third)
    assert not [lumi for lumi, times in lumis_of([first, second, third]).items() if times > 1]


def test_refused_while_its_dag_runs_or_a_registration_is_pending(world: World) -> None:
    request = ask(world, "files")
    assert "hold it first" in derive_refused(fresh(request))
    world.cycle()
    with pytest.raises(InvalidTransition, match="Its DAG runs: hold it first"):
        request_derive(request=fresh(request), **BY)
    world.rucio.script.arm(Mode.DOWN, 500)
    (job,) = world.schedd.live
    world.schedd.unit_done(job, job.open_nodes[0])
    world.cycle()
    request_hold(request=fresh(request), **BY)
    for _ in range(3):
        world.cycle()
    assert status(request) is S.HELD
    assert Effect.objects.filter(request=request, state=EffectState.PENDING).exists()
    with pytest.raises(InvalidTransition, match=r"registrations? of it are not done: wait"):
        request_derive(request=request, **BY)
    assert not derive_preview(request)
    assert not Request.objects.exclude(pk=request.pk).exists()
    world.rucio.script.heal()
    world.clock.advance(4000)
    quiet(world, request)
    new = request_derive(request=request, **BY)
    with pytest.raises(InvalidTransition, match=f"{new.request_name} has been derived from it already"):
        request_derive(request=request, **BY)


def test_refused_while_work_of_it_is_gone_that_neither_would_make_again(world: World) -> None:
    request = held(world, "files", 0)
    assert derive_refused(fresh(request)) == ""
    gone = OutputFile.objects.filter(block__workflow__request=request).first()
    assert gone is not None
    OutputFile.objects.filter(pk=gone.pk).update(validity=Validity.INVALID)
    assert f"taken back, e.g. {gone.lfn}" in derive_refused(fresh(request))
    cut = {"units": [], "effects": [], "at": "2026-11-01T00:00:00+00:00"}
    removed = {"prognosis": FindingKind.MISSING_REPLICA, "state": CaseState.REMOVED, "action": CaseAction.REMOVED, "cut": cut}
    IntegrityCase.objects.create(request=request, block=gone.block, file=gone, name=gone.lfn, **removed)
    assert derive_refused(fresh(request)) == "", "its work is back in the account"


def test_a_refusal_in_the_middle_leaves_neither_half(world: World) -> None:
    request, other = held(world, "lumis", 0), world.request(documents.generation(100))
    before = account(request)
    with pytest.raises(RequestKnown):
        request_derive(request=request, request_name=other.request_name, **BY)
    with pytest.raises(InvalidTransition, match="memory_mb"):
        request_derive(request=request, overrides=Overrides(memory_mb=10**6), **BY)
    with pytest.raises(InvalidTransition, match="leave no site"):
        request_derive(request=request, site_whitelist=["T2_CH_CERN"], site_blacklist=["T2_CH_CERN"], **BY)
    assert account(fresh(request)) == before
    assert (request.derived_by, Request.objects.count()) == ("", 2)


def test_who_shares_work_is_neither_restarted_nor_taken_back_under_the_other(world: World) -> None:
    request = held(world, "files", 0)
    new = request_derive(request=request, **BY)
    request_hold(request=new, **BY)
    for one in (request, new):
        with pytest.raises(InvalidTransition, match="shares its work"):
            request_restart(request=one, **BY)
    request_fail(request=request, **BY)
    with pytest.raises(InvalidTransition, match="was derived from it"):
        request_invalidate(request=request, **BY)
    request_abort(request=new, **BY)
    assert request_invalidate(request=request, **BY) == 1


def test_the_page_and_the_account_say_whose_it_is(world: World) -> None:
    request = held(world, "lumis", 0)
    new = request_derive(request=request, **BY)
    assert "inherited" in account(new).summary()
    row = requests_with_workflow().get(pk=new.pk)
    work = request_page(row).work
    assert work is not None
    assert "inherited" in [line.name for line in work.ledger_lines]


def acdc(original: Request, **more: Any) -> dict[str, Any]:
    """As ReqMgr2 has one: the original's arguments, and which collection of WMAgent's holds the failed jobs."""
    own = {key: value for key, value in original.request_data.items() if key not in ("RequestName", "RequestPriority")}
    return own | {
        "RequestName": f"tester_ACDC0_{original.request_name}",
        "RequestType": "Resubmission",
        "OriginalRequestName": original.request_name,
        "InitialTaskPath": f"/{original.request_name}/DataProcessing",
        "ACDCServer": "https://cmsweb.cern.ch/couchdb",
        "ACDCDatabase": "acdcserver",
        "CollectionName": original.request_name,
        **more,
    }


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        *((kind, "held") for kind in ("generation", "files", "lumis")), ("lumis", "failed"),
        *(pytest.param(kind, "failed", marks=RESUBMITTED) for kind in ("files", "generation")),
    ],
)  # fmt: skip
def test_a_resubmission_does_what_its_original_has_given_up(world: World, kind: str, end: str) -> None:
    request = held(world, kind, 0)
    if end == "failed":
        request_fail(request=request, **BY)
        quiet(world, request)
    before = account(request)
    sites = ["T2_CH_CERN"] if end == "held" else sorted(documents.SITES)
    document = acdc(fresh(request), Memory=2900, SiteWhitelist=sites, RequestPriority=90_000)
    new = request_receive(received=Received(document), actor="olga")
    assert (new.request_name, new.derived_from_id) == (document["RequestName"], request.request_name)
    assert (new.priority, new.overrides, new.payload_config["RequestType"]) == (90_000, {"memory_mb": 2900}, "Resubmission")
    assert spec_of(new.workflow).site_whitelist == tuple(sites)
    old, its = account(fresh(request)), account(new)
    conserved(before, old, its)
    assert not old.work_left, "nobody else does it any more"
    if end == "failed":
        to_rest(world, new)
        if kind == "generation":
            assert before.done_events + account(new).done_events == EVENTS
        assert not [lumi for lumi, times in lumis_of([request, new]).items() if times > 1]
    with pytest.raises(DocumentRefused, match="has been derived from it already"):
        request_receive(received=Received(acdc(request, RequestName="tester_ACDC1")), actor="olga")


def test_a_resubmission_of_a_stranger_is_refused_by_name(world: World) -> None:
    request = ask(world, "generation")
    with pytest.raises(DocumentRefused, match="WMS2 has no such request") as refused:
        request_receive(received=Received(acdc(request, OriginalRequestName="somebody_else_v1")), actor="olga")
    assert [problem.field for problem in refused.value.problems] == ["OriginalRequestName"]
    world.cycle()
    with pytest.raises(DocumentRefused, match="hold it first"):
        request_receive(received=Received(acdc(fresh(request))), actor="olga")
    assert Request.objects.count() == 1
