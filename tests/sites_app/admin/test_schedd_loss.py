"""The button *Confirm lost* on a schedd: its page has the evidence, and one that saw other evidence does nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from dags_app.models import DAG, DAGStatus
from requests_app.models import RequestStatus
from sites_app.models import QueueChange, Schedd
from tests.support.html import text
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row

pytestmark = pytest.mark.django_db
PAGE = "/admin/sites_app/schedd/verb/lost/"


def missing(schedd: Schedd, directory: Path, cluster: str) -> DAG:
    """Suspected lost."""
    now = timezone.now()
    return dag_row(
        workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name,
        dagman_cluster_id=cluster, submit_dir=str(directory), dag_file_path=str(directory / "workflow.dag"),
        submitted_at=now - timedelta(hours=2), missing_since=now - timedelta(hours=1), suspected_at=now,
    )  # fmt: skip


def test_its_page_has_the_evidence_and_confirms_what_was_seen(operator: Client, tmp_path: Path) -> None:
    schedd = schedd_row(last_answer_at=timezone.now(), job_queue_birthdate=2000)
    QueueChange.objects.create(schedd=schedd, old_birthdate=1000, new_birthdate=2000, seen_at=timezone.now())
    dag = missing(schedd, tmp_path, "12")
    said = text(operator.get(PAGE, {"id": schedd.pk}).content.decode())
    assert "it has had another queue, born 1970-01-01 00:33:20 UTC" in said
    assert f"{dag.workflow.request_id}: DAGMan job 12 is neither in the queue" in said
    assert "1 DAG given up for good" in said

    other = missing(schedd, tmp_path, "13")
    answer = operator.post(PAGE, {"id": schedd.pk, "seen": str(dag.pk), "reason": "disk gone"})
    assert answer.status_code == 409, "there is one more by now"
    assert not DAG.objects.filter(lost_confirmed_at__isnull=False).exists()
    seen = " ".join(sorted([str(dag.pk), str(other.pk)]))
    assert operator.post(PAGE, {"id": schedd.pk, "seen": seen, "reason": "disk gone"}).status_code == 302
    assert set(DAG.objects.values_list("lost_confirmation__actor", flat=True)) == {"olga"}


def test_without_evidence_it_says_why_not(operator: Client) -> None:
    schedd = schedd_row(last_answer_at=timezone.now(), job_queue_birthdate=2000)
    said = text(operator.get(PAGE, {"id": schedd.pk}).content.decode())
    assert "No DAG at schedd@test could be lost." in said
    assert operator.post(PAGE, {"id": schedd.pk, "seen": "", "reason": "x"}).status_code == 409


def test_changes_of_a_queue_are_listed(staff: Client) -> None:
    schedd = schedd_row()
    QueueChange.objects.create(schedd=schedd, old_birthdate=1000, new_birthdate=2000, seen_at=timezone.now())
    said = text(staff.get(f"/admin/sites_app/queuechange/?schedd__id__exact={schedd.pk}").content.decode())
    assert "1970-01-01 00:16:40 UTC 1970-01-01 00:33:20 UTC" in said
