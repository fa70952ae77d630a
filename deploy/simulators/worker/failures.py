"""Failures on demand. Owns ``process.simulation.failure`` and ``CMSSIM_FAIL``.

``failure = cms.untracked.PSet(...)``, all untracked and optional; in the environment the same names as
``CMSSIM_FAIL="exitCode=8021,untilAttempt=1"``:

    kind          string   exception (reported, exit code), signal (dies, the report is cut off), hang      (exception)
    exitCode      int32    code of the exception                                                          (8001)
    signal        int32    number of the signal                                                           (11)
    atEvent       int32    events that are processed before                                               (0)
    untilAttempt  int32    attempts with a smaller number fail, later ones do not                         (every one)

The attempt is what the job wrapper puts into WMS2_ATTEMPT.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from .errors import misconfigured

KINDS = ("exception", "signal", "hang")


@dataclass(frozen=True, slots=True)
class Failure:
    """How this attempt is going to fail."""

    kind: str = "exception"
    exit_code: int = 8001
    signal: int = int(signal.SIGSEGV)
    at_event: int = 0


_NAMES = ("kind", "exitCode", "signal", "atEvent", "untilAttempt")


def planned_failure(process: Any) -> Failure | None:
    """The failure of this attempt, None when it is to end well. The environment goes before the configuration."""
    options = _from_environment() or _from_process(process)
    unknown = sorted(set(options) - set(_NAMES))
    if unknown or options.get("kind", "exception") not in KINDS:
        raise misconfigured(f"failure: unknown {unknown or options['kind']}; known: {_NAMES}, kinds {KINDS}")
    attempt = int(os.environ.get("WMS2_ATTEMPT", "0"))
    if not options or attempt >= int(options.get("untilAttempt", attempt + 1)):
        return None
    default = Failure()
    return Failure(
        kind=str(options.get("kind", default.kind)),
        exit_code=int(options.get("exitCode", default.exit_code)),
        signal=int(options.get("signal", default.signal)),
        at_event=int(options.get("atEvent", default.at_event)),
    )


def _from_environment() -> dict[str, Any]:
    text = os.environ.get("CMSSIM_FAIL", "")
    return dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)


def _from_process(process: Any) -> dict[str, Any]:
    simulation = getattr(process, "simulation", None)
    if simulation is None or not simulation.hasParameter("failure"):
        return {}
    failure = simulation.getParameter("failure")
    return {name: failure.getParameter(name).value() for name in failure.parameterNames_()}
