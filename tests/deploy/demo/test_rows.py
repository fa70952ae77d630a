"""What the demo's programs read of WMS2's rows, and the story they tell of a request that does not go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.models import DAGStatus, WorkUnitState
from deploy.demo import rows, story, verdicts
from deploy.demo.facts import Ledger, Planned
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.models import HoldCode, RequestStatus
from tests.support import rows as factory
from tests.support import scene_rounds

pytestmark = pytest.mark.django_db


def held(tmp_path: Path):
    """A held request whose second unit failed at a site, with the files that tell of it."""
    request = factory.request_row(
        RequestStatus.HELD, hold_code=HoldCode.THRESHOLD, hold_reason="1 of 2 work units failed", last_error="exit code 8021"
    )
    workflow = factory.workflow_row(request)
    dag = factory.dag_row(workflow, DAGStatus.PARTIAL, submit_dir=str(tmp_path), outcome={"why": "1 of 2 units failed"})
    factory.unit_row(dag, 0, state=WorkUnitState.DONE, manifest_sha256="0" * 64, fence=1)
    unit = factory.unit_row(dag, 1, problem="no manifest")
    directory = tmp_path / unit.name
    directory.mkdir()
    (directory / "proc_000000.post.json").write_text('{"classification": {"category": "transient", "reason": "exit code 8021"}}')
    (tmp_path / "workflow.dag.dagman.out").write_text("Node mg_000001 failed\n")
    Effect.objects.create(
        request=request, kind=EffectKind.RUCIO_TAPE, key="rucio_tape:1", state=EffectState.REFUSED, last_error="no such RSE"
    )
    return request


def test_a_line_says_status_units_and_what_it_waits_for():
    request = factory.request_row(RequestStatus.ACTIVE, request_name="r1", waiting_for="DAGMan job 7: 0 of 2 work units done")
    dag = factory.dag_row(factory.workflow_row(request))
    factory.unit_row(dag, 0)
    factory.unit_row(dag, 1)
    (status_detail,) = rows.status_details()
    assert status_detail.line() == "r1: active, 0 of 2 work units; waits for DAGMan job 7: 0 of 2 work units done"


def test_rounds_of_an_adaptive_request_are_told_with_their_sizes():
    request = scene_rounds.three_rounds()
    first, second, third = rows.rounds(request.workflow)
    assert (first.sizes, first.measured) == ((8, 16_000, 500), 8)
    assert (round(first.used_mb), round(first.off_target, 2)) == (5455, -0.91)
    assert (second.cores, third.cores, third.measured) == (4, 4, 0)
    assert (first.layouts, third.layouts, third.throughput) == ("1x8 1x8", "", 0.0)
    assert first.throughput == pytest.approx(500 / (8 * (1 + first.off_target) * 8), rel=0.01)
    request.adaptive = False
    request.save()
    assert rows.rounds(rows.workflow_of(request.request_name)) == ()


def test_a_line_of_a_request_with_an_error_shows_it():
    factory.request_row(RequestStatus.PLANNING, request_name="r2", last_error="ProgrammingError: no column\nLINE 1")
    (status_detail,) = rows.status_details()
    assert status_detail.line() == "r2: planning, not planned yet; ProgrammingError: no column"


def test_the_story_of_a_held_request_names_reason_effects_and_files(tmp_path):
    request = held(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/worker.log").write_text('{"level": "error", "event": "alert"}\n{"level": "debug", "event": "x"}\n')
    reported = "\n".join(story.story(request.request_name, tmp_path))
    for part in (
        "threshold",
        "1 of 2 work units failed",
        "exit code 8021",
        "registration Tape rule for the block is refused",
        "no such RSE",
        "mg_000001 is Planned or running no manifest",
        "proc_000000.post.json",
        "Node mg_000001 failed",
        '"event": "alert"',
    ):
        assert part in reported
    assert '"event": "x"' not in reported
    assert "mg_000000" not in reported


def test_open_effects_and_open_units_are_named(tmp_path):
    request = held(tmp_path)
    assert rows.open_effects(request.request_name) == ("rucio_tape:1 (refused) no such RSE",)
    assert rows.units_not_done(rows.workflow_of(request.request_name)) == ("mg_000001 (planned) no manifest",)


def test_what_jobs_were_told_is_read_from_the_files_of_done_units_only(tmp_path):
    request = held(tmp_path)
    made = {"run": 1, "first_event": 1, "last_event": 800, "first_lumi": 1, "last_lumi": 80, "events_per_lumi": 10}
    (tmp_path / "mg_000000").mkdir()
    (tmp_path / "mg_000000/unit.json").write_text(json.dumps({"jobs": [{"generate": made}]}))
    assert rows.planned(rows.workflow_of(request.request_name)) == [Planned(1, 1, 800, 1, 10)]


def test_the_ledger_of_a_request_that_was_never_planned_is_all_left():
    workflow = factory.workflow_row(spec=factory.generation_spec(events=100))
    assert rows.account(workflow) == Ledger("events", all=100, done=0, planned=0, excluded=0, left=100)
    assert list(verdicts.ledger_adds_up(rows.account(workflow))) != []


def test_the_database_has_the_constraints_that_the_verification_asks_for():
    assert set(verdicts.CONSTRAINTS) <= rows.constraints()
