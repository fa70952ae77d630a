"""Adaptive requests on the real pool: what each round asked for, what its jobs took, and whether it came together (spec 13.1).

``make bench ARGS=adaptive`` runs four requests side by side: one whose steps leave cores idle, one hungry for memory that leaks,
one behind a filter of 1e-3, one with good hints. Jobs are real HTCondor jobs with the simulated cmsRun, by its simulated clock:
eight hours take no time. ``--profile FILE`` names others, as JSON in the form of ``PROFILES``: what the request says, and the
truth of each step (at most three) in the words of ``deploy/simulators/worker/profile.py``, which WMS2 never sees; a file of that
module's own form is one request. ``bench/profiles/heavy_tails.json`` has jobs with heavy tails. ``BENCH_ROUNDS`` (4) and
``BENCH_UNITS``, work units of later rounds (2), make it larger.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.demo.facts import RoundRow
from deploy.demo.verdicts import rounds_swing, throughput_falls
from tests.support.stack import small_request

POLL_SECONDS = 5
HOURS = 2
MERGED = (6_000_000, 12_000_000)  # bytes: small, as they are really written

#: Name -> what the request says, and what is true of each step.
PROFILES: dict[str, dict[str, Any]] = {
    "inefficient": {
        "request": {"Multicore": 4, "Memory": 8000, "TimePerEvent": 30, "EventsPerJob": 400, "EventsPerLumi": 20},
        "steps": [
            {"timePerEvent": 60, "serialFraction": 0.02, "cpuEfficiency": 0.98, "memoryMB": 1100, "memoryPerThreadMB": 120,
             "timeSpread": 0.05, "memorySpread": 0.02},
            {"timePerEvent": 50, "serialFraction": 0.95, "cpuEfficiency": 0.95, "memoryMB": 900, "memoryPerThreadMB": 250,
             "timeSpread": 0.1, "memorySpread": 0.03},
        ],
    },
    "hungry": {
        "request": {"Multicore": 4, "Memory": 8000, "TimePerEvent": 10, "EventsPerJob": 150, "EventsPerLumi": 10},
        "steps": [
            {"timePerEvent": 100, "serialFraction": 0.05, "cpuEfficiency": 0.97, "memoryMB": 5600, "memoryPerThreadMB": 350,
             "leakPerHourMB": 120, "memorySpread": 0.03, "timeSpread": 0.1},
        ],
    },
    "filtered": {
        "request": {"Multicore": 4, "Memory": 8000, "TimePerEvent": 1, "EventsPerJob": 20_000, "EventsPerLumi": 1000,
                    "FilterEfficiency": 0.01},
        "steps": [
            {"timePerEvent": 2, "serialFraction": 0.03, "cpuEfficiency": 0.97, "memoryMB": 1500, "memoryPerThreadMB": 100,
             "filterEfficiency": 0.001, "sizePerEventKB": 10},
            {"timePerEvent": 30, "serialFraction": 0.05, "cpuEfficiency": 0.95, "memoryMB": 1900, "memoryPerThreadMB": 150,
             "sizePerEventKB": 12},
        ],
    },
    "well hinted": {
        "request": {"Multicore": 2, "Memory": 5000, "TimePerEvent": 25, "EventsPerJob": 1150, "EventsPerLumi": 50},
        "steps": [
            {"timePerEvent": 47, "serialFraction": 0.04, "cpuEfficiency": 0.97, "memoryMB": 3600, "memoryPerThreadMB": 250,
             "memorySpread": 0.03, "timeSpread": 0.05},
        ],
    },
}  # fmt: skip


def main() -> bool:
    """Run the requests, print a table for each and what is to be said of it; whether all came together."""
    import django

    django.setup()
    from dags_app.planning.measured import TARGET_WALL_SECONDS
    from deploy.demo.rows import rounds as rounds_told
    from requests_app.services import request_hold

    profiles = _profiles(os.environ.get("BENCH_PROFILE"))
    rounds = int(os.environ.get("BENCH_ROUNDS") or 4)
    _tell_truth(profiles)
    requests = {name: _start(name, profile["request"], len(profile["steps"])) for name, profile in profiles.items()}
    begun = time.monotonic()
    try:
        _wait(requests, rounds)
    finally:
        for request in requests.values():
            request.refresh_from_db()
            request_hold(request=request, actor="bench", reason="measured")
    print(f"{rounds} rounds of {len(requests)} requests in {time.monotonic() - begun:.0f} s")
    target = TARGET_WALL_SECONDS
    good = [_report(name, rounds_told(request.workflow)[:rounds], target) for name, request in requests.items()]
    print("good enough" if all(good) else "NOT good enough")
    return all(good)


def _profiles(file: str | None) -> dict[str, dict[str, Any]]:
    """Those of a file; one that is the simulator's own, truths by names of steps, is one request with hints of no value."""
    if not file:
        return PROFILES
    given: dict[str, dict[str, Any]] = json.loads(Path(file).read_text())
    if all("steps" in profile for profile in given.values()):
        return given
    truths = [truth for name, truth in given.items() if name != "*"] or [given["*"]]
    return {Path(file).stem: {"request": PROFILES["inefficient"]["request"], "steps": truths}}


def _tell_truth(profiles: Mapping[str, Mapping[str, Any]]) -> None:
    """To the simulated cmsRun of the pool's worker nodes, by the names of steps."""
    programs = Path(os.environ["WMS2_STATE_DIR"]) / "worker/bin"
    truths = {_step(name, at): truth for name, profile in profiles.items() for at, truth in enumerate(profile["steps"], 1)}
    (programs / "truth.json").write_text(json.dumps({"*": {}, **truths}))
    variables = {"CMSSIM_PROFILE_FILE": programs / "truth.json", "CMSSIM_CLOCK": "simulated", "CMSSIM_SPEED": "1e9",
                 "CMSSIM_KILL_OVER_MEMORY": "1"}  # fmt: skip
    (programs / "cmssim.env").write_text("".join(f"{name}='{value}'\n" for name, value in variables.items()))


def _step(name: str, number: int) -> str:
    return re.sub("[^A-Za-z0-9]", "", name.title()) + str(number)


def _start(name: str, says: Mapping[str, Any], steps: int) -> Any:
    """An adaptive request with more events than its rounds will take."""
    from requests_app.services import Received, request_import, request_pin

    document = small_request(steps=3)
    create, assign = document["createRequest"], document["assignRequest"]
    tag = uuid.uuid4().hex[:6]
    top = {key: says[key] for key in ("Multicore", "Memory", "TimePerEvent")}
    create |= {**top, "SizePerEvent": says.get("SizePerEvent", 10), "RequestString": f"bench_{tag}", "StepChain": steps}
    for number in (1, 2, 3):
        if number > steps:
            create.pop(f"Step{number}")
            continue
        part = create[f"Step{number}"] | {"StepName": _step(name, number), "Multicore": says["Multicore"], "KeepOutput": True}
        if number > 1:
            part["InputStep"] = _step(name, number - 1)
        create[f"Step{number}"] = part
    create["Step1"] |= {key: says[key] for key in ("EventsPerJob", "EventsPerLumi", "FilterEfficiency") if key in says}
    create["Step1"] |= {"RequestNumEvents": 10**7, "PrimaryDataset": f"Bench{tag}"}
    for key, value in (("AcquisitionEra", create["AcquisitionEra"]), ("ProcessingString", f"Bench{tag}")):
        assign[key] = {_step(name, number): value for number in range(1, steps + 1)}
    assign |= {"MinMergeSize": MERGED[0], "MaxMergeSize": MERGED[1]}
    request = request_import(document=document, request_name=None, actor="bench", asked=Received(adaptive=True))
    units = int(os.environ.get("BENCH_UNITS") or 2)
    request_pin(request=request, actor="bench", reason="small rounds", work_units_per_round=units)
    return request


def _wait(requests: Mapping[str, Any], rounds: int) -> None:
    """Until each has closed so many rounds.

    Raises:
        SystemExit: one of them is held, or it takes too long.
    """
    from requests_app.models import Request, RequestStatus, Round

    deadline, reported = time.monotonic() + HOURS * 3600, ""
    while time.monotonic() < deadline:
        closed = {
            name: Round.objects.filter(workflow__request=request, closed_at__isnull=False).count()
            for name, request in requests.items()
        }
        if (now := f"rounds closed: {closed}") != reported:
            print(reported := now, flush=True)
        if min(closed.values()) >= rounds:
            return
        held = Request.objects.filter(pk__in=[each.pk for each in requests.values()], status=RequestStatus.HELD).first()
        if held is not None and closed[next(name for name, each in requests.items() if each.pk == held.pk)] < rounds:
            raise SystemExit(f"{held.request_name} is held: {held.hold_reason}")
        time.sleep(POLL_SECONDS)
    raise SystemExit(f"not done in {HOURS} h")


def _report(name: str, rows: Sequence[RoundRow], target: float) -> bool:
    """Print a request's rounds; whether it came together by round 2 and did not swing."""
    print(f"\n{name}: the target is {target / 3600:g} h, merged {MERGED[0] / 1e6:g} to {MERGED[1] / 1e6:g} MB")
    print(f"{'round':>5} {'jobs':>5} {'cores':>5} {'steps':>10} {'asked MB':>9} {'p95 MB':>7} {'over':>6} {'events/job':>10} "
          f"{'hours':>6} {'merged MB':>12} {'busy':>5} {'events/core-h':>13}  bounds")  # fmt: skip
    for index, row in enumerate(rows):
        merged, hours = " ".join(f"{size / 1e6:.1f}" for size in row.merged), (1 + row.off_target) * target / 3600
        bounds = ", ".join(f"{what}: {bound}" for what, bound in sorted(row.bounds))
        print(f"{index:5} {row.measured:5} {row.cores:5} {row.layouts:>10} {row.memory_mb:9} {row.used_mb:7.0f} "
              f"{row.memory_mb / row.used_mb - 1:6.0%} {row.events_per_job:10} {hours:6.2f} {merged:>12} "
              f"{row.busy:5.0%} {row.throughput:13.1f}  {bounds}")  # fmt: skip
    settled = rows[2:]
    verdicts = {
        "memory at most 25 % above p95, or at a bound": all(row.memory_fits() for row in settled),
        "wall time within 20 %, or at a bound": all(r.time_fits() or r.bounded("events_per_job") for r in settled),
        "merged size within 20 %, or at a bound": all(r.size_fits(MERGED) or r.bounded("jobs_per_work_unit") for r in settled),
        "no swing": not list(rounds_swing(rows)),
        "throughput kept": not list(throughput_falls(rows)),
    }
    for verdict, holds in verdicts.items():
        print(f"  {'yes' if holds else 'NO ':3} {verdict}")
    return all(verdicts.values())
