"""What a simulated job takes: time, CPU and memory. Owns ``process.simulation`` and its scaling by the environment.

``process.simulation = cms.untracked.PSet(...)``, all untracked and optional:

    timePerEvent    double   seconds of one thread for one event; wall time = events x timePerEvent / threads   (0.0)
    cpuEfficiency   double   CPU time / (wall time x threads), 0..1                                             (0.8)
    memoryMB        double   peak resident memory that the report names                                         (300)
    sizePerEventKB  double   bytes each output module writes for an event, in KB                                (0.2)
    outputSizeKB    PSet     other sizes for single output modules, double by module label
    filterEfficiency double  share of events that reach the outputs, 0..1                                       (1.0)
    failure         PSet     see ``failures.py``

The loop really takes its wall time and burns ``cpuEfficiency`` of one core in it; the report's CPU time is that of all
threads. It really holds memory, up to ``CMSSIM_MEMORY_LIMIT_MB`` (64), so that many jobs fit on one machine.
``CMSSIM_SPEED`` divides all times.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from .errors import misconfigured

_SLICE_SECONDS = 0.05
_NAMES = {"timePerEvent", "cpuEfficiency", "memoryMB", "sizePerEventKB", "outputSizeKB", "filterEfficiency", "failure"}


@dataclass(frozen=True, slots=True)
class Profile:
    """How a job behaves."""

    seconds_per_event: float = 0.0
    cpu_efficiency: float = 0.8
    memory_mb: float = 300.0
    size_per_event_kb: float = 0.2
    output_size_kb: dict[str, float] = field(default_factory=dict)
    filter_efficiency: float = 1.0

    def bytes_per_event(self, module: str) -> int:
        """Bytes of payload an output module writes for an event."""
        return max(0, round(self.output_size_kb.get(module, self.size_per_event_kb) * 1000))


def read_profile(process: Any) -> Profile:
    """The profile of a process; CmsException for a parameter that this simulation does not know or a share outside 0..1."""
    simulation = getattr(process, "simulation", None)
    if simulation is None:
        return Profile()
    unknown = sorted(set(simulation.parameterNames_()) - _NAMES)
    if unknown:
        raise misconfigured(f"process.simulation has unknown parameters {unknown}; known: {sorted(_NAMES)}")

    def number(name: str, default: float) -> float:
        return float(simulation.getParameter(name).value()) if simulation.hasParameter(name) else default

    sizes = simulation.getParameter("outputSizeKB") if simulation.hasParameter("outputSizeKB") else None
    profile = Profile(
        seconds_per_event=number("timePerEvent", 0.0),
        cpu_efficiency=number("cpuEfficiency", 0.8),
        memory_mb=number("memoryMB", 300.0),
        size_per_event_kb=number("sizePerEventKB", 0.2),
        output_size_kb={name: float(sizes.getParameter(name).value()) for name in sizes.parameterNames_()} if sizes else {},
        filter_efficiency=number("filterEfficiency", 1.0),
    )
    for name, share in (("cpuEfficiency", profile.cpu_efficiency), ("filterEfficiency", profile.filter_efficiency)):
        if not 0.0 <= share <= 1.0:
            raise misconfigured(f"process.simulation.{name} is {share}, expected 0 to 1")
    return profile


@dataclass(frozen=True, slots=True)
class Taken:
    """What the event loop took. CPU seconds are those of all threads."""

    wall_seconds: float
    cpu_seconds: float


def environment_number(name: str, default: float) -> float:
    """A positive number from the environment."""
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise misconfigured(f"{name}={text!r} is not a positive number")
    return value


def hold_memory(profile: Profile) -> bytes:
    """Memory that is really resident: keep the result until the job ends."""
    return b"\x01" * int(min(profile.memory_mb, environment_number("CMSSIM_MEMORY_LIMIT_MB", 64.0)) * 1024 * 1024)


def run_loop(profile: Profile, events: int, threads: int) -> Taken:
    """Take the wall time of ``events`` events, burning CPU for its share of each slice."""
    wanted = events * profile.seconds_per_event / max(1, threads) / environment_number("CMSSIM_SPEED", 1.0)
    started = time.monotonic()
    while (left := wanted - (time.monotonic() - started)) > 0:
        part = min(left, _SLICE_SECONDS)
        burn_until = time.monotonic() + part * profile.cpu_efficiency
        while time.monotonic() < burn_until:
            pass
        time.sleep(part * (1.0 - profile.cpu_efficiency))
    wall = time.monotonic() - started
    return Taken(wall, wall * max(1, threads) * profile.cpu_efficiency)
