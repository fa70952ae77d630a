"""What the adapters' tests need around them; nothing here pretends to be an adapter."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.support.servers import Behaviour, RawServer
from tests.support.simulators import Proxy, Simulators
from tests.support.web_clients import built, nobody, operator, reader, staff
from wms2.adapters import observe

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
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def calls() -> Iterator[list[tuple[str, str, str]]]:
    """``(service, operation, outcome)`` of every call made meanwhile."""
    seen: list[tuple[str, str, str]] = []

    def note(service: str, operation: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        seen.append((service, operation, outcome))

    observe.add_observer(note)
    yield seen
    observe.remove_observer(note)


@pytest.fixture(scope="session")
def simulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulators]:
    """ReqMgr2, ConfigCache, DBS and CRIC, started for this run."""
    running = Simulators(tmp_path_factory.mktemp("simulators"))
    yield running
    running.stop()


@pytest.fixture
def proxy(simulators: Simulators) -> Iterator[Proxy]:
    """A way to the simulators on which calls can be lost."""
    between = Proxy(simulators.port)
    yield between
    between.close()
