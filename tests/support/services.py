"""Taking the test stack's own services away: PostgreSQL restarted, Valkey emptied, schedd and DAGMans killed, frozen, shut down.

The stack's supervisor starts again what dies. Processes are found through the files that they write themselves below
``WMS2_STATE_DIR``, so that nothing but this stack's own is ever signalled.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis
from django.db import connection

from tests.support.waiting import until
from wms2.celery import app


def postgres_crash() -> None:
    """The server breaks off every session, stops at once, is started again and recovers. Returns when it serves."""
    pid_file = _state("postgres/data/postmaster.pid")
    old = _pid_in(pid_file)
    parameters = connection.get_connection_params()
    place = {"host": parameters["host"], "user": parameters["user"], "dbname": "postgres"}
    connection.close()
    os.kill(old, signal.SIGQUIT)  # immediate shutdown: sessions end, nothing is flushed, the log is replayed

    def serves() -> bool:
        try:
            with psycopg.connect(**place) as session:
                return session.execute("SELECT 1").fetchone() == (1,) and _pid_in(pid_file) != old
        except (psycopg.OperationalError, FileNotFoundError):
            return False

    until(serves, "PostgreSQL serves again")


def postgres_dump(file: Path) -> None:
    """A backup of this test's database as it is at this moment, while others write."""
    _postgres_program("pg_dump", "--format", "custom", "--file", str(file), connection.settings_dict["NAME"])


@contextmanager
def postgres_restored(file: Path) -> Iterator[None]:
    """For the length of the block this test, and each process that it starts, uses a database restored from a backup."""
    was = connection.settings_dict["NAME"]
    name = f"{was}_restored"
    _postgres_program("dropdb", "--if-exists", "--force", name)
    _postgres_program("createdb", name)
    _postgres_program("pg_restore", "--exit-on-error", "--dbname", name, str(file))
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = was
        _postgres_program("dropdb", "--force", name)


def _postgres_program(name: str, *arguments: str) -> None:
    """One of those that came with the server."""
    parameters = connection.get_connection_params()
    server = Path(f"/proc/{_pid_in(_state('postgres/data/postmaster.pid'))}/exe").resolve()
    place = {"PGHOST": str(parameters["host"]), "PGUSER": str(parameters["user"]), "PGPORT": str(parameters.get("port") or 5432)}
    argv = (str(server.parent / name), *arguments)
    subprocess.run(argv, env={**os.environ, **place}, check=True, capture_output=True, timeout=120)


def valkey_lose_everything() -> None:
    """The broker is killed, its file is lost, and it is started again. Returns when it answers, empty."""
    socket, directory = _state("valkey/valkey.sock"), _state("valkey/appendonlydir")
    with redis.Redis(unix_socket_path=str(socket)) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)  # so that it writes nothing more, and nobody starts it before the file is gone
    shutil.rmtree(directory)
    os.kill(pid, signal.SIGKILL)

    def serves() -> bool:
        try:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                return int(client.info("server")["process_id"]) != pid
        except redis.ConnectionError:
            return False

    until(serves, "Valkey serves again")


def broker_tasks() -> int:
    """How many Celery tasks wait in the queues or are held by a worker that has not finished them."""
    with _broker() as client:
        return sum(int(client.llen(name)) for name in app.amqp.queues) + int(client.hlen("unacked"))


def broker_emptied() -> None:
    """Nothing is left in this process' part of the broker: what a killed worker held would stay there for an hour."""
    with _broker() as client:
        client.flushdb()


def _broker() -> redis.Redis:
    database = re.search(r"virtual_host=(\d+)", os.environ["WMS2_BROKER_URL"])
    assert database is not None
    return redis.Redis(unix_socket_path=str(_state("valkey/valkey.sock")), db=int(database[1]))


@contextmanager
def schedd_frozen() -> Iterator[None]:
    """For the length of the block the schedd takes connections but answers nobody."""
    pid = _schedd_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        until(_schedd_answers, "the schedd answers again")


@contextmanager
def schedd_shut_down() -> Iterator[None]:
    """For the length of the block there is no schedd; its DAGMans and shadows go with it."""
    _condor("condor_off", "-fast", "-daemon", "schedd")
    until(lambda: _schedd_pid_or_none() is None, "the schedd has ended")
    try:
        yield
    finally:
        _condor("condor_on", "-daemon", "schedd")
        until(_schedd_answers, "the schedd answers again")


@contextmanager
def schedd_takes_no_jobs() -> Iterator[None]:
    """The schedd refuses submissions, until the end of the block or ``schedd_takes_jobs_again``."""
    _refusal().write_text("MAX_JOBS_SUBMITTED = 0\n")
    try:
        _condor("condor_reconfig", "-daemon", "schedd")
        yield
    finally:
        schedd_takes_jobs_again()


def schedd_takes_jobs_again() -> None:
    """End of the refusal, also when there was none."""
    _refusal().unlink(missing_ok=True)
    _condor("condor_reconfig", "-daemon", "schedd")


def _refusal() -> Path:
    return Path(os.environ["CONDOR_CONFIG"]).parent / "config.d/95-no-jobs.conf"


def schedd_kill() -> None:
    """The schedd dies at once, as its host would; the pool's master starts it again. Returns when it answers."""
    pid = _schedd_pid()
    os.kill(pid, signal.SIGKILL)
    until(lambda: _schedd_pid_or_none() not in (None, pid) and _schedd_answers(), "another schedd answers")


def dagman_kill(directory: Path) -> None:
    """The DAGMan process of this DAG or unit directory dies at once; the schedd starts its job again."""
    mine = [pid for pid in _children(_schedd_pid()) if _program(pid) == "condor_dagman" and _runs_in(pid, directory)]
    assert len(mine) == 1, f"DAGMans in {directory}: {mine}"
    os.kill(int(mine[0]), signal.SIGKILL)


def _runs_in(pid: str, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory.resolve()
    except FileNotFoundError:
        return False


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def schedd_lose_queue() -> None:
    """The schedd is shut down, its queue's file is lost, and it starts with an empty queue. Returns when it answers."""
    with schedd_shut_down():
        for path in (Path(os.environ["CONDOR_CONFIG"]).parent / "spool").glob("job_queue.log*"):
            path.unlink()


def forsaken_jobs_end() -> None:
    """Jobs whose schedd forgot them give their slots back now, not when their leases run out."""
    _condor("condor_vacate", "-fast")


def _schedd_pid() -> int:
    pid = _schedd_pid_or_none()
    assert pid is not None, "the pool's master has no schedd"
    return pid


def _schedd_pid_or_none() -> int | None:
    """The schedd among the children of the stack's own condor_master."""
    master = _pid_in(Path(os.environ["CONDOR_CONFIG"]).parent / "run/master.pid")
    return next((int(pid) for pid in _children(master) if _program(pid) == "condor_schedd"), None)


def _program(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""


def _schedd_answers() -> bool:
    return _condor("condor_q", "-allusers", "-totals", check=False)


def _condor(*command: str, check: bool = True) -> bool:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert not check or result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.returncode == 0


def _pid_in(path: Path) -> int:
    return int(path.read_text().split()[0])


def _state(below: str) -> Path:
    """A place of the stack's own server; a server of somebody else is never restarted."""
    path = Path(os.environ["WMS2_STATE_DIR"]) / below
    if not path.exists():
        pytest.skip(f"{path} is not there: the stack uses a server that is not its own")
    return path
