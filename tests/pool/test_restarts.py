"""What WMS2 stands on goes away for a while, and Celery does what it likes: afterwards everything has happened once."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.db.models import QuerySet

from dags_app.models import DAG, DAGHistory
from dags_app.services.stop import dag_hold, dag_release
from outputs_app.models import Effect
from requests_app.models import Request, RequestStatus, RequestTransition
from requests_app.services import request_abort
from tests.support import services
from tests.support.faults import fault
from tests.support.outcomes import assert_aborted, assert_completed_once, dagman_jobs, ended, imported, status, waiting_for
from tests.support.stack import Worker, celery_beat, celery_worker, worker
from tests.support.waiting import until
from wms2.celery import app
from wms2.models import AuditEntry
from wms2.runtime.notify import EVALUATE_REQUEST, RUN_EFFECTS

AWAY = "tests/pool/test_restarts.py::test_while_a_schedd_refuses_dies_or_is_away_nothing_is_concluded_and_all_goes_on"
pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
CYCLE = "requests_app.tasks.run_lifecycle_cycle"
#: A schedd that takes connections and says nothing is given up quickly. The grace must be longer than a submission.
QUICK = {
    "WMS2_SERVICE_TIMEOUT_SECONDS": "3", "WMS2_SUBMIT_TIMEOUT_SECONDS": "4", "WMS2_SUBMIT_UNKNOWN_GRACE_SECONDS": "6",
}  # fmt: skip


@fault(
    "Celery does what it likes",
    done="tasks doubled, late, out of order, from two beats to two workers",
    spec="docs/design/control.md, Truth",
    afterwards="each thing is done once; tasks of long ago change nothing",
)
@pytest.mark.deep("tests/requests_app/test_stateful.py::test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck")
def test_tasks_that_come_twice_late_and_in_any_order_from_two_beats_do_each_thing_once(ready: None, tmp_path: Path) -> None:
    requests = [imported(events=20), imported(events=20)]
    (tmp_path / "other").mkdir()
    services.broker_emptied()
    with celery_worker("one") as running, celery_worker("two"):
        with celery_beat(tmp_path), celery_beat(tmp_path / "other"):
            running.wait(lambda: flooded(requests) and all(ended(request) for request in requests), seconds=240)
        running.wait(all_tasks_taken, seconds=60)
        before = everything_told(requests)
        for _ in range(3):
            flood(requests)
        running.wait(all_tasks_taken, seconds=60)
    assert everything_told(requests) == before, "tasks of long ago change nothing"
    for request in requests:
        assert_completed_once(request)


def flooded(requests: list[Request]) -> bool:
    """Always, after sending more tasks to workers that are nearly through with the earlier ones."""
    if services.broker_tasks() < 10:
        flood(requests)
    return True


def flood(requests: list[Request]) -> None:
    """Every task three times at once and once late, in any order; also one for a request that does not exist."""
    sent: list[tuple[str, tuple[str, ...]]] = [
        (EVALUATE_REQUEST, (str(pk),)) for pk in (*(request.pk for request in requests), uuid.uuid4())
    ]
    sent += [(CYCLE, ()), (RUN_EFFECTS, ())]
    tasks = [(name, args, late) for name, args in sent for late in (None, None, None, 2)]
    random.Random(len(tasks)).shuffle(tasks)
    for name, args, late in tasks:
        app.send_task(name, args=args, ignore_result=True, countdown=late)


def all_tasks_taken() -> bool:
    return services.broker_tasks() == 0


def everything_told(requests: list[Request]) -> list[tuple[int, ...]]:
    """How much was done for each request so far."""
    return [
        (
            RequestTransition.objects.filter(request=request).count(),
            DAGHistory.objects.filter(dag__workflow__request=request).count(),
            AuditEntry.objects.filter(target=request.request_name).count(),
            *Effect.objects.filter(request=request).order_by("id").values_list("attempts", flat=True),
        )
        for request in requests
    ]


@fault(
    "submission refused by the schedd",
    done="the schedd takes no more jobs (MAX_JOBS_SUBMITTED) when a DAG is submitted",
    spec="docs/design/control.md, Submission",
    afterwards="unknown, so looked for and tried again only after the grace; then one DAGMan job, COMPLETED once",
)
@fault(
    "schedd killed",
    done="SIGKILL for the schedd while the units of DAGs run",
    spec="docs/design/htcondor.md, Deaths; ADR 0006",
    afterwards="the master starts it again; unreachable is not lost; the same one DAGMan job, COMPLETED once",
)
@fault(
    "schedd away",
    done="the schedd is frozen, or shut down, also in the middle of a submission",
    spec="docs/design/control.md, Submission; ADR 0006",
    afterwards="unreachable is not lost: nothing concluded, submitted once, new ones wait; then all go on",
)
@pytest.mark.alone
@pytest.mark.parametrize(
    "taken_away",
    [
        pytest.param(services.schedd_frozen, id="it-hangs"),
        pytest.param(services.schedd_shut_down, id="it-is-shut-down", marks=pytest.mark.deep(AWAY)),
    ],
)
def test_while_a_schedd_refuses_dies_or_is_away_nothing_is_concluded_and_all_goes_on(
    ready: None, taken_away: Callable[[], AbstractContextManager[None]]
) -> None:
    going = imported(events=20)
    with worker(WMS2_NODE="one", **QUICK) as running, worker(WMS2_NODE="two", **QUICK):
        with services.schedd_takes_no_jobs():
            running.wait(lambda: attempts_of(going).filter(attempt__gte=2).exists(), seconds=120)
            running.wait(lambda: "submission attempt" in waiting_for(going), seconds=60)
            assert status(going) == RequestStatus.PLANNING
            assert dagman_jobs(going) == []
        stopped = imported(events=20)
        running.wait(lambda: status(going) == status(stopped) == RequestStatus.ACTIVE, seconds=120)
        unit = Path(attempts_of(going).get().submit_dir) / "mg_000000"
        running.wait((unit / "site.inc").exists, seconds=120)
        # paused, they cannot end by themselves before the schedd is away: what is to be proved later would be known already
        for request in (going, stopped):
            assert dag_hold(dag=attempts_of(request).get(), actor="tester", reason="for the test")
        services.schedd_kill()
        submitting = imported(events=20)
        until(attempts_of(submitting).exists, "a submission begins")
        with taken_away():
            request_abort(request=stopped, actor="tester", reason="for the test")
            late = imported(events=20)
            running.wait(lambda: "silent since" in waiting_for(going), seconds=60)
            running.wait(lambda: "proof that the DAG is gone" in waiting_for(stopped), seconds=60)
            running.wait(lambda: status(late) == RequestStatus.QUEUED and "schedd@" in waiting_for(late), seconds=60)
            stay_away(running, seconds=10)
            assert (status(going), status(stopped)) == (RequestStatus.ACTIVE, RequestStatus.STOPPING)
            assert status(late) in (RequestStatus.QUEUED, RequestStatus.PLANNING)
            assert status(submitting) in (RequestStatus.PLANNING, RequestStatus.ACTIVE), "it may have been submitted"
            assert attempts_of(submitting).get().attempt == 1, "a silent schedd is not asked a second time"
            assert not DAG.objects.filter(missing_since__isnull=False).exists(), "silent is not lost"
        running.wait(lambda: "silent since" not in waiting_for(going), seconds=60)
        assert dag_release(dag=attempts_of(going).get(), actor="tester", reason="for the test")
        running.wait(lambda: all(ended(request) for request in (going, stopped, submitting, late)), seconds=240)
    for request in (going, submitting, late):
        assert_completed_once(request)
    assert DAG.objects.filter(workflow__request=going).count() == 1, "no rescue was needed"
    assert_aborted(stopped)


def attempts_of(request: Request) -> QuerySet[DAG]:
    """Its DAGs that were to be submitted."""
    return DAG.objects.filter(workflow__request=request, submit_intent_at__isnull=False)


def stay_away(running: Worker, *, seconds: float) -> None:
    """Longer than every grace there is."""
    deadline = time.monotonic() + seconds
    running.wait(lambda: time.monotonic() > deadline, seconds=seconds + 5)
