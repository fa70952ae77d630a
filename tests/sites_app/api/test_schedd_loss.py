"""The loss of a schedd's queue over REST: the evidence, one word with a reason, refused without evidence, repeatable."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus
from requests_app.models import RequestStatus
from sites_app.models import QueueChange, Schedd
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
LOSS, CONFIRM = "/api/v1/schedds/schedd@host.example/loss", "/api/v1/schedds/schedd@host.example/confirm-lost"


def running(directory: Path, schedd: Schedd, **fields: object) -> DAG:
    """A DAG at the schedd, with a directory in which nothing lies."""
    place = {"submit_dir": str(directory), "dag_file_path": str(directory / "workflow.dag"), "dagman_cluster_id": "12"}
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    return dag_row(workflow, DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name, **place | fields)


@pytest.fixture
def suspected(tmp_path: Path) -> DAG:
    """A DAG that is not in the new queue of its schedd."""
    now = timezone.now()
    schedd = schedd_row("schedd@host.example", last_answer_at=now, job_queue_birthdate=2000)
    dag = running(
        tmp_path, schedd, missing_since=now - timedelta(hours=1), suspected_at=now, submitted_at=now - timedelta(hours=2)
    )
    seen = now - timedelta(hours=1)
    QueueChange.objects.create(schedd=schedd, old_birthdate=1000, new_birthdate=2000, dagmans_before=3, seen_at=seen)
    return dag


def test_the_evidence_is_shown_to_whoever_is_signed_in(reader: APIClient, suspected: DAG) -> None:
    body = reader.get(LOSS).json()
    assert (body["name"], body["job_queue_birthdate"], body["refusal"]) == ("schedd@host.example", 2000, "")
    assert [(row["old_birthdate"], row["new_birthdate"]) for row in body["queue_changes"]] == [(1000, 2000)]
    (row,) = body["dags"]
    assert (row["dag_id"], row["dagman_cluster_id"], row["affected"]) == (str(suspected.pk), "12", True)
    assert "born 1970-01-01 00:33:20 UTC, before that 1970-01-01 00:16:40 UTC" in row["why"]
    assert row["directory"]["rescue"] == ""


def test_an_operator_confirms_it_with_a_reason_and_twice_is_once(operator: APIClient, suspected: DAG) -> None:
    problem(operator.post(CONFIRM, {}), 400, "invalid", field="reason")
    for _ in range(2):
        assert operator.post(CONFIRM, {"reason": "the disk is gone"}).status_code == 202
    suspected.refresh_from_db()
    assert suspected.lost_confirmation["actor"] == "olga"
    assert suspected.history.filter(event_type="lost_confirmed").count() == 1
    assert suspected.workflow.request.status == RequestStatus.ACTIVE, "the life cycle acts on it"
    assert not AuditEntry.objects.filter(action="schedd_confirm_lost", outcome="refused").exists()


def test_without_evidence_it_is_refused_with_what_speaks_against_it(operator: APIClient, tmp_path: Path) -> None:
    schedd = schedd_row("schedd@host.example", last_answer_at=timezone.now(), job_queue_birthdate=2000)
    running(tmp_path, schedd, observed_at=timezone.now())
    body = problem(operator.post(CONFIRM, {"reason": "I think so"}), 409, "invalid_transition")
    assert "answers, its queue is the one born 1970-01-01 00:33:20 UTC, and 1 DAG are in it" in body["detail"]
    assert operator.get(LOSS).json()["refusal"] in body["detail"]


def test_a_name_in_two_pools_needs_the_pool(operator: APIClient, suspected: DAG) -> None:
    schedd_row("schedd@host.example", pool="other")
    problem(operator.get(LOSS), 400, "invalid", field="pool")
    assert operator.get(LOSS, {"pool": "other"}).json()["dags"] == []
    problem(operator.get("/api/v1/schedds/nobody/loss"), 404, "not_found")


def test_a_pool_that_no_database_could_hold_names_the_field(reader: APIClient, suspected: DAG) -> None:
    problem(reader.get(LOSS + "?pool=a%00b"), 400, "invalid", field="pool")
