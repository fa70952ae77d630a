#!@PYTHON@
"""Stands in for the payload's worker commands in tests of failing nodes; every script of DAGMan's is the real one.

``job``, ``merge`` and ``cleanup`` append "node attempt site memory" to starts.log in the unit's directory and leave a real
report; ``merge`` a manifest as well. ``plan/<node>`` says how a node ends, one line for each start; after the last all is well:

    code N            the report's whole code; the process ends with its low byte
    bad N             the same, and the message names the unit's input file
    skipped           as the payload ends when cmsRun has skipped the input file and ended with 0
    kill              SIGKILL, no report
    torn N            half a report
    lost N            no report, the process ends with N
    hang              does nothing for ten minutes
    held              leaves a file that cannot be sent back, for which HTCondor holds the job
    full              its disk is full: writing fails with ENOSPC, the report is not written either
    no-manifest, torn-manifest, old-manifest   a merge that says it did well

``site:`` before a word: only where the unit landed first.
"""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

REAL = "wms2_real.pyz"
DAG_DIRECTORY = "@DAG_DIRECTORY@"
ROLES = {"job": "processing", "merge": "merge", "cleanup": "cleanup"}


def ad_value(variable, name):
    found = re.search(rf'^{name} = "?([^"\n]*)', Path(os.environ[variable]).read_text(), re.MULTILINE)
    return found.group(1)


def planned(unit, node):
    plan = unit / "plan" / node
    lines = plan.read_text().splitlines() if plan.exists() else []
    log = unit / "starts.log"
    earlier = sum(line.split()[0] == node for line in log.read_text().splitlines()) if log.exists() else 0
    word = lines[earlier] if earlier < len(lines) else "code 0"
    if word.startswith("site:"):
        landed = len((unit / "elected.log").read_text().splitlines())
        word = word[5:] if landed == 1 else "code 0"
    return word.split()


def work(command, node, attempt):
    unit = Path(DAG_DIRECTORY) / ad_value("_CONDOR_JOB_AD", "WMS2_Unit")
    site = ad_value("_CONDOR_MACHINE_AD", "GLIDEIN_CMSSite")
    word, *numbers = planned(unit, node)
    with (unit / "starts.log").open("a") as log:
        log.write(f"{node} {attempt} {site} {ad_value('_CONDOR_JOB_AD', 'RequestMemory')}\n")
    code = {"skipped": 95003}.get(word, int(numbers[0]) if numbers else 0)
    interrupted(word)
    if word == "lost":
        return code
    stamps = {
        "unit": unit.name, "fence": int(ad_value("_CONDOR_JOB_AD", "WMS2_Fence")),
        "job_id": f"{ad_value('_CONDOR_JOB_AD', 'ClusterId')}.{ad_value('_CONDOR_JOB_AD', 'ProcId')}",
    }  # fmt: skip
    if command == "merge" and code == 0 and word != "no-manifest":
        write_manifest(stamps, word)
    text = json.dumps(report(command, node, attempt, site, code, word) | stamps)
    Path(f"{node}.{attempt}.report.json").write_text(text[: len(text) // 2] if word == "torn" else text)
    return (code & 0xFF or 1) if code else 0


def interrupted(word):
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hang":
        time.sleep(600)
    if word == "held":
        Path("unreadable").touch(mode=0)
    if word == "full":
        with Path("/dev/full").open("w") as disk:
            disk.write("x" * 100_000)


def report(command, node, attempt, site, code, word):
    lfn = input_file(node) if word in ("bad", "skipped") else ""
    message = {"bad": f"FileReadError: file {lfn} is not a ROOT file", "skipped": f"step Gen skipped 1 files: {lfn}"}.get(
        word, "it failed"
    )
    step = {
        "number": 1, "name": "Gen", "exit_code": code, "wall_seconds": 1.0, "cpu_seconds": 1.0, "threads": 1, "peak_rss_mb": 10.0,
        "events_read": 0, "events_written": 0, "skipped_files": [lfn] if word == "skipped" else [], "input_files": [],
    }  # fmt: skip
    return {
        "schema": "wms2.report/1", "node": node, "attempt": attempt, "role": ROLES[command], "site": site, "host": "h",
        "schedd": "s", "exit_code": code, "exit_step": "Gen" if code else None, "error_message": message if code else "",
        "steps": [step], "processed": {"events": 0, "lumis": {}, "files": []}, "outputs": [], "cgroup_peak_mb": None,
    }  # fmt: skip


def input_file(node):
    jobs = json.loads(Path("unit.json").read_text())["jobs"]
    return next(job["files"][0]["lfn"] for job in jobs if job["node"] == node)


def write_manifest(stamps, word):
    if word == "old-manifest":
        stamps = stamps | {"job_id": "1.0"}
    text = json.dumps(
        {"schema": "wms2.manifest/1", **stamps, "outputs": [{"dataset": "/a/b/C", "files": [{"lfn": "/store/c.root"}]}]}
    )
    Path("merge_output.json").write_text(text[: len(text) // 2] if word == "torn-manifest" else text)


def main():
    command, *rest = sys.argv[1:]
    if command not in ROLES:
        os.execv(sys.executable, [sys.executable, str(Path(__file__).parent / REAL), command, *rest])
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    return work(command, options["--node"], int(options["--attempt"]))


if __name__ == "__main__":
    sys.exit(main())
