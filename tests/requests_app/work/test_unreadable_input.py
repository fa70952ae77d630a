"""Input files that jobs cannot read: tried elsewhere, tried again later, and left out only when the file itself is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dags_app.models import UnreadableInput
from requests_app.models import HoldCode, InputFile, Request, RequestStatus
from requests_app.services import input_files_restore, request_release
from requests_app.services.release import ReleaseMode
from requests_app.work import input_places
from requests_app.work.ledger import ledger_check, ledger_of
from tests.support.faults import fault
from tests.support.scripted import documents, failures
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.invariants import check
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
FNAL, CERN = "T1_US_FNAL_Disk", "T2_CH_CERN"
DATASET = "/Unreadable/Era-v1/RAW"
HOURS = 3600


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch, UNREADABLE_APART_SECONDS=str(4 * HOURS), ERROR_HOLD_THRESHOLD="1")
    monkeypatch.setattr(input_places, "INPUT_LOCATIONS_SECONDS", 3600.0)
    world.furnish()
    world.sources[DATASET] = Source()
    return world


def block(world: World, name: str, *files: str, at: tuple[str, ...]) -> None:
    source = world.sources[DATASET]
    first = sum(len(held) for held in source.blocks.values()) + 1
    source.blocks[f"{DATASET}#{name}"] = [SourceFile(lfn(file), 100, 1, ((1, first + n),)) for n, file in enumerate(files)]
    source.locations[f"{DATASET}#{name}"] = at


def lfn(name: str) -> str:
    return f"/store/data/{name}.root"


def ask(world: World, **changes: Any) -> Request:
    return world.request(documents.reprocessing(DATASET, **({"files_per_job": 1} | changes)))


def run(world: World, request: Request, *, broken: dict[str, str] | None = None, cycles: int = 8) -> RequestStatus:
    """Cycles in which every DAG ends; ``broken``: file -> site at which it cannot be read."""
    for _ in range(cycles):
        world.cycle()
        for job in world.schedd.live:
            for unit in job.open_nodes:
                for file, site in (broken or {}).items():
                    if lfn(file) in failures.inputs_of(job, unit) and site in sites_of(job.directory / unit):
                        failures.file_is_bad(job, unit, lfn(file), site=site, at=world.clock.now())
                        world.bad_files.add(lfn(file))
                        world.schedd.unit_failed(job, unit)
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
        request.refresh_from_db()
        if request.status in (S.COMPLETED, S.HELD) or (request.status == S.QUEUED and request.next_attempt_at):
            break
    check(world)
    return S(request.status)


def sites_of(unit: Path) -> list[str]:
    return (unit / "group.dag").read_text().partition('VARS landing sites="')[2].partition('"')[0].split(",")


def excluded(request: Request) -> dict[str, str]:
    rows = InputFile.objects.filter(workflow__request=request, excluded_at__isnull=False)
    return dict(rows.values_list("lfn", "excluded_reason"))


@fault(
    "a storage outage of one site",
    done="no file can be read at one site for hours; of some it has the only replica, of others another site has one",
    spec="ADR 0011",
    afterwards="what is elsewhere is read there at once, the rest hours later, without a rescue in vain; nothing is left out",
)
@pytest.mark.parametrize("split", [{"files_per_job": 1}, {"files_per_job": 0, "lumis_per_job": 1}])
def test_an_outage_of_one_sites_storage_leaves_no_file_out(world: World, split: dict[str, int]) -> None:
    block(world, "a", "only", at=(CERN,))
    block(world, "b", "both", at=(CERN, FNAL))
    block(world, "c", "fine", at=(FNAL,))
    request = ask(world, **split)
    outage = {"only": "T2_CH_CERN", "both": "T2_CH_CERN"}
    assert run(world, request, broken=outage) is S.QUEUED
    assert "could not be read at T2_CH_CERN, and is nowhere else; tried again at" in request.waiting_for
    assert len(world.schedd.jobs) == 2, "the DAG, no rescue of it, and a round in which the other site's replica was read"
    assert set(UnreadableInput.objects.values_list("lfn", "site")) == {(lfn(name), site) for name, site in outage.items()}
    world.clock.advance(4 * HOURS)
    assert run(world, request) is S.COMPLETED
    assert excluded(request) == {}
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.done_files, ledger.all_files) == (3, 3)


def test_a_file_that_two_sites_cannot_read_is_left_out_and_may_be_let_in_again(world: World) -> None:
    block(world, "a", "bad", "good", at=(CERN, FNAL))
    request = ask(world)
    assert run(world, request, broken={"bad": "T2_CH_CERN"}, cycles=1) is S.ACTIVE
    assert run(world, request, broken={"bad": "T1_US_FNAL"}) is S.HELD
    assert request.hold_code == HoldCode.THRESHOLD, "all units of the second round failed"
    request_release(request=request, actor="olga", reason="looked at", mode=ReleaseMode.NEXT_ROUND)
    assert run(world, request) is S.HELD
    assert request.hold_code == HoldCode.EXCLUDED
    assert list(excluded(request)) == [lfn("bad")]
    assert "at T2_CH_CERN on" in request.hold_reason
    assert "at T1_US_FNAL on" in request.hold_reason
    assert world.dbs.access == {}, "what is not whole is not VALID"

    input_files_restore(request=request, lfns=[lfn("bad")], actor="olga", reason="repaired")
    request_release(request=request, actor="olga", reason="repaired")
    assert run(world, request) is S.COMPLETED
    assert set(world.dbs.access.values()) == {"VALID"}
    assert ledger_of(request.workflow).done_files == 2


def test_the_only_replica_is_given_up_when_it_cannot_be_read_hours_later_either(world: World) -> None:
    block(world, "a", "bad", at=(CERN,))
    block(world, "b", "good", at=(FNAL,))
    request = ask(world)
    broken = {"bad": "T2_CH_CERN"}
    assert run(world, request, broken=broken) is S.QUEUED
    world.clock.advance(4 * HOURS)
    assert run(world, request, broken=broken) is S.HELD
    assert excluded(request) == {}
    request_release(request=request, actor="olga", reason="looked at", mode=ReleaseMode.NEXT_ROUND)
    assert run(world, request) is S.HELD
    assert request.hold_code == HoldCode.EXCLUDED
    assert excluded(request)[lfn("bad")].count("at T2_CH_CERN on") == 2


def test_a_file_whose_block_is_whole_at_one_site_is_read_from_a_single_copy_elsewhere(world: World) -> None:
    block(world, "a", "both", "other", at=(CERN, FNAL))
    world.sources[DATASET].lost = {lfn("other"): (FNAL,)}
    request = ask(world)
    assert run(world, request, broken={"both": "T2_CH_CERN"}) is S.COMPLETED
    assert excluded(request) == {}
    assert len(world.schedd.jobs) == 2, "it did not wait for the site that failed"


@pytest.mark.parametrize("lasts", [True, False])
def test_with_trusted_site_lists_two_sites_that_read_from_one_storage_do_not_lose_a_file_at_once(
    world: World, lasts: bool
) -> None:
    block(world, "a", "bad", at=(CERN,))
    block(world, "b", "good", at=(CERN,))
    sites = ["T1_US_FNAL", "T2_CH_CERN"]
    request = ask(world, TrustSitelists=True, SiteWhitelist=sites)
    world.cycle()
    (job,) = world.schedd.live
    (unit,) = [unit for unit in job.open_nodes if lfn("bad") in failures.inputs_of(job, unit)]
    for site in sites:
        failures.file_is_bad(job, unit, lfn("bad"), site=site, at=world.clock.now())
    world.bad_files.add(lfn("bad"))
    world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    assert run(world, request) is S.QUEUED
    assert "could not be read at T1_US_FNAL, T2_CH_CERN; tried again at" in request.waiting_for
    assert excluded(request) == {}
    world.clock.advance(4 * HOURS)
    assert run(world, request, broken={"bad": sites[0]} if lasts else {}) is (S.HELD if lasts else S.COMPLETED)
    if lasts:
        request_release(request=request, actor="olga", reason="looked at", mode=ReleaseMode.NEXT_ROUND)
        assert run(world, request) is S.HELD
        assert list(excluded(request)) == [lfn("bad")]
