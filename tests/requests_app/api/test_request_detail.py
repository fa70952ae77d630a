"""GET /requests/{name} and its versions: everything about one request in one answer, at a fixed price."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from dags_app.models import WorkUnitClaim, WorkUnitState
from dags_app.planning.specs import ClaimKind, ClaimSpec
from dags_app.services.plan import claim_rows, claims_record
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app import states
from requests_app.models import InputFile, Request, RequestStatus, Workflow
from tests.support.problems import problem
from tests.support.rows import dag_row, input_spec, request_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db
S = RequestStatus


def detail(client: APIClient, request: Request) -> dict[str, Any]:
    response = client.get(f"/api/v1/requests/{request.request_name}")
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def claim(workflow: Workflow, unit: Any, *claims: ClaimSpec, files: dict[str, tuple[int, int]] | None = None) -> None:
    claims_record(row for spec in claims for row in claim_rows(unit.pk, spec, workflow.number, files or {}))


def test_transitions_are_told_from_rows_in_order_with_who_why_and_on_what_evidence(reader: APIClient) -> None:
    request = request_row(S.SUBMITTED, warnings=["Memory is rounded"])
    states.record_creation(request, actor="rita", reason="imported")
    workflow_row(request)
    states.transition(request, S.QUEUED, actor="lifecycle", reason="workflow made", evidence={"files": 3})
    states.transition(request, S.HELD, actor="olga", reason="wait", **states.hold_changes("operator", "wait"))

    body = detail(reader, request)

    reported = [(t["from_status"], t["to_status"], t["actor"], t["reason"]) for t in body["status_transitions"]]
    assert reported == [
        ("", "submitted", "rita", "imported"),
        ("submitted", "queued", "lifecycle", "workflow made"),
        ("queued", "held", "olga", "wait"),
    ]
    assert body["status_transitions"][1]["evidence"] == {"files": 3}
    assert (body["status"], body["hold_code"], body["hold_reason"]) == ("held", "operator", "wait")
    assert body["warnings"] == ["Memory is rounded"]
    assert body["explanation"] == {
        "why": "Held by a user: wait",
        "alert": "",
        "next": "Nothing, until an operator releases or aborts it. What is done stays registered.",
        "todo": "Ask the operator who held it; then release.",
    }


def test_a_generation_shows_its_account_units_dag_datasets_and_open_effects(reader: APIClient) -> None:
    request = request_row(S.ACTIVE, request_data={"RequestName": "x"})
    workflow = workflow_row(request, next_first_event=1601)
    dag = dag_row(workflow, total_work_units=2, units_done=1, schedd_name="schedd@test")
    done = unit_row(dag, 0, state=WorkUnitState.DONE, manifest_sha256="a", fence=1)
    planned = unit_row(dag, 1)
    claim(workflow, done, ClaimSpec(ClaimKind.GENERATED, 1, 800, run=1, first_lumi=1, last_lumi=80))
    claim(workflow, planned, ClaimSpec(ClaimKind.GENERATED, 801, 1600, run=1, first_lumi=81, last_lumi=160))
    Effect.objects.create(request=request, kind=EffectKind.DBS_BLOCK, key="a", state=EffectState.REFUSED)
    Effect.objects.create(request=request, kind=EffectKind.DBS_BLOCK, key="b", state=EffectState.DONE)

    body = detail(reader, request)

    numbers = body["ledger"]["numbers"]
    assert (numbers["all_events"], numbers["done_events"], numbers["planned_events"], numbers["left_events"]) == (
        3200,
        800,
        800,
        1600,
    )
    assert body["ledger"]["violation"] == ""
    assert (body["completed_work_units"], body["work_units"]["planned"]) == (1, 1)
    assert body["dag"]["id"] == str(dag.pk)
    assert body["dag"]["schedd_name"] == "schedd@test"
    assert body["output_datasets"] == ["/PrimaryTester/Era-Proc-v1/GEN-SIM"]
    assert body["effects_open"] == {"refused": 1}
    assert body["request_data"] == {"RequestName": "x"}


def test_an_account_that_does_not_add_up_is_told_not_raised(reader: APIClient) -> None:
    request = request_row(S.HELD)
    workflow = workflow_row(request)
    unit = unit_row(dag_row(workflow))
    claim(workflow, unit, ClaimSpec(ClaimKind.GENERATED, 1, 800, run=1, first_lumi=1, last_lumi=80))

    assert "only 0 event numbers were taken" in detail(reader, request)["ledger"]["violation"]


@pytest.fixture
def with_input() -> tuple[Request, Workflow]:
    """Six files: done, planned, attempted, excluded, left, and one without events that is done."""
    request = request_row(S.ACTIVE)
    workflow = workflow_row(request, input_spec(request.request_name), input_dataset="/Input/Era-v1/RAW", requested_events=500)
    dag = dag_row(workflow)
    done = unit_row(dag, 0, state=WorkUnitState.DONE, manifest_sha256="a", fence=1)
    units = {"done": done, "planned": unit_row(dag, 1), "attempted": unit_row(dag, 2, state=WorkUnitState.FAILED)}
    files = {}
    for name, events in {"done": 100, "planned": 100, "attempted": 100, "excluded": 100, "left": 100, "empty": 0}.items():
        row = InputFile.objects.create(workflow=workflow, lfn=name, block_name="/a/b/c#1", size_bytes=1, events=events)
        files[name] = (row.pk, events)
    for name, unit in units.items():
        claim(workflow, unit, ClaimSpec(ClaimKind.FILE_EVENTS, 0, 99, lfn=name), files=files)
    claim(workflow, done, ClaimSpec(ClaimKind.FILE_EVENTS, 0, 0, lfn="empty"), files=files)
    WorkUnitClaim.objects.filter(unit=units["attempted"]).update(live=False)
    InputFile.objects.filter(lfn="excluded").update(excluded_at=request.created_at, excluded_reason="bad", excluded_kind="lost")
    return request, workflow


def test_an_input_dataset_shows_its_account_in_files_and_events(reader: APIClient, with_input: tuple[Request, Workflow]) -> None:
    body = detail(reader, with_input[0])
    assert body["ledger"]["violation"] == ""
    assert body["ledger"]["numbers"] == {
        "all_events": 500, "done_events": 100, "planned_events": 100, "excluded_events": 100, "left_events": 200,
        "lost_events": 0,
        "all_files": 6, "done_files": 2, "planned_files": 1, "attempted_files": 1, "excluded_files": 1, "left_files": 1,
        "taken_numbers": 0,
        "all_lumis": 0, "done_lumis": 0, "planned_lumis": 0, "attempted_lumis": 0, "excluded_lumis": 0, "refused_lumis": 0,
        "left_lumis": 0, "inherited_events": 0, "inherited_files": 0, "inherited_lumis": 0,
    }  # fmt: skip


def test_more_claimed_than_a_file_has_is_told(reader: APIClient, with_input: tuple[Request, Workflow]) -> None:
    InputFile.objects.filter(lfn="done").update(events=50)
    body = detail(reader, with_input[0])
    assert "more events are claimed than the file has" in body["ledger"]["violation"]
    assert body["ledger"]["numbers"] == {}


def test_one_request_costs_a_fixed_number_of_queries(
    reader: APIClient, with_input: tuple[Request, Workflow], django_assert_num_queries: Any
) -> None:
    for index in range(20):
        states.record_creation(with_input[0], actor="a", reason=str(index))
    detail(reader, with_input[0])  # counts its account
    # the token's user, request with workflow and account, transitions, units, exclusions, DAG, effects, jobs done well and
    # failed attempts, names of datasets and dependencies
    with django_assert_num_queries(9):
        detail(reader, with_input[0])


def test_a_request_that_is_not_there_is_404(reader: APIClient) -> None:
    reported = problem(reader.get("/api/v1/requests/unknown_request"), 404, "not_found")
    assert reported["detail"] == "there is no request 'unknown_request'" and "whole" in reported["hint"]
    problem(reader.get("/api/v1/requests/unknown_request/versions"), 404, "not_found")


def test_versions_tell_the_newest_and_those_it_replaces_whichever_is_asked_for(reader: APIClient) -> None:
    first = request_row(
        S.FAILED,
        request_name="r_v1",
        superseded_by_request="r_v2",
        request_data={"RequestType": "ReReco", "ProcessingVersion": 1},
    )
    states.RequestTransition.objects.create(
        request=first, from_status="held", to_status="failed", actor="o", reason="Schedd lost"
    )
    second = request_row(S.ABORTED, request_name="r_v2", previous_version_request=first, superseded_by_request="r_v3")
    third = request_row(S.ACTIVE, request_name="r_v3", previous_version_request=second)
    workflow_row(third)

    bodies = [reader.get(f"/api/v1/requests/{row.request_name}/versions").json() for row in (first, second, third)]

    assert bodies[0] == bodies[1] == bodies[2]
    assert bodies[0]["current"] == {
        "request_name": "r_v3", "processing_version": 1, "status": "active", "cleanup_policy": "keep_until_replaced",
    }  # fmt: skip
    assert [(v["request_name"], v["status"], v["superseded_by"]) for v in bodies[0]["versions"]] == [
        ("r_v1", "failed", "r_v2"),
        ("r_v2", "aborted", "r_v3"),
    ]
    assert bodies[0]["versions"][0]["failure_reason"] == "Schedd lost"


def test_a_request_without_versions_is_its_own_newest(reader: APIClient) -> None:
    request = request_row()
    body = reader.get(f"/api/v1/requests/{request.request_name}/versions").json()
    assert body["current"]["request_name"] == request.request_name
    assert body["current"]["processing_version"] is None
    assert body["versions"] == []
