"""Whose DAG has moved is seen by the files that grow, and by nothing else."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAG, DAGStatus
from dags_app.payload.contract.layout import FAILURES_FILE, JOBSTATE_LOG, OUTER_STATUS
from dags_app.services import activity
from dags_app.services.activity import DagActivity
from requests_app.models import RequestStatus
from tests.support.rows import dag_row, request_row, workflow_row

pytestmark = pytest.mark.django_db
BEGINS = "1 mg_000001 SUBMIT 5.0 - - 2\n1 mg_000001 EXECUTE 5.0 - - 2\n"
ENDS = "2 mg_000001 JOB_TERMINATED 5.0 - - 2\n2 mg_000001 JOB_SUCCESS 0 - - 2\n"


def running(place: Path, cluster: int = 7) -> DAG:
    place.mkdir()
    return dag_row(
        workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, dagman_cluster_id=str(cluster), submit_dir=str(place),
        submitted_at=timezone.now(),
    )  # fmt: skip


def add(dag: DAG, name: str, text: str) -> None:
    with (Path(dag.submit_dir) / name).open("a") as stream:
        stream.write(text)


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    return running(tmp_path / "one")


def test_each_dag_counts_as_moved_once_after_a_start_and_then_when_a_unit_ends_or_an_attempt_fails(dag: DAG) -> None:
    other, request = running(Path(dag.submit_dir).with_name("other"), 8), dag.workflow.request.pk
    moves = DagActivity()
    assert dict(moves.check()) == {request: "first look", other.workflow.request.pk: "first look"}
    assert moves.check() == []
    add(dag, JOBSTATE_LOG, BEGINS)
    add(dag, OUTER_STATUS, "written every few seconds")
    assert moves.check() == [], "units that begin are shown, and nobody acts on them"
    add(dag, JOBSTATE_LOG, ENDS)
    assert moves.check() == [(request, "unit ended")]
    assert moves.check() == []
    add(dag, FAILURES_FILE, "{}\n")
    assert moves.check() == [(request, "attempt failed")]
    add(dag, JOBSTATE_LOG, "3 mg_000002 JOB_FAILURE 1 - - 3\n")
    assert moves.check() == [(request, "unit ended")]
    assert len(DagActivity().check()) == 2


def test_a_line_that_is_being_written_is_seen_when_it_is_whole(dag: DAG) -> None:
    moves = DagActivity()
    moves.check()
    add(dag, JOBSTATE_LOG, BEGINS + ENDS[:-20])
    assert moves.check() == []
    add(dag, JOBSTATE_LOG, ENDS[-20:])
    assert [why for _, why in moves.check()] == ["unit ended"]


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(dag: DAG) -> None:
    add(dag, JOBSTATE_LOG, BEGINS * 9)
    moves = DagActivity()
    moves.check()
    (Path(dag.submit_dir) / JOBSTATE_LOG).write_text(ENDS)
    assert [why for _, why in moves.check()] == ["unit ended"]
    assert moves.check() == []


def test_only_what_is_in_the_queue_is_looked_at_and_one_small_question_is_asked_while_that_stays(dag: DAG) -> None:
    moves = DagActivity()
    moves.check()
    with CaptureQueriesContext(connection) as captured:
        moves.check()
    assert len(captured) == 1
    late = running(Path(dag.submit_dir).with_name("late"), 8)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.COMPLETED)
    add(dag, JOBSTATE_LOG, ENDS)
    assert moves.check() == [(late.workflow.request.pk, "first look")]


def test_a_directory_that_is_out_of_reach_is_told_once_and_looked_at_again_when_it_is_back(
    dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, moves, reported = Path(dag.submit_dir), DagActivity(), []
    monkeypatch.setattr(activity.log, "warning", lambda event, **_: reported.append(event), raising=False)
    add(dag, JOBSTATE_LOG, BEGINS)
    moves.check()
    place.rename(place.with_name("away"))
    assert moves.check() == moves.check() == []
    assert reported == ["what DAGMan writes is out of reach"]
    place.with_name("away").rename(place)
    assert moves.check() == []
    add(dag, JOBSTATE_LOG, ENDS)
    assert [why for _, why in moves.check()] == ["unit ended"]
    shutil.rmtree(place)
    assert DagActivity().check() == [(dag.workflow.request.pk, "first look")], "it has written nothing yet"


def test_a_file_system_that_hangs_holds_nobody_up_and_what_it_had_to_tell_comes_later(
    dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves, answers, length = DagActivity(), threading.Event(), activity._length
    monkeypatch.setattr(activity, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(activity, "_length", lambda path, before: (answers.wait(20), length(path, before))[1])
    assert moves.check() == moves.check() == []
    answers.set()
    assert moves._looking is not None
    moves._looking.join()
    monkeypatch.setattr(activity, "PATIENCE_SECONDS", 20.0)
    assert [why for _, why in moves.check()] == ["first look"]
