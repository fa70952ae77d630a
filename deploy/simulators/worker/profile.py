"""What a simulated job takes: time, CPU and memory. Owns ``process.simulation`` and its scaling by the environment.

``process.simulation = cms.untracked.PSet(...)``, all untracked and optional:

    timePerEvent      double  seconds of one thread for one event                                               (0.0)
    serialFraction    double  share of it that threads cannot divide, 0..1                                      (0.0)
    cpuEfficiency     double  share of timePerEvent that is CPU and not waiting, 0..1                           (0.8)
    timeSpread        double  sigma of a lognormal factor of mean 1 on the time of each cmsRun                  (0.0)
    timeTailShare     double  share of cmsRun that are slower still, by a Pareto factor, 0..1                   (0.0)
    timeTailAlpha     double  its exponent; the smaller the heavier, above 1                                    (2.5)
    memoryMB          double  peak resident memory that the report names, without threads and leaks             (300)
    memoryPerThreadMB double  added for each thread                                                             (0.0)
    leakPerHourMB     double  added for each hour of the event loop                                             (0.0)
    memorySpread      double  sigma of a lognormal factor of mean 1 on all memory                               (0.0)
    sizePerEventKB    double  bytes each output module writes for an event, in KB                               (0.2)
    filterEfficiency  double  share of events that reach the outputs, 0..1                                      (1.0)
    failure           PSet    see ``failures.py``

``CMSSIM_PROFILE_FILE`` names a JSON file with objects of the same names: that of ``WMS2_STEP``, else
of the process's name, else of ``*``, goes before the configuration.

    wall = events x timePerEvent x (serialFraction + (1 - serialFraction) / threads)
    CPU  = events x timePerEvent x cpuEfficiency, whatever the threads; it takes no less than CPU / cores

``cores`` are those of the machine ad, over ``WMS2_PROCESSES``: more threads than cores gain what the others wait. Factors depend
on node, step, process and seed alone, so that a repeated attempt takes the same.

The loop really takes its wall time and burns its share of one core in it. It really holds memory, up to
16 MB, so that many jobs fit on one machine. ``CMSSIM_SPEED`` divides all times. With
``CMSSIM_CLOCK=simulated`` the loop only sleeps, and the report names the times of the formulas, undivided. With
``CMSSIM_KILL_OVER_MEMORY`` set, processes that together have more memory than the machine ad are killed, as by the system.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import misconfigured

_SLICE_SECONDS = 0.05
_SHARES = ("serialFraction", "cpuEfficiency", "timeTailShare", "filterEfficiency")
_MB = 1024 * 1024
_HELD_MB = 16.0


@dataclass(frozen=True, slots=True)
class Profile:
    """How a job behaves."""

    seconds_per_event: float = 0.0
    serial_fraction: float = 0.0
    cpu_efficiency: float = 0.8
    time_spread: float = 0.0
    time_tail_share: float = 0.0
    time_tail_alpha: float = 2.5
    memory_mb: float = 300.0
    memory_per_thread_mb: float = 0.0
    leak_per_hour_mb: float = 0.0
    memory_spread: float = 0.0
    size_per_event_kb: float = 0.2
    filter_efficiency: float = 1.0

    @property
    def bytes_per_event(self) -> int:
        """Bytes of payload an output module writes for an event."""
        return max(0, round(self.size_per_event_kb * 1000))


#: Their names in a configuration, in the order of the profile's fields.
_NUMBERS = (
    "timePerEvent", "serialFraction", "cpuEfficiency", "timeSpread", "timeTailShare", "timeTailAlpha", "memoryMB",
    "memoryPerThreadMB", "leakPerHourMB", "memorySpread", "sizePerEventKB", "filterEfficiency",
)  # fmt: skip
_NAMES = {*_NUMBERS, "failure"}


def read_profile(process: Any) -> Profile:
    """The profile of a process; CmsException for a parameter that this simulation does not know or a share outside 0..1."""
    values = {**_of_process(getattr(process, "simulation", None)), **_of_file(process.name_())}
    unknown = sorted(set(values) - _NAMES)
    if unknown:
        raise misconfigured(f"process.simulation has unknown parameters {unknown}; known: {sorted(_NAMES)}")
    for name in _SHARES:
        if not 0.0 <= float(values.get(name, 0.0)) <= 1.0:
            raise misconfigured(f"process.simulation.{name} is {values[name]}, expected 0 to 1")
    names = dict(zip(_NUMBERS, Profile.__dataclass_fields__, strict=True))
    return Profile(**{names[name]: float(values[name]) for name in _NUMBERS if name in values})


def _of_process(block: Any) -> dict[str, Any]:
    if block is None:
        return {}
    values = {name: block.getParameter(name) for name in block.parameterNames_()}
    return {name: value.value() if name in _NUMBERS else value for name, value in values.items()}


def _of_file(process_name: str) -> dict[str, Any]:
    path = os.environ.get("CMSSIM_PROFILE_FILE")
    if not path:
        return {}
    try:
        profiles: dict[str, dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise misconfigured(f"CMSSIM_PROFILE_FILE cannot be read: {error}") from error
    return next((profiles[name] for name in (os.environ.get("WMS2_STEP"), process_name, "*") if name in profiles), {})


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run takes by its profile: seconds undivided, CPU of all threads, memory at its peak."""

    wall_seconds: float
    cpu_seconds: float
    memory_mb: float


def demand(profile: Profile, events: int, threads: int, seed: int) -> Demand:
    """What ``events`` events take with ``threads`` threads; the seed settles what differs from one run to another."""
    threads = max(1, threads)
    random = np.random.Generator(np.random.Philox(key=_key(seed)))
    slow = _lognormal(random, profile.time_spread)
    tail = 1.0 + random.pareto(profile.time_tail_alpha)
    slow *= tail if random.random() < profile.time_tail_share else 1.0
    alone = events * profile.seconds_per_event * slow
    cpu = alone * profile.cpu_efficiency
    wall = alone * (profile.serial_fraction + (1.0 - profile.serial_fraction) / threads)
    cores = machine_number("Cpus")
    wall = max(wall, cpu / (cores / _processes())) if cores else wall
    memory = profile.memory_mb + threads * profile.memory_per_thread_mb + wall / 3600 * profile.leak_per_hour_mb
    return Demand(wall, cpu, memory * _lognormal(random, profile.memory_spread))


def _key(seed: int) -> int:
    """Of this cmsRun: jobs, steps and processes differ although not every configuration has seeds."""
    where = "/".join(os.environ.get(name, "") for name in ("WMS2_NODE", "WMS2_STEP"))
    return int(hashlib.sha256(f"{where}/{Path.cwd().name}/{seed}".encode()).hexdigest()[:16], 16)


def _lognormal(random: np.random.Generator, sigma: float) -> float:
    return float(random.lognormal(-sigma * sigma / 2, sigma))


def _processes() -> int:
    return int(environment_number("WMS2_PROCESSES", 1))


def machine_number(name: str) -> float | None:
    """A number of the machine ad; None outside a job."""
    path = os.environ.get("_CONDOR_MACHINE_AD")
    text = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else ""
    found = re.search(rf"^{name}\s*=\s*([0-9.]+)\s*$", text, re.MULTILINE)
    return float(found.group(1)) if found else None


def is_over_memory(wanted: Demand) -> bool:
    """Whether the system would kill a process of this slot, if it is to."""
    memory_mb = machine_number("Memory")
    return bool(os.environ.get("CMSSIM_KILL_OVER_MEMORY")) and wanted.memory_mb * _processes() > (memory_mb or math.inf)


@dataclass(frozen=True, slots=True)
class Taken:
    """What the event loop took. CPU seconds are those of all threads; ``burned_seconds`` really went into it."""

    wall_seconds: float
    cpu_seconds: float
    burned_seconds: float = 0.0


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
    return b"\x01" * int(min(profile.memory_mb, _HELD_MB) * _MB)


def run_loop(wanted: Demand, threads: int) -> Taken:
    """Take the wall time, burning CPU for its share of each slice; or only sleep, by the simulated clock."""
    seconds = wanted.wall_seconds / environment_number("CMSSIM_SPEED", 1.0)
    if os.environ.get("CMSSIM_CLOCK") == "simulated":
        time.sleep(seconds)
        return Taken(wanted.wall_seconds, wanted.cpu_seconds, 0.0)
    busy = wanted.cpu_seconds / wanted.wall_seconds if wanted.wall_seconds > 0 else 0.0  # cores
    share = min(1.0, busy / max(1, threads))
    started = time.monotonic()
    while (left := seconds - (time.monotonic() - started)) > 0:
        part = min(left, _SLICE_SECONDS)
        burn_until = time.monotonic() + part * share
        while time.monotonic() < burn_until:
            pass
        time.sleep(part * (1.0 - share))
    wall = time.monotonic() - started
    return Taken(wall, wall * busy, wall * share)
