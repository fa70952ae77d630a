"""Requests that come from ReqMgr2 by themselves, on the real pool: nobody touches WMS2, and no kill makes one lost or doubled."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.simulators.client import submit
from outputs_app.models import REPORTS, Effect, EffectKind, EffectState
from requests_app.models import Request, RequestStatus
from tests.support.faults import fault
from tests.support.inputs import caller
from tests.support.outcomes import assert_aborted, assert_completed_once, ended, status
from tests.support.stack import small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
POINTS = tuple(
    f"{what}.{point}"
    for what in ("reqmgr2_take", EffectKind.REQMGR2_STATUS, EffectKind.REQMGR2_TOTALS)
    for point in ("claimed", "called", "recorded")
)


def url() -> str:
    return os.environ["WMS2_REQMGR2_URL"]


def staged(team: str, **changes: int) -> str:
    """As people and the transfer service do it; its name."""
    return submit(caller("tester"), small_request(**changes), team)


def there(name: str) -> dict[str, Any]:
    answer = requests.get(f"{url()}/request", {"name": name}, headers={"Accept": "application/json"}, timeout=30)
    document: dict[str, Any] = answer.json()["result"][0][name]
    return document


def steps(name: str) -> list[str]:
    return [step["Status"] for step in there(name)["RequestTransition"]]


@pytest.fixture
def team() -> str:
    """Nobody else's."""
    return f"team-{uuid.uuid4().hex[:8]}"


def following(team: str, **more: str) -> Any:
    settings = {"WMS2_TEAM": team, "WMS2_REQMGR2_FOLLOW": "1", "WMS2_REQMGR2_REPORT": "1", "WMS2_REQMGR2_POLL_SECONDS": "1"}
    settings["WMS2_OUTPUT_PLACEMENT"] = "wms2"
    return worker(**settings, **more)


def ours(name: str) -> Request | None:
    return Request.objects.filter(request_name=name).first()


@fault(
    "WMS2 killed while it takes a request from ReqMgr2 and while it tells it of it",
    done="SIGKILL once at each kill point of taking and reporting",
    spec="docs/crash-points.md",
    afterwards="staged to completed in ReqMgr2 with each step once, one request, one DAGMan job, totals added once",
)
def test_a_staged_request_is_completed_in_reqmgr2_with_nobody_touching_wms2(ready: None, tmp_path: Path, team: str) -> None:
    name = staged(team)
    with following(team, WMS2_CRASH_AT=",".join(POINTS), WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:

        def reported() -> bool:
            running.revive()
            return there(name)["RequestStatus"] == "completed" and not open_reports()

        running.wait(reported, seconds=300)
        request = ours(name)
        assert request is not None
        running.wait(lambda: ended(request), seconds=60)
    assert_completed_once(request)
    assert Request.objects.count() == 1
    assert steps(name)[-5:] == ["staged", "acquired", "running-open", "running-closed", "completed"]
    assert (there(name)["TotalEstimatedJobs"], there(name)["TotalInputEvents"]) == (2, 40)
    assert set((tmp_path / "mark").read_text().split()) == set(POINTS)


def open_reports() -> bool:
    return Effect.objects.filter(kind__in=REPORTS).exclude(state=EffectState.DONE).exists()


def test_what_is_aborted_in_reqmgr2_stops_on_the_pool(ready: None, team: str) -> None:
    name = staged(team, events=200)
    with following(team) as running:
        running.wait(lambda: (found := ours(name)) is not None and status(found) == RequestStatus.ACTIVE, seconds=120)
        requests.put(
            f"{url()}/request/{name}", json={"RequestStatus": "aborted"}, headers={"Accept": "application/json"}, timeout=30
        )
        request = ours(name)
        assert request is not None
        running.wait(lambda: status(request) == RequestStatus.ABORTED, seconds=120)
    assert_aborted(request)
