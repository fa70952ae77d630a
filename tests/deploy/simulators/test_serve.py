"""The server as a process: start, stop, restart with its state, log, many clients at once."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.support.simulator_world import ROOT, World


@contextmanager
def serving(state: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The simulators as a process of their own; killed at the end if still running."""
    command = [sys.executable, "-m", "deploy.simulators", "serve", "--state", str(state), "--port", "0", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        yield match.group(0), process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "state") as (url, process):
        assert requests.get(f"{url}/healthz", timeout=30).json() == {"status": "ok"}
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_state_survives_a_restart_and_a_kill(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serving(state) as (url, process):
        requests.post(f"{url}/dbs/prod/global/DBSWriter/datatiers", json={"data_tier_name": "RAW"}, timeout=30)
        process.terminate()
        assert process.wait(30) == 0
    with serving(state) as (url, process):
        requests.post(f"{url}/dbs/prod/global/DBSWriter/datatiers", json={"data_tier_name": "AOD"}, timeout=30)
        process.kill()
        process.wait(30)
    with serving(state) as (url, _):
        tiers = requests.get(f"{url}/dbs/prod/global/DBSReader/datatiers", timeout=30).json()
    assert {record["data_tier_name"] for record in tiers} == {"RAW", "AOD"}
    assert {path.suffix for path in state.iterdir() if path.is_file()} >= {".sqlite"}


def test_dbs_can_be_served_in_its_sequential_mode(tmp_path: Path) -> None:
    with serving(tmp_path / "state", "--dbs-bulkblocks", "sequential") as (url, _):
        assert requests.get(f"{url}/dbs/prod/global/DBSReader/healthz", timeout=30).status_code == 200


def test_many_clients_write_at_once_without_losing_anything(world: World) -> None:
    names = [f"TIER{chr(65 + number)}{chr(65 + item)}" for item in range(5) for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda name: world.dbs("POST", "datatiers", {"data_tier_name": name}), names))
    assert [answer.text for answer in answers if answer.status_code != 200] == []
    assert len(world.read("datatiers")) == 60


def test_a_connection_is_kept_and_chunked_bodies_are_read(world: World) -> None:
    host = world.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    path = "/dbs/prod/global/DBSWriter/datatiers"
    for body in ([b'{"data_tier', b'_name": "RAW"}'], [b'{"data_tier_name": "AOD"}']):
        connection.request("POST", path, body=iter(body), headers={"Content-Type": "application/json"}, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"[]")
    connection.close()
    assert len(world.read("datatiers")) == 2


def test_a_body_that_ends_early_or_is_no_chunk_is_a_bad_request(world: World) -> None:
    host = world.url.removeprefix("http://")
    for headers, body in (({"Transfer-Encoding": "chunked"}, b"zz\r\n"), ({"Content-Length": "many"}, b"")):
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.putrequest("POST", "/admin/seed")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        assert connection.getresponse().status == 400
        connection.close()


def test_head_answers_without_a_body(world: World) -> None:
    for path in ("dbs/prod/global/DBSReader/datasetaccesstypes", "healthz"):
        answer = requests.head(f"{world.url}/{path}", timeout=30)
        assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["", "dbs/int/global/DBSReader/files", "dbs/prod/global/DBSReader", "admin", "api/cms/site"])
def test_unknown_paths_answer_404(world: World, path: str) -> None:
    assert requests.get(f"{world.url}/{path}", timeout=30).status_code == 404


def test_the_seed_door_takes_only_posts_and_known_sections(world: World) -> None:
    assert requests.get(f"{world.url}/admin/seed", timeout=30).status_code == 405
    for body in (b"", b"[]", b'{"nosuch": 1}', b'{"dbs": {"datasets": [{"dataset": "/A/B-v1/RAW"}]}}'):
        answer = requests.post(f"{world.url}/admin/seed", data=body, timeout=30)
        assert answer.status_code == 400
        assert "problem" in answer.json()
