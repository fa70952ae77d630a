"""The cleaner on a real pool: a job of its own at the site removes what lost, and is adopted by whoever comes after a kill."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG, Leftover, SiteJob, SiteJobState, WorkUnit
from dags_app.payload.contract import documents, names
from dags_app.services import site_jobs
from dags_app.services.orphans import orphans_ask, orphans_known
from outputs_app.models import Effect, EffectKind, EffectState, OutputFile, ProcessingBlock, Validity
from requests_app.lifecycle import cleaner
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.models import RequestStatus, RequestTransition
from requests_app.services import request_clean
from tests.support.faults import fault
from tests.support.outcomes import ended, imported, status
from tests.support.stack import small_request, worker
from tests.support.waiting import until
from tests.support.xrootd import of_the_stack
from wms2.adapters import factory
from wms2.conf import conf
from wms2.runtime import clock

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]


class Killed(BaseException):
    """As kill -9 does, nothing after it runs."""


@dataclass(frozen=True, slots=True)
class Loser:
    """A file of a late start at a unit's storage, the journals that name it, and the accepted files beside it."""

    lfn: str
    path: Path
    journals: Path
    accepted: tuple[Path, ...]

    @property
    def is_gone(self) -> bool:
        """And nothing else with it."""
        return not self.path.exists() and not self.journals.exists() and all(path.is_file() for path in self.accepted)


def loser_of_a_completed_request(document: dict[str, Any], root: str = "") -> Loser:
    """``root``: of its storage, where its merge job does not tell the path."""
    request = imported(document)
    with worker(WMS2_CLEANER_ENABLED="false") as running:  # what is left is put there when it has completed
        running.wait(lambda: ended(request), seconds=240)
    assert status(request) == RequestStatus.COMPLETED
    unit = WorkUnit.objects.select_related("dag").get(workflow__request=request)
    dag = Path(unit.dag.submit_dir)
    (report,) = (json.loads(path.read_text()) for path in (dag / unit.name).glob("merge.*.report.json"))
    stored = report["outputs"][0]
    root = root or stored["pfn"].removeprefix("file://").removesuffix(stored["lfn"])
    job = documents.read_job(dag)
    late = f"{job.outputs[0].merged_lfn_base}/00000/{uuid.uuid5(job.workflow_id, 'late')}.root"
    Path(root + late).write_text("late")
    journals = Path(root + names.journals_lfn(job, documents.read_unit(dag / unit.name), "merge"))
    journals.mkdir(parents=True)
    accepted = OutputFile.objects.filter(unit=unit).values_list("lfn", flat=True)
    (journals / "merge.1.json").write_text(json.dumps({"schema": "wms2.journal/1", "files": [late, *accepted]}))
    return Loser(late, Path(root + late), journals, tuple(Path(root + lfn) for lfn in accepted))


def removed() -> Leftover:
    """The one that there was, once the jobs at the site have ended."""

    def over() -> bool:
        leftovers_remove()
        return set(SiteJob.objects.values_list("state", flat=True)) == {SiteJobState.DONE}

    until(over, lambda: list(SiteJob.objects.values()), seconds=180)
    return Leftover.objects.get()


@fault(
    "cleaner killed while it submits",
    done="whoever submits the job that removes a late start's files is killed between the schedd's answer and its record",
    spec="ADR 0010",
    afterwards="its job is found and taken for ours, no second one runs; the late file is removed, accepted ones stay",
)
def test_a_loser_is_removed_by_one_job_at_the_site_though_its_submitter_was_killed(
    ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = loser_of_a_completed_request(small_request(events=20))
    monkeypatch.setattr(cleaner, "CLEANER_GRACE_DAYS", 0.0)

    def kill(point: str) -> None:
        if point == "site_job.called":
            raise Killed

    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr(site_jobs, "crash_point", kill)
        leftovers_remove()
    prepared = SiteJob.objects.get()
    assert (prepared.state, prepared.cluster) == (SiteJobState.PREPARED, "")
    assert not orphans_ask(prepared.schedd, orphans_known(prepared.schedd, clock.now())), "it is known to be ours"

    row, done = removed(), SiteJob.objects.get()
    assert (done.pk, done.result["removed"], Path(done.directory).exists()) == (prepared.pk, 1, False)
    assert (row.removed, row.job_id, row.settled_at is not None) == ([late.lfn], done.pk, True)
    assert late.is_gone, late


@pytest.mark.xdist_group("the XRootD server")
@pytest.mark.deep("tests/pool/test_cleaner.py::test_a_loser_is_removed_by_one_job_at_the_site_though_its_submitter_was_killed")
def test_a_loser_is_removed_from_a_storage_that_is_reached_over_root_alone(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    document = small_request(events=20)
    document["assignRequest"]["SiteWhitelist"] = ["T2_DE_DESY"]
    late = loser_of_a_completed_request(document, str(of_the_stack().storage))
    monkeypatch.setattr(cleaner, "CLEANER_GRACE_DAYS", 0.0)
    assert (removed().removed, SiteJob.objects.get().result["removed"]) == ([late.lfn], 1)
    assert late.is_gone, late


def written(store: Path, bases: set[str]) -> set[str]:
    """LFNs of all files below these directories, at every site."""
    places = [(rse, rse / base.lstrip("/")) for rse in store.iterdir() for base in bases]
    return {f"/{path.relative_to(rse)}" for rse, place in places for path in place.rglob("*") if path.is_file()}


def test_a_running_request_is_cleaned_until_nothing_is_left_but_what_rucio_removes(ready: None) -> None:
    request = imported(events=40, per_job=20)
    one_by_one = {"jobs_per_work_unit": 1, "dag_max_merge_groups": 1, "block_max_files": 1}
    files = OutputFile.objects.filter(block__workflow__request=request)
    with worker(**one_by_one) as running:
        registered = Effect.objects.filter(request=request, kind=EffectKind.DBS_BLOCK, state=EffectState.DONE)
        running.wait(lambda: registered.exists() or ended(request), seconds=240)
        assert status(request) == RequestStatus.ACTIVE, "its other unit is still at work"
        dag = Path(DAG.objects.get(workflow__request=request).submit_dir)
        reports = [json.loads(path.read_text()) for path in dag.glob("mg_*/merge.*.report.json")]
        stored = reports[0]["outputs"][0]
        store = Path(stored["pfn"].removeprefix("file://").removesuffix(stored["lfn"])).parent
        outputs = documents.read_job(dag).outputs
        bases = {base for each in outputs for base in (each.merged_lfn_base, each.unmerged_lfn_base)}
        assert written(store, bases)
        request_clean(request=request, confirm=request.request_name, actor="olga", reason="wrong from the start")

        def cleaned() -> bool:
            leftovers_remove()
            return status(request) == RequestStatus.CLEANED and not dag.parent.exists()  # which is removed after it

        running.wait(cleaned, seconds=400)
    reported = RequestTransition.objects.filter(request=request).latest("id")
    assert reported.evidence["rules_deleted"] and reported.evidence["output_files"] == {Validity.INVALID: files.count()}
    rucio, dbs = factory.rucio(), factory.dbs()
    rules = rucio.rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    assert all(rule.expires_at is not None for rule in rules)
    blocks = ProcessingBlock.objects.filter(workflow__request=request, dbs_block_closed=True)
    assert blocks and not any(file.is_valid for block in blocks for file in dbs.block_files(block.dbs_block_name))
    left = written(store, bases)
    assert left <= set(files.values_list("lfn", flat=True)) and all(rucio.file_replicas(sorted(left)).values())
    assert {rule.name for rule in rules} >= left, "Rucio removes them when their rules have ended"
    assert not dag.exists() and not dag.parent.exists()
