"""Input read from the catalogues: block lists, masks, parents, empty and lost files; datasets that grow while they are open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import WorkUnit, WorkUnitClaim
from requests_app.models import Event, HoldCode, InputFile, Request, RequestStatus
from requests_app.services import request_release
from requests_app.services.release import Changes
from requests_app.work.ledger import ledger_check, ledger_of
from requests_app.work.overrides import Overrides
from tests.support.scripted import documents
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import all_planned, run_on, status, work_done
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
FNAL, CERN = "T1_US_FNAL_Disk", "T2_CH_CERN"
HERE = "tests/requests_app/work/test_input_reading.py"
DATASET = "/Read/Era-v1/RAW"


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch, INPUT_REREAD_SECONDS="300")
    world.furnish()
    world.sources[DATASET] = Source()
    return world


def block(world: World, name: str, *files: SourceFile, at: tuple[str, ...] = (CERN,)) -> None:
    source = world.sources[DATASET]
    source.blocks.setdefault(f"{DATASET}#{name}", []).extend(files)
    source.locations[f"{DATASET}#{name}"] = at


def file(name: str, *held: tuple[int, int], events: int = 100, parents: tuple[str, ...] = ()) -> SourceFile:
    return SourceFile(f"/store/data/{name}.root", events, 1, held or ((1, 1),), parents)


def ask(world: World, **changes: Any) -> Request:
    return world.request(documents.reprocessing(DATASET, **({"files_per_job": 1} | changes)))


def excluded(request: Request) -> dict[str, str]:
    rows = InputFile.objects.filter(workflow__request=request, excluded_at__isnull=False)
    return {row.lfn.rpartition("/")[2].removesuffix(".root"): row.excluded_reason for row in rows}


def read(request: Request) -> set[str]:
    rows = InputFile.objects.filter(workflow__request=request)
    return {row.lfn.rpartition("/")[2].removesuffix(".root") for row in rows}


def test_block_lists_choose_the_blocks(world: World) -> None:
    for name in "abc":
        block(world, name, file(name))
    white, black = [f"{DATASET}#{name}" for name in ("a", "b", "gone")], [f"{DATASET}#b"]
    request = ask(world, BlockWhitelist=white, BlockBlacklist=black)
    nothing_left = ask(world, BlockBlacklist=[f"{DATASET}#{name}" for name in "abc"])
    assert all_planned(world, request)
    assert read(request) == {"a"}
    assert any("#gone" in warning for warning in request.warnings), "a white-listed block that is not there"
    assert (status(nothing_left), nothing_left.hold_code) == (S.HELD, HoldCode.REFUSED)
    assert "block lists" in nothing_left.hold_reason


def test_files_without_a_wanted_lumi_are_excluded_and_the_others_read_by_their_mask(world: World) -> None:
    block(world, "a", file("cut", (1, 1), (1, 2), (2, 1)), file("out", (1, 9)), file("run", (3, 1)), file("whole", (2, 2)))
    request = ask(
        world, LumiList={"1": [[2, 5]], "2": [[1, 5]], "3": [[1, 1]]}, RunBlacklist=[3], files_per_job=0, lumis_per_job=2
    )
    assert work_done(world, request)
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.done_lumis, ledger.all_lumis) == (3, 3)
    assert set(excluded(request)) == {"out", "run"}


def test_files_without_lumis_are_left_out_by_name_and_accepted_and_empty_ones_are_read(world: World) -> None:
    block(world, "a", SourceFile("/store/data/bare.root", 100, 1, ()), file("empty", (1, 7), events=0), file("good", (1, 1)))
    request, other = (ask(world, files_per_job=0, lumis_per_job=2) for _ in range(2))
    assert run_on(world, request) is S.HELD
    assert request.hold_code == HoldCode.EXCLUDED
    assert "1 of 3 input files" in request.hold_reason
    assert "/store/data/bare.root: the file has no lumis" in request.hold_reason
    assert set(excluded(request)) == {"bare"}
    assert ledger_of(request.workflow).summary() == "2 lumis done, 0 planned, 0 attempted, 0 excluded, 0 left of 2"

    with pytest.raises(InvalidTransition, match="accept_excluded"):
        request_release(request=request, actor="olga", reason="again")
    assert (status(other), other.hold_code) == (S.HELD, HoldCode.EXCLUDED)
    allowed = Changes(Overrides(max_excluded_fraction=0.5))
    request_release(request=other, actor="olga", reason="a half may be missing", changes=allowed)
    request_release(request=request, actor="olga", reason="not needed", changes=Changes(accept_excluded=True))
    assert work_done(world, request)
    assert work_done(world, other), "it may complete without as many files as it is allowed"
    assert "accepted by olga: not needed" in excluded(request)["bare"]


def test_the_account_of_files_that_a_mask_cuts_is_of_the_events_that_are_wanted(world: World) -> None:
    block(
        world, "a", file("cut", (1, 1), (1, 2), (2, 1), (2, 2)), file("out", (1, 9)), file("run", (3, 1)), file("whole", (2, 3))
    )
    request = ask(world, LumiList={"1": [[2, 5]], "2": [[1, 5]], "3": [[1, 1]]}, RunBlacklist=[3], files_per_job=2)
    world.cycle()
    world.cycle()
    assert set(excluded(request)) == {"out", "run"}
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.all_events, ledger.planned_events, ledger.left_events, ledger.excluded_events) == (175, 175, 0, 0)
    assert (ledger.all_files, ledger.planned_files, ledger.excluded_files) == (4, 2, 2)
    request.workflow.refresh_from_db()
    assert request.workflow.requested_events == 175
    assert [unit.events for unit in WorkUnit.objects.filter(workflow__request=request)] == [175]


def test_refused_lumis_do_not_keep_the_rest_from_completing(world: World) -> None:
    block(world, "a", file("good", (1, 1), (1, 2), events=200), file("huge", (1, 5), events=10**7))
    request = ask(world, files_per_job=0, SplittingAlgo="EventAwareLumiBased", EventsPerJob=100)  # 0.1 s an event, 48 h a job
    assert work_done(world, request)
    ledger = ledger_of(request.workflow)
    assert (ledger.done_lumis, ledger.refused_lumis, ledger.all_lumis) == (2, 1, 3)
    (alert,) = Event.objects.filter(request=request, kind="alert", data__code="lumis_refused")
    assert "1:5" in alert.data["message"]


@pytest.mark.parametrize(
    "split",
    [
        {"files_per_job": 1},
        pytest.param(
            {"files_per_job": 0, "lumis_per_job": 1}, marks=pytest.mark.deep(f"{HERE}::test_jobs_with_parents_run_where_both_are")
        ),
    ],
)
def test_jobs_with_parents_run_where_both_are(world: World, split: dict[str, int]) -> None:
    parents = {"/store/p1.root": (FNAL, CERN), "/store/p2.root": (CERN,), "/store/p3.root": ()}
    world.sources[DATASET].parents.update(parents)
    block(world, "a", file("both", (1, 1), parents=("/store/p1.root", "/store/p2.root")), at=(FNAL, CERN))
    block(
        world,
        "b",
        file("apart", (1, 2), parents=("/store/p2.root",)),
        file("orphan", (1, 3), parents=("/store/p3.root",)),
        at=(FNAL,),
    )
    request = ask(world, IncludeParents=True, **split)
    assert run_on(world, request, cycles=6) is S.QUEUED
    assert excluded(request) == {}
    waiting = InputFile.objects.filter(workflow__request=request, waiting_since__isnull=False)
    assert {row.lfn.rpartition("/")[2] for row in waiting} == {"apart.root", "orphan.root"}
    assert all("no site has both the file and its parents" in row.waiting_reason for row in waiting)
    job = world.schedd.jobs[0]
    assert '"parents": ["/store/p1.root", "/store/p2.root"]' in (job.directory / "mg_000000/unit.json").read_text()
    assert 'sites="T2_CH_CERN"' in (job.directory / "mg_000000/group.dag").read_text()
    world.sources[DATASET].parents |= {"/store/p2.root": (FNAL, CERN), "/store/p3.root": (FNAL,)}
    world.clock.advance(3600)
    assert work_done(world, request)


def test_a_single_copy_beside_the_parents_is_found_although_the_block_is_whole_elsewhere(world: World) -> None:
    world.sources[DATASET].parents["/store/p1.root"] = (CERN,)
    block(world, "a", file("one", (1, 1), parents=("/store/p1.root",)), file("two", (1, 2)), at=(FNAL, CERN))
    world.sources[DATASET].lost = {file("two").lfn: (CERN,)}
    request = ask(world, IncludeParents=True)
    assert all_planned(world, request)
    assert set(InputFile.objects.values_list("lfn", "rses__0")) == {(file("one").lfn, FNAL), (file("two").lfn, FNAL)}
    assert InputFile.objects.get(lfn=file("one").lfn).rses == [FNAL, CERN]


def test_a_request_stays_open_for_new_files_and_closes_when_none_comes(world: World) -> None:
    block(world, "a", file("a1", (1, 1)))
    request = ask(world, files_per_job=0, lumis_per_job=5, OpenRunningTimeout=1000)
    run_on(world, request, cycles=3)
    assert status(request) is S.ACTIVE
    assert "new files" in request.waiting_for

    block(world, "a", file("a2", (1, 1), (1, 2)))  # shares a lumi that is done already
    block(world, "b", file("b1", (1, 3)))
    block(world, "c", file("c1", (1, 1)))  # all that it has is done already
    world.clock.advance(300)
    run_on(world, request, cycles=5)
    assert status(request) is S.ACTIVE, request.waiting_for
    assert read(request) == {"a1", "a2", "b1", "c1"}
    assert excluded(request).keys() == {"c1"} and "that lumi is done, from other files" in excluded(request)["c1"]
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.done_lumis, ledger.all_lumis) == (3, 3)
    assert (ledger.done_files, ledger.excluded_files) == (3, 1)
    assert any("a2.root came after its share of lumi 1:1 could be read" in warning for warning in request.warnings)

    world.clock.advance(1000)
    assert work_done(world, request)
    assert [event.data["files"] for event in Event.objects.filter(request=request, kind="input.grew")] == [3]
    assert WorkUnitClaim.objects.filter(unit__workflow=request.workflow, live=True).count() == 2


def test_an_open_dataset_without_files_is_waited_for_without_a_slot(world: World) -> None:
    request = ask(world, OpenRunningTimeout=1000)
    run_on(world, request, cycles=2)
    assert status(request) is S.QUEUED
    assert "new files" in request.waiting_for
    block(world, "a", file("a1"))
    world.clock.advance(300)
    run_on(world, request, cycles=3)
    world.clock.advance(1000)
    assert work_done(world, request)
    assert read(request) == {"a1"}


def test_an_open_dataset_that_stays_empty_is_held_at_the_end(world: World) -> None:
    request = ask(world, OpenRunningTimeout=1000)
    assert run_on(world, request, cycles=6, seconds=600) is S.HELD
    assert request.hold_code == HoldCode.REFUSED


def test_a_dbs_that_gives_no_new_files_does_not_close_the_input_and_is_what_its_request_says_it_waits_for(world: World) -> None:
    block(world, "a", file("a1"))
    request = ask(world, OpenRunningTimeout=600)
    run_on(world, request, cycles=3)
    for mode, alert in ((Mode.DOWN, ""), (Mode.REFUSED, "input_unreadable")):
        world.dbs.script.arm(mode, 500)
        world.clock.advance(2000)
        run_on(world, request, cycles=2)
        assert (status(request), request.alert_code) == (S.ACTIVE, alert)
        assert "scripted" in request.waiting_for
        world.dbs.script.heal()
    block(world, "b", file("b1"))
    assert work_done(world, request)
    assert read(request) == {"a1", "b1"}, "what came before the last reading is taken"


def test_a_file_with_lumis_without_events_is_read_by_one_job_and_its_request_completes(world: World) -> None:
    """DBS keeps no count for a lumi of 0 events."""
    lumis = [(1, lumi) for lumi in range(1, 5)]
    block(world, "a", replace(file("thin", *lumis), counts=(50, None, 50, None)), file("plain", (1, 9), (1, 10)))
    request = ask(world, files_per_job=0, events_per_job=50)
    assert work_done(world, request)
    odd = InputFile.objects.get(lfn="/store/data/thin.root").odd_lumis
    assert [each for each in odd if not each[3]] == [[1, 2, 2, 0], [1, 4, 4, 0]]
    claims = WorkUnitClaim.objects.filter(unit__workflow__request=request).values_list("input_file__lfn", "first", "last")
    assert sorted(claims)[-1] == ("/store/data/thin.root", 0, 99)
    assert WorkUnit.objects.filter(workflow__request=request, claims__input_file__lfn="/store/data/thin.root").count() == 1
    ledger = ledger_check(ledger_of(request.workflow))
    assert ledger.done_files == 2
