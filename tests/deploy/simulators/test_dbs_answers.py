"""The simulated DBS answers 287 calls as the real one did: status, code, words and body, in both modes of ``bulkblocks``.

What it answers otherwise on purpose stands in ``DIFFERENT`` with the reason. Of an error's ``reason`` only the codes nested in it
are compared: it is Go's own text of one server's ids and dates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.simulators.dbs.service import BulkblocksMode
from tests.support import recorded_dbs as recorded
from tests.support.recorded_dbs import Recorded
from tests.support.simulator_world import World, running

MODES: dict[str, BulkblocksMode] = {"calls": "sequential", "bulk-sequential": "sequential", "bulk-concurrent": "concurrent"}
CALLS = [call for source in MODES for call in recorded.recorded(source)]

#: The recorded call's name, and why the simulator answers otherwise.
DIFFERENT = {
    "calls-121-filesummaries": "its query is Oracle's and fails on the recorded server's SQLite alone; in production it counts",
}

Answers = dict[str, dict[str, Any]]


def replay(world: World, source: str) -> Answers:
    """All calls of one recording, in their order, each on what the earlier ones left."""
    answers: Answers = {}
    for call in recorded.recorded(source):
        locked = call.entry["call"].startswith("database locked")
        world.dbs_lock(locked=locked)
        answers[call.name] = recorded.answered(call, recorded.send(call, f"{world.url}/dbs/prod/global/DBSWriter"))
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, empty_state: Path) -> Answers:
    """Every recorded call's answer from the simulator."""
    found: Answers = {}
    for source, mode in MODES.items():
        with running(tmp_path_factory.mktemp(source) / "state", mode, begins_as=empty_state) as world:
            found |= replay(world, source)
    return found


@pytest.mark.skipif(not CALLS, reason=f"the recorded answers are not at {recorded.FOLDER} (set WMS2_REAL_INPUTS)")
@pytest.mark.parametrize("call", CALLS or [None], ids=lambda call: call.name if call else "none")
def test_a_recorded_call_is_answered_as_the_real_server_did(call: Recorded, answers: Answers) -> None:
    same = answers[call.name] == recorded.expected(call)
    if call.name in DIFFERENT:
        assert not same, "the simulator answers as the real server does: take it from DIFFERENT"
    else:
        assert answers[call.name] == recorded.expected(call)
