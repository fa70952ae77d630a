"""Input files whose replicas come, go and move: what waits, what goes on, and that nothing completes in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from requests_app.models import Event, InputFile, Request, RequestStatus, RequestTransition
from requests_app.work import input_places
from requests_app.work.ledger import ledger_check, ledger_of
from sites_app.models import Site, SiteStatus
from sites_app.services import site_change_status
from tests.support.faults import fault
from tests.support.scripted import documents
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import all_planned, fresh, run_on, work_done
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/work/test_input_places.py"
#: For the long run.
BY_LUMI = pytest.mark.deep(f"{HERE}::test_a_replica_that_is_lost_after_the_import")
S = RequestStatus
FNAL, CERN = "T1_US_FNAL_Disk", "T2_CH_CERN"
DATASET = "/Places/Era-v1/RAW"
SPLITS = [{"files_per_job": 1}, {"files_per_job": 0, "lumis_per_job": 1}]
FIRST_SPLIT = [SPLITS[0], pytest.param(SPLITS[1], marks=BY_LUMI)]


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch)
    monkeypatch.setattr(input_places, "INPUT_LOCATIONS_SECONDS", 3600.0)
    world.furnish()
    world.sources[DATASET] = Source()
    return world


def block(world: World, name: str, *files: str, at: tuple[str, ...] = (CERN,)) -> None:
    source, first = world.sources[DATASET], sum(len(held) for held in world.sources[DATASET].blocks.values()) + 1
    made = [SourceFile(lfn(file), 100, 1, ((1, first + n),)) for n, file in enumerate(files)]
    source.blocks[f"{DATASET}#{name}"], source.locations[f"{DATASET}#{name}"] = made, at


def lfn(name: str) -> str:
    return f"/store/data/{name}.root"


def ask(world: World, **changes: Any) -> Request:
    return world.request(documents.reprocessing(DATASET, **({"files_per_job": 1} | changes)))


def done(request: Request) -> set[str]:
    """Files that done units have read."""
    rows = InputFile.objects.filter(workflow__request=request, claims__live=True, claims__unit__state="done")
    return {row.lfn.rpartition("/")[2].removesuffix(".root") for row in rows}


def sites(world: World) -> list[str]:
    """Of the newest DAG's units."""
    texts = [path.read_text() for path in sorted(world.schedd.jobs[-1].directory.glob("mg_*/group.dag"))]
    return [text.partition('VARS landing sites="')[2].partition('"')[0] for text in texts]


@fault(
    "a replica lost after import",
    done="one of a block's two replicas of a file is lost after the input was read; then the other one too, and comes back",
    spec="ADR 0011",
    afterwards="planned where the file still is; it waits without a slot, told and alerted; done when it is back",
)
@pytest.mark.parametrize("split", SPLITS)
def test_a_replica_that_is_lost_after_the_import(world: World, split: dict[str, int]) -> None:
    source = world.sources[DATASET]
    block(world, "a", "a1", "a2", at=(FNAL, CERN))
    request = ask(world, **split)
    world.evaluate(request, steps=1)  # the input is read; before it is planned, replicas go
    assert InputFile.objects.filter(rses=[FNAL, CERN]).count() == 2
    source.lost = {lfn("a1"): (FNAL,), lfn("a2"): (FNAL, CERN)}
    world.clock.advance(7200)
    assert run_on(world, request, cycles=6) is S.QUEUED
    assert sites(world) == ["T2_CH_CERN"]
    if "lumis_per_job" not in split:
        assert done(request) == {"a1"}
    assert "site of 1 input file, e.g. /store/data/a2.root: no replica at any site" in request.waiting_for
    assert not InputFile.objects.filter(excluded_at__isnull=False).exists()

    before = RequestTransition.objects.filter(request=request).count()
    for _ in range(6):
        world.clock.advance(18_000)
        world.cycle()
    assert RequestTransition.objects.filter(request=request).count() == before, "who waits changes no status and takes no slot"
    request.refresh_from_db()
    assert request.alert_code == "input_missing"
    assert Event.objects.filter(request=request, kind="alert", data__code="input_missing").count() == 1

    source.lost = {}
    world.clock.advance(3600)
    assert run_on(world, request) is S.COMPLETED
    assert request.alert_code == ""
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.done_files, ledger.all_files, ledger.excluded_files) == (2, 2, 0)
    assert not InputFile.objects.filter(waiting_since__isnull=False).exists()


@pytest.mark.parametrize("split", FIRST_SPLIT)
def test_a_block_that_is_whole_nowhere_is_read_file_by_file(world: World, split: dict[str, int]) -> None:
    block(world, "a", "a1", "a2", at=(FNAL, CERN))
    world.sources[DATASET].lost = {lfn("a1"): (FNAL,), lfn("a2"): (CERN,)}
    request = ask(world, **split)
    assert all_planned(world, request)
    assert sorted(sites(world)) == ["T1_US_FNAL", "T2_CH_CERN"]


def test_with_trusted_site_lists_it_does_not_matter_where_a_file_is(world: World) -> None:
    block(world, "a", "a1", at=())
    request = ask(world, TrustSitelists=True, SiteWhitelist=["T2_CH_CERN"])
    assert work_done(world, request)
    assert done(request) == {"a1"}


@pytest.mark.parametrize("split", FIRST_SPLIT)
def test_a_replica_at_a_site_that_the_lists_do_not_admit_is_waited_for_elsewhere(world: World, split: dict[str, int]) -> None:
    block(world, "a", "a1", at=(FNAL,))
    request = ask(world, SiteWhitelist=["T2_CH_CERN"], **split)
    assert run_on(world, request, cycles=4) is S.QUEUED
    assert "the site lists admit none of these" in request.waiting_for
    world.sources[DATASET].locations[f"{DATASET}#a"] = (FNAL, CERN)
    world.clock.advance(3600)
    assert all_planned(world, request)


def test_a_lumi_waits_while_one_of_the_files_that_hold_it_does(world: World) -> None:
    shared = [SourceFile(lfn(name), 100, 1, ((1, 1), (1, 2 + n))) for n, name in enumerate(("here", "gone"))]
    source = world.sources[DATASET]
    for file, at in zip(shared, ((CERN,), ()), strict=True):
        name = f"{DATASET}#{file.lfn[-9:]}"
        source.blocks[name], source.locations[name] = [file], at
    request = ask(world, files_per_job=0, lumis_per_job=1)
    assert run_on(world, request, cycles=5) is S.QUEUED
    ledger = ledger_of(request.workflow)
    assert (ledger.done_lumis, ledger.left_lumis, ledger.refused_lumis) == (1, 2, 0), "only what is in no file that waits"
    source.locations[f"{DATASET}#gone.root"] = (FNAL,)
    world.clock.advance(3600)
    assert run_on(world, request, cycles=4) is S.QUEUED, "no site has both files of the lumi they share"
    assert ledger_of(request.workflow).done_lumis == 2
    source.locations[f"{DATASET}#gone.root"] = (FNAL, CERN)
    world.clock.advance(3600)
    assert work_done(world, request)
    assert ledger_of(request.workflow).done_lumis == 3


def test_a_silent_rucio_leaves_what_waits_as_it_is(world: World) -> None:
    block(world, "a", "a1", at=())
    request = ask(world)
    assert run_on(world, request, cycles=4) is S.QUEUED
    world.rucio.script.arm(Mode.DOWN, 50)
    world.clock.advance(3600)
    assert run_on(world, request, cycles=3) is S.QUEUED
    assert "no answer" in request.waiting_for
    world.rucio.script.heal()
    world.sources[DATASET].locations[f"{DATASET}#a"] = (CERN,)
    world.clock.advance(7200)
    assert all_planned(world, request)


def test_while_every_site_of_each_unit_is_closed_nothing_is_planned_and_no_row_is_left(world: World) -> None:
    block(world, "a", "a1")  # at CERN alone, and other sites are open
    request = ask(world)
    site = Site.objects.get(pk="T2_CH_CERN")
    site_change_status(site=site, status=SiteStatus.DISABLED, actor="olga", reason="power cut")
    assert run_on(world, request, cycles=4) is S.QUEUED
    assert "a site: T2_CH_CERN is disabled by olga: power cut" in fresh(request).last_error
    assert (request.workflow.dags.count(), request.workflow.rounds.count()) == (0, 0)
    site_change_status(site=site, status=SiteStatus.ENABLED, actor="olga", reason="power is back")
    assert all_planned(world, request)
