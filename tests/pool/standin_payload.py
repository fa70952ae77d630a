#!@PYTHON@
"""Stands in for the payload's worker commands and judging scripts in tests of the rendered DAG; the rest is the real one.

``job``, ``merge`` and ``cleanup`` append "node attempt site" to starts.log in the unit's directory (the pool is on this
machine) and then do what ``plan/<node>`` there says: lines ``exit N``, ``sleep S``, ``credential`` (append to credentials.log
what the environment names), ``renewed`` (wait until that has another content), ``file NAME`` (wait for one there), ``once
WORD...`` (only in the first attempt), ``first-site WORD...`` (only where the unit landed first). ``post`` answers 75 as the real
one answers a site's fault: it bans the site for the unit and ends the node with 42.
"""

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

REAL = "wms2_real.pyz"
DAG_DIRECTORY = "@DAG_DIRECTORY@"  # set by the test: a job's own ad only knows its scratch directory


def ad_value(variable, name):
    found = re.search(rf'^{name} = "?([^"\n]*)', Path(os.environ[variable]).read_text(), re.MULTILINE)
    return found.group(1)


def credential():
    """Variable, whether its file lies in the job's own directory, its mode, SHA-256 of its first certificate or token."""
    (name,) = [name for name in ("X509_USER_PROXY", "BEARER_TOKEN_FILE") if name in os.environ]
    path = Path(os.environ[name])
    first = path.read_bytes().partition(b"-----END CERTIFICATE")[0]
    return f"{name} {path.parent == Path.cwd()} {path.stat().st_mode & 0o777:o} {hashlib.sha256(first).hexdigest()}"


def obey(words, attempt, unit, node):
    if words[0] == "first-site":
        if len((unit / "elected.log").read_text().splitlines()) > 1:
            return
        words = words[1:]
    if words[0] == "once":
        if attempt > 0:
            return
        words = words[1:]
    if words[0] == "sleep":
        time.sleep(float(words[1]))
    if words[0] == "file":
        while not (unit / words[1]).exists():
            time.sleep(0.2)
    if words[0] == "renewed":
        seen = (unit / "credentials.log").read_text()
        while credential().rpartition(" ")[2] in seen:
            time.sleep(0.2)
    if words[0] == "credential":
        with (unit / "credentials.log").open("a") as log:
            log.write(f"{node} {credential()}\n")
    if words[0] == "exit":
        sys.exit(int(words[1]))


def work(command, node, attempt):
    given = {path.name for path in Path().iterdir()}
    needed = {"job.json", "unit.json"} | {
        "job": {"sandbox.tar.gz"},
        "merge": {"merge_input.json"},
        "cleanup": {"merge_input.json", "merge_output.json"},
    }[command]
    if node.startswith("t"):
        needed.add(f"{node}.input.json")
    if not needed <= given:
        sys.exit(f"not transferred: {sorted(needed - given)}")
    unit = Path(DAG_DIRECTORY) / ad_value("_CONDOR_JOB_AD", "WMS2_Unit")
    site = ad_value("_CONDOR_MACHINE_AD", "GLIDEIN_CMSSite")
    with (unit / "starts.log").open("a") as log:
        log.write(f"{node} {attempt} {site}\n")
    plan = unit / "plan" / node
    for line in plan.read_text().splitlines() if plan.exists() else ():
        obey(line.split(), attempt, unit, node)
    Path(f"{node}.{attempt}.report.json").write_text(json.dumps({"node": node, "attempt": attempt, "site": site}))
    if command == "merge":
        Path("merge_output.json").write_text("{}")


def post(node, value, retry, last, job):
    verdict = {0: 0, 42: 42, 43: 43, 75: 42}.get(value, 1)
    record = {"node": node, "return": value, "attempt": retry, "job": job, "exit": verdict}
    if value == 75:
        Path("avoid.inc").write_text(f"UNIT_AVOID = {Path('site.inc').read_text().split()[-1]}\n")
    if verdict == 1:
        Path("memory.inc").write_text(f"MEMORY_{node} = {77 + retry}\n")
    with Path(f"{node}.attempts.jsonl").open("a") as log:
        log.write(json.dumps(record) + "\n")
    return verdict


def main():
    command, *rest = sys.argv[1:]
    if command in ("elect", "reelect"):
        os.execv(sys.executable, [sys.executable, str(Path(__file__).parent / REAL), command, *rest])
    if command == "collect":
        Path("merge_input.json").write_text("{}")
        return 0
    if command == "gather":
        Path(f"{rest[0]}.input.json").write_text("{}")
        return 0
    if command == "post":
        return post(rest[0], int(rest[1]), int(rest[2]), int(rest[3]), rest[4])
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    work(command, options["--node"], int(options["--attempt"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
