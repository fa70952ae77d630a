"""The Rucio server as a process: start, find, ask and stop it. Only the gunicorn of this STATE is ever signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from deploy.rucio.settings import HERE, HOST, RucioServerError, Settings

APPLICATION = "rucio.web.rest.flaskapi.v1.main:application"
START_SECONDS = 180.0  # a few on an idle machine
STOP_SECONDS = 20.0
PING_SECONDS = 5.0
REQUEST_SECONDS = 300


def command(settings: Settings) -> list[str]:
    """The server in the foreground. One thread per worker: Rucio's sessions are not made for more."""
    return [
        str(settings.python), "-m", "gunicorn",
        "--config", str(HERE / "inside/gunicorn_conf.py"),
        "--bind", f"{HOST}:{settings.port}",
        "--workers", str(settings.workers),
        "--threads", "1",
        "--timeout", str(REQUEST_SECONDS),
        "--pid", str(settings.pid_file),
        "--worker-tmp-dir", _heartbeat_directory(settings),
        "--no-control-socket",  # it would be one for all servers of a user
        "--error-logfile", str(settings.logs / "gunicorn.log"),
        "--access-logfile", str(settings.logs / "access.log"),
        "--capture-output",
        APPLICATION,
    ]  # fmt: skip


def _heartbeat_directory(settings: Settings) -> str:
    """Workers touch a file each second; on a busy disk that can take longer than the time limit, in memory it cannot."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(settings.state)  # noqa: S108


def _process_id(settings: Settings) -> int | None:
    """The master's process id when it runs and is ours."""
    try:
        pid = int(settings.pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if _is_ours(settings, pid) else None


def _is_ours(settings: Settings, pid: int) -> bool:
    """Whether this process runs and is of our gunicorn: an id in a stale file may belong to anybody by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return os.fsencode(settings.pid_file) in words


def ping(settings: Settings) -> str | None:
    """The version the server answers with; None when it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{settings.url}/ping", timeout=PING_SECONDS) as answer:
            return str(json.load(answer)["version"])
    except (OSError, urllib.error.URLError, ValueError, KeyError):
        return None


def run(settings: Settings) -> None:
    """Become the server, in the foreground. Does not return."""
    words = command(settings)
    os.chdir(settings.state)
    sys.stdout.flush()
    os.execve(words[0], words, settings.server_environment())  # noqa: S606


def start(settings: Settings) -> bool:
    """Start the server in the background unless it runs, and wait until it answers; returns whether it was started.

    Raises:
        RucioServerError: it ended or did not answer in time, or something else answers on its port.
    """
    process = None
    if _process_id(settings) is None:
        if ping(settings) is not None:
            raise RucioServerError(f"another server answers on {settings.url}: choose another PORT")
        with (settings.logs / "gunicorn.out").open("ab") as stream:
            process = subprocess.Popen(
                command(settings), env=settings.server_environment(), cwd=settings.state, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RucioServerError(f"gunicorn ended with code {process.returncode}: see gunicorn.* in {settings.logs}")
        if _process_id(settings) is not None and ping(settings) is not None:
            return process is not None
        time.sleep(0.1)
    raise RucioServerError(f"no answer from {settings.url} after {START_SECONDS:.0f} s: see {settings.logs}/gunicorn.log")


def stop(settings: Settings) -> bool:
    """Stop the server and wait for its end; returns whether it ran."""
    pid = _process_id(settings)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _is_ours(settings, pid):  # the file goes before the process does
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)  # start() made it the leader of its session, workers included
            settings.pid_file.unlink(missing_ok=True)
            return True
        time.sleep(0.05)
    return True


def status(settings: Settings) -> tuple[bool, str]:
    """Whether it serves, and a line for people."""
    pid, version = _process_id(settings), ping(settings)
    if pid is None:
        return False, f"Rucio is down ({settings.state})"
    if version is None:
        return False, f"Rucio does not answer on {settings.url}, pid {pid}"
    return True, f"Rucio {version} on {settings.url}, pid {pid}"
