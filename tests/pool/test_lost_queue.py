"""A real schedd loses its queue: evidence, one word of an operator, and every event is there once in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from dags_app.models import DAG, DAGHistory
from dags_app.services.lost_queue import lost_queue_of, schedd_confirm_lost
from requests_app.models import Event, HoldCode, Request, RequestStatus
from requests_app.services import request_release
from requests_app.services.release import ReleaseMode
from sites_app.models import QueueChange, Schedd
from tests.support import services
from tests.support.outcomes import assert_completed, ended, imported, status, units_done
from tests.support.stack import worker
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow, pytest.mark.alone]
S = RequestStatus
#: Units run one after the other, so that some are done and some are not when the queue is lost.
SETTINGS = {"jobs_per_work_unit": 1, "dag_max_merge_groups": 1, "WMS2_SCHEDD_SUSPICION_SECONDS": "6"}
BY = {"actor": "tester", "reason": "its spool was lost"}


@pytest.fixture(autouse=True)
def _slots_are_given_back() -> Iterator[None]:
    yield
    services.forsaken_jobs_end()


def alerts(request: Request) -> list[str]:
    return list(Event.objects.filter(request=request, kind="alert").values_list("data__code", flat=True))


def test_a_queue_that_is_lost_is_reported_confirmed_by_a_person_and_its_work_done_once(ready: None) -> None:
    request = imported(events=80, per_job=20)
    with worker(**SETTINGS) as running:
        running.wait(lambda: status(request) == S.ACTIVE, seconds=120)
        running.wait(lambda: Schedd.objects.filter(job_queue_birthdate__isnull=False).exists(), seconds=60)
        with pytest.raises(InvalidTransition, match="answers, its queue is the one born"):
            schedd_confirm_lost(schedd=Schedd.objects.get(), **BY)
        running.wait(lambda: units_done(request) > 0, seconds=240)
        services.schedd_lose_queue()
        running.wait(lambda: "queue_suspected" in alerts(request), seconds=120)
        lost = DAG.objects.get()
        assert (status(request), lost.status) in {(S.ACTIVE, "running"), (S.ACTIVE, "submitted")}, "nothing by itself"
        assert lost.total_work_units > units_done(request)
        change = QueueChange.objects.get()
        assert change.new_birthdate > change.old_birthdate
        (found,) = lost_queue_of(Schedd.objects.get()).affected
        assert (found.dag, found.directory.metrics, found.directory.rescue) == (lost, "", "")

        schedd_confirm_lost(schedd=Schedd.objects.get(), **BY)
        running.wait(lambda: ended(request), seconds=60)
        request.refresh_from_db()
        assert (request.status, request.hold_code) == (S.HELD, HoldCode.QUEUE_LOST)
        done = units_done(request)
        plan = request_release(request=request, actor="tester", reason="the schedd is repaired")
        assert (plan.mode, plan.units_done) == (ReleaseMode.NEXT_ROUND, done)
        running.wait(lambda: ended(request), seconds=240)
    assert_completed(request)
    reported = Counter(DAGHistory.objects.filter(dag=lost).values_list("event_type", flat=True))
    assert (reported["suspected_lost"], reported["lost_confirmed"], reported["lost"]) == (1, 1, 1)
    assert AuditEntry.objects.filter(action="schedd_queue_changed").count() == 1
    assert DAG.objects.filter(workflow__request=request).count() == 2
