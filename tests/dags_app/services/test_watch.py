"""What a schedd says of DAGs: written and told when it changes, in as many statements for many DAGs as for few."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.counts import dag_counts
from dags_app.models import DAG, DAGHistory, DAGStatus, FailureGroup, FailureLog, WorkUnitState
from dags_app.services import watch
from dags_app.services.watch import ScheddAnswer, checks_of, schedd_observe, sites_count
from requests_app.admission.queue import ADMISSION
from requests_app.lifecycle import watching
from requests_app.models import RequestStatus
from sites_app.models import Schedd, Site
from tests.support.faults import fault
from tests.support.locking import paused
from tests.support.rows import dag_row, request_row, schedd_row, unit_row, workflow_row
from tests.support.statements import statements
from wms2.adapters.types import DagmanAd, DagStatus, JobGroup, JobStatus, ScheddAd, Unread
from wms2.errors import ServiceRejected
from wms2.metrics.series import ROWS_BROKEN_TOTAL
from wms2.models import Wake
from wms2.runtime import clock

DONE = {"state": WorkUnitState.DONE, "manifest_sha256": "a", "fence": 1}
ABOUT = ScheddAd("schedd@a", "25.14.1", 1)
pytestmark = pytest.mark.django_db


@pytest.fixture
def schedd() -> Schedd:
    return schedd_row("schedd@a")


def running(schedd: Schedd, cluster: int = 7, **fields: object) -> DAG:
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    return dag_row(workflow, DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name, dagman_cluster_id=str(cluster), **fields)


def ad(dag: DAG, **counts: object) -> DagmanAd:
    reported = DagmanAd(
        cluster=int(dag.dagman_cluster_id), parent_cluster=None, node="", dag_id=str(dag.pk), request_name="r", fence=dag.fence,
        job_status=JobStatus.RUNNING, hold_reason="", job_starts=1, queued_at_seconds=1, status_since_seconds=1, dag_status=0,
        nodes_total=9, nodes_done=0, nodes_failed=0, jobs_idle=3, jobs_held=0, jobs_running=2, counted_at_seconds=1,
    )  # fmt: skip
    return replace(reported, **counts)


def hear(schedd: Schedd, *ads: DagmanAd, jobs: tuple[JobGroup, ...] = ()) -> datetime:
    """One look, which the schedd answers with these; when it was."""
    (check,) = checks_of([Schedd.objects.get(pk=schedd.pk)])
    schedd_observe(check=check, answer=ScheddAnswer(ABOUT, ads, jobs), fenced=transaction.atomic)
    return check.at


def silence(schedd: Schedd) -> datetime:
    (check,) = checks_of([Schedd.objects.get(pk=schedd.pk)])
    schedd_observe(check=check, answer=ScheddAnswer(None, error="silent", collector_says="nothing"), fenced=transaction.atomic)
    return check.at


def woken() -> set[object]:
    """Requests that were woken since the last call."""
    ids = set(Wake.objects.exclude(request_id=ADMISSION).values_list("request_id", flat=True))
    Wake.objects.all().delete()
    return ids


def seen(dag: DAG) -> DAG:
    return DAG.objects.select_related("schedd", "workflow__request").get(pk=dag.pk)


def test_where_nothing_has_changed_no_dag_is_written_and_many_cost_as_many_statements_as_one(schedd: Schedd) -> None:
    many = [running(schedd, cluster) for cluster in range(1, 8)]
    other = schedd_row("schedd@b")
    one = running(other)
    asked: list[list[str]] = []
    for where, dags in ((schedd, many), (other, [one])):
        hear(where, *map(ad, dags))
        woken()
        with CaptureQueriesContext(
            connection,
        ) as captured:
            hear(where, *(ad(dag, counted_at_seconds=2) for dag in dags))
        asked.append(statements(captured))
    assert len(asked[0]) == len(asked[1]) < 14
    assert not [sql for sql in asked[0] if 'UPDATE "dags"' in sql or "UPDATE dags" in sql]
    assert woken() == set()


def test_a_dag_that_does_not_change_was_seen_when_its_schedd_answered_last(schedd: Schedd) -> None:
    dag = running(schedd)
    assert seen(dag).seen_at is None
    first = hear(schedd, ad(dag))
    again = hear(schedd, ad(dag))
    assert (seen(dag).observed_at, seen(dag).seen_at) == (first, again)
    silent = silence(schedd)
    assert (seen(dag).seen_at, seen(dag).unanswered_since) == (again, silent)
    hear(schedd)
    assert seen(dag).seen_at == again, "it was not in that answer"
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.COMPLETED)
    hear(schedd)
    assert seen(dag).seen_at == again


def test_all_that_have_changed_are_written_in_one_statement_and_the_others_not(schedd: Schedd) -> None:
    dags = [running(schedd, cluster) for cluster in range(1, 6)]
    first = hear(schedd, *map(ad, dags))
    with CaptureQueriesContext(connection) as captured:
        second = hear(
            schedd,
            *(ad(dag, nodes_done=number, nodes_failed=1, jobs_running=5) for number, dag in enumerate(dags[:4])),
            ad(dags[4]),
        )
    assert sum("UPDATE dags" in query["sql"] for query in captured) == 1
    rows = [seen(dag) for dag in dags]
    assert [(row.nodes_done, row.nodes_failed, row.observed["jobs_running"], row.observed_at) for row in rows] == [
        *((number, 1, 5, second) for number in range(4)), (0, 0, 2, first)
    ]  # fmt: skip
    assert rows[3].observed["nodes_done"] == 3


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        ({"nodes_done": 1}, True),
        ({"nodes_failed": 1}, True),
        ({"job_status": JobStatus.HELD, "hold_reason": "by hand"}, True),
        ({"job_starts": 2}, True),
        ({"dag_status": DagStatus.HALTED}, True),
        ({"jobs_running": 3, "jobs_idle": 2}, False),
        ({"nodes_queued": 2}, False),
    ],
)
def test_what_the_life_cycle_acts_on_wakes_the_request_and_what_is_only_shown_does_not(
    schedd: Schedd, change: dict[str, object], wakes: bool
) -> None:
    dag, other = running(schedd, 1), running(schedd, 2)
    hear(schedd, ad(dag), ad(other))
    assert woken() == {dag.workflow.request.pk, other.workflow.request.pk}, "it was not known before"
    hear(schedd, ad(dag, **change), ad(other))
    assert woken() == ({dag.workflow.request.pk} if wakes else set())
    assert all(seen(dag).observed[name] == value for name, value in change.items())


def group(dag: DAG, role: str, state: str, site: str, jobs: int) -> JobGroup:
    return JobGroup(str(dag.directory_id), role, state, site, jobs)


def test_node_jobs_are_counted_by_state_role_and_site_for_dags_and_for_sites(schedd: Schedd) -> None:
    cern, fnal, empty = (Site.objects.create(name=name, jobs_running=7) for name in ("T2_CH_CERN", "T1_US_FNAL", "T2_DE_DESY"))
    dag, other = running(schedd, 1), running(schedd, 2)
    jobs = (
        group(dag, "landing", "idle", "", 2), group(dag, "processing", "running", "T2_CH_CERN", 5),
        group(dag, "merge", "running", "T1_US_FNAL", 1), group(dag, "processing", "held", "T1_US_FNAL", 3),
        group(other, "processing", "idle", "T1_US_FNAL", 8), JobGroup("of nobody", "processing", "idle", "T1_US_FNAL", 9),
    )  # fmt: skip
    at = hear(schedd, ad(dag), ad(other), jobs=jobs)
    row = seen(dag)
    assert (row.nodes_idle, row.nodes_running, row.nodes_held, row.seen_at) == (2, 6, 3, at)
    assert row.jobs == {
        "roles": {"landing": {"idle": 2}, "processing": {"running": 5, "held": 3}, "merge": {"running": 1}},
        "sites": {"T2_CH_CERN": {"running": 5}, "T1_US_FNAL": {"running": 1, "held": 3}},
    }
    sites_count(at)
    for site, numbers in ((cern, (0, 5, 0)), (fnal, (8, 1, 3)), (empty, (0, 0, 0))):
        site.refresh_from_db()
        assert ((site.jobs_idle, site.jobs_running, site.jobs_held), site.jobs_counted_at) == (numbers, at)
    woken()
    hear(schedd, ad(dag), ad(other), jobs=jobs[4:])
    row = seen(dag)
    assert (row.nodes_idle, row.nodes_running, row.nodes_held, row.jobs) == (0, 0, 0, {})
    assert woken() == set(), "jobs come and go all the time"


def test_since_when_jobs_wait_at_a_site_where_none_runs_is_kept_until_one_does(schedd: Schedd) -> None:
    dag = running(schedd, 1)
    waiting = group(dag, "processing", "idle", "T1_US_FNAL", 8)
    first = hear(schedd, ad(dag), jobs=(waiting, group(dag, "merge", "running", "T2_CH_CERN", 1)))
    assert seen(dag).jobs["waits"] == {"T1_US_FNAL": first.isoformat()}
    hear(schedd, ad(dag), jobs=(waiting._replace(jobs=5),))
    assert seen(dag).jobs["waits"] == {"T1_US_FNAL": first.isoformat()}, "there were always some"
    hear(schedd, ad(dag), jobs=(waiting, group(dag, "processing", "running", "T1_US_FNAL", 1)))
    assert "waits" not in seen(dag).jobs
    last = hear(schedd, ad(dag), jobs=(waiting,))
    assert seen(dag).jobs["waits"] == {"T1_US_FNAL": last.isoformat()} and last > first


def test_sites_have_the_ended_jobs_of_rounds_whose_dags_are_in_a_queue(schedd: Schedd) -> None:
    cern, fnal = (Site.objects.create(name=name, jobs_done=7, jobs_failed=7) for name in ("T2_CH_CERN", "T1_US_FNAL"))
    one, two, ended = (running(schedd, number) for number in (1, 2, 3))
    for dag in (one, two, ended):
        unit_row(dag, 0, **DONE, jobs=8, site="T2_CH_CERN")
        unit_row(dag, 1, jobs=8, site="T1_US_FNAL")
        FailureGroup.objects.create(
            workflow=dag.workflow, category="transient", code=1, site="T1_US_FNAL", attempts=9, rounds={"0": 3, "5": 6},
            first_at=timezone.now(), last_at=timezone.now(),
        )  # fmt: skip
    DAG.objects.filter(pk=ended.pk).update(status=DAGStatus.COMPLETED)
    sites_count(timezone.now())
    for site, numbers in ((cern, (18, 0)), (fnal, (0, 6))):
        site.refresh_from_db()
        assert (site.jobs_done, site.jobs_failed) == numbers


def test_nodes_of_a_dag_are_those_of_done_running_and_failed_units_each_once(schedd: Schedd) -> None:
    dag = running(schedd, total_work_units=5, total_nodes=55, node_counts={"Processing": 40})
    units = [unit_row(dag, n, **DONE if n < 2 else {}) for n in range(5)]
    inner = {"parent_cluster": 7, "nodes_total": 11}
    hear(
        schedd,
        ad(dag, nodes_done=1, nodes_failed=1),
        # the first is accounted by now, and was seen before its DAGMan left
        ad(dag, cluster=8, node=units[1].name, nodes_done=11, **inner),
        ad(dag, cluster=9, node=units[2].name, nodes_done=4, **inner | {"nodes_failed": 2}),
        jobs=(group(dag, "processing", "running", "T2_CH_CERN", 3),),
    )
    DAG.objects.filter(pk=dag.pk).update(failed_units={"units": 1, "done": 6, "failed": 3})
    counted = dag_counts(seen(dag))
    assert counted.nodes == {"idle": 0, "running": 3, "held": 0, "done": 11 + 11 + 4 + 6, "failed": 2 + 3}
    assert counted.units == {"waiting": 0, "running": 2, "done": 2, "failed": 1}
    assert (counted.success.ended_well, counted.success.ended_badly, counted.success.success_rate) == (18, 0, 1.0)
    FailureLog.objects.create(directory_id=dag.directory_id, attempts=2)
    assert dag_counts(seen(dag)).success.success_rate == 0.9
    FailureLog.objects.update(attempts=None)
    assert dag_counts(seen(dag)).success.success_rate is None, "they were not counted from the beginning"


def test_a_unit_whose_dagman_is_held_wakes_the_request_and_is_kept_by_name(schedd: Schedd) -> None:
    dag = running(schedd)
    unit = ad(dag, cluster=8, parent_cluster=7, node="mg_000001")
    for held in ([], ["mg_000001: no disk"], []):
        woken()
        state = {"job_status": JobStatus.HELD, "hold_reason": "no disk"} if held else {}
        hear(schedd, ad(dag), replace(unit, **state))
        assert (seen(dag).observed["units_held"], woken()) == (held, {dag.workflow.request.pk})


def test_a_job_that_is_missing_a_schedd_that_is_silent_and_their_return_are_logged_once_each(schedd: Schedd) -> None:
    dag = running(schedd)
    hear(schedd, ad(dag))
    request = {woken().pop()}
    answer = [
        lambda: hear(schedd),
        lambda: silence(schedd),
        lambda: hear(schedd),
        lambda: silence(schedd),
        lambda: hear(schedd, ad(dag)),
    ]
    for change in answer:
        change()
        assert woken() == request
        if change is not answer[-1]:
            before = seen(dag)
            change()
            assert woken() == set()
            assert (seen(dag).missing_since, seen(dag).unanswered_since) == (before.missing_since, before.unanswered_since)
    assert (seen(dag).missing_since, seen(dag).unanswered_since) == (None, None)


def test_a_dag_that_was_suspected_lost_and_is_in_the_queue_again_is_neither_suspected_nor_confirmed_any_more(
    schedd: Schedd,
) -> None:
    dag = running(schedd)
    now = hear(schedd, ad(dag))
    DAG.objects.update(
        missing_since=now, suspected_at=now, lost_confirmed_at=now, lost_confirmation={"actor": "a"}, outcome={"disputed": "how"}
    )
    woken()
    hear(schedd, ad(dag))
    row = seen(dag)
    assert (row.missing_since, row.suspected_at, row.lost_confirmed_at) == (None, None, None)
    assert (row.lost_confirmation, row.outcome) == ({}, {})
    assert DAGHistory.objects.get(event_type="seen_again").detail["confirmed"] == {"actor": "a"}
    assert woken() == {dag.workflow.request.pk}


def test_a_halted_dag_is_told_with_its_counts(schedd: Schedd) -> None:
    dag = running(schedd)
    hear(schedd, ad(dag, dag_status=DagStatus.HALTED, nodes_done=4))
    assert (seen(dag).status, DAGHistory.objects.get(to_status="halted").nodes_done) == (DAGStatus.HALTED, 4)


def test_what_has_ended_or_was_submitted_during_the_question_is_left_alone(schedd: Schedd) -> None:
    dag = running(schedd)
    (check,) = checks_of([schedd])
    DAG.objects.update(status=DAGStatus.COMPLETED)
    late = running(schedd, 8)
    schedd_observe(check=check, answer=ScheddAnswer(ABOUT), fenced=transaction.atomic)
    assert (seen(dag).missing_since, seen(late).missing_since) == (None, None)


def test_a_lost_dag_that_is_proved_gone_wakes_its_request(schedd: Schedd) -> None:
    dag = running(schedd)
    DAG.objects.update(status=DAGStatus.REMOVED, lost_confirmed_at=hear(schedd) - timedelta(hours=1))
    woken()
    hear(schedd)
    assert seen(dag).lost_settled_at is not None
    assert woken() == {dag.workflow.request.pk}


@pytest.mark.django_db(transaction=True)
def test_a_dag_that_somebody_keeps_locked_keeps_nobody_waiting_and_is_the_next_looks(schedd: Schedd) -> None:
    dag, other = running(schedd, 1), running(schedd, 2)
    with paused("SELECT FROM dags WHERE id = %s FOR UPDATE", dag.pk):
        hear(schedd, ad(dag), ad(other))
        assert (seen(dag).observed, seen(other).observed != {}) == ({}, True)
    hear(schedd, ad(dag), ad(other))
    assert seen(dag).observed["nodes_total"] == 9


def test_one_dag_that_cannot_be_written_keeps_no_other_from_being_seen(schedd: Schedd) -> None:
    """No jsonb has a NUL."""
    bad, good = running(schedd, 7), running(schedd, 8)
    (check,) = checks_of([Schedd.objects.get(pk=schedd.pk)])
    answer = ScheddAnswer(ABOUT, (ad(bad, hold_reason="no \0 room"), ad(good, nodes_done=3)))
    schedd_observe(check=check, answer=answer, fenced=transaction.atomic, by_itself=watching.dag_by_itself)
    assert (seen(good).nodes_done, seen(bad).observed_at) == (3, None)
    assert Schedd.objects.get(pk=schedd.pk).last_answer_at == check.at
    assert "NUL" in seen(bad).workflow.request.last_error or "u0000" in seen(bad).workflow.request.last_error


@fault(
    "bad rows in every poll: a schedd's queue",
    done="an ad of ours without QDate among others",
    spec="issue: One bad row stops all others",
    afterwards="the others are written; that DAG stays as it was, and its request says why",
)
def test_a_dagman_that_cannot_be_read_is_not_gone_and_is_told_on_its_request(schedd: Schedd) -> None:
    bad, good, gone = running(schedd, 7), running(schedd, 8), running(schedd, 9)
    lost = running(schedd, 10, lost_confirmed_at=clock.now())
    DAG.objects.filter(pk=lost.pk).update(status=DAGStatus.FAILED)
    (check,) = checks_of([Schedd.objects.get(pk=schedd.pk)])
    unread = {7: Unread(str(bad.pk), "an ad without QDate"), 10: Unread(str(lost.pk), "an ad without QDate")}
    answer = ScheddAnswer(ABOUT, (ad(good, nodes_done=3),), (), unread)
    schedd_observe(check=check, answer=answer, fenced=transaction.atomic, by_itself=watching.dag_by_itself)
    assert (seen(good).nodes_done, seen(gone).missing_since) == (3, check.at)
    assert (seen(bad).missing_since, seen(bad).unanswered_since, seen(lost).lost_settled_at) == (None, None, None)
    assert "stays as it was: an ad without QDate" in seen(bad).workflow.request.waiting_for


@pytest.mark.parametrize("known", [True, False], ids=["seen before", "never seen"])
def test_a_dagman_that_was_away_and_cannot_be_read_is_there_again(schedd: Schedd, known: bool) -> None:
    away = {"missing_since": clock.now(), "unanswered_since": clock.now(), "suspected_at": clock.now()}
    bad, nameless, other = running(schedd, 7, **away), running(schedd, 8, **away), running(schedd, 9)
    if known:
        hear(schedd, *map(ad, (bad, nameless, other)))
        DAG.objects.filter(pk__in=(bad.pk, nameless.pk)).update(**away)
    woken()
    before, step = [seen(dag).observed for dag in (bad, nameless)], ROWS_BROKEN_TOTAL.labels("schedds")._value
    broken = step.get()
    (check,) = checks_of([Schedd.objects.get(pk=schedd.pk)])
    unread = {7: Unread(str(bad.pk), "no QDate"), 8: Unread("", "no QDate"), 9: Unread(str(uuid.uuid4()), "no QDate")}
    answer = ScheddAnswer(ABOUT, unread=unread)
    schedd_observe(check=check, answer=answer, fenced=transaction.atomic, by_itself=watching.dag_by_itself)
    for dag in (seen(bad), seen(nameless)):
        assert (dag.missing_since, dag.unanswered_since, dag.suspected_at) == (None, None, None)
        assert DAGHistory.objects.filter(dag=dag, event_type="seen_again").exists()
    assert [seen(dag).observed for dag in (bad, nameless)] == before
    assert seen(other).missing_since == check.at, "that number is another DAG's by now"
    assert step.get() == broken + 2
    assert woken() >= {dag.workflow.request.pk for dag in (bad, nameless, other)}


def test_a_schedd_whose_answer_breaks_has_not_answered(schedd: Schedd, monkeypatch: pytest.MonkeyPatch) -> None:
    class Condor:
        def watch(self, instance: str) -> None:
            raise ServiceRejected("htcondor", "watch", "the token may not read this queue", "denied")

    monkeypatch.setattr(watch, "adapter", lambda schedd: Condor())
    (check,) = checks_of([schedd])
    answer = check.ask("instance")
    assert answer.about is None
    assert "may not read" in answer.error


def test_what_of_ours_has_ended_there_is_progress_whatever_others_do(schedd: Schedd) -> None:
    dag = running(schedd)
    running_jobs = group(dag, "processing", "running", "T2_A", 2)
    for completed in (None, 4, 4):
        hear(schedd, ad(dag, jobs_completed=completed), jobs=(running_jobs,))
    (memory,) = Schedd.objects.values_list("health_memory", flat=True)
    assert memory["jobs_ended"] == 4
    moved = memory["moved_at"]
    hear(schedd, ad(dag, jobs_completed=5), jobs=(running_jobs,))
    (memory,) = Schedd.objects.values_list("health_memory", flat=True)
    assert (memory["jobs_ended"], memory["moved_at"] > moved) == (5, True)
