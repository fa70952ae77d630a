"""Work that failed is done in the same request, on the real stack: every event and every file once, the ledger closed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dags_app.models import DAG, DAGKind, UnreadableInput, WorkUnit, WorkUnitState
from dags_app.payload.contract import documents, names
from outputs_app.models import OutputFile
from requests_app.lifecycle.evaluator import evaluate_one
from requests_app.models import HoldCode, InputFile, Request, RequestStatus, Workflow
from requests_app.services import request_release
from requests_app.services.release import Changes
from requests_app.work.ledger import ledger_of
from sites_app.models import SiteBan
from tests.support.faults import fault
from tests.support.inputs import RSES, seeded_input, small_reprocessing
from tests.support.limits import set_limits
from tests.support.outcomes import assert_completed, assert_completed_once, ended, imported, status, storage, waiting_for
from tests.support.stack import Worker, small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
#: Units of one job; with less than all of them failed the request goes on.
TOLERANT = {"jobs_per_work_unit": 1, "error_hold_threshold": 1, "error_same_units": 0}
EVENTS, PER_FILE = 40, 10


@contextmanager
def planned(request: Request, directory: Path, **knobs: str) -> Iterator[Worker]:
    """A worker that has written the request's DAG and was killed before it submitted it."""
    crash = {"WMS2_CRASH_AT": "plan.recorded", "WMS2_CRASH_MARK": str(directory / "mark")}
    with worker(**crash, **TOLERANT, **knobs) as running:
        running.wait(lambda: running.was_killed, seconds=120)
        yield running


def break_merge(dag: DAG, unit: str) -> list[Path]:
    """Put something in the place of the unit's merge journals, wherever it lands; the merge job cannot go on over that."""
    directory = Path(dag.submit_dir)
    lfn = names.journals_lfn(documents.read_job(directory), documents.read_unit(directory / unit), "merge")
    places = [storage(rse, lfn) for rse in RSES]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("what a broken disk makes of it")
    return places


def attempts(dag: DAG, unit: str, node: str) -> list[tuple[int, int]]:
    """(fence, code) of every attempt of a node."""
    lines = (Path(dag.submit_dir) / unit / f"{node}.attempts.jsonl").read_text().splitlines()
    return [(record["fence"], record["classification"]["code"]) for record in map(json.loads, lines)]


def made(request: Request) -> dict[str, int]:
    """Events by output dataset."""
    counts: dict[str, int] = {}
    for file in OutputFile.objects.filter(dataset__workflow=request.workflow):
        counts[file.dataset.name] = counts.get(file.dataset.name, 0) + file.events
    return counts


@fault(
    "merge failure",
    done="the merge of one of two units fails for good; the storage is repaired after the DAG has ended",
    spec="error-handling 2.6, 3.2",
    afterwards="the same request goes on by a rescue that only merges; COMPLETED, the ledger closed, each event once",
)
@pytest.mark.deep("tests/pool/test_recoveries.py::test_what_a_bad_file_and_a_broken_merge_leave_is_done_in_the_next_round")
def test_a_merge_that_fails_is_recovered_inside_the_same_request(ready: None, tmp_path: Path) -> None:
    request = imported(small_request(events=EVENTS, per_job=EVENTS // 2))
    with planned(request, tmp_path) as running:
        first = DAG.objects.get(workflow__request=request)
        broken = break_merge(first, "mg_000000")
        running.start()
        rescues = DAG.objects.filter(workflow__request=request, kind=DAGKind.FAILURE_RESCUE)
        running.wait(lambda: rescues.exists() or ended(request), seconds=240)
        for place in broken:
            place.unlink()
        running.wait(lambda: ended(request), seconds=240)
    assert_completed(request)
    assert request.workflow.rounds.count() == 1
    assert attempts(first, "mg_000000", "merge")[0] == (1, 95001)
    assert attempts(first, "mg_000000", "merge")[-1][1] == 0
    assert [code for _, code in attempts(first, "mg_000000", "proc_000000")] == [0], "what was processed is only merged"
    assert [code for _, code in attempts(first, "mg_000001", "merge")] == [0], "the other unit is not touched"
    assert set(made(request).values()) == {EVENTS}


@fault(
    "8021 with a bad file, level 2",
    done="cmsRun cannot read one of a unit's two input files",
    spec="error-handling 5.2",
    afterwards="its only replica is tried again in a later round, then it is left out by name, its neighbours done; HELD until"
    " somebody accepts that, then COMPLETED",
)
@fault(
    "merge failure, next round",
    done="the merge of one of three units fails for good, no rescue is allowed; an operator releases",
    spec="error-handling 2.6, 3.4",
    afterwards="the unit's files are processed and merged by another unit of the next round; each file once, the ledger closed",
)
def test_what_a_bad_file_and_a_broken_merge_leave_is_done_in_the_next_round(
    ready: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = imported(small_reprocessing(seeded_input(tmp_path, events=PER_FILE)))
    settings = {"error_max_rescue_attempts": 0, "unreadable_apart_seconds": 1}
    set_limits(monkeypatch, **settings)  # a release closes the round in this process, and judges the file there
    with planned(request, tmp_path, **settings) as running:
        dag = DAG.objects.get(workflow__request=request)
        unreadable, merging, _ = (unit.name for unit in WorkUnit.objects.filter(dag=dag).order_by("index"))
        bad, sibling = files_of(dag, unreadable)
        for rse in RSES:
            if storage(rse, bad).exists():
                storage(rse, bad).write_bytes(b"not a ROOT file")
        break_merge(dag, merging)
        running.start()
        running.wait(lambda: ended(request), seconds=240)
        request.refresh_from_db()
        assert (request.status, request.hold_code) == (RequestStatus.HELD, HoldCode.RESCUES), request.hold_reason
        reported: list[str] = []
        assert attempts(dag, unreadable, "proc_000000") == [(1, 8021)]
        for reason, changes in (
            ("go on with the rest", Changes()),
            ("it failed again", Changes()),
            ("the file is lost", Changes(accept_excluded=True)),
        ):
            request_release(request=request, actor="tester", reason=reason, changes=changes)
            running.wait(lambda: status(request) != RequestStatus.HELD, seconds=60)
            running.wait(lambda: ended(request), seconds=240)
            request.refresh_from_db()
            reported.append(request.hold_code)
    assert reported == [HoldCode.RESCUES, HoldCode.EXCLUDED, ""]
    assert_completed(request)
    excluded = InputFile.objects.get(workflow=request.workflow, excluded_at__isnull=False)
    assert excluded.lfn == bad
    assert "8021" in excluded.excluded_reason
    ledger = ledger_of(request.workflow)
    assert (ledger.done_files, ledger.excluded_files) == (5, 1), ledger.summary()
    assert set(made(request).values()) == {5 * PER_FILE}
    later = DAG.objects.filter(workflow__request=request).exclude(pk=dag.pk).order_by("created_at")
    tried = {file for again in later for unit in units_of(again) for file in files_of(again, unit)}
    assert tried == {bad, sibling, *files_of(dag, merging)}, "what was done is not done again"
    assert UnreadableInput.objects.filter(lfn=bad).count() == 2


def units_of(dag: DAG) -> list[str]:
    return sorted(path.parent.name for path in Path(dag.submit_dir).glob("mg_*/unit.json"))


def files_of(dag: DAG, unit: str) -> list[str]:
    jobs = json.loads((Path(dag.submit_dir) / unit / "unit.json").read_text())["jobs"]
    return [file["lfn"] for job in jobs for file in job["files"]]


@fault(
    "missing manifest, level 2",
    done="a unit is done, its merge_output.json is gone before WMS2 reads it",
    spec="docs/design/model.md, A unit is done",
    afterwards="not counted, nothing registered, alert units_unaccounted; counted once when the file is back",
)
@fault(
    "corrupt manifest, level 2",
    done="a unit is done, its merge_output.json is cut off before WMS2 reads it",
    spec="docs/design/model.md, A unit is done",
    afterwards="not counted, nothing registered, alert; counted once when the file is whole",
)
@fault(
    "skipped input with exit 0, level 2",
    done="a unit is done, its manifest lacks an input file that it claims",
    spec="docs/design/model.md, A unit is done",
    afterwards="less than its claim: never done silently, alert; counted once when the account is whole",
)
def test_a_unit_without_a_whole_account_is_not_counted_until_it_has_one(ready: None, tmp_path: Path) -> None:
    request = imported(small_reprocessing(seeded_input(tmp_path, files_per_site=2, events=PER_FILE)))
    with worker(**TOLERANT) as running:
        running.wait(lambda: status(request) == RequestStatus.ACTIVE, seconds=120)
        running.pause()
        dag = DAG.objects.get(workflow__request=request)
        running.wait(lambda: finished(dag), seconds=240)
        manifests = [Path(dag.submit_dir) / unit / "merge_output.json" for unit in units_of(dag)]
        whole = [path.read_text() for path in manifests]
        counted = WorkUnit.objects.filter(dag=dag, state=WorkUnitState.DONE)
        assert not counted.exists(), "nobody has looked yet"
        manifests[0].unlink()
        manifests[1].write_text(whole[1][: len(whole[1]) // 2])
        manifests[2].write_text(without_a_file(whole[2]))
        running.resume()
        open_units = WorkUnit.objects.filter(dag=dag, state=WorkUnitState.DONE_UNACCOUNTED)
        running.wait(lambda: open_units.count() == len(manifests), seconds=120)
        running.wait(lambda: "unaccounted" in waiting_for(request), seconds=60)
        request.refresh_from_db()
        assert (request.status, request.alert_code) == (RequestStatus.ACTIVE, "units_unaccounted")
        assert not OutputFile.objects.filter(dataset__workflow=request.workflow).exists()
        assert ledger_of(request.workflow).done_files == 0
        for path, text in zip(manifests, whole, strict=True):
            path.write_text(text)
        running.wait(lambda: ended(request), seconds=240)
    assert_completed_once(request)
    assert set(made(request).values()) == {6 * PER_FILE}


def without_a_file(text: str) -> str:
    """A manifest as it would be had cmsRun skipped an input file."""
    manifest = json.loads(text)
    processed = manifest["jobs"][0]["processed"]
    skipped = processed["files"].pop()
    processed["events"] -= skipped["events"]
    return json.dumps(manifest)


def finished(dag: DAG) -> bool:
    return Path(f"{dag.dag_file_path}.metrics").exists()


@pytest.mark.deep(
    "tests/requests_app/lifecycle/test_failing_dags.py::test_three_broken_requests_beside_a_healthy_one_ban_no_site"
)
@fault(
    "broken requests beside a healthy one",
    done="every job of three requests without input ends with 8021, a fourth runs beside them; one failure is enough for a ban",
    spec="error-handling 6.1",
    afterwards="the three are HELD and name 8021, no site is banned for any of them, the fourth is COMPLETED",
)
def test_three_broken_requests_ban_no_site_for_a_healthy_one(ready: None) -> None:
    healthy, *broken = (imported(small_request(events=20)) for _ in range(4))
    for request in broken:
        evaluate_one(request.pk)
        request.refresh_from_db()
        psets = request.workflow.psets
        psets["GenSim"] += "\nprocess.simulation.failure = cms.untracked.PSet(exitCode=cms.untracked.int32(8021))\n"
        Workflow.objects.filter(request=request).update(psets=psets)
    with worker(site_ban_min_failures=1, site_ban_failure_ratio=0.1) as running:
        running.wait(lambda: all(ended(request) for request in (healthy, *broken)), seconds=600)
    assert_completed(healthy)
    assert {status(request) for request in broken} == {RequestStatus.HELD}
    assert {code for request in broken for code in request.workflow.failure_groups.values_list("code", flat=True)} == {8021}
    assert not SiteBan.objects.exists()
