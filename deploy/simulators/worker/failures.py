"""Failures on demand. Owns ``process.simulation.failure`` and ``CMSSIM_FAIL``.

``failure = cms.untracked.PSet(...)``, all untracked and optional; in the environment the same names as
``CMSSIM_FAIL="exitCode=8021,untilAttempt=1,step=GenSim"``, lists separated by ``|``:

    kind          string   exception (reported, exit code), signal (dies, the report is cut off), hang      (exception)
    exitCode      int32    code of the exception                                                          (8001)
    signal        int32    number of the signal                                                           (11)
    atEvent       int32    events that are processed before                                               (0)
    probability   double   share of attempts that fail; the same attempt of the same node always the same (1.0)
    untilAttempt  int32    attempts with a smaller number fail, later ones do not                         (every one)
    nodes         vstring  only these nodes                                                               (all)
    step          string   only this step                                                                 (all)

Node, attempt and step are what the job wrapper puts into WMS2_NODE, WMS2_ATTEMPT and WMS2_STEP.
"""

from __future__ import annotations

import hashlib
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


_NAMES = ("kind", "exitCode", "signal", "atEvent", "probability", "untilAttempt", "nodes", "step")


def planned_failure(process: Any) -> Failure | None:
    """The failure of this attempt, None when it is to end well. The environment goes before the configuration."""
    options = _from_environment() or _from_process(process)
    unknown = sorted(set(options) - set(_NAMES))
    if unknown or options.get("kind", "exception") not in KINDS:
        raise misconfigured(f"failure: unknown {unknown or options['kind']}; known: {_NAMES}, kinds {KINDS}")
    if not options or not _applies(options):
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
    options: dict[str, Any] = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    if "nodes" in options:
        options["nodes"] = options["nodes"].split("|")
    return options


def _from_process(process: Any) -> dict[str, Any]:
    simulation = getattr(process, "simulation", None)
    if simulation is None or not simulation.hasParameter("failure"):
        return {}
    failure = simulation.getParameter("failure")
    return {name: failure.getParameter(name).value() for name in failure.parameterNames_()}


def _applies(options: dict[str, Any]) -> bool:
    node, attempt = os.environ.get("WMS2_NODE", ""), int(os.environ.get("WMS2_ATTEMPT", "0"))
    if options.get("nodes") and node not in options["nodes"]:
        return False
    if options.get("step") and os.environ.get("WMS2_STEP") != options["step"]:
        return False
    if "untilAttempt" in options and attempt >= int(options["untilAttempt"]):
        return False
    draw = int(hashlib.sha256(f"{node}/{attempt}/{os.environ.get('WMS2_STEP', '')}".encode()).hexdigest()[:8], 16) / 2**32
    return draw < float(options.get("probability", 1.0))
