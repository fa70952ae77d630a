#!/usr/bin/env python3
"""A real Rucio server on this machine, on the loopback interface, for the demo and the tests. Every command may be repeated.

    server.py setup      the environment, the configuration, the tables and accounts
    server.py start      in the background; waits until it answers      (run: in the foreground, for a supervisor)
    server.py seed       scope, RSEs, limits, distances; needs STORAGE_ROOT
    server.py reset      remove every DID, replica and rule; accounts and RSEs stay; the server may run meanwhile
    server.py settle     play FTS: pending tape copies arrive
    server.py status     exit 0 when it answers
    server.py env        lines for a shell: where WMS2 finds the client configuration
    server.py stop

Variables: STATE (absolute, all it writes), VENV (STATE/venv; may be shared), PORT (18500), DATABASE_URL (postgresql://… or
sqlite:////abs/file; default a SQLite file in STATE), WORKERS (2), STORAGE_ROOT (directory with one directory per RSE),
XROOTD_PORT (of the server behind T2_DE_DESY; 0: none), PYTHON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # started by its path, before anything is installed

from deploy.rucio import configuration, environment, service
from deploy.rucio.settings import ADMIN_ACCOUNT, HERE, SCOPE, SERVICE_ACCOUNT, RucioServerError, Settings, from_environment
from deploy.stack.errors import StackError
from deploy.stack.steps import locked

_NOT_READY = 3
_STEP_SECONDS = 300


def _inside(settings: Settings, program: str, *arguments: str, stdin: str = "", extra: dict[str, str] | None = None) -> int:
    """Run a program of ``inside/`` in the server's environment; returns 0 or the "not ready" code, raises on others."""
    result = subprocess.run(
        [str(settings.python), str(HERE / program), *arguments], input=stdin, text=True, cwd=settings.state, capture_output=True,
        env=settings.server_environment() | (extra or {}), timeout=_STEP_SECONDS, check=False,
    )  # fmt: skip
    if result.returncode not in (0, _NOT_READY):
        end = "\n".join((result.stdout + result.stderr).strip().splitlines()[-12:])
        raise RucioServerError(f"{Path(program).name} {' '.join(arguments)} failed with code {result.returncode}:\n{end}")
    if result.stdout.strip():
        print(result.stdout.strip())
    return result.returncode


def _database(settings: Settings, action: str, stdin: str = "") -> int:
    # Not as an argument: the URL may hold a password, and arguments can be read by all users.
    url = settings.database_url.replace("postgres://", "postgresql://", 1)
    return _inside(settings, "inside/database.py", action, stdin=stdin, extra={"DATABASE_URL": url})


def _as_admin(settings: Settings) -> dict[str, str]:
    home = settings.client_home(ADMIN_ACCOUNT)
    return {"RUCIO_HOME": str(home), "RUCIO_CONFIG": str(home / "etc/rucio.cfg")}


def setup(settings: Settings) -> None:
    """Everything up to a server that can be started."""
    settings.state.mkdir(parents=True, exist_ok=True)
    made = environment.install(settings, os.environ.get("PYTHON") or sys.executable)
    with locked(settings.state / "setup.lock", "rucio"):
        configuration.write(settings)
        passwords = json.dumps(configuration.passwords(settings))
        built = _database(settings, "prepare", passwords) == _NOT_READY
        if built:
            _inside(settings, "inside/bootstrap.py", stdin=passwords)
    changed = [word for word, done in (("environment", made), ("database", built)) if done]
    print(f"Rucio is set up in {settings.state}" + (f" (made: {', '.join(changed)})" if changed else ""))


def _require_setup(settings: Settings) -> None:
    if not environment.is_finished(settings) or not settings.server_config.exists():
        raise RucioServerError(f"nothing is set up in STATE {settings.state} with VENV {settings.venv}: run setup first")
    configuration.write(settings)  # PORT or DATABASE_URL may differ from last time


def seed(settings: Settings) -> None:
    """Scope, RSEs, limits, distances; the server must run."""
    if settings.storage_root is None:
        raise RucioServerError("STORAGE_ROOT is not set: give the directory that holds one directory per RSE")
    extra = {"STORAGE_ROOT": str(settings.storage_root), "XROOTD_PORT": str(settings.xrootd_port), "SCOPE": SCOPE}
    extra["WMS2_RUCIO_ACCOUNTS"] = ",".join(configuration.ACCOUNTS)
    _inside(settings, "inside/seed.py", extra=extra | _as_admin(settings))
    print("Rucio is seeded")


def evaluate(settings: Settings, *names: str) -> None:
    """What a Rucio with daemons does within minutes: rules of these blocks follow what was attached to them, and detached."""
    _inside(settings, "inside/evaluate.py", *names)


def run_command(name: str, settings: Settings) -> int:
    """One command; returns the exit code."""
    if name not in ("setup", "stop", "status", "env"):
        _require_setup(settings)
    if name in ("seed", "settle") and service.ping(settings) is None:
        raise RucioServerError(f"no Rucio server answers on {settings.url}: run start first")
    match name:
        case "setup":
            setup(settings)
        case "run":
            service.run(settings)
        case "start":
            service.start(settings)
        case "seed":
            seed(settings)
        case "reset":
            _database(settings, "empty")
            print("Rucio is empty")
        case "settle":
            _inside(settings, "transfers.py", extra=_as_admin(settings))
        case "env":
            print(f"export WMS2_RUCIO_HOME={settings.client_home(SERVICE_ACCOUNT)}")
            print(f"export WMS2_RUCIO_ACCOUNT={SERVICE_ACCOUNT}")
        case "stop":
            print("Rucio stopped" if service.stop(settings) else "Rucio was not running")
    if name not in ("start", "status"):
        return 0
    answers, line = service.status(settings)
    print(line)
    return int(not answers)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="server.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = ["setup", "start", "run", "seed", "reset", "settle", "status", "env", "stop"]
    parser.add_argument("command", choices=commands)
    try:
        return run_command(parser.parse_args(arguments).command, from_environment(os.environ))
    except (StackError, subprocess.TimeoutExpired) as error:
        print(f"rucio: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
