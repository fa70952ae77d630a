"""Which DAGMan jobs in a queue must not run: never the one a live DAG is recorded with, always those of DAGs that have ended."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import nullcontext
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from dags_app.models import DAGStatus
from dags_app.services.orphans import (
    ENDED,
    UNKNOWN,
    orphans_among,
    orphans_ask,
    orphans_known,
    orphans_report,
    schedd_remove_strays,
    strays_preview,
)
from requests_app.pages.overview import service_state
from sites_app.models import Schedd
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.adapters import factory
from wms2.adapters.types import DagmanAd, JobStatus, OrphanJobs
from wms2.errors import InvalidTransition, ServiceRejected, ServiceUnavailable
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db


def job(dag_id: object, cluster: int, fence: int, status: JobStatus = JobStatus.RUNNING) -> DagmanAd:
    return DagmanAd(
        cluster=cluster, parent_cluster=None, node="", dag_id=str(dag_id), request_name="r", fence=fence, job_status=status,
        hold_reason="", job_starts=1, queued_at_seconds=1, status_since_seconds=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "recorded", "cluster", "fence", "orphan"),
    [
        (DAGStatus.RUNNING, "5", 5, 2, False),
        (DAGStatus.RUNNING, "5", 5, 1, False),  # an earlier attempt that was adopted
        (DAGStatus.RUNNING, "5", 4, 1, True),  # an earlier attempt that turned up beside it
        (DAGStatus.READY, "", 4, 1, False),  # may be adopted
        (DAGStatus.REMOVED, "5", 5, 2, True),
        (DAGStatus.COMPLETED, "5", 5, 2, True),
        (DAGStatus.REMOVED, "", 4, 1, True),  # discarded, and submitted after all
    ],
)
def test_a_job_is_astray_by_the_standing_of_its_dag(
    status: DAGStatus, recorded: str, cluster: int, fence: int, orphan: bool
) -> None:
    dag = dag_row(workflow_row(request_row()), status, dagman_cluster_id=recorded, fence=2)
    found = orphans_among([job(dag.pk, cluster, fence), job(uuid.uuid4(), 99, 1), job("of somebody else", 98, 1)])
    assert [(one.dag.pk, one.cluster, one.fence) for one in found] == ([(dag.pk, cluster, fence)] if orphan else [])


def test_one_that_is_on_its_way_out_says_so() -> None:
    dag = dag_row(workflow_row(request_row()), DAGStatus.STOPPED, dagman_cluster_id="5", fence=1)
    (found,) = orphans_among([job(dag.pk, 5, 1, JobStatus.REMOVED)])
    assert found.being_removed


class Queue:
    """A schedd's answers to a look for orphans."""

    def __init__(self, *answers: list[OrphanJobs] | ServiceUnavailable) -> None:
        self.answers, self.known = list(answers), set[str]()

    def orphans(self, known: Collection[str]) -> list[OrphanJobs]:
        self.known = set(known)
        answer = self.answers.pop(0)
        if isinstance(answer, ServiceUnavailable):
            raise answer
        return answer


def look(schedd: Schedd, now: datetime) -> None:
    found = orphans_ask(schedd, orphans_known(schedd, now))
    if found is not None:
        orphans_report(schedd=schedd, found=found, now=now, fenced=nullcontext)


def test_jobs_that_no_live_dag_knows_are_told_at_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now, schedd = timezone.now(), schedd_row("schedd@a")
    live = dag_row(workflow_row(), DAGStatus.RUNNING, schedd=schedd, directory_id=uuid.uuid4())
    headless = dag_row(workflow_row(), DAGStatus.RUNNING, schedd=schedd, missing_since=now - timedelta(hours=1))
    ended = dag_row(workflow_row(request_row()), DAGStatus.REMOVED, schedd=schedd)
    nobody = str(uuid.uuid4())
    left = [
        OrphanJobs(nobody, "r", 1, 20), OrphanJobs(str(ended.directory_id), "r", 2, 8), OrphanJobs(str(headless.pk), "r", 3, 9),
        OrphanJobs("", "", 0, 1),
    ]  # fmt: skip
    queue = Queue(left, ServiceUnavailable("htcondor", "strays", "silent"), left, left[:1])
    monkeypatch.setattr(factory, "htcondor", lambda *_: queue)
    look(schedd, now)
    assert queue.known == {str(live.pk), str(live.directory_id)}
    assert schedd.orphans_reported == [], "a DAG that ends leaves some for a moment"
    look(schedd, now)
    assert len(schedd.orphans) == 4, "a silent schedd says nothing"
    look(schedd, now + timedelta(minutes=10))
    schedd.refresh_from_db()
    assert [(each["dag_id"], each["dagmans"], each["jobs"], each["why"]) for each in schedd.orphans_reported] == [
        (nobody, 1, 20, UNKNOWN), (str(ended.pk), 2, 8, ENDED), (str(headless.pk), 3, 9, ENDED), ("", 0, 1, UNKNOWN),
    ]  # fmt: skip
    assert {each["since"] for each in schedd.orphans} == {now.isoformat()}
    assert [row.name for row in service_state().stray_schedds] == ["schedd@a"]
    look(schedd, now + timedelta(minutes=20))
    assert [each["dag_id"] for each in schedd.orphans_reported] == [nobody]


def test_an_operator_has_them_removed_after_a_preview_but_not_what_a_live_dag_has_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now, schedd = timezone.now(), schedd_row("schedd@a")
    stray, adopted = str(uuid.uuid4()), uuid.uuid4()
    left, removed = [OrphanJobs(stray, "r", 1, 20), OrphanJobs(str(adopted), "r", 1, 5)], list[str]()
    queue = Queue(left, left, [])
    queue.remove_orphans = lambda dag_id, why, fence: removed.append(f"{dag_id} {why}") or 21  # type: ignore[attr-defined,func-returns-value]
    monkeypatch.setattr(factory, "htcondor", lambda *_: queue)
    look(schedd, now)
    with pytest.raises(InvalidTransition, match="Two looks"):
        schedd_remove_strays(schedd=schedd, actor="olga", reason="killed by hand")
    look(schedd, now + timedelta(minutes=10))
    assert [line.partition(", since")[0] for line in strays_preview(schedd)] == [
        f"DAG {stray} of r: 1 DAGMan, 20 jobs", f"DAG {adopted} of r: 1 DAGMan, 5 jobs",
    ]  # fmt: skip
    dag_row(workflow_row(), DAGStatus.RUNNING, schedd=schedd, id=adopted)
    schedd_remove_strays(schedd=schedd, actor="olga", reason="killed by hand")
    assert removed == [f"{stray} removed by olga: killed by hand"]
    assert Schedd.objects.get().orphans == []
    entries = AuditEntry.objects.filter(action="schedd_remove_strays").order_by("pk")
    assert list(entries.values_list("target", "outcome")) == [("schedd@a", "refused"), ("schedd@a", "done")]


def test_what_is_submitted_while_strays_are_removed_stays_and_only_what_was_done_is_audited_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two of them an operator releases the requests: one submits in the directory at once, one while it is asked."""
    now, schedd = timezone.now(), schedd_row("schedd@a")
    flows = [workflow_row(request_row()) for _ in range(3)]
    ended = [dag_row(flow, DAGStatus.REMOVED, schedd=schedd, fence=4) for flow in flows]
    found = [OrphanJobs(str(dag.directory_id), dag.workflow.request_id, 0, 5) for dag in ended] + [OrphanJobs("", "", 0, 1)]
    queue, removed = Queue(found, found), list[tuple[str, int | None]]()

    def remove(dag_id: str, why: str, fence: int | None = None) -> int:
        if not removed:
            dag_row(flows[1], DAGStatus.READY, schedd=schedd, directory_id=ended[1].directory_id, fence=5)
        if not dag_id:
            raise ServiceRejected("htcondor", "remove_orphans", "not authorized")
        removed.append((dag_id, fence))
        return 5

    queue.remove_orphans = remove  # type: ignore[attr-defined]
    monkeypatch.setattr(factory, "htcondor", lambda *_: queue)
    look(schedd, now)
    look(schedd, now + timedelta(minutes=10))
    with pytest.raises(ServiceRejected):
        schedd_remove_strays(schedd=schedd, actor="olga", reason="killed by hand")
    assert removed == [(str(ended[0].directory_id), 4), (str(ended[2].directory_id), 4)]
    entries = AuditEntry.objects.filter(action="schedd_remove_strays").order_by("pk")
    assert [(each.outcome, each.evidence["dag_id"]) for each in entries] == [
        ("done", str(ended[0].directory_id)), ("done", str(ended[2].directory_id)), ("refused", ""),
    ]  # fmt: skip


def test_jobs_of_a_live_dag_whose_row_says_no_schedd_are_no_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database restored from before its submission: it is adopted wherever it is found."""
    now, schedd = timezone.now(), schedd_row("schedd@a")
    dag = dag_row(workflow_row(request_row()), DAGStatus.READY, directory_id=uuid.uuid4())
    left = [OrphanJobs(str(dag.pk), "r", 1, 0), OrphanJobs(str(dag.directory_id), "r", 0, 20)]
    monkeypatch.setattr(factory, "htcondor", lambda *_: Queue(left))
    look(schedd, now)
    assert schedd.orphans == []
