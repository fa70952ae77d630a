"""The life cycle with real DAGMans: what an idle cycle costs, and how soon units that end one by one are accounted.

A pool of its own, without slots: ``BENCH_ACTIVE`` outer DAGMans, at most ``BENCH_PER_SCHEDD`` to a schedd, of NOOP units whose
manifests are ready, beside ``BENCH_QUEUED`` QUEUED and ``BENCH_ENDED`` ended requests and ``BENCH_FILES`` output files. First
nothing happens: polls and cycles of this process. Then ``BENCH_RATE`` units a second end, one by one and spread over all DAGs,
for ``BENCH_SECONDS``, while worker, operations, ticker, beat and web run (``deploy/run/process``; calls to DBS and Rucio do
nothing),
requests are admitted, planned and submitted (``BENCH_ADMITTED`` an hour), a client reads over HTTP, and an operator holds and
releases queued requests (``bench.engine_users``). A unit ends with its
PRE script, which writes the moment down. With ``BENCH_NICE`` (19) the pool gives way to WMS2, as if it had a host of its own.
A kernel that shares out by session (``kernel.sched_autogroup_enabled``) heeds that only when it is told not to: each DAGMan is a
session. Units then begin later than asked for, and a higher ``BENCH_RATE`` makes up for that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import accounting, api_load, engine_users
from bench.costs import costs
from bench.dag_shapes import TICKS, Process, Running, descendants, running_pool, wait_for
from dags_app.payload.contract.layout import JOBSTATE_LOG
from deploy.htcondor.pool import DOMAIN
from deploy.stack.environment import with_limits
from tests.support.servers import free_port

SIZES = {
    "ACTIVE": 300, "PER_SCHEDD": 100, "QUEUED": 10_000, "ENDED": 100_000, "FILES": 1_000_000, "RATE": 50, "SECONDS": 60,
    "ADMITTED": 50, "NICE": 0,
}  # fmt: skip
TURNS = 9
#: That answer: worker, operations, ticker.
WORKERS = 3
#: Until what starting costs is over.
SETTLE_SECONDS = 10
#: How often memory is looked at while units end.
LOOKS = 5
#: Between two looks for what DAGMans have written.
WATCH_SECONDS = 0.2
NOT_OURS = ("SUBDAG", "SCRIPT", "RETRY", "ABORT-DAG-ON", "CATEGORY", "PRIORITY", "MAXJOBS", "INCLUDE")
NOOP = "executable = /bin/true\nuniverse = vanilla\nlog = noop.log\nqueue\n"
#: Waits for the beginning, without a processor, then for its turn.
WAIT = """\
#!/bin/sh
if [ -e {go} ]; then sleep {interval}; else read line < {gate}; sleep {first}; fi
date +%s.%N > $1/ended
"""
_FILES = """
WITH block AS MATERIALIZED (
  SELECT b.dataset_id, b.id, min(u.id) AS unit, row_number() OVER () - 1 AS number
  FROM processing_blocks b JOIN work_units u USING (workflow_id) GROUP BY b.id)
INSERT INTO output_files (lfn, dataset_id, block_id, unit_id, rse, size_bytes, adler32, events, lumis, parents, validity, rule_id,
  created_at)
SELECT '/store/bench/' || n || '.root', block.dataset_id, block.id, block.unit, 'T1_US_FNAL_Disk', 2000000000, '0000000a', 800,
  '{"1": [[1, 800]]}', '[]', 'valid', 'rule', now()
FROM generate_series(1, %(files)s) n JOIN block ON block.number = n %% (SELECT count(*) FROM block)
"""


def main() -> None:
    """Print what was found."""
    size = {name: int(os.environ.get(f"BENCH_{name}", usual)) for name, usual in SIZES.items()}
    base = Path(os.environ["WMS2_STATE_DIR"]) / "engine-live"
    shutil.rmtree(base, ignore_errors=True)
    names = [f"schedd{number}@{DOMAIN}" for number in range(1 + (size["ACTIVE"] - 1) // size["PER_SCHEDD"])]
    for number in range(1, len(names)):
        (base / f"pool/spool{number}").mkdir(parents=True)
    with running_pool(base / "pool", schedds_alone(names), lambda pool: schedds_there(pool) == set(names), size["NICE"]) as pool:
        os.environ |= {
            **pool.environment, "PATH": os.environ["PATH"], "WMS2_CONDOR_TOKEN_DIR": str(pool.tokens),
            "WMS2_CYCLE_SECONDS": "60",
            "WMS2_SUBMIT_ROOT": str(base / "submit"), "WMS2_SWEEP_SECONDS": "3600", "WMS2_EFFECT_GATHER_SECONDS": "30",
            **with_limits(os.environ, jobs_per_work_unit=accounting.JOBS, rate_limit_read=0),
        }  # fmt: skip
        import django

        django.setup()
        import logging

        logging.disable(logging.CRITICAL)
        try:
            _run(pool, base, names, size)
        finally:
            for name in names:
                pool.tool("condor_rm", "-name", name, "-all")
            wait_for(lambda: not pool.of("condor_dagman"), 120)


def schedds_alone(names: Sequence[str]) -> str:
    """A pool of schedds alone; each beyond the first has its own directory."""
    lines = ["START_SCHEDULER_UNIVERSE = True", "MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER = 10000", f"SCHEDD_NAME = {names[0]}"]
    daemons = ["MASTER", "COLLECTOR", "SCHEDD"]
    for number, name in enumerate(names[1:], start=1):
        daemon, place = f"SCHEDD{number}", f"$(LOCAL_DIR)/spool{number}"
        daemons.append(daemon)
        files = {"SCHEDD_ADDRESS_FILE": ".address", "SCHEDD_DAEMON_AD_FILE": ".ad", "HISTORY": "history", "SCHEDD_LOG": "log"}
        lines += [f"{daemon} = $(SCHEDD)", f"{daemon}_ARGS = -local-name {daemon}", f"{daemon}.SCHEDD_NAME = {name}"]
        lines += [f"{daemon}.SPOOL = {place}", *(f"{daemon}.{key} = {place}/{file}" for key, file in files.items())]
    return "\n".join([*lines, f"DAEMON_LIST = {' '.join(daemons)}", f"DC_DAEMON_LIST = + {' '.join(daemons[3:])}"]) + "\n"


def schedds_there(pool: Running) -> set[str]:
    """Names of those that the collector has heard of."""
    try:
        return set(pool.tool("condor_status", "-schedd", "-af", "Name").split())
    except SystemExit:
        return set()


def _run(pool: Running, base: Path, names: Sequence[str], size: Mapping[str, int]) -> None:
    from tests.support.scripted.snapshot import wipe

    wipe()
    begun = time.monotonic()
    token = _rows(size)
    dags = _dags(pool, base, names, size)
    print(f"{size}; {len(names)} schedds; built in {time.monotonic() - begun:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    _idle()
    _live(base, dags, token, size)


# --- what is there -------------------------------------------------------------------------------------------------------


def _rows(size: Mapping[str, int]) -> str:
    """Requests that wait or have ended, and files; an operator's token."""
    from django.contrib.auth.models import Group, User
    from django.db import connection
    from rest_framework.authtoken.models import Token

    from sites_app.models import Schedd, ScheddState
    from wms2.identities.grants import OPERATORS

    api_load.build_rows(size["QUEUED"] + size["ENDED"])
    api_load.make_live(0, size["QUEUED"])
    user, _ = User.objects.get_or_create(username="bench")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    Schedd.objects.update(state=ScheddState.DISABLED)
    with connection.cursor() as cursor:
        cursor.execute(_FILES, {"files": size["FILES"]})
        cursor.execute("VACUUM ANALYZE")
    return str(Token.objects.get_or_create(user=user)[0].key)


def _dags(pool: Running, base: Path, names: Sequence[str], size: Mapping[str, int]) -> list[Any]:
    """The ACTIVE requests: planned by WMS2, each outer DAG with other nodes of the same names, submitted."""
    from dags_app.models import DAG, DAGStatus
    from requests_app.models import Limit
    from tests.support.rows import pool_row, schedd_row

    accounting._sites()
    (base / "submit").mkdir(parents=True, exist_ok=True)
    os.mkfifo(base / "gate")
    pool_row("bench-live", collector=pool.collector, token_dir=str(pool.tokens))
    schedds = [schedd_row(name, pool="bench-live", max_dagman_slots=100_000, submit_root=str(base / "submit")) for name in names]
    units = 2 + size["RATE"] * size["SECONDS"] // size["ACTIVE"]
    dags = []
    for number in range(size["ACTIVE"]):
        dag = accounting._running(units)
        _make_noop(dag, base, number, size)
        schedd = schedds[number % len(schedds)]
        DAG.objects.filter(pk=dag.pk).update(schedd=schedd, schedd_name=schedd.name, dagman_cluster_id=_submit(dag, schedd))
        DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.SUBMITTED)
        dags.append(dag)
    Limit.objects.filter(name="max_active_dags").update(value=len(dags))
    from requests_app.lifecycle.cycle import run_cycle

    def all_run() -> bool:
        run_cycle(force=True)
        return DAG.objects.filter(pk__in=[dag.pk for dag in dags], status=DAGStatus.RUNNING).count() == len(dags)

    wait_for(all_run)
    return dags


def _make_noop(dag: Any, base: Path, number: int, size: Mapping[str, int]) -> None:
    directory = Path(dag.submit_dir)
    outer = Path(dag.dag_file_path)
    interval = size["ACTIVE"] / size["RATE"]
    times = {"interval": f"{interval:.3f}", "first": f"{interval * (number + 1) / size['ACTIVE']:.3f}"}
    script = directory / "wait.sh"
    script.write_text(WAIT.format(go=base / "go", gate=base / "gate", **times))
    script.chmod(0o755)
    (directory / "noop.sub").write_text(NOOP)
    lines = [line for line in outer.read_text().splitlines() if not line.startswith(NOT_OURS)]
    for place in sorted(directory.glob("mg_*")):
        lines += [f"JOB {place.name} noop.sub NOOP", f"SCRIPT PRE {place.name} {script} {place.name}"]
    outer.write_text("\n".join(lines) + "\n")
    with (directory / "dagman.config").open("a") as config:
        config.write("DAGMAN_MAX_PRE_SCRIPTS = 1\n")


def _submit(dag: Any, schedd: Any) -> str:
    from sites_app.schedds import adapter

    stamps = {"WMS2_Instance": dag.instance, "WMS2_Request": dag.workflow.request_id, "WMS2_DagID": str(dag.pk), "WMS2_Fence": 1}
    return str(adapter(schedd).submit_dag(Path(dag.submit_dir), Path(dag.dag_file_path).name, stamps, 1000))


# --- nothing happens -----------------------------------------------------------------------------------------------------


def _idle() -> None:
    """Polls and cycles of this process, its session and its children, which ask the schedds."""
    from requests_app.lifecycle.cycle import run_cycle
    from requests_app.lifecycle.evaluator import evaluate_due

    for _ in range(3):
        run_cycle(force=True)
        while evaluate_due(seconds=600):
            pass
    for name, force in (("a poll", False), ("a cycle, poll included", True)):
        found = []
        for _ in range(TURNS):
            children = cpu_of(_ours())
            with costs() as cost:
                run_cycle(force=force)
            found.append((cost.seconds, cpu_of(_ours()) - children, cost.statements))
        own, theirs, statements = (median(column) for column in zip(*found, strict=True))
        spent = f"{own * 1000:.0f} ms, its children {theirs * 1000:.0f} ms, {statements} statements"
        print(f"{name} in which nothing changed: {spent}", flush=True)


def _ours() -> list[Process]:
    """Below this process, without the pool and what it runs, whether WMS2 does or not: DAGMans and the scripts of their DAGs."""
    found = descendants(os.getpid())
    names = {process.pid: process for process in found}

    def is_pools(process: Process | None) -> bool:
        return process is not None and (process.name.startswith("condor") or is_pools(names.get(process.parent)))

    return [process for process in found if not is_pools(process)]


def cpu_of(processes: Sequence[Process]) -> float:
    """CPU seconds."""
    return sum(process.cpu_seconds for process in processes)


# --- units end -----------------------------------------------------------------------------------------------------------


def _live(base: Path, dags: Sequence[Any], token: str, size: Mapping[str, int]) -> None:
    from wms2.celery import app

    port = free_port()
    metrics = f"{os.environ['WMS2_STATE_DIR']}/bench-metrics"
    settings = {"PORT": str(port), "WMS2_METRICS_ROOT": metrics, "WMS2_LOG_LEVEL": "WARNING"}
    os.environ |= settings
    app.control.purge()
    paths, login = api_load._paths(), {"Authorization": f"Token {token}", "Cookie": api_load._cookie()}
    with ExitStack() as stack, ThreadPoolExecutor(3) as client:
        seen = stack.enter_context(_watched(dags))
        for name in ("web", "verbs", "ticker", "beat"):
            stack.enter_context(api_load._process(name, settings))
        stack.enter_context(_worker(settings))
        api_load._wait_for(port)
        wait_for(lambda: len(app.control.ping(timeout=5)) == WORKERS, 300)
        time.sleep(SETTLE_SECONDS)
        before, begun, memory = _cpu(), time.time(), [_memory()]
        (base / "go").touch()
        os.close(os.open(base / "gate", os.O_WRONLY))
        answers = client.submit(engine_users.ask, port, login, paths, float(size["SECONDS"]))
        verbs = client.submit(engine_users.act, port, login, float(size["SECONDS"]))
        memories = client.submit(_memories, size["SECONDS"] / LOOKS)
        admitted = engine_users.admit_while(answers, size)
        used = {name: seconds - before[name] for name, seconds in _cpu().items()}
        passed = time.time() - begun
        load = os.getloadavg()[0]
        memory += memories.result()
        _reported(dags)
    late, after_dagman, after_line = zip(*_late(dags, seen), strict=True)
    print(f"{len(late)} units in {passed:.0f} s, {len(late) / passed:.1f}/s; load {load:.1f}; until a unit is accounted:")
    moments = {"its PRE script's end": late, "the moment in DAGMan's line": after_dagman, "that line can be read": after_line}
    for since, seconds in moments.items():
        cuts = quantiles(seconds, n=100, method="inclusive")
        print(f"  since {since}: p50 {cuts[49]:.1f} s, p95 {cuts[94]:.1f}, p99 {cuts[98]:.1f}, longest {max(seconds):.1f}")
    each = ", ".join(f"{name} {1000 * seconds / len(late):.1f}" for name, seconds in used.items())
    print(f"  ms of CPU a unit, all that they did: {each}; cores in all {sum(used.values()) / passed:.2f}")
    print(f"  admitted meanwhile: {len(admitted)}, ACTIVE after {', '.join(f'{seconds:.0f}' for seconds in admitted.values())} s")
    for name, seconds in zip(("its answer", "the life cycle has looked"), zip(*verbs.result(), strict=True), strict=True):
        p50, p95 = (quantiles(seconds, n=20, method="inclusive")[at] for at in (9, 18))
        print(f"  {len(seconds)} verbs, until {name}: p50 {p50:.2f} s, p95 {p95:.2f}, longest {max(seconds):.2f}")
    reported = ", ".join(f"{kind} {' '.join(f'{look[kind]:.0f}' for look in memory)}" for kind in memory[0])
    print(f"  MB of memory before the units and {LOOKS} times meanwhile, shared pages divided: {reported}")
    bare = answers.result()[api_load.BARE]
    for name, these in answers.result().items():
        cells = [f"{q * 1000:7.1f} ms {q / b:5.1f}x" for q, b in zip(_two(these), _two(bare), strict=True)]
        print(f"  {name:24} n {len(these):4}  p50 {cells[0]}  p99 {cells[1]}")


def _two(values: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


@contextmanager
def _worker(settings: Mapping[str, str]) -> Iterator[None]:
    metrics = Path(settings["WMS2_METRICS_ROOT"]) / "worker"
    metrics.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **settings, "PROMETHEUS_MULTIPROC_DIR": str(metrics), "DJANGO_SETTINGS_MODULE": "wms2.settings"}
    with (Path(os.environ["WMS2_STATE_DIR"]) / "logs/bench-worker.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-m", "bench.engine_live", "worker"], env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)


def worker() -> None:
    """The worker, with effects that call nobody."""
    import django

    django.setup()
    from outputs_app.effects import HANDLERS, Handler
    from outputs_app.models import EffectKind
    from wms2.celery import app

    HANDLERS.update(dict.fromkeys(EffectKind.values, Handler(lambda effect: {}, lambda effect, result: None)))
    processes = os.environ.get("WMS2_WORKER_PROCESSES", "2")
    app.worker_main(["worker", "-E", "-Q", "celery,effects", "-c", processes, "--loglevel", "WARNING"])


def _cpu() -> dict[str, float]:
    """Seconds so far of the processes below this one, by kind, and of the database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    postmaster = int(Path(f"/proc/{backend}/stat").read_text().rsplit(")", 1)[1].split()[1])
    gone = Path(f"/proc/{postmaster}/stat").read_text().rsplit(")", 1)[1].split()[13:15]  # backends that have ended
    database = cpu_of(descendants(postmaster)) + sum(map(int, gone)) / TICKS
    found = {
        "database": database,
        "web": 0.0,
        "worker": 0.0,
        "ticker, beat, verbs": 0.0,
    }
    for kind, process in _kinds():
        found[kind] += process.cpu_seconds
    return found


def _kinds() -> Iterator[tuple[str, Process]]:
    """The processes below this one, each with what it is: as the one that it is a child of, as those are that ask the schedds."""
    kinds: dict[int, str] = {}
    for process in _ours():  # parents first
        command = ""
        with suppress(OSError):  # it has ended meanwhile
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        own = "web" if "gunicorn" in command else "worker" if "engine_live worker" in command else "ticker, beat, verbs"
        kinds[process.pid] = kinds.get(process.parent, own if "htcondor_child" not in command else "")
        if kinds[process.pid]:  # else it is asked by this one
            yield kinds[process.pid], process


def _memory() -> dict[str, float]:
    """MB of the processes below this one, by kind."""
    found: Counter[str] = Counter()
    for kind, process in _kinds():
        with suppress(OSError):  # it has ended meanwhile
            found[kind] += process.memory_kb()["pss"]
    return {kind: kilobytes / 1024 for kind, kilobytes in found.items()}


def _memories(pause: float) -> list[dict[str, float]]:
    """``LOOKS`` looks at memory, each after a pause of so many seconds."""
    found = []
    for _ in range(LOOKS):
        time.sleep(pause)
        found.append(_memory())
    return found


def _reported(dags: Sequence[Any]) -> None:
    """Wait until what has ended is accounted; each DAG has a last unit that is waited for in vain."""
    from dags_app.models import WorkUnit, WorkUnitState

    ended = {str(path.parent) for dag in dags for path in Path(dag.submit_dir).glob("mg_*/ended")}
    rows = WorkUnit.objects.filter(dag__in=[dag.pk for dag in dags], state=WorkUnitState.DONE)
    wait_for(lambda: rows.count() >= len(ended), 120)


@contextmanager
def _watched(dags: Sequence[Any]) -> Iterator[dict[tuple[Any, str], tuple[float, float]]]:
    """Of each unit that is done the moment in DAGMan's line, which is to the second, and when that line could be read."""
    seen: dict[tuple[Any, str], tuple[float, float]] = {}
    over = threading.Event()

    def watch() -> None:
        places = {dag.pk: Path(dag.submit_dir) / JOBSTATE_LOG for dag in dags}
        read = dict.fromkeys(places, 0)
        while not over.wait(WATCH_SECONDS):
            for pk, path in places.items():
                if path.stat().st_size > read[pk]:
                    new = path.read_bytes()[read[pk] :]
                    new, now = new[: new.rfind(b"\n") + 1], time.time()
                    read[pk] += len(new)
                    lines = (line.split() for line in new.decode().splitlines())
                    seen.update(((pk, line[1]), (int(line[0]) + 0.5, now)) for line in lines if line[2] == "JOB_SUCCESS")

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield seen
        finally:
            over.set()
    watching.result()


def _late(dags: Sequence[Any], seen: Mapping[tuple[Any, str], tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Seconds to the account of each unit: from its end, and from the two moments of ``_watched``."""
    from dags_app.models import WorkUnit, WorkUnitState

    late = []
    for dag in dags:
        done = WorkUnit.objects.filter(dag=dag.pk, state=WorkUnitState.DONE)
        for name, done_at in done.values_list("name", "done_at"):
            if done_at is not None:
                ended, at = float((Path(dag.submit_dir) / name / "ended").read_text()), done_at.timestamp()
                written, readable = seen[dag.pk, name]
                late.append((at - ended, at - written, at - readable))
    return late


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main()
