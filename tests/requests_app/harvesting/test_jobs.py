"""DQM of a completed request is harvested by jobs at its files' site and is with the DQM servers once, whatever dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from django.utils import timezone

from dags_app.models import SiteJob, SiteJobState
from dags_app.planning.specs import HarvestSpec, MergeKind
from dags_app.services import site_jobs
from deploy.simulators.worker.install import install
from deploy.simulators.worker.rootfiles import EventTable, write_events
from outputs_app.models import BlockWorkUnit, OutputDataset, OutputFile, ProcessingBlock, Validity
from requests_app.harvesting import jobs as harvesting
from requests_app.harvesting.intake import PSET
from requests_app.harvesting.jobs import harvest_ask, harvest_decide, harvests_run
from requests_app.models import Harvest, HarvestState, Request, RequestStatus
from requests_app.work.recount import recount
from sites_app.models import Site, SiteRse
from tests.support import simulator_world
from tests.support.limits import set_limits
from tests.support.payload_psets import pset
from tests.support.payload_workbench import SITES, write_sites
from tests.support.rows import dag_row, generation_spec, output_spec, request_row, schedd_row, unit_row, workflow_row
from tests.support.simulator_world import World
from tests.support.site_jobs import ENVIRONMENT, SiteSchedd
from wms2.errors import InvalidTransition, ServiceUnavailable

pytestmark = pytest.mark.django_db
FNAL, CERN = SITES
DQM = "/PrimaryDqm/Era-Proc-v1/DQMIO"
HARVESTING = pset("HARVESTING", 'process.source = cms.Source("DQMRootSource", fileNames = cms.untracked.vstring())', {}) + (
    'process.dqmSaver = cms.EDAnalyzer("DQMFileSaver", workflow = cms.untracked.string("/Global/Somewhere/RECO"))\n'
)


class Killed(BaseException):
    """As kill -9 does, nothing after it runs."""


class Rucio:
    """Where the files are: at FNAL, unless it says otherwise, or does not answer."""

    def __init__(self) -> None:
        self.rses = [SITES[FNAL]]
        self.silent = False

    def file_replicas(self, lfns: list[str]) -> dict[str, list[str]]:
        if self.silent:
            raise ServiceUnavailable("rucio", "file_replicas", "it is silent")
        return dict.fromkeys(lfns, self.rses)


class Place:
    """A request with a DQMIO output over two runs, its site's storage, a schedd, DQM servers."""

    def __init__(self, root: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.world, self.monkeypatch = root, world, monkeypatch
        self.schedd, self.rucio = SiteSchedd(root), Rucio()
        write_sites(root)
        install(root / "bin", Path(sys.executable))
        for site, rse in SITES.items():
            SiteRse.objects.create(site=Site.objects.create(name=site), rse=rse, seen_at=timezone.now())
        schedd_row()
        monkeypatch.setattr(site_jobs.factory, "htcondor", self.schedd)
        monkeypatch.setattr(site_jobs.factory, "rucio", lambda: self.rucio)
        self.settings(submit_root=root / "submit", dqm_upload_url="")

    def settings(self, **values: object) -> None:
        changed = harvesting.conf().model_copy(update=values)
        for module in (harvesting, site_jobs):
            self.monkeypatch.setattr(module, "conf", lambda: changed)

    def completed(self, *, url: str = "dev", **harvest: Any) -> Request:
        """Two files, of run 1, and of runs 1 and 2."""
        request = request_row(RequestStatus.COMPLETED)
        asked = HarvestSpec("h" * 32, (f"{self.world.url}/dqm/{url}",), **harvest)
        output = replace(output_spec("Dqm", "DQMIO"), merge=MergeKind.DQMIO)
        workflow = workflow_row(
            request, replace(generation_spec(), outputs=(output, output_spec()), harvest=asked), psets={PSET: HARVESTING}
        )
        unit = unit_row(dag_row(workflow), site=FNAL)
        self.file(unit, 1, {1: [1, 2]})
        self.file(unit, 2, {1: [3], 2: [7]})
        harvest_ask(Request.objects.get(pk=request.pk))
        return request

    def file(self, unit: Any, number: int, lumis: dict[int, list[int]]) -> None:
        dataset = OutputDataset.objects.get(workflow=unit.workflow, tier="DQMIO")
        block, _ = ProcessingBlock.objects.get_or_create(
            workflow=unit.workflow, dataset=dataset, block_index=0,
            defaults={"dataset_name": dataset.name, "dbs_block_name": f"{dataset.name}#{unit.pk}"},
        )  # fmt: skip
        BlockWorkUnit.objects.get_or_create(block=block, unit=unit, dataset=dataset, done=True)
        lfn = f"/store/mc/Era/PrimaryDqm/DQMIO/Proc-v1/00000/{unit.pk}-{number}.root"
        OutputFile.objects.create(
            lfn=lfn, dataset=dataset, block=block, unit=unit, rse=SITES[FNAL], size_bytes=1, adler32="ad", events=0,
            lumis={str(run): [[lumi, None] for lumi in each] for run, each in lumis.items()},
        )  # fmt: skip
        path = Path(f"{self.root}/storage/{SITES[FNAL]}{lfn}")
        path.parent.mkdir(parents=True, exist_ok=True)
        none = np.empty(0, "u4")
        write_events(path, EventTable(none, none, none), [(run, lumi) for run, each in lumis.items() for lumi in each], 0, 1)

    def served(self, server: str = "dev") -> list[str]:
        return list(requests.get(f"{self.world.url}/dqm/{server}/data/browse", timeout=10).json())


@pytest.fixture(name="place")
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with simulator_world.running(tmp_path / "simulators") as world:
        yield Place(tmp_path, world, monkeypatch)


def run(times: int = 2) -> None:
    for _ in range(times):
        harvests_run()


def due() -> None:
    Harvest.objects.update(next_try_at=timezone.now() - timedelta(seconds=1))


def states() -> list[tuple[int, str]]:
    return list(Harvest.objects.order_by("run").values_list("run", "state"))


def name(run_number: int, processed: str = "Era-Proc-v1") -> str:
    return f"DQM_V0001_R{run_number:09d}__PrimaryDqm__{processed}__DQMIO.root"


def test_each_run_becomes_a_file_of_its_own(place: Place) -> None:
    request = place.completed()
    assert states() == [(1, "waiting"), (2, "waiting")]
    harvest_ask(Request.objects.get(pk=request.pk))  # as after a crash
    run()

    assert states() == [(1, "done"), (2, "done")], list(Harvest.objects.values("problem"))
    assert place.served() == [f"0001/{name(1)}", f"0001/{name(2)}"]
    first = Harvest.objects.get(run=1)
    (reported,) = first.uploads
    stored = requests.get(f"{place.world.url}/dqm/dev/data/browse/0001/{name(1)}", timeout=10).content
    assert (reported["name"], reported["size_bytes"], reported["url"]) == (name(1), len(stored), f"{place.world.url}/dqm/dev")
    assert reported["answer"] == f"HTTP 200, DQM status 100: File saved; Wrote {len(stored)} bytes"
    assert (first.job.site, first.job.state, SiteJob.objects.count()) == (FNAL, SiteJobState.DONE, 2)
    assert not list((place.root / "submit").rglob("*.*")), "nothing is left of the jobs"


def test_all_runs_together_become_one_file_with_their_limits_in_its_name(place: Place) -> None:
    place.completed(together=True)
    run()
    assert states() == [(0, "done")]
    assert place.served() == [f"0001/{name(999_999, 'Era-Proc-v1-1-2')}"]


def test_every_server_that_is_named_gets_it(place: Place) -> None:
    place.completed(together=True)
    Harvest.objects.update(state="waiting")
    request = Request.objects.get()
    spec = request.workflow.spec
    spec["harvest"]["upload_urls"].append(f"{place.world.url}/dqm/relval-test")
    request.workflow.save()
    run()
    assert len(place.served("dev")) == len(place.served("relval-test")) == 1


def test_a_server_that_is_down_is_tried_again_with_growing_pauses_and_then_an_operator_is_needed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.settings(submit_root=place.root / "submit", stage_out_pauses=(0, 0))
    set_limits(place.monkeypatch, harvest_max_attempts=2)
    monkeypatch.delitem(ENVIRONMENT, "WMS2_STAGE_OUT_PAUSES")  # it is the job's own setting that counts
    place.completed(together=True)
    place.world.application.dqm.down = True
    run()
    row = Harvest.objects.get()
    assert (row.state, row.attempts) == (HarvestState.WAITING, 1)
    assert "/dqm/dev did not take DQM_V0001" in row.problem
    assert "HTTP 503" in row.problem
    assert timedelta(minutes=7) < row.next_try_at - timezone.now() < timedelta(minutes=13)
    run()
    assert SiteJob.objects.count() == 1, "it is not due"
    due()
    run()
    row.refresh_from_db()
    assert (row.state, row.attempts, row.request.status) == (HarvestState.FAILED, 2, RequestStatus.COMPLETED)

    place.world.application.dqm.down = False
    harvest_decide(harvest=row, actor="shifter", reason="it is up again", state=HarvestState.WAITING)
    run()
    assert states() == [(0, "done")]
    assert len(place.served()) == 1


def test_an_address_that_is_no_dqm_server_is_told(place: Place) -> None:
    place.completed(together=True, url="dev/gui")
    run()
    row = Harvest.objects.get()
    assert row.state == HarvestState.WAITING
    assert "/dqm/dev/gui did not take DQM_V0001" in row.problem
    assert "HTTP 404, DQM status not given" in row.problem


def test_a_configuration_that_harvests_nothing_is_told(place: Place) -> None:
    request = place.completed(together=True)
    request.workflow.psets[PSET] = pset("RECO", 'process.source = cms.Source("DQMRootSource")', {})
    request.workflow.save()
    run()
    assert "it has no dqmSaver" in Harvest.objects.get().problem


@pytest.mark.parametrize("point", ["site_job.claimed", "site_job.called", "site_job.recorded"])
def test_whoever_comes_after_a_kill_ends_it(place: Place, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.settings(submit_root=place.root / "submit", submit_timeout_seconds=0, submit_unknown_grace_seconds=0)
    place.completed(together=True)

    def kill(at: str) -> None:
        if at == point:
            raise Killed

    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr(site_jobs, "crash_point", kill)
        run()
    for _ in range(5):
        due()
        run()
    assert states() == [(0, "done")]
    assert len(place.served()) == 1


def test_an_upload_whose_record_is_lost_is_made_again_as_another_version(place: Place) -> None:
    place.completed(together=True)
    run()
    Harvest.objects.update(state="waiting")  # as if the worker node had died before its result was there
    run()
    together = name(999_999, "Era-Proc-v1-1-2")
    assert place.served() == [f"0001/{together}", f"0002/{together}"]


def test_files_that_are_not_on_disk_and_a_silent_rucio_are_waited_for(place: Place) -> None:
    place.completed(together=True)
    place.rucio.silent = True
    run()
    assert (Harvest.objects.get().attempts, SiteJob.objects.count()) == (0, 0)
    place.rucio.silent, place.rucio.rses = False, ["T1_US_FNAL_Tape"]
    Harvest.objects.update(next_try_at=timezone.now())
    run()
    row = Harvest.objects.get()
    assert (row.attempts, SiteJob.objects.count()) == (1, 0)
    assert "no site that jobs may go to has any of 2 files on disk" in row.problem


def test_one_of_which_rucio_says_nothing_readable_keeps_no_other_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.completed()
    odd, says = OutputFile.objects.order_by("lfn")[0].lfn, place.rucio.file_replicas

    def file_replicas(lfns: list[str]) -> dict[str, list[str]]:
        if odd in lfns:
            raise ServiceUnavailable("rucio", "file_replicas", "an answer that cannot be read")
        return says(lfns)

    monkeypatch.setattr(place.rucio, "file_replicas", file_replicas)
    run()
    assert states() == [(1, "waiting"), (2, "done")]


def test_switched_off_nothing_is_submitted_and_what_waits_in_a_queue_comes_back(place: Place) -> None:
    place.completed(together=True)
    place.schedd.waiting = True
    run()
    assert states() == [(0, "running")]
    place.settings(submit_root=place.root / "submit", harvest_enabled=False)
    run(3)
    assert place.schedd.removed
    assert (states(), Harvest.objects.get().attempts) == ([(0, "waiting")], 0)


def test_outputs_that_were_taken_back_are_not_harvested(place: Place) -> None:
    place.completed(together=True)
    OutputFile.objects.update(validity=Validity.INVALID)
    run()
    assert (states(), Harvest.objects.get().problem) == ([(0, "discarded")], "none of its files is valid any more")
    assert place.served() == []


def test_an_operator_gives_up_what_does_not_run(place: Place) -> None:
    place.completed()
    one, other = Harvest.objects.order_by("run")
    harvest_decide(harvest=one, actor="shifter", reason="nobody wants it", state=HarvestState.DISCARDED)
    place.schedd.waiting = True
    run()
    with pytest.raises(InvalidTransition, match="Its job runs"):
        harvest_decide(harvest=other, actor="shifter", reason="nobody wants it", state=HarvestState.DISCARDED)
    assert states() == [(1, "discarded"), (2, "running")]


def test_no_more_jobs_are_in_the_queues_than_may_be(place: Place) -> None:
    place.monkeypatch.setattr(harvesting, "_MOST_JOBS", 1)
    place.completed()
    place.schedd.waiting = True
    run()
    assert states() == [(1, "running"), (2, "waiting")]


def test_dqmio_is_no_dataset_that_is_short_of_events(place: Place) -> None:
    request = place.completed()
    catalogue = {"/PrimaryTester/Era-Proc-v1/GEN-SIM": (3, 3200), DQM: (2, 0)}
    assert [(each.dataset, each.short) for each in recount(request, catalogue)] == [("/PrimaryTester/Era-Proc-v1/GEN-SIM", 0)]


def test_of_a_request_that_is_cleaned_nothing_is_harvested_although_its_files_are_valid_still(place: Place) -> None:
    request = place.completed()
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.CLEANING)
    run()
    assert states() == [(1, HarvestState.DISCARDED), (2, HarvestState.DISCARDED)]
    assert place.served() == []
