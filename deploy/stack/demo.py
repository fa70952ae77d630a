"""The demo: the whole of WMS2 on one machine, running a request to its end while a person looks on."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from pathlib import Path

from deploy.stack import stacks
from deploy.stack.errors import StackError
from deploy.stack.stacks import Stack
from deploy.stack.steps import run_logged, say, seconds_since_start, tail
from deploy.stack.supervisor import Supervisor

ADMIN = "admin"
POLL_SECONDS = 2.0


def start(stack: Stack, supervisor: Supervisor) -> None:
    """Start all services of the stack, WMS2's included."""
    stacks.start_backends(stack, supervisor)
    stacks.start_wms2(stack, supervisor)


def fresh_login(stack: Stack) -> str:
    """Make the administrator, or give the existing one a new password; returns the password."""
    password = secrets.token_urlsafe(12)
    argv = (stack.layout.python, "-m", "deploy.demo.login", ADMIN)
    log = stack.directory / "logs/login.log"
    environment = {**stack.environment, "WMS2_ADMIN_PASSWORD": password}
    run_logged(argv, log=log, environment=environment, cwd=stack.layout.source, seconds=120)
    return password


def documents(stack: Stack) -> list[Path]:
    """The request documents to import: the one named by REQUEST, else the demo's."""
    chosen = os.environ.get("REQUEST")
    if chosen:
        if not Path(chosen).is_file():
            raise StackError(f"REQUEST={chosen}: no such file")
        return [Path(chosen)]
    found = sorted((stack.layout.source / "deploy/demo/requests").glob("*.json"))
    if not found:
        raise StackError("there is no document in deploy/demo/requests: name one with REQUEST=file.json")
    return found


def import_request(stack: Stack, document: Path) -> str | None:
    """Import one document; returns the request's name, or None when it was imported by an earlier run."""
    argv = [str(stack.layout.python), "manage.py", "import_request", "--file", str(document), "--json"]
    result = subprocess.run(
        argv, env=dict(stack.environment), cwd=stack.layout.source, capture_output=True, text=True, check=False, timeout=300
    )
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        raise StackError(f"import_request printed no JSON for {document}: {result.stderr.strip()[-1500:]}") from None
    if result.returncode == 0:
        return str(answer["request_name"])
    problems = "\n".join(f"  {p['field']}: {p['problem']}" for p in answer.get("problems", []))
    if "already" in problems:
        say(f"{document.name} was imported before")
        return None
    raise StackError(f"{document} was refused:\n{problems}")


def progress(stack: Stack) -> str:
    """One line on where the requests stand."""
    argv = [str(stack.layout.python), "-m", "deploy.demo.progress"]
    result = subprocess.run(
        argv, env=dict(stack.environment), cwd=stack.layout.source, capture_output=True, text=True, check=False, timeout=60
    )
    return result.stdout.strip() if result.returncode == 0 else f"no answer about the requests ({result.stderr.strip()[-200:]})"


def stay_up(stack: Stack, supervisor: Supervisor) -> None:
    """Show progress and keep the services running until interrupted."""
    before = ""
    while True:
        supervisor.check()
        now = progress(stack)
        if now != before:
            say(now)
            before = now
        time.sleep(POLL_SECONDS)


def announce(stack: Stack, password: str) -> None:
    say(f"running after {seconds_since_start():.0f} s")
    rows = (
        ("admin", f"{stack.web_url}/admin/   login {ADMIN}, password {password}"),
        ("flower", f"http://127.0.0.1:{stack.ports['flower']}/"),
        ("logs", f"{stack.directory}/logs"),
        ("settings", f"{stack.directory}/env   (set -a; . {stack.directory}/env; set +a)"),
        ("to stop", "Ctrl-C here, or `make stop` anywhere in this checkout"),
    )
    for name, value in rows:
        print(f"    {name:<9} {value}", flush=True)


def verify(stack: Stack, supervisor: Supervisor, seconds: float) -> int:
    """Run the demo's verification, its output shown; returns its exit code. It waits for the requests itself."""
    argv = [str(stack.layout.python), "-m", "deploy.demo.check"]
    say("verifying: deploy/demo/check.py")
    check = subprocess.Popen(argv, env=dict(stack.environment), cwd=stack.layout.source, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + seconds
    try:
        while check.poll() is None:
            supervisor.check()
            if time.monotonic() > deadline:
                say(f"the verification did not end within {seconds:.0f} s; the worker's last lines:")
                print(tail(stack.directory / "logs/worker.log", 30), flush=True)
                return 1
            time.sleep(1)
        return check.returncode
    finally:
        check.kill()
        check.wait()
