"""The simulated DQM servers judge a file as the DQM GUI does."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import requests

from tests.support.simulator_world import World

NAME = "DQM_V0001_R000000001__Primary__Era-Proc-v1__DQMIO.root"
BODY = b"root\0 and what else is in it"
GOOD = {"size": str(len(BODY)), "checksum": f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}"}


def put(world: World, name: str = NAME, body: bytes = BODY, **fields: str) -> requests.Response:
    files = {"file": (name, body)}
    return requests.post(f"{world.url}/dqm/dev/data/put", data={**GOOD, **fields}, files=files, timeout=10)


def served(world: World) -> Any:
    return requests.get(f"{world.url}/dqm/dev/data/browse", timeout=10).json()


def test_a_file_is_kept_and_the_same_name_again_is_another_version(world: World) -> None:
    for version in (1, 2):
        answer = put(world)
        assert (answer.status_code, answer.text, answer.headers["dqm-status-code"]) == (200, "Thanks.\n", "100")
        assert answer.headers["dqm-status-detail"] == f"Wrote {len(BODY)} bytes"
        assert requests.get(f"{world.url}/dqm/dev/data/browse/{version:04d}/{NAME}", timeout=10).content == BODY


def test_a_wrong_checksum_is_found_later_and_nobody_is_told(world: World) -> None:
    assert put(world, checksum=f"md5:{'0' * 32}").headers["dqm-status-code"] == "100"
    assert served(world) == []


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"size": "3"}, "400", "Failed to save file data"),
        ({"size": "many"}, "200", "Malformed size argument"),
        ({"checksum": "adler32:1"}, "200", "Malformed checksum argument"),
        ({"name": "DQM_V0001_R000000001__Primary__Era.x__DQMIO.root"}, "200", "Malformed filename argument"),
        ({"name": "DQM_V0001_R000000001__Primary__DQMIO.root"}, "200", "Malformed workflow argument"),
        ({"name": "histograms.root"}, "300", "File name does not match the expected convention"),
        ({"body": b"text"}, "300", "Not a ROOT file"),
    ],
)
def test_what_is_not_taken_is_an_error_with_its_code_in_the_headers(world: World, changes: Any, code: str, message: str) -> None:
    answer = put(world, **changes)
    assert (answer.status_code, answer.headers["dqm-status-code"], answer.headers["dqm-status-message"]) == (500, code, message)
    assert served(world) == []


def test_while_they_are_down_they_take_nothing(world: World) -> None:
    assert requests.post(f"{world.url}/admin/dqm", json={"down": True}, timeout=10).json() == {"down": True}
    assert put(world).status_code == 503
