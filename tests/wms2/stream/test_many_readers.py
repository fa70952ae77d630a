"""What readers cost, in numbers and ratios: only with ``make test-long``."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from requests_app.feed import emit_event, publish
from tests.support import stack
from tests.support.servers import free_port
from tests.support.streams import PATIENCE, own_settings, sessions, streaming

pytestmark = [
    pytest.mark.slow,
    pytest.mark.deep(
        "tests/wms2/stream/test_stream.py::test_readers_share_one_session_and_get_what_they_asked_for_from_where_they_were"
    ),
]
READERS, RECONNECTS, WARM = 200, 2000, 500
#: What may be added after the first reconnects.
GROWTH = 1.05


def memory_kb(worker: stack.Worker) -> int:
    """What its processes hold for themselves."""
    assert worker.process is not None
    processes = [each for each in Path("/proc").iterdir() if each.name.isdigit()]
    own = [each for each in processes if _session(each.name) == worker.process.pid]
    lines = [line for each in own for line in (each / "smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _session(pid: str) -> int:
    try:
        return os.getsid(int(pid))
    except ProcessLookupError:
        return -1


def test_many_readers_have_one_session_and_reconnects_leave_no_memory(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Token.objects.create(user=User.objects.create_user("rita")).key
    own = {**own_settings(), "WMS2_ALLOWED_HOSTS": "127.0.0.1", "WMS2_WEB_PROCESSES": "1"}
    with streaming(monkeypatch) as stream, ExitStack() as open_:
        port = free_port()
        led = own | {"WMS2_STREAM_URL": f"{stream.address}/stream"}
        web = open_.enter_context(stack.web(port, **led))
        address, headers = f"http://127.0.0.1:{port}/api/v1/events/stream", {"Authorization": f"Token {key}"}
        web.wait(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), seconds=60)

        def opened() -> requests.Response:
            answer = requests.get(address, headers=headers, stream=True, timeout=PATIENCE)
            assert answer.status_code == 200, answer.text
            return answer

        with ExitStack() as many:
            readers = [many.enter_context(opened()) for _ in range(READERS)]
            assert (stream.readers, sessions()) == (READERS, 1)
            emit_event("seen by all")
            publish()
            for reader in readers:
                assert next(line for line in reader.iter_lines(chunk_size=1) if line.startswith(b"data: "))
        held = {}
        for number in range(1, RECONNECTS + 1):
            with opened() as reader:
                assert next(reader.iter_lines(chunk_size=1)) == b"retry: 2000"
            if number in (WARM, RECONNECTS):
                held[number] = memory_kb(web), memory_kb(stream.worker)
        print(f"web and stream, kB: {held}")
        for before, after in zip(held[WARM], held[RECONNECTS], strict=True):
            assert after < GROWTH * before
