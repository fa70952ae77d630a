"""Requests of the scripted world that come from a simulated ReqMgr2, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from requests_app.models import Request
from requests_app.reqmgr2.following import reqmgr2_poll
from tests.support import simulator_world
from tests.support.adapters import adapters_forget
from tests.support.scripted import documents
from tests.support.scripted.world import World
from wms2.conf import conf

TEAM = "wms2"


@dataclass
class Outside:
    """ReqMgr2 as people and agents see it."""

    simulators: simulator_world.World

    def stage(self, status: str = "staged", document: dict[str, Any] | None = None, **more: Any) -> str:
        """A generation, or this document, in this status, of our team unless ``more`` says otherwise."""
        changes = {"RequestStatus": status, "Team": TEAM, "RequestTransition": [{"Status": status, "UpdateTime": 0}]}
        document = (document or documents.generation(more.pop("events", 300))) | changes | more
        self.simulators.application.reqmgr2.store.put({**document, "_id": document["RequestName"]})
        return str(document["RequestName"])

    def put(self, name: str, **changes: Any) -> None:
        """As people do it."""
        answer = self.simulators.reqmgr2("PUT", f"request/{name}", changes)
        assert answer.json() == {"result": [{name: "OK"}]}, answer.headers

    def status(self, name: str) -> str:
        return str(self.simulators.request(name)["RequestStatus"])

    def steps(self, name: str) -> list[str]:
        """The statuses that it went through."""
        return [str(step["Status"]) for step in self.simulators.request(name)["RequestTransition"]]

    def agents_take(self, name: str) -> None:
        """Agents of WMCore take it into their work queue."""
        path = f"workqueue_inbox/{name}"
        assert self.simulators.couch("PUT", path, json={"RequestName": name}).status_code == 201

    def habits(self, **effect_request: Any) -> None:
        """How others behave from now on."""
        self.simulators.application.reqmgr2.habits = self.simulators.application.reqmgr2.habits.changed(effect_request)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with simulator_world.running(tmp_path / "simulators") as found:
        yield Outside(found)


@pytest.fixture
def world(outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Follows and reports."""
    adapters_forget()
    made = World(
        tmp_path / "wms2", monkeypatch, REQMGR2_URL=f"{outside.simulators.url}/reqmgr2/data", TEAM=TEAM,
        REQMGR2_FOLLOW="true", REQMGR2_REPORT="true", EFFECT_MAX_RETRY_SECONDS="259200",
    )  # fmt: skip
    made.furnish()
    yield made
    monkeypatch.undo()
    adapters_forget()
    conf.cache_clear()


def taken(name: str) -> Request:
    """It is ours after a poll."""
    reqmgr2_poll(force=True)
    return Request.objects.get(request_name=name)
