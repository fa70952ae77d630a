"""``cmsRun [-j REPORT] [-n THREADS] CONFIGURATION [ARGUMENTS]``, simulated. Owns the order of a run.

Read the configuration, read or make up the events, take the time they take, write the outputs and the report. Ends with
cmsRun's code, of which the operating system keeps 8 bits.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np

from . import profile
from .configuration import DqmSaver, Plan, load_plan
from .errors import CONFIG_NOT_FOUND, CONFIG_UNREADABLE, CmsException
from .framework_report import Outcome, WrittenFile, render_cut_report, render_error_report, render_report, write_report
from .profile import Taken
from .rootfiles import EventTable, merge_files, write_events
from .sources import Given, read_pileup, read_source

_UNREPORTED = {CONFIG_NOT_FOUND, CONFIG_UNREADABLE}  # before these, cmsRun has not opened its report yet
_MERGE_PROCESS = "Merge"  # as the release names it


def main() -> int:
    """The command line; the code to exit with."""
    parser = argparse.ArgumentParser(prog="cmsRun", add_help=False)
    parser.add_argument("-j", "--jobreport", type=Path)
    parser.add_argument("-n", "--numThreads", type=int)
    parser.add_argument("configuration", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    started = time.monotonic()
    try:
        plan = load_plan(options.configuration, [str(options.configuration), *options.arguments])
    except CmsException as error:
        _print(error)
        if options.jobreport and error.code not in _UNREPORTED:
            write_report(options.jobreport, render_error_report(error))
        return error.code
    outcome = _run(plan, started, options.jobreport)
    if options.jobreport:
        write_report(options.jobreport, render_report(outcome))
    if outcome.error is not None:
        _print(outcome.error)
        return outcome.error.code
    return 0


def _run(plan: Plan, started: float, report: Path | None) -> Outcome:
    held = profile.hold_memory(plan.profile)
    nothing = Outcome(plan, (), (), (), 0, Taken(0.0, 0.0), time.monotonic() - started)
    try:
        pileup = read_pileup(plan)
        given = read_source(plan)
    except CmsException as error:
        return replace(nothing, error=error)
    init_seconds = time.monotonic() - started
    events, failure = given.events, plan.failure
    if failure is not None:
        events = events.take(slice(0, failure.at_event))
    print(f"{time.strftime('%d-%b-%Y %H:%M:%S')} simulated {plan.process_name}: {len(events)} events", flush=True)
    wanted = profile.demand(plan.profile, len(events), plan.threads, plan.seed)
    taken = profile.run_loop(wanted, plan.threads)
    outcome = Outcome(plan, given.inputs, given.skipped, (), len(events), taken, init_seconds, wanted.memory_mb, pileup=pileup)
    if profile.is_over_memory(wanted):
        if report:
            write_report(report, render_cut_report(outcome))
        os.kill(os.getpid(), signal.SIGKILL)
    if failure is not None and failure.kind != "exception":
        if report:
            write_report(report, render_cut_report(outcome))
        if failure.kind == "hang":
            time.sleep(10 * 24 * 3600)
        os.kill(os.getpid(), failure.signal)
    written = _write_outputs(plan, given, events)
    outcome = replace(outcome, written=written)
    del held
    if failure is not None:
        text = f"asked for by the configuration at event {len(events)}"
        outcome = replace(outcome, error=CmsException(failure.exit_code, "SimulatedFailure", text))
    return outcome


def _write_outputs(plan: Plan, given: Given, events: EventTable) -> tuple[WrittenFile, ...]:
    """Every output module writes the events that pass the filter, and all lumis. A merge copies its input files whole."""
    written = []
    kept = _filtered(plan, events)
    for output in plan.outputs:
        path, guid = Path(output.file_name.removeprefix("file:")), str(uuid.uuid4())
        lumis = list(given.lumis) if len(events) == len(given.events) else sorted(events.lumi_counts())
        if plan.source.accumulates:
            lumis = []
        if plan.process_name == _MERGE_PROCESS and not plan.source.without_events:
            merge_files([file.path for file in given.inputs], path, guid)
        else:
            write_events(path, kept, lumis, plan.profile.bytes_per_event, plan.seed, guid)
        written.append(WrittenFile(output, guid, {**dict.fromkeys(lumis, 0), **kept.lumi_counts()}))
    if plan.dqm_saver is not None:
        _save_dqm(plan.dqm_saver, given, plan.seed)
    return tuple(written)


def _save_dqm(saver: DqmSaver, given: Given, seed: int) -> None:
    """What was harvested, as far as the simulation has any: the lumis."""
    for number in sorted({saver.run or run for run, _ in given.lumis}):
        lumis = [each for each in given.lumis if number in (saver.run, each[0])]
        write_events(Path(saver.file_name(number)), given.events.take(slice(0, 0)), lumis, 0, seed)


def _filtered(plan: Plan, events: EventTable) -> EventTable:
    """The same seed and event number always give the same decision."""
    if plan.profile.filter_efficiency >= 1.0:
        return events
    draws = np.random.Generator(np.random.Philox(key=plan.seed)).random(len(events))
    return events.take(draws < plan.profile.filter_efficiency)


def _print(error: CmsException) -> None:
    print(
        f"----- Begin Fatal Exception {time.strftime('%d-%b-%Y %H:%M:%S %Z')}-----------------------\n"
        f"An exception of category '{error.category}' occurred while\nException Message:\n{error.message}\n"
        "----- End Fatal Exception -------------------------------------------------",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
