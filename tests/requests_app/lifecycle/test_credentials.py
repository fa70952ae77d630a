"""Requests whose jobs carry a credential that ends: they wait with the reason, or are stopped, and go on when it is renewed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG
from requests_app.installation import installation_claim
from requests_app.models import Lease, Request, RequestStatus
from requests_app.selectors.lifecycle import lifecycle_state
from tests.support.credentials import DAY_SECONDS, token
from tests.support.html import text
from tests.support.rest_clients import nobody, reader
from tests.support.scraping import scrape, value
from tests.support.scripted import documents
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import cycles, run_on, started, status
from tests.support.scripted.world import World
from wms2.conf import conf

__all__ = ["nobody", "reader"]

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/lifecycle/test_credentials.py"
#: For the long run.
ENDED = pytest.mark.deep(f"{HERE}::test_nothing_starts_without_it_and_all_goes_on_by_itself")
S = RequestStatus
#: Below the margin, above the stop; below the stop.
NOT_FOR_NEW_ONES, ENDS_NOW = 3600.0, 600.0


@pytest.fixture
def carried(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The token of all jobs, good for days."""
    path = tmp_path / "jobs.token"
    token(path, 5 * DAY_SECONDS)
    monkeypatch.setenv("WMS2_JOB_CREDENTIAL", "token")
    monkeypatch.setenv("WMS2_JOB_CREDENTIAL_PATH", str(path))
    conf.cache_clear()
    return path


def actors(request: Request, to: RequestStatus) -> list[tuple[str, str]]:
    return list(request.transitions.filter(to_status=to).values_list("actor", "reason"))


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(NOT_FOR_NEW_ONES, id="ends soon"),
        pytest.param(-60.0, id="has ended", marks=ENDED),
        pytest.param(None, id="is missing"),
    ],
)
def test_nothing_starts_without_it_and_all_goes_on_by_itself(world: World, carried: Path, seconds: float | None) -> None:
    token(carried, seconds) if seconds is not None else carried.unlink()
    request = world.request(documents.generation(300))
    cycles(world)
    assert status(request) == S.QUEUED
    assert request.waiting_for.startswith("a credential that its jobs may carry: WMS2_JOB_CREDENTIAL_PATH")
    assert str(carried) in request.waiting_for and not world.schedd.live
    token(carried, 5 * DAY_SECONDS)
    cycles(world, 1)
    assert status(request) == S.ACTIVE
    assert run_on(world, request) == S.COMPLETED


def test_a_dag_that_is_planned_when_it_ends_is_not_submitted(
    world: World, carried: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(300))
    monkeypatch.setattr("requests_app.admission.queue.credential_obstacle", lambda: "")  # it was good when this one was admitted
    token(carried, NOT_FOR_NEW_ONES)
    cycles(world)
    assert status(request) == S.QUEUED and "WMS2_JOB_CREDENTIAL_PATH" in request.last_error
    assert not world.schedd.live
    token(carried, 5 * DAY_SECONDS)
    world.clock.advance(7200)
    assert run_on(world, request) == S.COMPLETED


def test_a_token_has_to_outlive_the_wall_time_that_jobs_ask_for(world: World, carried: Path) -> None:
    token(carried, 3 * 3600.0)
    jobs_of_two_hours = documents.generation(300) | {"TimePerEvent": 2 * 3600 / documents.EVENTS_PER_JOB}
    short, long = world.request(documents.generation(300)), world.request(jobs_of_two_hours)
    cycles(world)
    assert (status(short), status(long)) == (S.ACTIVE, S.QUEUED)
    assert "a credential that its jobs may carry for the 4.0 h that they ask for: " in long.last_error
    token(carried, 5 * DAY_SECONDS)
    world.clock.advance(7200)
    assert run_on(world, long) == S.COMPLETED


def test_a_running_dag_is_stopped_when_it_ends_and_resumed_with_the_renewed_one(world: World, carried: Path) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    cycles(world, 1)
    token(carried, NOT_FOR_NEW_ONES)
    cycles(world)
    assert status(request) == S.ACTIVE, "what runs goes on: it may be renewed yet"
    token(carried, ENDS_NOW)
    cycles(world, 6)
    assert status(request) == S.QUEUED and "WMS2_JOB_CREDENTIAL_PATH" in request.waiting_for
    [(actor, reason)] = actors(request, S.STOPPING)
    assert actor == "credentials" and f"was not renewed: {carried}: it ends at" in reason
    assert not world.schedd.live
    token(carried, 5 * DAY_SECONDS)
    assert run_on(world, request) == S.COMPLETED
    assert [dag.kind for dag in DAG.objects.filter(workflow__request=request).order_by("fence")][1:] == ["stop_rescue"]


def test_a_file_that_cannot_be_read_stops_nothing(world: World, carried: Path) -> None:
    request, _ = started(world)
    carried.unlink()
    cycles(world)
    assert status(request) == S.ACTIVE
    carried.write_text("half a tok")
    assert run_on(world, request) == S.COMPLETED


def test_each_submission_takes_the_file_that_is_set_then(world: World, carried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = started(world)
    include = Path(DAG.objects.get(workflow__request=request).submit_dir) / "credential.inc"
    assert include.read_text().startswith(f"CREDENTIAL_FILES = , {carried}\n")
    other = carried.with_name("other.token")
    secret = token(other, 5 * DAY_SECONDS)
    token(carried, ENDS_NOW)
    cycles(world, 6)
    monkeypatch.setenv("WMS2_JOB_CREDENTIAL_PATH", str(other))
    conf.cache_clear()
    cycles(world, 2)
    assert status(request) == S.ACTIVE
    assert include.read_text().startswith(f"CREDENTIAL_FILES = , {other}\n")
    assert not [path for path in include.parent.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    check(world)


# --- what people and programs are told


def test_the_leader_tells_when_each_ends(world: World, carried: Path, reader: APIClient, nobody: APIClient) -> None:
    installation_claim()
    token(carried, 47 * 3600.0)
    started(world)
    world.cycle()
    assert 46 * 3600 < value(scrape(reader), "wms2_credential_expires_seconds", credential="jobs_token") <= 47 * 3600
    assert nobody.get("/readyz").json()["warnings"].keys() == {"jobs_token"}
    [reported] = [each for each in reader.get("/api/v1/lifecycle/status").json()["credentials"] if each["name"] == "jobs_token"]
    assert (reported["path"], reported["problem"]) == (str(carried), "")
    token(carried, 49 * 3600.0)
    world.cycle()
    assert lifecycle_state().credentials_ending == []
    carried.unlink()
    world.cycle()
    assert value(scrape(reader), "wms2_credential_expires_seconds", credential="jobs_token") == 0
    [ending] = lifecycle_state().credentials_ending
    assert "No such file" in ending.problem


def seen(**fields: Any) -> dict[str, Any]:
    return {"name": "services", "path": "/etc/robot.pem", "ends_at": "", "problem": "", **fields}


def test_the_board_says_which_file_somebody_must_renew(admin_client: Client) -> None:
    now = timezone.now()
    ends = [seen(ends_at=(now + timedelta(hours=hours)).isoformat(), name=f"in_{hours}") for hours in (30, 60)]
    Lease.objects.create(
        name="lifecycle", owner="n", epoch=1, expires_at=now + timedelta(seconds=30),
        data={"cycle_ended_at": now.isoformat(), "credentials": [*ends, seen(name="broken", problem="P: no such file: /x")]},
    )  # fmt: skip
    said = text(admin_client.get("/").content.decode())
    assert "Credential in_30 ends at" in said and "Renew /etc/robot.pem" in said
    assert "Credential broken cannot be used. P: no such file: /x" in said
    assert "Credential in_60 ends at" not in said
    Lease.objects.update(data={"cycle_ended_at": now.isoformat(), "credentials": ends[1:]})
    assert "Credential in_60 ends in 2 d" in text(admin_client.get("/").content.decode(), "part-standing")
