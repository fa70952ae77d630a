#!/usr/bin/env python3
"""Stands in for the payload's worker commands in tests of failing nodes; the judging of processing nodes is the real one.

``job`` appends "node attempt site memory" to starts.log in the unit's directory and writes a real report. ``plan/<node>`` says
how it ends, one line for each start: ``code N`` (the report's whole code, the process ends with its low byte), ``kill`` (SIGKILL,
no report), ``torn N`` (half a report); after the last line all is well. ``site:`` before a word: only where the unit landed
first. Merge and cleanup do nothing and their POST script says so.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path

REAL = "wms2_real.pyz"
DAG_DIRECTORY = "@DAG_DIRECTORY@"


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


def work(node, attempt):
    unit = Path(DAG_DIRECTORY) / ad_value("_CONDOR_JOB_AD", "WMS2_Unit")
    site = ad_value("_CONDOR_MACHINE_AD", "GLIDEIN_CMSSite")
    words = planned(unit, node) if node.startswith("proc") else ["code", "0"]
    with (unit / "starts.log").open("a") as log:
        log.write(f"{node} {attempt} {site} {ad_value('_CONDOR_JOB_AD', 'RequestMemory')}\n")
    if words[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    code = int(words[1])
    report = {
        "schema": "wms2.report/1", "node": node, "attempt": attempt, "fence": int(ad_value("_CONDOR_JOB_AD", "WMS2_Fence")),
        "job_id": f"{ad_value('_CONDOR_JOB_AD', 'ClusterId')}.{ad_value('_CONDOR_JOB_AD', 'ProcId')}", "unit": unit.name,
        "role": "processing", "site": site, "host": "h", "schedd": "s", "exit_code": code, "exit_step": "Gen" if code else None,
        "error_message": "it failed" if code else "", "steps": [], "processed": {"events": 0, "lumis": {}, "files": []},
        "outputs": [], "cgroup_peak_mb": None,
    }  # fmt: skip
    text = json.dumps(report)
    Path(f"{node}.{attempt}.report.json").write_text(text[: len(text) // 2] if words[0] == "torn" else text)
    return (code & 0xFF or 1) if code else 0


def main():
    command, *rest = sys.argv[1:]
    if command in ("elect", "reelect") or (command == "post" and rest[0].startswith("proc")):
        os.execv(sys.executable, [sys.executable, str(Path(__file__).parent / REAL), command, *rest])
    if command == "collect":
        Path("merge_input.json").write_text("{}")
        return 0
    if command == "post":
        return 0
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    if command == "merge":
        Path("merge_output.json").write_text("{}")
    return work(options["--node"], int(options["--attempt"]))


if __name__ == "__main__":
    sys.exit(main())
