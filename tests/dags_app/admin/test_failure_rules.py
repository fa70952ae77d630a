"""Failure rules in the admin: shown in order, changed by operations with a reason, tried. And errors on a request's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dags_app.failure_rules import failure_rules_load
from dags_app.models import DAG, FailureRule
from dags_app.services.failure_rules import FIELDS
from dags_app.services.failures import failures_sweep
from requests_app.models import InputFile, Request, RequestStatus, Workflow
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene_failures import line
from tests.support.statements import statements
from wms2.audit import audit
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
LIST = "/admin/dags_app/failurerule/"


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    """A DAG with two recorded failures."""
    failure_rules_load()
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)
    bad = line(
        message="the file is truncated",
        category="data",
        action="permanent_failure",
        code=8021,
        rule="file-damaged-size",
        job_id="2.0",
        bad_input_files=["/store/a.root"],
        final=True,
    )
    found = [line(message="<b>it broke</b>", job_id="1.0"), bad]
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))
    failures_sweep(dag)
    return dag


def rule(name: str = "cms-8001") -> FailureRule:
    return FailureRule.objects.get(name=name)


def form(row: FailureRule, **changes: Any) -> dict[str, Any]:
    """What the form of a rule sends."""
    values = {name: getattr(row, name) for name in FIELDS} | changes
    sent = {name: value for name, value in values.items() if value is not None}
    return sent | {"id": row.pk, "seen": row.updated_at.isoformat(), "reason": changes.get("reason", "we know better")}


def action(name: str) -> str:
    return reverse("admin:dags_app_failurerule_action", args=[name])


def test_rules_are_listed_in_the_order_in_which_they_are_tried(staff: Client, dag: DAG) -> None:
    shown = text(staff.get(LIST).content.decode())
    assert shown.index("cms-50660") < shown.index("network-timeout") < shown.index("cms-8001")
    assert "8030-8031" in shown


def test_an_operator_changes_a_rule_with_a_reason(operator: Client, dag: DAG) -> None:
    row = rule()
    page = operator.get(action("change"), {"id": row.pk}).content.decode()
    assert 'value="8001"' in page and "later releases leave it alone" in page
    assert operator.post(action("change"), form(row, category="permanent", action="permanent_failure")).status_code == 302
    assert (rule().category, rule().source) == ("permanent", "operator")
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.actor, entry.reason) == ("failure_rule_change", "olga", "we know better")


def test_a_rule_that_could_not_be_used_is_refused_on_the_page(operator: Client, dag: DAG) -> None:
    row = rule()
    response = operator.post(action("change"), form(row, message="("))
    assert response.status_code == 409
    assert "no regular expression" in response.content.decode()
    assert rule().message == ""


def test_a_new_rule_begins_as_a_copy_of_another(operator: Client, dag: DAG) -> None:
    row = rule()
    assert operator.post(action("copy"), form(row, name="ours", order=1, site="^T1_")).status_code == 302
    assert (rule("ours").site, rule("ours").source, rule("ours").first_code) == ("^T1_", "operator", 8001)
    assert operator.post(action("take-back"), {"id": rule("ours").pk, "seen": rule("ours").updated_at.isoformat(), "reason": "r"})
    assert not FailureRule.objects.filter(name="ours").exists()


def test_rules_are_switched_off_and_on(operator: Client, dag: DAG) -> None:
    for name, enabled in (("disable", False), ("enable", True)):
        row = rule()
        sent = {"id": row.pk, "seen": row.updated_at.isoformat(), "reason": "r"}
        assert operator.post(action(name), sent).status_code == 302
        assert rule().enabled is enabled


def test_staff_without_the_group_may_look_and_try_but_not_change(staff: Client, dag: DAG) -> None:
    assert staff.get(action("change"), {"id": rule().pk}).status_code == 403
    assert staff.get(f"{LIST}try/").status_code == 200


def test_a_rule_is_tried_on_recorded_failures_before_it_is_switched_on(operator: Client, dag: DAG) -> None:
    FailureRule.objects.create(
        order=1, name="ours", message="it broke", category="permanent", action="permanent_failure", enabled=False
    )
    everything = operator.get(f"{LIST}try/").content.decode()
    assert "2 failures, 0 would come out differently" in text(everything, "trial-summary")
    row = rule("ours")
    assert f"{LIST}{row.pk}/try/" in links(operator.get(f"{LIST}{row.pk}/change/").content.decode())
    page = operator.get(f"{LIST}{row.pk}/try/").content.decode()
    assert "1 failure, 1 would come out differently" in text(page, "trial-summary")
    assert "permanent, permanent_failure (ours)" in text(page, "trials")
    assert "<b>it broke" not in page
    row.refresh_from_db()
    assert row.enabled is False


def test_a_requests_page_shows_its_errors_with_report_and_job_ad_one_click_away(reader: Client, dag: DAG) -> None:
    html = reader.get(f"/requests/{dag.workflow.request_id}/").content.decode()
    part = text(html, "part-errors")
    assert "2 failed attempts, 1 given up" in part
    for word in ("8021", "file-damaged-size", "T1_US_FNAL", "/store/a.root", "the end"):
        assert word in part
    assert "<b>it broke" not in html
    found = [link for link in links(html, "part-errors") if link.endswith(("/report", "/job-ad", "/attempts"))]
    assert len(found) == 6
    for link in found:
        assert reader.get(link).status_code == 200


def test_each_kind_of_failure_says_what_it_is_what_wms2_did_and_what_one_can_do(operator: Client, dag: DAG) -> None:
    request = dag.workflow.request
    Request.objects.filter(pk=request.pk).update(
        status=RequestStatus.HELD, hold_code="threshold", hold_reason="half of it failed"
    )
    Workflow.objects.filter(pk=dag.workflow_id).update(input_dataset="/A/Era-v1/RAW")
    html = operator.get(f"/requests/{request.request_name}/").content.decode()
    part = text(html, "part-errors")
    assert "A part of the input file is missing." in part, "what it is"
    assert "WMS2: 1 time not tried again, since the same would happen (rule file-damaged-size)" in part
    assert "You: Have the bad input files below repaired, or release with them as excluded files" in part
    assert "/store/a.root 8021 at T1_US_FNAL, 1 attempt, not excluded" in part
    for count in ("By category", "By code", "By step", "By site"):
        assert count in part
    back = urlencode({"back": request.get_absolute_url()})
    assert f"/admin/requests_app/request/verb/release/?id={request.pk}&{back}" in links(html, "part-errors")
    InputFile.objects.create(
        workflow=dag.workflow, lfn="/store/a.root", block_name="b", events=1, size_bytes=1,
        excluded_at=timezone.now(), excluded_by="olga", excluded_reason="bad", excluded_kind="lost",
    )  # fmt: skip
    html = operator.get(f"/requests/{request.request_name}/").content.decode()
    assert "1 attempt, excluded by olga" in text(html, "part-errors")


def test_errors_are_read_once_for_all_readers_and_anew_with_each_failure_status_and_operation(
    reader: Client, operator: Client, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requests_app.pages.cached.CACHED_SECONDS", 600.0)
    request = dag.workflow.request
    address = f"/requests/{request.request_name}/"
    for client in (reader, operator):  # what a process or session reads once
        client.get("/")

    def is_read_anew(client: Client) -> bool:
        found = []
        for _ in range(2):
            with CaptureQueriesContext(connection) as asked:
                client.get(address)
            found.append(len(statements(asked)))
        return found[0] > found[1]

    assert (is_read_anew(reader), is_read_anew(reader), is_read_anew(operator)) == (True, False, False)
    with (Path(dag.submit_dir) / "failures.jsonl").open("a") as failed:
        failed.write(json.dumps(line(message="a third", job_id="3.0")) + "\n")
    failures_sweep(dag)
    assert "3 failed attempts" in text(reader.get(address).content.decode(), "part-errors")
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.HELD, hold_code="threshold", hold_reason="failed")
    assert (is_read_anew(reader), is_read_anew(reader)) == (True, False)
    audit(actor="olga", action="exclude", target=request.request_name)
    assert (is_read_anew(reader), is_read_anew(operator)) == (True, False)
    assert "Release, with changes" in text(operator.get(address).content.decode(), "part-errors")
    assert "Release, with changes" not in reader.get(address).content.decode(), "what one may do is not shared"


def test_a_request_without_failures_has_no_such_part(reader: Client) -> None:
    request = request_row(RequestStatus.ACTIVE)
    dag_row(workflow_row(request))
    assert "part-errors" not in reader.get(f"/requests/{request.request_name}/").content.decode()
