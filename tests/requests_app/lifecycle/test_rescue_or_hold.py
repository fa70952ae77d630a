"""Rescue or hold: the threshold, the limit, chains of rescues, and what a held request keeps. error-handling 3, 4.1 and 7."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from dags_app.models import DAG, LIVE_DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim
from dags_app.payload.contract.layout import PROCESSING_SUBMIT
from outputs_app.models import RULED, BlockStatus, OutputFile, ProcessingBlock
from requests_app.models import Event, HoldCode, InputFile, Request, RequestStatus, RequestTransition, Round
from requests_app.services import StopMode, request_hold, request_release, request_set_pools, request_stop
from requests_app.services.release import Changes, ReleaseMode
from requests_app.work import pileup
from requests_app.work.ledger import ledger_check, ledger_of
from sites_app.models import Schedd, ScheddState
from tests.support.limits import set_limits
from tests.support.rows import pool_row, request_row, schedd_row
from tests.support.scene_failures import line
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.catalogues import Source
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import all_done, cycles, nothing_is_registered, status
from tests.support.scripted.schedd import OTHER, End, Job
from tests.support.scripted.world import World
from wms2.adapters.htcondor_ads import IDLE_ATTRIBUTE
from wms2.conf import conf
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/lifecycle/test_rescue_or_hold.py"
#: For the long run.
MORE_SHARES = pytest.mark.deep(f"{HERE}::test_the_share_of_failed_units_holds_at_the_threshold")
S = RequestStatus
UNITS = 5


def make_world(world_root: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> World:
    made = World(world_root, monkeypatch, MAX_WORK_UNITS_PER_DAG=str(UNITS), **settings)
    made.furnish()
    return made


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The threshold and the limit that WMS2 ships: 20 %, three rescues; five units a DAG."""
    monkeypatch.setattr(World, "effects", nothing_is_registered)
    return make_world(world_root, monkeypatch, ERROR_HOLD_THRESHOLD="0.2", ERROR_MAX_RESCUE_ATTEMPTS="3")


def limits(world: World, threshold: str, rescues: int = 3) -> None:
    """From now on."""
    set_limits(world.patch, error_hold_threshold=float(threshold), error_max_rescue_attempts=rescues)


@once
def started(world: World, events: int = 100 * UNITS) -> tuple[Request, Job]:
    request = world.request(documents.generation(events))
    world.cycle()
    assert status(request) is S.ACTIVE
    return request, world.job_of(request)


def end_with_failures(world: World, job: Job, failed: int) -> None:
    """The last ``failed`` open units fail, the others are done."""
    for unit in job.open_nodes[len(job.open_nodes) - failed :]:
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    cycles(world, 2)


def chain(request: Request) -> list[DAG]:
    return list(DAG.objects.filter(workflow__request=request, submitted_at__isnull=False).order_by("fence"))


# --- 3.2


@pytest.mark.parametrize(("threshold", "failed"), [("0.2", 1), ("1.0", 5), pytest.param("0.4", 2, marks=MORE_SHARES)])
def test_the_share_of_failed_units_holds_at_the_threshold(world: World, threshold: str, failed: int) -> None:
    request, job = started(world)
    limits(world, threshold)
    end_with_failures(world, job, failed)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.THRESHOLD)
    ended = DAGStatus.FAILED if failed == UNITS else DAGStatus.PARTIAL
    assert chain(request)[0].status == ended, "the DAG may have failed, the request has not"


@pytest.mark.deep(f"{HERE}::test_stops_and_failures_make_one_chain_of_rescues_in_one_directory")
def test_a_request_without_failed_units_completes(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(world_root, monkeypatch, ERROR_HOLD_THRESHOLD="0.2")
    request, job = started(world)
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    assert status(request) is S.COMPLETED


def test_below_the_threshold_it_is_rescued_and_after_the_last_rescue_held_however_few_failed(world: World) -> None:
    """The share is of the round's units, and only those that are still not done count."""
    request, job = started(world)
    for threshold, failed, reported in (
        ("1.0", 4, "not all of them"),
        ("0.21", 1, "one of five: what the rescue has brought to its end does not count any more"),
        ("0.21", 1, "one of five again, although the rescue itself had only one to do"),
    ):
        limits(world, threshold)
        end_with_failures(world, job, failed)
        assert (status(request), chain(request)[-1].kind) == (S.ACTIVE, DAGKind.FAILURE_RESCUE), reported
        job = world.job_of(request)
    end_with_failures(world, job, 1)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.RESCUES)
    assert "after 3 rescues" in request.hold_reason
    assert [dag.kind for dag in chain(request)] == [DAGKind.FRESH, *[DAGKind.FAILURE_RESCUE] * 3]


def test_one_unit_of_a_small_adaptive_round_is_rescued_before_it_holds_the_request(world: World) -> None:
    """Of few units each is above the threshold, and a first round has one."""
    request, job = started(world)
    limits(world, "0.1")
    Request.objects.filter(pk=request.pk).update(adaptive=True)
    end_with_failures(world, job, 1)
    assert status(request) is S.ACTIVE
    assert chain(request)[-1].kind == DAGKind.FAILURE_RESCUE
    end_with_failures(world, world.job_of(request), 1)
    assert status(request) is S.HELD
    request.refresh_from_db()
    assert request.hold_code == HoldCode.THRESHOLD


# --- 3.3 and 7


def test_stops_and_failures_make_one_chain_of_rescues_in_one_directory(world: World) -> None:
    """The example of error-handling 7.3, with one rescue allowed: the stop does not use it up. A rescue goes to its own schedd
    whatever room there is elsewhere, and to another one where its own takes none."""
    request, job = started(world)
    limits(world, "0.9", rescues=1)
    for unit in job.open_nodes[:2]:
        world.schedd.unit_done(job, unit)
    request_stop(request=request, actor="olga", reason="maintenance")
    Schedd.objects.update(max_dagman_slots=12)
    schedd_row("other@test", pool="scripted")
    cycles(world, 2)
    reported = RequestTransition.objects.filter(request=request).order_by("id").values_list("to_status", flat=True)
    specified = [S.STOPPING, S.RESUBMITTING, S.QUEUED, S.PLANNING, S.ACTIVE]
    assert list(reported)[-5:] == specified, "a clean stop goes through the statuses of the specification"
    stopped, rescue = chain(request)
    assert (stopped.status, rescue.kind, rescue.parent_dag_id) == (DAGStatus.STOPPED, DAGKind.STOP_RESCUE, stopped.pk)
    assert stopped.stop_requested_at is not None
    job = world.job_of(request)
    assert len(job.open_nodes) == 3, "what was done before the stop is not run again"
    end_with_failures(world, job, 2)
    job = world.job_of(request)
    assert len(job.open_nodes) == 2, "nor what was done before the failure"
    request_stop(request=request, actor="olga", reason="the schedd is taken out of service", mode=StopMode.DRAIN)
    Schedd.objects.filter(name="schedd@test").update(state=ScheddState.DRAINING)
    cycles(world, 2)
    world.schedd.end(job, End.DRAINED)
    cycles(world, 2)
    assert len(world.job_of(request).open_nodes) == 2, "each rescue file knows what the earlier ones knew"
    assert all_done(world, request)

    dags = chain(request)
    assert [dag.kind for dag in dags] == [DAGKind.FRESH, DAGKind.STOP_RESCUE, DAGKind.FAILURE_RESCUE, DAGKind.STOP_RESCUE]
    assert [dag.schedd_name for dag in dags] == [*["schedd@test"] * 3, "other@test"]
    assert [dag.parent_dag_id for dag in dags] == [None, *(dag.pk for dag in dags[:-1])]
    assert {dag.submit_dir for dag in dags} == {dags[0].submit_dir}
    assert [Path(dag.rescue_dag_path).suffix for dag in dags[1:]] == [".rescue001", ".rescue002", ".rescue003"]
    assert {dag.files_sha256 for dag in dags} == {dags[0].files_sha256}, "the DAG's files never change"
    assert WorkUnit.objects.filter(workflow__request=request, state="done").count() == UNITS


@pytest.mark.parametrize("between", [S.QUEUED, S.PLANNING, S.RESUBMITTING, S.PARTIAL])
def test_between_dags_a_stop_changes_nothing(between: RequestStatus) -> None:
    request = request_row(between)
    request_stop(request=request, actor="olga", reason="maintenance")
    assert status(request) is between


def test_a_queued_request_may_be_held_and_then_nothing_is_planned(world: World) -> None:
    request = world.request(documents.generation(100))
    Schedd.objects.update(state=ScheddState.DRAINING)
    world.cycle()
    assert status(request) is S.QUEUED
    request_hold(request=request, actor="olga", reason="not now")
    Schedd.objects.update(state=ScheddState.ENABLED)
    cycles(world, 2)
    assert (status(request), world.schedd.jobs) == (S.HELD, [])


# --- 3.4


def test_a_round_is_over_before_the_next_one_and_numbers_of_failed_units_are_given_up(world: World) -> None:
    """Six units: two rounds. While the first one is rescued or held there is one round and at most one DAG that lives. The end is
    at enough *done* events, not at enough planned ones (error-handling 5.1; docs/design/model.md, Ledger)."""
    request, job = started(world, 100 * (UNITS + 1))
    end_with_failures(world, job, 2)
    assert status(request) is S.HELD
    cycles(world, 3)
    rounds = Round.objects.filter(workflow=request.workflow)
    assert rounds.count() == 1
    request_release(request=request, actor="olga", reason="once more")
    cycles(world, 3)
    assert (rounds.count(), chain(request)[-1].kind) == (1, DAGKind.FAILURE_RESCUE)
    assert DAG.objects.filter(workflow=request.workflow, status__in=LIVE_DAG).count() == 1
    end_with_failures(world, world.job_of(request), 2)
    request_release(request=request, actor="olga", reason="plan anew", mode=ReleaseMode.NEXT_ROUND)
    assert all_done(world, request)
    assert rounds.count() == 2
    claims = WorkUnitClaim.objects.filter(unit__workflow=request.workflow, kind=WorkUnitClaim.KIND_GENERATED)
    done = sorted((c.first, c.last) for c in claims.filter(unit__state="done"))
    lost = sorted((c.first, c.last) for c in claims.filter(unit__state="failed"))
    assert lost == [(301, 400), (401, 500)]
    assert done[3:] == [(501, 600), (601, 700), (701, 800)], "new numbers, behind all that were ever planned"
    ledger = ledger_check(ledger_of(request.workflow))
    assert (ledger.done_events, ledger.lost_events, ledger.left_events) == (600, 200, 0)


# --- 4.1


def test_a_held_request_keeps_what_is_done_registers_it_and_takes_no_slot(
    world_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(world_root, monkeypatch, ERROR_HOLD_THRESHOLD="0.2")
    request, job = started(world)
    end_with_failures(world, job, 2)
    assert status(request) is S.HELD
    cycles(world, 3)
    world.clock.advance(conf().effect_gather_seconds + 1)
    cycles(world, 3)
    files = OutputFile.objects.filter(dataset__workflow=request.workflow)
    assert files.count() == 3 * 2, "two datasets"
    assert files.filter(RULED).count() == 3 * 2, "protected while it is held"
    statuses = ProcessingBlock.objects.filter(workflow=request.workflow).values_list("status", flat=True)
    assert BlockStatus.FAILED not in statuses
    free = [world.request(documents.generation(100)) for _ in range(2)]
    cycles(world, 2)
    assert [status(other) for other in free] == [S.ACTIVE, S.ACTIVE], "two DAGs may live at once (MAX_ACTIVE_DAGS)"


# --- 5


def test_a_request_that_keeps_losing_its_events_is_held_as_short(world: World) -> None:
    """Twice the requested events are tried, no more (docs/design/model.md, Ledger)."""
    request, job = started(world)
    for _ in range(4):
        end_with_failures(world, job, UNITS)
        if request.hold_code == HoldCode.SHORT:
            break
        request_release(request=request, actor="olga", reason="again", mode=ReleaseMode.NEXT_ROUND)
        cycles(world, 3)
        if status(request) is not S.ACTIVE:
            break
        job = world.job_of(request)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.SHORT)
    assert ledger_of(request.workflow).lost_events == 1000


def test_a_bad_file_is_excluded_its_neighbours_are_done_later_and_the_request_completes(world: World) -> None:
    """Error-handling 5.2 from end to end: two files a job, one job a unit; one file of one job cannot be read."""
    dataset = world.source("Bad", *[100] * 4)
    request = world.request(documents.reprocessing(dataset, files_per_job=2))
    world.cycle()
    job = world.job_of(request)
    unit = WorkUnit.objects.filter(workflow__request=request).order_by("index")[0]
    bad, neighbour = unit.claims.order_by("id").values_list("input_file__lfn", flat=True)
    with (job.directory / "failures.jsonl").open("a") as log:
        for site in ("T1_US_FNAL", "T2_CH_CERN"):
            reported = line(
                unit=unit.name, category="data", code=8021, final=True, bad_input_files=[bad], fence=job.fence, site=site
            )
            log.write(json.dumps(reported) + "\n")
    verdict = {"category": "data", "bad_input_files": [bad], "reason": "exit code 8021: cannot read it"}
    (job.directory / unit.name / "proc_000000.post.json").write_text(json.dumps({"classification": verdict}))
    world.schedd.unit_failed(job, unit.name)
    world.schedd.end(job, End.FINISHED)
    cycles(world)
    assert status(request) is S.HELD
    with pytest.raises(InvalidTransition, match="gave up over input files"):
        request_release(request=request, actor="olga", reason="go on", mode=ReleaseMode.RESCUE)
    request_release(request=request, actor="olga", reason="leave the file out", mode=ReleaseMode.NEXT_ROUND)
    assert not all_done(world, request)
    assert (status(request), request.hold_code) == (S.HELD, HoldCode.EXCLUDED)
    request_release(request=request, actor="olga", reason="not needed", changes=Changes(accept_excluded=True))
    assert all_done(world, request)
    row = InputFile.objects.get(workflow=request.workflow, lfn=bad)
    assert "cannot read it" in row.excluded_reason
    again = WorkUnitClaim.objects.get(input_file__lfn=neighbour, live=True, unit__workflow=request.workflow)
    assert (again.unit.round.index, again.unit.state) == (1, "done")
    ledger = ledger_check(ledger_of(request.workflow))
    assert ledger.summary() == "3 files done, 0 planned, 0 attempted, 1 excluded, 0 left of 4"


@pytest.mark.parametrize("near", [True, False], ids=["seen there", "planned anew"])
def test_a_failure_rescue_goes_on_in_the_pools_that_were_chosen_while_it_ran(near: bool, world: World, tmp_path: Path) -> None:
    request, job = started(world)
    limits(world, "0.5")
    world.furnish_another()
    first, other = Schedd.objects.exclude(name=OTHER).get(), Schedd.objects.get(name=OTHER)
    other.pool = pool_row("new", file_system=first.pool.file_system if near else "new")
    other.state, other.submit_root = ScheddState.ENABLED, first.submit_root if near else str(tmp_path / "new")
    other.save()
    request_set_pools(request=request, actor="olga", reason="the pool is full", pools=["new"])
    end_with_failures(world, job, 1)
    for _ in range(3):
        world.clock.advance(400)
        world.cycle()
    assert status(request) is S.ACTIVE
    assert world.job_of(request).at == other.name
    newest = chain(request)[-1]
    assert (newest.kind, newest.total_work_units) == ((DAGKind.FAILURE_RESCUE, UNITS) if near else (DAGKind.FRESH, 1))
    assert near or all_done(world, request)


# --- pileup, which MSPileup moves while a DAG runs for weeks


@dataclass
class Mixed:
    """A generation that mixes a pileup of two blocks, and its DAG that runs."""

    name: str
    source: Source
    request: Request
    job: Job

    def move(self, rse: str) -> None:
        self.source.locations = dict.fromkeys(self.source.blocks, (rse,))

    def read(self, job: Job | None = None) -> dict[str, list[str]]:
        """The sites of each block, as jobs are told."""
        document = json.loads(((job or self.job).directory / "pileup.json").read_text())
        return {name: block["sites"] for name, block in document["datasets"][self.name]["blocks"].items()}

    def at(self, site: str) -> dict[str, list[str]]:
        return {block: [site] for block in self.source.blocks}

    @property
    def avoided(self) -> str:
        return (self.job.directory / "avoid.inc").read_text().partition("=")[2].strip()


@pytest.fixture(name="mixes")
def _mixes(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(pileup, "PILEUP_CACHE_SECONDS", 0)
    monkeypatch.setattr(World, "effects", nothing_is_registered)
    return make_world(world_root, monkeypatch, ERROR_HOLD_THRESHOLD="1.0", ERROR_MAX_RESCUE_ATTEMPTS="9")


@once
def mixing(world: World) -> Mixed:
    """The blocks are at FNAL and at CERN, and the DAG is the first."""
    pileup, document = world.source("Premix", *[100] * 4), documents.generation(100 * UNITS)
    request = world.request({**document, "Step2": {**document["Step2"], "MCPileup": pileup}})
    world.cycle()
    mixed = Mixed(pileup, world.sources[pileup], request, world.job_of(request))
    first, second = mixed.source.blocks
    assert (mixed.read(), mixed.avoided) == ({first: ["T1_US_FNAL"], second: ["T2_CH_CERN"]}, "")
    return mixed


def test_a_rescue_mixes_pileup_where_it_lies_by_then_and_what_is_left_is_planned_anew_where_no_site_of_it_has_any(
    mixes: World,
) -> None:
    """Its landing sites are those of its planning: it would wait for ever."""
    mixed = mixing(mixes)
    mixed.move("T2_CH_CERN")
    end_with_failures(mixes, mixed.job, 3)
    assert (status(mixed.request), chain(mixed.request)[-1].kind) == (S.ACTIVE, DAGKind.FAILURE_RESCUE)
    assert (mixed.read(), mixed.avoided) == (mixed.at("T2_CH_CERN"), "T1_US_FNAL")
    mixed.move("T2_US_Purdue")
    for rescues, away in enumerate(("dbs", "rucio"), 2):
        mixes.scripts[away].arm(Mode.DOWN, 5000)
        end_with_failures(mixes, mixes.job_of(mixed.request), 2)
        kept = f"it keeps the pileup it has while {away} does not answer"
        assert (status(mixed.request), len(chain(mixed.request))) == (S.ACTIVE, rescues + 1), kept
        assert (mixed.read(), mixed.avoided) == (mixed.at("T2_CH_CERN"), "T1_US_FNAL"), kept
        mixes.heal()
    end_with_failures(mixes, mixes.job_of(mixed.request), 2)
    dags = [(dag.kind, dag.total_work_units) for dag in chain(mixed.request)]
    assert dags == [(DAGKind.FRESH, UNITS), *[(DAGKind.FAILURE_RESCUE, UNITS)] * 3, (DAGKind.FRESH, 2)]
    (discarded,) = DAG.objects.filter(workflow__request=mixed.request, submitted_at__isnull=True)
    assert (discarded.kind, discarded.status) == (DAGKind.FAILURE_RESCUE, DAGStatus.REMOVED)
    assert "T2_CH_CERN is short of its pileup by now" in discarded.history.get(event_type="discarded").detail["reason"]
    job = mixes.job_of(mixed.request)
    assert (status(mixed.request), mixed.read(job)) == (S.ACTIVE, mixed.at("T2_US_Purdue"))
    assert 'sites="T2_US_Purdue"' in (job.directory / job.open_nodes[0] / "group.dag").read_text()
    assert all_done(mixes, mixed.request)
    ledger_check(ledger_of(mixed.request.workflow))


def test_a_rescue_of_a_dag_that_a_former_release_has_rendered_keeps_its_list_and_has_the_requests_priority(mixes: World) -> None:
    """That DAGMan adds up to 999 to the jobs' priority for the place of the unit; that of this release adds nothing."""
    mixed = mixing(mixes)
    request, directory = mixed.request, mixed.job.directory
    sums, written, submit = directory / "SHA256SUMS", directory / "pileup.json", directory / PROCESSING_SUBMIT
    sums.write_text(f"{sums.read_text()}{hashlib.sha256(written.read_bytes()).hexdigest()}  pileup.json\n")
    before = written.read_text()
    mixed.move("T2_CH_CERN")
    end_with_failures(mixes, mixed.job, 2)
    assert (status(request), written.read_text(), mixed.avoided) == (S.ACTIVE, before, "T1_US_FNAL")

    rescue = mixes.job_of(request)
    submit.write_text(submit.read_text().replace(IDLE_ATTRIBUTE, "Other"))
    rescue.priority += 998
    mixes.clock.advance(3600)
    cycles(mixes, 2)
    assert (rescue is mixed.job, rescue.priority) == (False, request.priority)
    passed = DAG.objects.get(kind=DAGKind.FAILURE_RESCUE).history.filter(event_type="priority_passed")
    assert [row.detail["priority"] for row in passed] == [request.priority], "told once"


def passes_for_absent(world: World) -> None:
    """The time after which a submission that is not found has never arrived."""
    world.clock.advance(conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds + conf().lease_seconds + 1)
    cycles(world, 2)


def test_a_submission_that_never_arrived_is_repeated_with_the_pileup_of_then(mixes: World) -> None:
    """By the call that proves it absent."""
    mixed = mixing(mixes)
    mixes.crash_at = "submit.claimed"
    end_with_failures(mixes, mixed.job, 2)
    assert DAG.objects.get(status=DAGStatus.READY).submit_intent_at is not None
    mixed.move("T2_CH_CERN")
    passes_for_absent(mixes)
    assert (status(mixed.request), chain(mixed.request)[-1].attempt) == (S.ACTIVE, 2)
    assert (mixed.read(), mixed.avoided) == (mixed.at("T2_CH_CERN"), "T1_US_FNAL")


@pytest.mark.parametrize("state", [ScheddState.DISABLED, ScheddState.DRAINING])
def test_a_submission_that_never_arrived_is_not_repeated_where_no_new_dag_may_go(world: World, state: ScheddState) -> None:
    request = world.request(documents.generation(100 * UNITS))
    world.crash_at = "submit.claimed"
    world.cycle()
    chosen = DAG.objects.get(status=DAGStatus.READY).schedd
    Schedd.objects.filter(pk=chosen.pk).update(state=state)
    passes_for_absent(world)
    assert (status(request), chain(request)) == (S.QUEUED, [])
    assert chosen.name in request.last_error
    Schedd.objects.filter(pk=chosen.pk).update(state=ScheddState.ENABLED)
    world.clock.advance(3600)
    cycles(world, 3)
    assert (status(request), len(chain(request))) == (S.ACTIVE, 1)


def test_a_first_submission_that_never_arrived_is_planned_anew_where_its_pileup_is_by_then(mixes: World) -> None:
    """Nobody can have used its numbers: they are given back."""
    pileup, document = mixes.source("Premix", 100), documents.generation(100 * UNITS)
    request = mixes.request({**document, "Step2": {**document["Step2"], "MCPileup": pileup}})
    mixes.crash_at = "submit.claimed"
    mixes.cycle()
    mixes.sources[pileup].locations = dict.fromkeys(mixes.sources[pileup].blocks, ("T2_US_Purdue",))
    passes_for_absent(mixes)
    assert (status(request), [dag.kind for dag in chain(request)]) == (S.ACTIVE, [DAGKind.FRESH])
    assert 'sites="T2_US_Purdue"' in (mixes.job_of(request).directory / "mg_000000" / "group.dag").read_text()
    assert WorkUnitClaim.objects.filter(kind=WorkUnitClaim.KIND_GENERATED).earliest("first").first == 1
    assert not ledger_check(ledger_of(request.workflow)).work_left, "all of its work is planned again"


def test_units_that_lost_their_pileup_are_an_alert_of_its_own_and_planned_anew_at_the_end(mixes: World) -> None:
    """Input of three blocks, each at a site of its own."""
    pileup, dataset = mixes.source("Premix", *[100] * 9), mixes.source("Some", *[100] * 9)
    request = mixes.request(documents.reprocessing(dataset, files_per_job=3, MCPileup=pileup))
    mixes.cycle()
    mixes.sources[pileup].locations = dict.fromkeys(mixes.sources[pileup].blocks, ("T2_CH_CERN",))
    request_stop(request=request, actor="olga", reason="maintenance")
    cycles(mixes, 3)
    assert (status(request), request.alert_code) == (S.ACTIVE, "pileup_elsewhere")
    reported = Event.objects.get(request=request, kind="alert", data__code="pileup_elsewhere").data["message"]
    assert reported.startswith("2 work units without a site that has the pileup: T1_US_FNAL is short of its pileup by now")
    job = mixes.job_of(request)
    (there,) = [unit for unit in job.open_nodes if 'sites="T2_CH_CERN"' in (job.directory / unit / "group.dag").read_text()]
    mixes.schedd.unit_done(job, there)
    mixes.sources[pileup].locations = dict.fromkeys(mixes.sources[pileup].blocks, ("T1_US_FNAL_Disk", "T2_US_Purdue"))
    request_stop(request=request, actor="olga", reason="it is placed there again")
    cycles(mixes, 3)
    assert (status(request), request.alert_code, chain(request)[-1].kind) == (S.ACTIVE, "", DAGKind.STOP_RESCUE)
    mixes.sources[pileup].locations = dict.fromkeys(mixes.sources[pileup].blocks, ("T2_CH_CERN",))
    request_stop(request=request, actor="olga", reason="it has moved again")
    cycles(mixes, 3)
    assert status(request) is S.HELD
    assert "input and pileup are at different sites" in request.hold_reason
    assert Round.objects.get(workflow=request.workflow).closed_at is not None
