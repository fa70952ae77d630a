"""Waiting before a retry without occupying a script slot: DAGMan calls a POST script again that ends with 44.

DAGMan defers for ever, so the calls are counted here. Owns ``<node>.cooloff.json``; it is there only while a node waits.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..contract import codes, files, scripts
from ..contract.layout import cooloff_name
from .attempts import PostCall


def begin(directory: Path, call: PostCall, cooloff_seconds: int, deferral_seconds: int) -> int:
    """Start waiting, as many deferrals as make up a cool-off (a part of one counts whole); the POST script's exit status."""
    if cooloff_seconds <= 0:
        return codes.POST_RETRY
    _write(directory, call, used=1, wanted=-(-cooloff_seconds // max(deferral_seconds, 1)))
    return codes.POST_CALL_AGAIN


def go_on(directory: Path, call: PostCall) -> int | None:
    """The exit status while this very attempt is waiting; None when it is not, and is to be judged."""
    path = directory / cooloff_name(call.node)
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if {name: state[name] for name in _call(directory, call)} != _call(directory, call):
            return None
        used, wanted = int(state["used"]), int(state["wanted"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if used < wanted:
        _write(directory, call, used=used + 1, wanted=wanted)
        return codes.POST_CALL_AGAIN
    path.unlink()
    return codes.POST_RETRY


def _write(directory: Path, call: PostCall, *, used: int, wanted: int) -> None:
    files.write_json(directory / cooloff_name(call.node), {**_call(directory, call), "used": used, "wanted": wanted})


def _call(directory: Path, call: PostCall) -> dict[str, object]:
    """What identifies an attempt. Jobs that were never submitted all have one id, so the fence is needed too."""
    fence = scripts.submission_fence(directory)
    return {"job_id": call.job_id, "attempt": call.retry, "return_value": call.return_value, "fence": fence}
