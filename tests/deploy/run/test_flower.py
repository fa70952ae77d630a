"""Flower as the demo runs it, on the test stack's broker: it answers nobody without the login."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

import pytest
import requests

from deploy.stack import paths
from deploy.stack.services.base import Place
from deploy.stack.services.django import Wms2
from tests.support import stack

pytestmark = pytest.mark.slow
LOGIN = ("admin", "opensesame")
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where Flower answers."""
    reason = stack.missing()
    if reason:
        pytest.skip(reason)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    layout = replace(paths.layout(), state_root=tmp_path_factory.mktemp("flower"))
    service = Wms2(Place(layout, layout.state_root, dict(os.environ)), 0, port).flower(":".join(LOGIN))
    assert LOGIN[1] not in " ".join(map(str, service.argv)), "a password on a command line can be read by everybody"
    file = layout.state_root / "flower.log"
    with file.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in service.argv], env=dict(service.environment), cwd=service.cwd, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while service.problem() is not None:
            assert process.poll() is None, file.read_text()
            assert time.monotonic() < deadline, f"{service.problem()}: {file.read_text()}"
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("path", ["/", "/workers", "/tasks", "/api/workers", "/api/tasks", "/metrics"])
def test_nobody_is_let_in_without_the_login(address: str, path: str) -> None:
    assert requests.get(address + path, timeout=20).status_code == HTTPStatus.UNAUTHORIZED
    assert requests.get(address + path, auth=("admin", "guessed"), timeout=20).status_code == HTTPStatus.UNAUTHORIZED


def test_a_worker_is_not_stopped_without_the_login(address: str) -> None:
    answer = requests.post(f"{address}/api/worker/shutdown/wms2@localhost", timeout=20)
    assert answer.status_code == HTTPStatus.UNAUTHORIZED


def test_without_any_login_it_does_not_start() -> None:
    layout = paths.layout()
    service = Wms2(Place(layout, layout.state_root, dict(os.environ)), 0, 1).flower("")
    argv = [str(word) for word in service.argv]
    ended = subprocess.run(argv, env=dict(service.environment), cwd=service.cwd, capture_output=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert b"set FLOWER_BASIC_AUTH" in ended.stderr


def test_the_login_opens_the_list_of_workers(address: str) -> None:
    answer = requests.get(f"{address}/workers", auth=LOGIN, timeout=20)
    assert answer.status_code == HTTPStatus.OK
    assert "Flower" in answer.text
    assert requests.get(f"{address}/metrics", auth=LOGIN, timeout=20).status_code == HTTPStatus.OK
