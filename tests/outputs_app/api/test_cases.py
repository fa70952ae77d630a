"""What operators decide of integrity cases: over REST and on the page; when a case ends; the daily reminder; what is counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from psycopg.errors import LockNotAvailable
from rest_framework.test import APIClient
from structlog.testing import capture_logs

from outputs_app.checks.cases import case_decide, cases_open, repaired_check
from outputs_app.checks.validation import FileFinding
from outputs_app.models import (
    BlockValidation,
    CaseAction,
    CaseState,
    EffectKind,
    EffectState,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    StorageCheck,
    Validity,
)
from requests_app.lifecycle import storage_checks
from requests_app.lifecycle.storage_checks import cases_alert, storage_checks_run
from requests_app.models import Event, HoldCode, Request, RequestStatus
from requests_app.states import transition
from tests.support.html import text
from tests.support.problems import problem
from tests.support.rows import new_block, new_effect
from wms2.models import AuditEntry
from wms2.runtime.due import Wake

pytestmark = pytest.mark.django_db
WHY = {"reason": "looked at it"}
C = CaseState


def block_with_files(files: int = 1) -> ProcessingBlock:
    block = new_block(files, files, dbs_block_closed=True)
    Request.objects.filter(workflow=block.workflow_id).update(status=RequestStatus.WAITING_INTEGRITY)
    BlockValidation.objects.create(block=block, asked_at=timezone.now() - timedelta(hours=1), catalogues_at=timezone.now())
    return block


def case(block: ProcessingBlock, prognosis: FindingKind = FindingKind.MISSING_REPLICA, **fields: Any) -> IntegrityCase:
    file = OutputFile.objects.filter(block=block).exclude(cases__state__in=(C.NEW, C.IN_PROGRESS)).first()
    values: dict[str, Any] = {"file": file, "name": file.lfn if file else block.dbs_block_name, "site": "T2_CH_CERN"}
    found = [{"prognosis": prognosis, "expected": "there", "found": "not there", "generation": 1}]
    request = Request.objects.get(workflow=block.workflow_id)
    return IntegrityCase.objects.create(request=request, block=block, prognosis=prognosis, evidence=found, **values | fields)


def test_cases_are_listed_and_filtered(reader: APIClient, django_assert_num_queries: Any) -> None:
    block = block_with_files(3)
    first = case(block)
    second = case(block, FindingKind.SIZE_MISMATCH, site="T1_US_FNAL")
    over = case(block, state=C.RESOLVED, action=CaseAction.ACCEPTED)

    def found(**query: Any) -> list[int]:
        return [row["id"] for row in reader.get("/api/v1/cases", query).json()["results"]]

    with django_assert_num_queries(2):
        assert found() == [over.pk, second.pk, first.pk]
    assert found(open="true") == found(state="new", request=first.request.request_name) == [second.pk, first.pk]
    assert found(prognosis="size_mismatch") == found(site="T1_US_FNAL") == [second.pk]
    body = reader.get(f"/api/v1/cases/{first.pk}").json()
    assert (body["name"], body["block_name"], body["evidence"][0]["found"]) == (first.name, block.dbs_block_name, "not there")


def test_a_file_that_is_said_to_be_whole_is_looked_at_again_before_its_case_ends(operator: APIClient) -> None:
    row = case(block_with_files())
    body = operator.post(f"/api/v1/cases/{row.pk}/recovered", WHY).json()
    assert (body["state"], body["action"], body["reason"]) == ("in_progress", "recovered", "looked at it")
    validation = BlockValidation.objects.get()
    repaired_check(row.request_id)
    validation.refresh_from_db()
    assert (validation.generation, validation.catalogues_at) == (2, None)
    repaired_check(row.request_id)
    row.refresh_from_db()
    assert (row.state, BlockValidation.objects.get().generation) == (C.IN_PROGRESS, 2), "nothing has looked at it yet"
    BlockValidation.objects.update(catalogues_at=timezone.now())
    check = StorageCheck.objects.create(
        validation=validation, generation=2, rse="R", site="S", files=1, next_try_at=timezone.now()
    )
    repaired_check(row.request_id)
    assert IntegrityCase.objects.get().state == C.IN_PROGRESS
    StorageCheck.objects.filter(pk=check.pk).update(done_at=timezone.now())
    repaired_check(row.request_id)
    row.refresh_from_db()
    assert row.state == C.RESOLVED
    assert row.ended_at is not None
    assert problem(operator.post(f"/api/v1/cases/{row.pk}/accept", WHY), 409, "invalid_transition")["detail"]


def test_what_is_still_wrong_when_it_is_looked_at_again_waits_for_a_person_again(operator: APIClient) -> None:
    block = block_with_files()
    row = case(block)
    operator.post(f"/api/v1/cases/{row.pk}/recovered", WHY)
    finding = FileFinding(row.name, FindingKind.SIZE_MISMATCH, "10 bytes", "9 bytes")
    cases_open(block, [finding])
    row.refresh_from_db()
    assert row.state == C.IN_PROGRESS, "that was asked for before"
    repaired_check(row.request_id)
    cases_open(block, [finding])
    BlockValidation.objects.update(catalogues_at=timezone.now())
    repaired_check(row.request_id)
    row.refresh_from_db()
    assert (row.state, row.prognosis, row.evidence[0]["found"]) == (C.NEW, FindingKind.SIZE_MISMATCH, "9 bytes")


def test_what_is_accepted_ends_at_once(operator: APIClient) -> None:
    row = case(block_with_files(), FindingKind.ZERO_EVENTS)
    assert operator.post(f"/api/v1/cases/{row.pk}/accept", WHY).json()["state"] == "resolved"
    assert AuditEntry.objects.filter(action="case_accepted", outcome="done", target=row.name).exists()
    assert Wake.objects.filter(request_id=row.request_id).exists()


def test_a_rule_is_made_again_and_then_looked_at(operator: APIClient) -> None:
    block = block_with_files()
    row = case(block, FindingKind.UNPROTECTED)
    unit = OutputFile.objects.get(block=block).unit_id
    owed = new_effect(
        EffectState.DONE, kind=EffectKind.RUCIO_PROTECT, block=block, unit_id=unit, request=row.request, done_at=timezone.now()
    )
    assert operator.post(f"/api/v1/cases/{row.pk}/register", WHY).status_code == 202
    owed.refresh_from_db()
    assert owed.state == EffectState.PENDING
    repaired_check(row.request_id)
    assert BlockValidation.objects.get().generation == 1, "it is being registered"
    owed.state = EffectState.DONE
    owed.save()
    repaired_check(row.request_id)
    assert BlockValidation.objects.get().generation == 2


@pytest.mark.parametrize(
    ("prognosis", "why"),
    [(FindingKind.NOT_IN_CATALOGUE, "cannot be added"), (FindingKind.SIZE_MISMATCH, "Nothing that WMS2 could register")],
)
def test_what_a_registration_cannot_help_is_refused_with_the_way_out(
    operator: APIClient, prognosis: FindingKind, why: str
) -> None:
    row = case(block_with_files(), prognosis)
    assert why in problem(operator.post(f"/api/v1/cases/{row.pk}/register", WHY), 409, "invalid_transition")["detail"]
    row.refresh_from_db()
    assert (row.state, row.action) == (C.NEW, "")


def test_of_a_file_that_is_invalid_already_only_the_removal_is_left(operator: APIClient) -> None:
    row = case(block_with_files())
    OutputFile.objects.update(validity=Validity.INVALID)
    assert "INVALID already" in problem(operator.post(f"/api/v1/cases/{row.pk}/accept", WHY), 409, "invalid_transition")["detail"]


def test_nothing_is_begun_that_nobody_would_end(operator: APIClient) -> None:
    row = case(block_with_files(2))
    Request.objects.update(status=RequestStatus.REMOVING_FILES)
    for action in ("remove", "recovered", "accept"):
        said = problem(operator.post(f"/api/v1/cases/{row.pk}/{action}", WHY), 409, "invalid_transition")["detail"]
        assert "is being completed" in said
    Request.objects.update(status=RequestStatus.HELD, hold_code=HoldCode.OPERATOR, hold_reason="for a test")
    removed = case(row.block, state=C.IN_PROGRESS, action=CaseAction.REMOVED)
    operator.post(f"/api/v1/cases/{row.pk}/recovered", WHY)
    request = Request.objects.get()
    transition(request, RequestStatus.ABORTED, actor="olga", reason="for a test")
    assert dict(IntegrityCase.objects.values_list("pk", "state")) == {row.pk: C.RESOLVED, removed.pk: C.REMOVED}


def test_a_stranger_is_not_removed(operator: APIClient) -> None:
    row = case(block_with_files(), FindingKind.UNKNOWN_FILE, file=None, name="/store/other.root")
    said = problem(operator.post(f"/api/v1/cases/{row.pk}/remove", WHY), 409, "invalid_transition")["detail"]
    assert "no file of WMS2" in said


def test_sites_are_told_of_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    block = block_with_files(3)
    old, late = case(block), case(block, FindingKind.SIZE_MISMATCH)
    case(block, site="T1_US_FNAL")
    IntegrityCase.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=30, minutes=5))
    with capture_logs() as logs:
        cases_alert()
        cases_alert()
    (alerted,) = Event.objects.filter(kind="alert", data__code="cases_wait")
    assert alerted.request is not None and alerted.request.alert_code == "cases_wait"
    assert "2 integrity cases at T2_CH_CERN, the oldest open for 1 d 6 h" in alerted.data["message"]
    (line,) = [line for line in logs if line["event"] == "integrity cases wait"]
    assert (line["site"], line["cases"], line["oldest"]) == ("T2_CH_CERN", "2 integrity cases", "1 d 6 h")
    late.refresh_from_db()
    assert late.reminded_at is not None
    IntegrityCase.objects.filter(site="T2_CH_CERN").update(reminded_at=timezone.now() - timedelta(hours=25))
    cases_alert()
    assert Event.objects.filter(data__code="cases_wait").count() == 2, "again, a day later"


def test_the_reminder_is_over_with_the_last_open_case_also_after_the_requests_end() -> None:
    block = block_with_files(2)
    rows = [case(block), case(block, FindingKind.SIZE_MISMATCH)]
    IntegrityCase.objects.update(created_at=timezone.now() - timedelta(hours=30))
    Request.objects.update(status=RequestStatus.COMPLETED)
    cases_alert()
    case_decide(action=CaseAction.ACCEPTED, case=rows[0], actor="olga", reason="so be it")
    storage_checks_run()
    assert Request.objects.get().alert_code == "cases_wait"
    case_decide(action=CaseAction.ACCEPTED, case=rows[1], actor="olga", reason="so be it")
    storage_checks_run()
    assert Request.objects.get().alert_code == ""
    assert Event.objects.filter(kind="alert_over", data__code="cases_wait").count() == 1


def test_a_locked_request_keeps_no_other_from_its_reminder(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block_with_files(), block_with_files()]
    cases = [case(block) for block in blocks]
    IntegrityCase.objects.update(created_at=timezone.now() - timedelta(hours=30))
    first, last = sorted((row.request for row in cases), key=lambda request: request.pk)
    does = storage_checks.remind

    def locked(request: Request, code: str, message: str) -> None:
        if request == first:
            raise OperationalError("canceling statement due to lock timeout") from LockNotAvailable()
        does(request, code, message)

    with monkeypatch.context() as patched:
        patched.setattr(storage_checks, "remind", locked)
        cases_alert()
    assert list(Request.objects.filter(alert_code="cases_wait")) == [last]
    cases_alert()
    assert Event.objects.filter(kind="alert", data__code="cases_wait").count() == 2, "each once"
    assert {request.alert_code for request in Request.objects.filter(pk__in=[first.pk, last.pk])} == {"cases_wait"}


def test_the_page_groups_cases_and_takes_filters(client: Client, django_user_model: Any) -> None:
    client.force_login(django_user_model.objects.create_user("rita"))
    block = block_with_files(2)
    here, there = case(block), case(block, FindingKind.SIZE_MISMATCH, site="T1_US_FNAL")
    said = text(client.get("/cases/").content.decode())
    assert "T2_CH_CERN 1" in said
    assert here.name in said
    assert there.name in said
    said = text(client.get("/cases/", {"site": "T1_US_FNAL", "prognosis": "size_mismatch"}).content.decode())
    assert here.name not in said
    assert there.name in said
    assert client.get("/cases/", {"state": "odd"}).status_code == 400
    assert "2 integrity cases" in text(client.get(f"/requests/{here.request.request_name}/").content.decode())


def test_the_page_leads_operators_to_the_verbs_with_what_is_marked(admin_client: Client) -> None:
    row = case(block_with_files())
    page = admin_client.get("/cases/").content.decode()
    assert 'formaction="/admin/outputs_app/integritycase/verb/remove/"' in page
    asked = admin_client.get("/admin/outputs_app/integritycase/verb/accept/", {"id": row.pk, "back": "/cases/"})
    assert "not there found" in text(asked.content.decode())
