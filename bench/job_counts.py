"""What it costs to count the node jobs in a schedd's queue (ADR 0004), on the stack's own pool.

The schedd counts (``groups``), or hands out an ad for each job (``query``), which a process of ours counts; CPU of the schedd's
own thread, of its processes that answer, and of ours. ``BENCH_JOBS`` jobs on hold of 30 DAGs at 100 sites are in the queue, in
three roles. Nothing else may use the pool at that time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wms2.adapters import htcondor_ads as ads
from wms2.adapters.htcondor_child import Client
from wms2.conf import conf

JOBS = int(os.environ.get("BENCH_JOBS", "10000"))
DAGS, SITES, ROLES, TIMES = 30, 100, ("processing", "merge", "cleanup"), 5
INSTANCE = "bench-counts"
PORTION = 10_000  # the schedd takes no more in one submission
TICKS = os.sysconf("SC_CLK_TCK")
SUBMIT = """\
universe = vanilla
executable = /bin/sleep
transfer_executable = False
arguments = 1
hold = True
request_memory = 1
My.WMS2_Instance = "{instance}"
My.WMS2_DagID = "00000000-0000-5000-8000-$(dag)"
My.WMS2_Role = "$(role)"
My.DESIRED_Sites = "T2_XX_Site$(site)"
My.WMS2_Unit = "mg_$(ProcId)"
queue dag, role, site from (
{rows}
)
"""


def main() -> None:
    """One line for each way."""
    settings = conf()
    client = Client(settings.schedd_name, settings.collector, settings.condor_token_dir)
    call = {"constraint": ads.OwnJobs(INSTANCE, client.owner({})).all_node_jobs(), "projection": ads.JOB_GROUPS}

    def reported() -> int:
        counted = Counter(tuple(ad.get(name) for name in ads.JOB_GROUPS) for ad in client.query(call))
        return counted.total()

    with _queued():
        for name, act in (
            ("the schedd counts", lambda: sum(group.jobs for group in ads.job_groups(client.groups(call)))),
            ("an ad for each job", reported),
        ):
            print(f"{name:20} {_measured(act)}", flush=True)


@contextmanager
def _queued() -> Iterator[None]:
    try:
        for first in range(0, JOBS, PORTION):
            portion = range(first, min(first + PORTION, JOBS))
            rows = "\n".join(f"{n % DAGS:012d}, {ROLES[n % 7 % 3]}, {n * 31 % SITES}" for n in portion)
            text = SUBMIT.format(instance=INSTANCE, rows=rows)
            subprocess.run(["condor_submit", "-terse", "-"], input=text, text=True, check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["condor_rm", "-constraint", f'WMS2_Instance == "{INSTANCE}"'], check=True, capture_output=True)


def _measured(act: Callable[[], int]) -> str:
    found = []
    schedd = _schedd()
    for _ in range(TIMES):
        before, own, begun = _cpu(schedd), time.process_time(), time.monotonic()
        number = act()
        wall, own = time.monotonic() - begun, time.process_time() - own
        time.sleep(1)  # until the schedd has reaped the process that answered
        after = _cpu(schedd)
        found.append((wall, after[0] - before[0], after[1] - before[1], own))
    wall, thread, answering, own = (statistics.median(column) for column in zip(*found, strict=True))
    return f"{number} jobs: {wall:.3f} s; CPU s: schedd {thread:.2f}, processes that answer {answering:.2f}, ours {own:.3f}"


def _schedd() -> Path:
    config = f"CONDOR_CONFIG={os.environ['CONDOR_CONFIG']}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "comm").read_text().strip() == "condor_schedd" and config in (place / "environ").read_bytes():
                return place
        except OSError:
            continue  # ended meanwhile, or somebody else's
    raise RuntimeError("the pool's schedd does not run on this host")


def _cpu(place: Path) -> tuple[float, float]:
    """Of the process, and of those it has reaped."""
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, (int(fields[13]) + int(fields[14])) / TICKS
