"""What the adapters' tests need around them; nothing here pretends to be an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.servers import Behaviour, RawServer, free_port
from tests.support.simulators import Simulators
from tests.support.web_clients import built, nobody, operator, reader, staff
from wms2.adapters import caller

__all__ = ["built", "nobody", "operator", "reader", "staff"]


@pytest.fixture
def raw_server() -> Iterator[Callable[[Behaviour], RawServer]]:
    servers: list[RawServer] = []

    def start(behaviour: Behaviour) -> RawServer:
        servers.append(RawServer(behaviour))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def closed_port() -> int:
    """A port nobody listens on."""
    return free_port()


@pytest.fixture(autouse=True)
def _tries_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two tries of a call."""
    monkeypatch.setattr("wms2.adapters.caller.jittered_seconds", lambda attempt: 0.0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """``(service, operation, outcome)`` of every call made meanwhile."""
    seen: list[tuple[str, str, str]] = []

    class Noted:
        def labels(self, *call: str) -> Noted:
            seen.append(call)  # type: ignore[arg-type]
            return self

        def observe(self, seconds: float) -> None:
            assert seconds >= 0

    monkeypatch.setattr(caller, "EXTERNAL_CALL_SECONDS", Noted())
    return seen


@pytest.fixture(scope="session")
def simulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulators]:
    """ReqMgr2, ConfigCache, DBS and CRIC, started for this run."""
    running = Simulators(tmp_path_factory.mktemp("simulators"))
    yield running
    running.stop()


@pytest.fixture
def proxy(simulators: Simulators) -> Iterator[FaultProxy]:
    """A way to the simulators on which calls can be lost."""
    with FaultProxy(simulators.url) as between:
        yield between
