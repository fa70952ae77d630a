"""A DAG has no room, what runs it dies or is removed, on the real stack: one DAGMan job at a time, all work done once."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from dags_app.models import DAG, DAGKind
from dags_app.payload.build import payload_bytes
from requests_app.models import Request, RequestStatus, RequestTransition
from tests.support import services
from tests.support.faults import fault
from tests.support.outcomes import assert_completed, assert_completed_once, dagman_jobs, ended, imported, status
from tests.support.stack import Worker, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
ONE_JOB_A_UNIT = {"jobs_per_work_unit": 1, "error_same_units": 0}


def inner_dagmans(dag: DAG, unit: str) -> list[str]:
    ours = f'JobUniverse == 7 && DAGManJobId =!= undefined && WMS2_DagID == "{dag.pk}" && WMS2_Unit == "{unit}"'
    argv = ("condor_q", "-allusers", "-constraint", f"{ours} && JobStatus == 2", "-af", "ClusterId")
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def landed(running: Worker, request: Request, unit: str) -> DAG:
    """Wait until a unit's DAGMan runs and the unit has landed."""
    running.wait(lambda: status(request) == RequestStatus.ACTIVE, seconds=120)
    dag = DAG.objects.get(workflow__request=request)
    site = Path(dag.submit_dir) / unit / "site.inc"
    running.wait(lambda: bool(inner_dagmans(dag, unit)) and site.exists(), seconds=120)
    return dag


@fault(
    "one inner DAGMan removed",
    done="condor_rm of the DAGMan of one of two units",
    spec="docs/design/model.md, Failed units",
    afterwards="it counts as removed, not as failed: no threshold, a rescue does its work; COMPLETED, each event once",
)
def test_a_unit_whose_dagman_is_removed_is_rescued_and_has_not_failed(ready: None) -> None:
    request = imported(events=40)
    with worker(**ONE_JOB_A_UNIT) as running:
        first = landed(running, request, "mg_000000")
        subprocess.run(("condor_rm", *inner_dagmans(first, "mg_000000")), check=True, capture_output=True, timeout=60)
        running.wait(lambda: ended(request), seconds=300)
    assert_completed(request)
    assert [dag.kind for dag in DAG.objects.filter(workflow__request=request).order_by("fence")] == [
        DAGKind.FRESH,
        DAGKind.FAILURE_RESCUE,
    ]
    judged = RequestTransition.objects.get(request=request, from_status=RequestStatus.PARTIAL)
    assert (judged.evidence["failed"], judged.evidence["removed"]) == (0, 1)


@fault(
    "disk full while a DAG is written",
    done="WMS2's process may not write files as big as the payload (RLIMIT_FSIZE) until the error is told",
    spec="docs/errors.md, A full disk",
    afterwards="nothing is submitted, the request says why; with room again COMPLETED once, nothing half-written is left",
)
@fault(
    "submit directory not writable",
    done="the DAG's directory cannot be written to when the DAG is to be submitted",
    spec="docs/design/control.md, Submission",
    afterwards="nothing runs, the request says why and tries again; when it can be written to, COMPLETED once",
)
@fault(
    "outer DAGMan killed",
    done="SIGKILL for the DAG's DAGMan process while its units run",
    spec="docs/design/htcondor.md, Deaths",
    afterwards="the schedd starts it again, it recovers; the same one DAGMan job, nothing concluded, COMPLETED once",
)
def test_a_dag_that_cannot_be_written_then_not_submitted_and_whose_dagman_dies_is_done_once(ready: None, tmp_path: Path) -> None:
    with worker(**ONE_JOB_A_UNIT, WMS2_CRASH_AT="plan.recorded", WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:
        assert running.process is not None
        before = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (len(payload_bytes()) // 2, before[1]))
        request = imported(events=20)
        running.wait(lambda: "File too large" in last_error(request), seconds=120)
        assert status(request) == RequestStatus.PLANNING
        assert dagman_jobs(request) == []

        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, before)
        running.wait(lambda: running.was_killed, seconds=120)
        place = Path(DAG.objects.get(workflow__request=request).submit_dir)
        place.chmod(0o500)
        running.start()
        running.wait(lambda: "Permission denied" in last_error(request), seconds=60)
        assert dagman_jobs(request) == []

        place.chmod(0o755)
        landed(running, request, "mg_000000")
        services.dagman_kill(place)
        running.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request)
    assert DAG.objects.filter(workflow__request=request).count() == 1, "no rescue was needed"
    assert [path.name for path in place.parent.iterdir()] == [place.name], "nothing half-written is left"


def last_error(request: Request) -> str:
    return Request.objects.values_list("last_error", flat=True).get(pk=request.pk)
