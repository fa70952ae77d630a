"""One DAGMan per work unit against one per round, on a pool of its own (ADR 0003).

The same work units, with landing job and election, in four shapes; their jobs sleep. Then what one DAGMan takes for many nodes,
and what DAGMans that wait cost at several intervals. Memory is in MB: as the system counts it (RSS), with shared pages divided
among those who share them (PSS), and what is not shared at all (own). Sizes: ``BENCH_UNITS`` of ``BENCH_JOBS`` jobs,
``BENCH_NODES`` in one DAGMan, ``BENCH_DAGMANS`` that wait.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.htcondor.pool import Pool, configure, release_on_path
from tests.support.servers import free_port

UNITS = int(os.environ.get("BENCH_UNITS", "25"))
JOBS = int(os.environ.get("BENCH_JOBS", "8"))
NODES = tuple(int(n) for n in os.environ.get("BENCH_NODES", "10000,50000").split(","))
DAGMANS = int(os.environ.get("BENCH_DAGMANS", "100"))
INTERVALS = ((1, 5, 5), (5, 5, 5), (1, 300, 5), (1, 300, 300), (2, 300, 300), (5, 300, 300))  # seconds: log scan, ad, status file
COLUMNS = (
    ("shape", 26), ("DAGMans", 8), ("RSS", 8), ("PSS", 8), ("own", 8), ("own/job", 8), ("in queue", 9), ("jobs/s", 8),
    ("DAGMan s", 9), ("schedd s", 9), ("DAGMan s/min", 13), ("schedd s/min", 13),
)  # fmt: skip
SLEEP_SECONDS = 600
STEADY_SECONDS = 30
UNITS_PER_DAGMAN = 10
TICKS = os.sysconf("SC_CLK_TCK")
#: Far more slots than the machine has cores: the jobs sleep. Each site has room for all, so that no election makes one wait.
LOCAL_CONFIG = f"""\
NUM_CPUS = {3 * 2 * UNITS * JOBS}
MEMORY = {3 * 2 * UNITS * JOBS * 128}
{"".join(f"SLOT_TYPE_{n} = cpus={2 * UNITS * JOBS}, mem=33%, disk=33%, swap=33%{chr(10)}" for n in (1, 2, 3))}\
START_SCHEDULER_UNIVERSE = True
MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER = 10000
"""
LANDING, REST = "landing", ("merge", "cleanup")
NOOP, ON_HOLD = " NOOP", "JobStatus == 5"
ELECT = """\
#!/bin/sh
# elect.sh RETURN: what the payload's `elect` does, without its checks
[ "$1" = 0 ] || exit 1
sed -n 's/.*GLIDEIN_CMSSite = "\\(.*\\)"/ELECTED_SITE = \\1/p' cluster.log | tail -1 > site.inc.new && mv site.inc.new site.inc
"""
SUBMIT = """\
universe = vanilla
transfer_executable = False
should_transfer_files = NO
request_memory = 16
request_disk = 16
log = cluster.log
ulog_execute_attrs = GLIDEIN_CMSSite
"""
AT_SITE = """\
include : site.inc
My.DESIRED_Sites = "$(ELECTED_SITE)"
requirements = stringListMember(TARGET.GLIDEIN_CMSSite, MY.DESIRED_Sites)
"""


def main() -> None:
    """Print the tables."""
    base = Path(os.environ["WMS2_STATE_DIR"]) / "dag-shapes"
    shutil.rmtree(base, ignore_errors=True)
    with running_pool(base / "pool") as pool:
        print(f"{UNITS} units of {JOBS} sleeping jobs; CPU seconds until all run, and of a minute then")
        print("".join(f"{title:>{width}}" for title, width in COLUMNS))
        for name, write in SHAPES.items():
            _shape(pool, base / name.split()[0], name, write)
        print("one DAGMan, all its nodes waiting for one job that is on hold")
        for nodes in NODES:
            _many_nodes(pool, base / f"nodes{nodes}", nodes)
        print(f"{DAGMANS} DAGMans of one job each that is on hold, by intervals")
        for intervals in INTERVALS:
            _waiting(pool, base / "wait{}-{}-{}".format(*intervals), *intervals)


# --- the pool ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """A started pool."""

    master: int
    environment: Mapping[str, str]
    collector: str
    tokens: Path

    def tool(self, *command: str, cwd: Path | None = None) -> str:
        """What a tool prints; it must succeed."""
        done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise SystemExit(f"{command}: {done.stderr[-2000:]}")
        return done.stdout

    def submit(self, dag: Path) -> None:
        """Give a DAG to the schedd."""
        self.tool("condor_submit_dag", "-maxidle", "100000", dag.name, cwd=dag.parent)

    def clear(self) -> None:
        """Remove all jobs and wait until no process of theirs is left."""
        self.tool("condor_rm", "-all")
        wait_for(lambda: not self.tool("condor_q", "-allusers", "-af", "ClusterId").strip() and not self.of("condor_dagman"))

    def of(self, name: str) -> list[Process]:
        """The pool's processes of one program."""
        return [process for process in descendants(self.master) if process.name == name]


@contextmanager
def running_pool(
    directory: Path, config: str = LOCAL_CONFIG, ready: Callable[[Running], bool] | None = None, nice: int = 0
) -> Iterator[Running]:
    """A loopback pool for as long as the block lasts; ``ready``: when its daemons are there; ``nice`` to all others."""
    release = release_on_path(os.environ["PATH"])
    if release is None:
        raise SystemExit("no HTCondor on PATH")
    pool = Pool(directory, release, free_port(), pwd.getpwuid(os.getuid()).pw_name, {"PATH": "/usr/bin:/bin"})
    configure(pool)
    (directory / "config.d/90-local.conf").write_text(config)
    environment = {"PATH": f"{release.path}:/usr/bin:/bin", "HOME": str(directory), **pool.environment()}
    with (directory / "log/out").open("w") as out:
        command = ["nice", "-n", str(nice), str(release.sbin / "condor_master"), "-f"]
        master = subprocess.Popen(command, env=environment, cwd=directory, stdout=out, stderr=out)
    running = Running(master.pid, environment, pool.collector, pool.client_token_directory)
    try:
        wait_for(lambda: (ready or _answers)(running), 120)
        yield running
    finally:
        master.send_signal(signal.SIGQUIT)
        master.wait(60)


def _answers(pool: Running) -> bool:
    try:
        sites = set(pool.tool("condor_status", "-af", "GLIDEIN_CMSSite").split())
        return len(sites) == 3 and bool(pool.tool("condor_status", "-schedd", "-af", "Name").strip())
    except SystemExit:
        return False


def wait_for(true: Callable[[], bool], seconds: float = 600.0, pause: float = 0.5) -> float:
    """Seconds until it was true."""
    begun = time.monotonic()
    while not true():
        if time.monotonic() - begun > seconds:
            raise SystemExit("waited in vain")
        time.sleep(pause)
    return time.monotonic() - begun


# --- processes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """One process; CPU time includes that of its ended children, to 10 ms only for these."""

    pid: int
    parent: int
    name: str
    cpu_seconds: float

    def memory_kb(self) -> dict[str, int]:
        """RSS, PSS and what no other process shares."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        found = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return {"rss": found["Rss"], "pss": found["Pss"], "own": found["Private_Clean"] + found["Private_Dirty"]}


def descendants(root: int) -> list[Process]:
    """The processes below one."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, tail = entry.read_text().rsplit(")", 1)
            nanoseconds = int(entry.with_name("schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = tail.split()
        cpu_seconds = nanoseconds / 1e9 + sum(map(int, fields[13:15])) / TICKS
        process = Process(int(head.split()[0]), int(fields[1]), head.split("(", 1)[1], cpu_seconds)
        children.setdefault(process.parent, []).append(process)
    found, below = [], [root]
    while below:
        mine = children.get(below.pop(), [])
        found += mine
        below += [process.pid for process in mine]
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """Of some processes, in MB."""

    processes: int
    rss: float
    pss: float
    own: float

    def __str__(self) -> str:
        each = self.own / max(self.processes, 1)
        return f"{self.processes} with {self.rss:.0f} MB RSS, {self.pss:.0f} PSS, {self.own:.1f} own, {each:.2f} each"


def memory(processes: list[Process]) -> Memory:
    """Sums."""
    each = [process.memory_kb() for process in processes]
    return Memory(len(each), *(sum(one[key] for one in each) / 1024 for key in ("rss", "pss", "own")))


def cpu(pool: Running) -> tuple[float, float]:
    """CPU seconds so far of all living DAGMans, and of the schedd."""
    return sum(p.cpu_seconds for p in pool.of("condor_dagman")), sum(p.cpu_seconds for p in pool.of("condor_schedd"))


# --- the measurements ----------------------------------------------------------------------------------------------------


def _shape(pool: Running, place: Path, name: str, write: Callable[[Path], None]) -> None:
    _submit_files(place)
    write(place)
    dagmans, schedd = cpu(pool)
    begun, first = time.monotonic(), 0.0
    pool.submit(place / "workflow.dag")
    while (sleeping := len(pool.of("sleep"))) < UNITS * JOBS:
        first = first or (time.monotonic() if sleeping else 0.0)
        if time.monotonic() - begun > SLEEP_SECONDS / 2:
            raise SystemExit(f"{name}: {sleeping} jobs run")
        time.sleep(0.5)
    ended = time.monotonic()
    up_dagmans, up_schedd = cpu(pool)
    took, jobs = memory(pool.of("condor_dagman")), len(pool.tool("condor_q", "-allusers", "-af", "ClusterId").split())
    cells: tuple[str | float, ...] = (
        name, took.processes, took.rss, took.pss, took.own, took.own / UNITS / JOBS, jobs, UNITS * JOBS / (ended - first),
        up_dagmans - dagmans, up_schedd - schedd, *_steady(pool),
    )  # fmt: skip
    print("".join(_cell(cell, width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)), flush=True)
    if name == next(iter(SHAPES)):
        for program in ("condor_shadow", "condor_schedd"):
            print(f"  beside them {program}: {memory(pool.of(program))}")
    pool.clear()


def _cell(value: str | float, width: int) -> str:
    return f"{value:>{width}.2f}" if isinstance(value, float) else f"{value:>{width}}"


def _steady(pool: Running) -> tuple[float, float]:
    """CPU seconds per minute while nothing happens."""
    time.sleep(5)
    before, begun = cpu(pool), time.monotonic()
    time.sleep(STEADY_SECONDS)
    after, passed = cpu(pool), time.monotonic() - begun
    return (after[0] - before[0]) * 60 / passed, (after[1] - before[1]) * 60 / passed


def _many_nodes(pool: Running, place: Path, nodes: int) -> None:
    """Units of NOOP nodes below one job that never runs."""
    _submit_files(place)
    names = _names(place, nodes // (JOBS + 3))
    gate = ["JOB gate gate.sub", f"PARENT gate CHILD {' '.join(f'{name}_{LANDING}' for name in names)}"]
    _outer(place, [*_flat_units(names, NOOP), *gate])
    pool.submit(place / "workflow.dag")
    seconds = wait_for(lambda: bool(pool.tool("condor_q", "-allusers", "-af", "ClusterId", "-const", ON_HOLD).strip()))
    took, (used, _) = memory(pool.of("condor_dagman")), cpu(pool)
    print(f"  {nodes} nodes: {took}; read with {used:.2f} CPU s, first job after {seconds:.1f} s", flush=True)
    pool.clear()


def _waiting(pool: Running, place: Path, scan: int, ad: int, status: int) -> None:
    """What DAGMans cost that have nothing to do."""
    _submit_files(place, scan, ad)
    names = _names(place, DAGMANS)
    for name in names:
        _dag(place / name / "group.dag", ["JOB gate ../gate.sub"], status)
    _outer(place, [f"SUBDAG EXTERNAL {name} group.dag DIR {name}" for name in names], status)
    before = cpu(pool)[1]
    pool.submit(place / "workflow.dag")
    seconds = wait_for(lambda: len(pool.tool("condor_q", "-allusers", "-af", "ClusterId", "-const", ON_HOLD).split()) >= DAGMANS)
    started, took = cpu(pool), memory(pool.of("condor_dagman"))
    dagmans, schedd = _steady(pool)
    print(f"  scan {scan} s, ad {ad} s, status {status} s: {took}; started in {seconds:.0f} s with {started[0]:.1f} CPU s")
    print(
        f"    schedd {started[1] - before:.1f}; then {dagmans / took.processes:.4f} CPU s each and minute, schedd {schedd:.2f}",
        flush=True,
    )
    pool.clear()


# --- the shapes ----------------------------------------------------------------------------------------------------------


def _submit_files(place: Path, scan: int = 5, ad: int = 5) -> None:
    place.mkdir(parents=True)
    elect = place / "elect.sh"
    elect.write_text(ELECT)
    elect.chmod(0o755)
    intervals = f"DAGMAN_USER_LOG_SCAN_INTERVAL = {scan}\nDAGMAN_QUEUE_UPDATE_INTERVAL = {ad}\n"
    (place / "dagman.config").write_text(intervals)  # inner DAGMans have it through their environment
    (place / f"{LANDING}.sub").write_text(f"{SUBMIT}executable = /bin/true\nqueue\n")
    (place / "proc.sub").write_text(f"{SUBMIT}{AT_SITE}executable = /bin/sleep\narguments = {SLEEP_SECONDS}\nqueue\n")
    (place / "gate.sub").write_text(f"{SUBMIT}executable = /bin/true\nhold = True\nqueue\n")
    for role in REST:
        (place / f"{role}.sub").write_text(f"{SUBMIT}{AT_SITE}executable = /bin/true\nqueue\n")


def _outer(place: Path, lines: list[str], status: int = 5) -> None:
    _dag(place / "workflow.dag", ["CONFIG dagman.config", *lines], status)


def _dag(path: Path, lines: list[str], status: int = 5) -> None:
    path.write_text("\n".join([*lines, f"NODE_STATUS_FILE {path.stem}.status {status} ALWAYS-UPDATE"]) + "\n")


def _unit(prefix: str = "", end: str = "") -> list[str]:
    """One unit's nodes, which run in its directory."""
    procs = [f"{prefix}proc_{n:06d}" for n in range(JOBS)]
    landing, merge, cleanup = (f"{prefix}{role}" for role in (LANDING, *REST))
    lines = [f"JOB {landing} ../{LANDING}.sub{end}", f"RETRY {landing} 3"]
    if NOOP not in end:
        lines.append(f"SCRIPT POST {landing} ../elect.sh $RETURN")
    for name in procs:
        lines += [f"JOB {name} ../proc.sub{end}", f'VARS {name} disk_kb="1000000" wall_minutes="480"', f"RETRY {name} 3"]
    lines += [f"JOB {merge} ../merge.sub{end}", f"JOB {cleanup} ../cleanup.sub{end}"]
    lines += [f"PARENT {landing} CHILD {' '.join(procs)}", f"PARENT {' '.join(procs)} CHILD {merge}"]
    return [*lines, f"PARENT {merge} CHILD {cleanup}"]


def _flat_units(names: list[str], more: str = "") -> list[str]:
    return [line for name in names for line in _unit(f"{name}_", f" DIR {name}{more}")]


def _names(place: Path, units: int = UNITS) -> list[str]:
    names = [f"u{n:05d}" for n in range(units)]
    for name in names:
        (place / name).mkdir()
    return names


def _subdags(place: Path) -> None:
    names = _names(place)
    for name in names:
        _dag(place / name / "group.dag", _unit())
    _outer(place, [f"SUBDAG EXTERNAL {name} group.dag DIR {name}" for name in names])


def _flat(place: Path) -> None:
    _outer(place, _flat_units(_names(place)))


def _splices(place: Path) -> None:
    names = _names(place)
    for name in names:
        (place / name / "group.dag").write_text("\n".join(_unit()) + "\n")
    _outer(place, [f"SPLICE {name} group.dag DIR {name}" for name in names])


def _several(place: Path) -> None:
    names, outer = _names(place), []
    for at in range(0, UNITS, UNITS_PER_DAGMAN):
        _dag(place / f"several{at}.dag", _flat_units(names[at : at + UNITS_PER_DAGMAN]))
        outer.append(f"SUBDAG EXTERNAL several{at} several{at}.dag")
    _outer(place, outer)


SHAPES: dict[str, Callable[[Path], None]] = {
    "A a DAGMan per unit": _subdags,
    "B flat": _flat,
    "C splices": _splices,
    f"D a DAGMan per {UNITS_PER_DAGMAN} units": _several,
}
