"""Running the child process that talks to HTCondor, and giving up on it after a time limit. Knows no operations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wms2.adapters.caller import TIMEOUT_CODE
from wms2.errors import ServiceRejected, ServiceUnavailable

SERVICE = "htcondor"
_MODULE = "wms2.adapters.htcondor_child"
_ROOT = Path(__file__).resolve().parents[2]
_ERROR_TAIL = 2000
# What a child needs. Nothing else goes down: DAGMan copies parts of its submitter's environment, and ours holds secrets.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CONDOR_CONFIG", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the questions go: a schedd by name, its collector, and a directory of IDTOKENs or ""."""

    schedd: str
    collector: str
    token_dir: str = ""


def since_boot() -> float:
    """Seconds on a clock that all processes of this host share, and that goes on while they or the host are stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ask(
    place: Place, calls: Sequence[Mapping[str, Any]], *, operation: str, limit_seconds: float, begun: float | None = None
) -> list[Any]:
    """Make the calls in a new process; their results in order.

    Args:
        begun: from when on ``limit_seconds`` count, by ``since_boot``, if that is not now.

    Raises:
        ServiceUnavailable: no answer within the limit (code ``timeout``), the daemon did not answer, or the process died.
        ServiceRejected: refused before anything was sent.
    """
    question = {
        "schedd": place.schedd,
        "collector": place.collector,
        "token_dir": place.token_dir,
        "ends_at": (since_boot() if begun is None else begun) + limit_seconds,
        "calls": list(calls),
    }
    output = _run(json.dumps(question), operation, limit_seconds, place)
    try:
        reply = json.loads(output)
    except ValueError as error:
        raise ServiceUnavailable(SERVICE, operation, f"unreadable answer of the HTCondor process: {output[:200]!r}") from error
    fault = reply.get("error")
    if fault is not None:
        kind = ServiceRejected if fault["kind"] == "rejected" else ServiceUnavailable
        raise kind(SERVICE, operation, f"{place.schedd}: {fault['detail']}")
    results: list[Any] = reply["results"]
    return results


def _run(question: str, operation: str, limit_seconds: float, place: Place) -> str:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # A session of its own: a Ctrl-C meant for us must not end a submission half-way.
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(question, timeout=limit_seconds)
    except subprocess.TimeoutExpired as error:
        raise _timed_out(place, operation, limit_seconds) from error
    finally:
        # Also when we are interrupted ourselves: nobody would wait for it any more.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == -signal.SIGALRM:
        raise _timed_out(place, operation, limit_seconds)
    if process.returncode != 0:
        detail = f"HTCondor process ended with {process.returncode}: {errors.strip()[-_ERROR_TAIL:]}"
        raise ServiceUnavailable(SERVICE, operation, detail)
    return output


def _timed_out(place: Place, operation: str, limit_seconds: float) -> ServiceUnavailable:
    detail = f"{place.schedd} (collector {place.collector}) did not answer within {limit_seconds:g} s"
    return ServiceUnavailable(SERVICE, operation, detail, TIMEOUT_CODE)
