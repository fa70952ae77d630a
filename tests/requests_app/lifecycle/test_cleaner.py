"""The cleaner removes what nobody needs any more, and nothing else, whatever dies in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid5

import pytest
from django.utils import timezone

from dags_app.models import DAG, DAGStatus, Leftover, SiteJob, SiteJobState, WorkUnit, WorkUnitState
from dags_app.payload.contract import names
from dags_app.payload.contract.documents import JobDocument, UnitDocument
from dags_app.payload.contract.documents import read_job as read_document
from dags_app.payload.contract.site_tasks import SiteResult
from dags_app.services import site_jobs
from outputs_app.models import BlockWorkUnit, Effect, EffectKind, EffectState, OutputDataset, OutputFile, ProcessingBlock
from requests_app.alerts import alert
from requests_app.lifecycle import cleaner
from requests_app.lifecycle.cleaner import CLEANER_GRACE_DAYS, leftovers_remove
from requests_app.models import CleanupPolicy, DeadLetter, Event, Request, RequestStatus, Workflow
from requests_app.services.dead_letters import dead_letter_discard
from tests.support.calls import stopping
from tests.support.locking import aside
from tests.support.payload_workbench import SITES, WORKFLOW_ID, job_document, output, step, write_sites
from tests.support.rows import dag_row, request_row, round_row, schedd_row, unit_row, workflow_row
from tests.support.site_jobs import SiteSchedd
from wms2.adapters.caller import retry_call
from wms2.conf import conf
from wms2.errors import ServiceUnavailable

pytestmark = pytest.mark.django_db
S, U = RequestStatus, WorkUnitState
FNAL, CERN = SITES
LONG_AGO = timezone.now() - timedelta(days=100)


class Killed(BaseException):
    """As kill -9 does, nothing after it runs."""


class Place:
    """A DAG's directory, its units' files at two sites, and the schedd."""

    def __init__(self, root: Path) -> None:
        self.root, self.schedd = root, SiteSchedd(root)
        write_sites(root)
        self.directory = root / "dag"
        self.directory.mkdir()
        document = job_document([step(1, "GenSim", ["RAWSIM"])], [output("GenSim", "RAWSIM", "GEN-SIM")])
        (self.directory / "job.json").write_text(json.dumps(document))
        self.job: JobDocument = read_document(self.directory)
        self.number = 0

    def stored(self, lfn: str, site: str = FNAL) -> Path:
        return Path(f"{self.root}/storage/{SITES[site]}{lfn}")

    def file(self, base: str, site: str = FNAL) -> str:
        """A new file in the storage, named as WMS2 does."""
        self.number += 1
        name = str(UUID(bytes=uuid5(UUID(WORKFLOW_ID), str(self.number)).bytes, version=4))  # a GUID, as releases write it
        lfn = f"{base}/00000/{name.upper() if self.number % 2 else name}.root"
        self.stored(lfn, site).parent.mkdir(parents=True, exist_ok=True)
        self.stored(lfn, site).write_text("events")
        return lfn

    def unmerged(self, site: str = FNAL) -> str:
        return self.file(self.job.outputs[0].unmerged_lfn_base, site)

    def merged(self, site: str = FNAL) -> str:
        return self.file(self.job.outputs[0].merged_lfn_base, site)

    def journal(self, unit: WorkUnit, role: str, lfns: list[str], site: str = FNAL) -> Path:
        """What a start of a job of the unit has set out to write."""
        directory = self.stored(names.journals_lfn(self.job, UnitDocument(unit.name, unit.index, ()), role), site)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{role}.{len(list(directory.iterdir()))}.json"
        path.write_text(json.dumps({"schema": "wms2.journal/1", "files": lfns}))
        return path

    def ran_at(self, unit: WorkUnit, *sites: str) -> None:
        (self.directory / unit.name).mkdir(exist_ok=True)
        (self.directory / unit.name / "elected.log").write_text("".join(f"2026-11-21T10:00:00Z {site}\n" for site in sites))

    def there(self) -> set[str]:
        return {path.name for path in (self.root / "storage").rglob("*") if path.is_file()}


@pytest.fixture(name="place")
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    schedd_row()
    monkeypatch.setattr(site_jobs.factory, "htcondor", place.schedd)
    settings(monkeypatch, submit_root=tmp_path / "submit")
    return place


def settings(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    changed = site_jobs.conf().model_copy(update=values)
    for module in (cleaner, site_jobs):
        monkeypatch.setattr(module, "conf", lambda: changed)


@pytest.fixture(name="round_dag")
def _round_dag(place: Place) -> DAG:
    return ended_round(place)


def ended_round(place: Place, status: RequestStatus = S.COMPLETED, **fields: object) -> DAG:
    """A round that was closed long ago, with its only DAG."""
    workflow = workflow_row(request_row(status, status_since=LONG_AGO, **fields))
    round_ = round_row(workflow, closed_at=LONG_AGO)
    return dag_row(workflow, DAGStatus.PARTIAL, round=round_, submit_dir=str(place.directory))


def done(dag: DAG, index: int = 0, site: str = FNAL) -> WorkUnit:
    return unit_row(dag, index, state=U.DONE, manifest_sha256="a", fence=1, site=site)


def failed(dag: DAG, index: int = 0) -> WorkUnit:
    return unit_row(dag, index, state=U.FAILED)


def left_behind(place: Place, dag: DAG) -> WorkUnit:
    """A failed unit, an unmerged file of which its journal names."""
    unit = failed(dag)
    place.ran_at(unit, FNAL)
    place.journal(unit, "processing", [place.unmerged()])
    return unit


def accepted(unit: WorkUnit, lfn: str) -> OutputFile:
    """The file as the unit's manifest declared it."""
    dataset = OutputDataset.objects.get(workflow=unit.workflow)
    block, _ = ProcessingBlock.objects.get_or_create(
        workflow=unit.workflow, dataset=dataset, block_index=0,
        defaults={"dataset_name": dataset.name, "dbs_block_name": f"{dataset.name}#1"},
    )  # fmt: skip
    BlockWorkUnit.objects.get_or_create(block=block, unit=unit, dataset=dataset, done=True)
    of = {"dataset": dataset, "block": block, "unit": unit, "rse": "R"}
    return OutputFile.objects.create(lfn=lfn, size_bytes=1, adler32="ad", events=1, lumis={}, **of)


def clean(times: int = 2) -> None:
    for _ in range(times):
        leftovers_remove()


def test_what_lost_in_a_unit_that_is_done_goes_and_its_accepted_files_stay(place: Place, round_dag: DAG) -> None:
    unit = done(round_dag)
    kept, loser, late = place.merged(), place.merged(), place.unmerged()
    accepted(unit, kept)
    place.journal(unit, "merge", [kept, loser])
    place.journal(unit, "processing", [late])
    torn = place.journal(unit, "processing", []).with_name(".proc.1.json.99.tmp")
    torn.write_text('{"sch')
    part = place.stored(late).with_name(f".{Path(late).name}.run.part")
    part.write_text("ev")
    clean()
    assert place.there() == {Path(kept).name}
    row = Leftover.objects.get()
    assert (sorted(row.removed), row.settled_at is not None) == (sorted([loser, late]), True)
    assert row.job is not None and row.job.state == SiteJobState.DONE
    assert row.job.result["removed"] == 2


def test_a_unit_that_left_nothing_needs_no_evidence(place: Place, round_dag: DAG) -> None:
    done(round_dag)
    clean()
    assert not Leftover.objects.exists()
    assert SiteJob.objects.get().state == SiteJobState.DONE


def test_a_failed_unit_is_cleaned_at_every_site_that_it_was_pinned_to(place: Place, round_dag: DAG) -> None:
    unit = failed(round_dag)
    place.ran_at(unit, FNAL, CERN)
    here, there, orphan = place.unmerged(), place.unmerged(CERN), place.unmerged()
    place.journal(unit, "processing", [here])
    place.journal(unit, "processing", [there], CERN)
    lines = [{"site": FNAL, "journals": "x"}, {"site": FNAL, "node": "proc_000000", "lfn": orphan, "pfn": "x"}]
    (place.directory / unit.name / "orphans.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"si')
    clean()
    assert place.there() == set()
    assert {(row.site, row.removed_files) for row in Leftover.objects.all()} == {(FNAL, 2), (CERN, 1)}


def of_the_request(**values: object) -> Callable[[DAG], object]:
    return lambda dag: Request.objects.update(**values)


def of_the_round(closed_at: datetime | None) -> Callable[[DAG], object]:
    return lambda dag: type(dag.round).objects.update(closed_at=closed_at)


GRACE = timedelta(days=CLEANER_GRACE_DAYS)
just_aborted = of_the_request(status=S.ABORTED, status_since=timezone.now() - GRACE - timedelta(days=1))
WANTED: dict[str, Callable[[DAG], object]] = {
    "live": lambda dag: dag_row(dag.workflow, DAGStatus.RUNNING, round=dag.round, directory_id=dag.directory_id),
    "lost": lambda dag: DAG.objects.filter(pk=dag.pk).update(lost_confirmed_at=LONG_AGO),
    "held": of_the_request(status=S.HELD, hold_code="operator", hold_reason="for a test"),
    "open again": of_the_round(None),
    "just closed": lambda dag: (
        of_the_round(timezone.now() - GRACE + timedelta(days=0.5))(dag), of_the_request(status=S.QUEUED)(dag),
    ),
    "unaccounted": lambda dag: unit_row(dag, 5, state=U.DONE_UNACCOUNTED),
    "just aborted": just_aborted,
    "validating": of_the_request(status=S.VALIDATING_OUTPUTS),
    "waiting for cases": of_the_request(status=S.WAITING_INTEGRITY),
    "counted again": of_the_request(status=S.VALIDATED_OUTPUTS),
}  # fmt: skip
all_wanted = pytest.mark.parametrize("wanted", WANTED.values(), ids=WANTED)


@all_wanted
def test_nothing_goes_that_somebody_may_still_need(wanted: Callable[[DAG], object], place: Place, round_dag: DAG) -> None:
    left_behind(place, round_dag)
    before = place.there()
    wanted(round_dag)
    clean()
    assert place.there() == before and not SiteJob.objects.exists()


@all_wanted
def test_what_is_needed_again_when_the_job_is_about_to_be_submitted_stays(
    wanted: Callable[[DAG], object], place: Place, round_dag: DAG
) -> None:
    left_behind(place, round_dag)
    before = place.there()
    place.schedd.silent = True
    clean(1)
    SiteJob.objects.update(intent_at=None)  # prepared, not yet sent
    place.schedd.silent = False
    wanted(round_dag)
    clean()
    assert place.there() == before and not place.schedd.submitted
    assert Leftover.objects.get().settled_at is None


def test_an_aborted_request_that_is_to_be_cleaned_up_at_once_waits_for_the_ordinary_grace_only(place: Place) -> None:
    dag = ended_round(place, S.ABORTED, cleanup_policy=CleanupPolicy.IMMEDIATE_CLEANUP)
    just_aborted(dag)
    left_behind(place, dag)
    clean()
    assert place.there() == set()


def test_only_what_wms2_named_itself_is_touched(place: Place, round_dag: DAG) -> None:
    unit = failed(round_dag)
    place.ran_at(unit, FNAL)
    base = place.job.outputs[0].unmerged_lfn_base
    strange = [
        f"{base}/00000/user.root",
        f"{base}/../../../other/00000/{uuid5(UUID(WORKFLOW_ID), 'x')}.root",
        "/store/user/x.root",
    ]
    for lfn in strange:
        place.stored(lfn).parent.mkdir(parents=True, exist_ok=True)
        place.stored(lfn).write_text("precious")
    ours = place.unmerged()
    journal = place.journal(unit, "processing", [*strange, ours])
    clean()
    assert not place.stored(ours).exists() and journal.exists()
    assert all(place.stored(lfn).read_text() == "precious" for lfn in strange)
    row = Leftover.objects.get()
    assert row.removed == [ours] and "not touched" in row.problem and row.settled_at is None


def test_what_cannot_be_removed_is_told_and_tried_again_later(place: Place, round_dag: DAG) -> None:
    unit = failed(round_dag)
    place.ran_at(unit, FNAL)
    stuck = place.unmerged()
    place.stored(stuck).unlink()
    place.stored(stuck).mkdir()  # no file: the storage refuses to unlink it
    place.journal(unit, "processing", [stuck])
    clean()
    row = Leftover.objects.get()
    assert stuck in row.problem and row.tries == 1 and row.next_try_at > timezone.now()
    clean()
    assert len(place.schedd.submitted) == 1, "not before its time"
    place.stored(stuck).rmdir()
    Leftover.objects.update(next_try_at=LONG_AGO)
    clean()
    assert Leftover.objects.get().settled_at is not None


def test_an_answer_of_one_unit_that_cannot_be_written_down_keeps_no_other_of_the_site(
    place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage may say anything, as a null character, which PostgreSQL takes in no text."""
    units = [failed(round_dag, index) for index in range(2)]
    left = [place.unmerged() for _ in units]
    for unit, lfn in zip(units, left, strict=True):
        place.journal(unit, "processing", [lfn])
        place.ran_at(unit, FNAL)
    read = site_jobs.read_result

    def garbled(directory: Path) -> SiteResult:
        result = read(directory)
        bad, *others = result.removals
        return replace(result, removals=(bad._replace(problems=("no \0 answer",), number_of_problems=1), *others))

    monkeypatch.setattr(site_jobs, "read_result", garbled)
    clean()
    bad, good = Leftover.objects.order_by("pk")
    assert (bad.settled_at, bad.job, bad.tries > 0, "NUL" in bad.problem) == (None, None, True, True), bad.problem
    assert good.settled_at is not None and good.removed == [left[1]]
    assert SiteJob.objects.get().state == SiteJobState.DONE


def test_a_request_that_completed_with_files_left_is_told_of_no_more_when_the_last_is_gone(place: Place, round_dag: DAG) -> None:
    """Each site has one; that of the first goes alone."""
    unit = failed(round_dag)
    place.ran_at(unit, FNAL, CERN)
    stuck = [place.unmerged(site) for site in (FNAL, CERN)]
    for lfn, site in zip(stuck, (FNAL, CERN), strict=True):
        place.stored(lfn, site).unlink()
        place.stored(lfn, site).mkdir()  # no file: the storage refuses to unlink it
        place.journal(unit, "processing", [lfn], site)
    clean()
    request = Request.objects.get()
    alert(request, "leftovers_stay", "not removed")
    for lfn, site, left in zip(stuck, (FNAL, CERN), ("leftovers_stay", ""), strict=True):
        place.stored(lfn, site).rmdir()
        Leftover.objects.filter(site=site).update(next_try_at=LONG_AGO)
        clean()
        request.refresh_from_db()
        assert request.alert_code == left
        assert (Workflow.objects.get().inputs_removed_at is None) == bool(left)
    assert Event.objects.filter(request=request, kind="alert_over", data__code="leftovers_stay").count() == 1


def test_what_stays_and_was_given_up_by_an_operator_is_no_alert_any_more(place: Place, round_dag: DAG) -> None:
    unit, lfn = failed(round_dag), place.unmerged()
    place.ran_at(unit, FNAL)
    place.stored(lfn).unlink()
    place.stored(lfn).mkdir()  # no file: the storage refuses to unlink it
    place.journal(unit, "processing", [lfn])
    clean()
    request = Request.objects.get()
    alert(request, "leftovers_stay", "not removed")
    Leftover.objects.update(tries=3)
    clean()
    request.refresh_from_db()
    assert request.alert_code == "leftovers_stay"
    dead_letter_discard(dead_letter=DeadLetter.objects.get(kind="leftover"), actor="olga", reason="the site has closed")
    clean()
    request.refresh_from_db()
    assert request.alert_code == ""
    assert Workflow.objects.get().inputs_removed_at is not None


def test_another_alert_of_it_stays(place: Place, round_dag: DAG) -> None:
    left_behind(place, round_dag)
    Request.objects.update(alert_code="effect_dead")
    clean()
    assert Request.objects.get().alert_code == "effect_dead"
    assert Workflow.objects.get().inputs_removed_at is not None


def test_a_site_without_storage_is_told_with_the_job_and_its_units(place: Place, round_dag: DAG) -> None:
    failed(round_dag)
    place.ran_at(WorkUnit.objects.get(), FNAL)
    (place.root / "siteconf" / FNAL / "storage.json").unlink()
    clean()
    job, row = SiteJob.objects.get(), Leftover.objects.get()
    assert job.state == SiteJobState.FAILED and "storage description" in job.problem
    assert row.problem == job.problem and row.tries == 1 and row.job is None


POINTS = ("site_job.claimed", "site_job.called", "site_job.recorded")


@pytest.mark.parametrize("point", POINTS)
def test_a_cleaner_that_is_killed_submits_nothing_twice_and_another_goes_on(
    point: str, place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(place, round_dag)

    def kill(name: str) -> None:
        if name == point:
            raise Killed(name)

    with monkeypatch.context() as dying:
        dying.setattr(site_jobs, "crash_point", kill)
        with pytest.raises(Killed):
            clean(3)
    clean(1)
    if point == "site_job.claimed":  # nobody knows whether it was sent: for a while it is looked for
        assert SiteJob.objects.get().state == SiteJobState.PREPARED and place.there()
        long_ago = {"intent_at": LONG_AGO, "missing_since": LONG_AGO}
        SiteJob.objects.update(**long_ago)
        clean(1)
        assert SiteJob.objects.get().state == SiteJobState.FAILED
        Leftover.objects.update(next_try_at=LONG_AGO)
    clean()
    assert place.there() == set() and Leftover.objects.get().settled_at is not None
    assert len(place.schedd.submitted) == 1


def test_a_cleaner_that_is_stopped_before_it_submits_sends_nothing_and_the_job_is_submitted_anew(
    place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(place, round_dag)
    stop, submit = stopping(monkeypatch), place.schedd.submit_job

    def stopped(*given: Any) -> int:
        stop(conf().submit_timeout_seconds)
        return retry_call(partial(submit, *given), tries=1)

    with monkeypatch.context() as once:
        once.setattr(place.schedd, "submit_job", stopped)
        clean(1)
    assert place.schedd.submitted == [] and place.there()
    assert (SiteJob.objects.get().state, SiteJob.objects.get().intent_at) == (SiteJobState.PREPARED, None)
    clean()
    assert len(place.schedd.submitted) == 1 and place.there() == set()


def test_a_cleaner_that_was_overtaken_writes_nothing_into_the_directory_of_the_job(
    place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(place, round_dag)
    real = cleaner._task

    def overtaken(job: SiteJob) -> Any:
        SiteJob.objects.filter(pk=job.pk).update(intent_at=timezone.now())  # another process submits it with its own task
        return real(job)

    monkeypatch.setattr(cleaner, "_task", overtaken)
    clean(1)
    assert not Path(SiteJob.objects.get().directory).exists() and place.schedd.submitted == []


def test_a_round_whose_file_system_is_away_is_looked_at_again(place: Place, round_dag: DAG, tmp_path: Path) -> None:
    root = tmp_path / "schedds_own"
    (root / "request").mkdir(parents=True)
    DAG.objects.filter(pk=round_dag.pk).update(submit_dir=str(place.directory.rename(root / "request/dag")))
    away = root.rename(tmp_path / "away")
    root.mkdir()
    leftovers_remove()
    round_dag.refresh_from_db()
    assert round_dag.leftovers_at is None, "its root is empty: a mount that is away"
    root.rmdir()
    away.rename(root)
    leftovers_remove()
    round_dag.refresh_from_db()
    assert round_dag.leftovers_at is not None


def test_a_schedd_that_is_silent_proves_nothing(place: Place, round_dag: DAG) -> None:
    left_behind(place, round_dag)
    place.schedd.waiting = True
    clean(1)
    place.schedd.silent = True
    SiteJob.objects.update(intent_at=LONG_AGO, missing_since=LONG_AGO)
    clean()
    assert SiteJob.objects.get().state == SiteJobState.SUBMITTED


def test_a_job_that_waits_too_long_is_removed_and_its_work_tried_again(place: Place, round_dag: DAG) -> None:
    failed(round_dag)
    place.ran_at(WorkUnit.objects.get(), FNAL)
    place.schedd.waiting = True
    clean()
    assert not place.schedd.removed
    SiteJob.objects.update(intent_at=LONG_AGO)
    clean()
    assert place.schedd.removed == place.schedd.submitted
    assert SiteJob.objects.get().state == SiteJobState.FAILED and Leftover.objects.get().tries == 1


def test_switched_off_nothing_begins_and_what_waits_is_removed(
    place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = failed(round_dag)
    place.ran_at(unit, FNAL, CERN)
    place.schedd.waiting = True
    settings(monkeypatch, cleaner_off_sites=(CERN,))
    clean()
    assert [job.site for job in SiteJob.objects.all()] == [FNAL]
    settings(monkeypatch, cleaner_enabled=False)
    clean()
    assert place.schedd.removed == place.schedd.submitted and len(place.schedd.submitted) == 1


def test_a_task_that_is_read_too_late_removes_nothing(place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(place, round_dag)
    before = place.there()
    place.schedd.waiting = False
    with monkeypatch.context() as patch:
        patch.setattr(cleaner, "SITE_JOB_TIMEOUT_SECONDS", -1)
        clean(1)
    clean(1)
    assert place.there() == before
    assert SiteJob.objects.get().result["not_reached"] == 1


@pytest.mark.django_db(transaction=True)
def test_two_cleaners_at_the_same_time_submit_one_job_for_a_site(place: Place, round_dag: DAG) -> None:
    for index in range(3):
        place.ran_at(failed(round_dag, index), FNAL)
    for other in [aside(leftovers_remove) for _ in range(4)]:
        other.join()
    assert len(place.schedd.submitted) == 1 and SiteJob.objects.count() == 1


# --- of requests that are cleaned


def cleaning(place: Place, monkeypatch: pytest.MonkeyPatch, known: Collection[str] = ()) -> tuple[DAG, WorkUnit]:
    """Its round was closed just now; Rucio has these files."""
    replicas = {"file_replicas": lambda lfns: {lfn: ["R"] if lfn in known else [] for lfn in lfns}}
    monkeypatch.setattr(cleaner.factory, "rucio", lambda: SimpleNamespace(**replicas))
    dag = ended_round(place, S.CLEANING)
    type(dag.round).objects.update(closed_at=timezone.now())
    return dag, done(dag)


def test_of_a_cleaned_request_merged_files_go_that_rucio_does_not_have(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown, forgotten = place.merged(), place.merged(), place.merged()
    _, unit = cleaning(place, monkeypatch, [known])
    for lfn in (known, unknown):
        accepted(unit, lfn)
    place.journal(unit, "merge", [known, forgotten])  # what the unit's own cleanup left; of others only rows tell
    clean()
    assert place.there() == {Path(known).name}
    row = Leftover.objects.get()
    assert set(row.removed) == {unknown, forgotten} and row.settled_at is not None


def test_nothing_goes_while_a_rule_may_keep_it_or_rucio_does_not_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    dag, unit = cleaning(place, monkeypatch)
    accepted(unit, place.merged())
    of_it = {"request": dag.workflow.request, "kind": EffectKind.RUCIO_RELEASE, "epoch": dag.workflow.request.epoch}
    owed = Effect.objects.create(key="release", state=EffectState.REFUSED, **of_it)
    before = place.there()
    clean()
    assert place.there() == before and not SiteJob.objects.exists()
    Effect.objects.filter(pk=owed.pk).update(state=EffectState.DONE)

    def silent() -> None:
        raise ServiceUnavailable("rucio", "test", "it is silent")

    monkeypatch.setattr(cleaner.factory, "rucio", silent)
    clean()
    assert place.there() == before and not place.schedd.submitted


def test_what_a_late_job_writes_is_found_by_its_journal_at_the_second_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    dag, unit = cleaning(place, monkeypatch)
    clean()
    row = Leftover.objects.get()
    assert row.settled_at is not None and not row.removed, "kept for the second look"
    Request.objects.filter(pk=dag.workflow.request.pk).update(status=S.CLEANED)
    Leftover.objects.update(settled_at=None, job=None, next_try_at=timezone.now() + timedelta(days=3))
    late = place.unmerged()
    place.journal(unit, "processing", [late])
    clean()
    assert place.stored(late).exists()
    Leftover.objects.update(next_try_at=LONG_AGO)
    clean()
    assert place.there() == set() and Leftover.objects.get().removed == [late]


def test_a_job_that_was_sent_before_settles_nothing_of_what_is_to_be_cleaned(
    place: Place, round_dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, merged = done(round_dag), place.merged()
    accepted(unit, merged)
    place.schedd.waiting = True
    clean()
    monkeypatch.setattr(cleaner.factory, "rucio", lambda: SimpleNamespace(file_replicas=lambda lfns: dict.fromkeys(lfns, ())))
    Request.objects.update(status=S.CLEANING)
    DAG.objects.update(leftovers_at=None)
    clean()
    assert DAG.objects.get().leftovers_at is None
    place.schedd.waiting = False
    clean(4)
    assert place.there() == set() and DAG.objects.get().leftovers_at is not None
