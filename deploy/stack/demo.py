"""The demo: the whole of WMS2 on one machine, running a request to its end while a person looks on."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from deploy.stack import stacks
from deploy.stack.errors import StackError
from deploy.stack.process import attached
from deploy.stack.services import simulators
from deploy.stack.stacks import Stack
from deploy.stack.steps import run_for_code, run_logged, say, seconds_since_start, side_by_side, tail
from deploy.stack.supervisor import Supervisor

ADMIN = "admin"
POLL_SECONDS = 1.0
SEED = "deploy/demo/seed.json"
INPUT_DATASET = "deploy/demo/rereco_input_dataset.json"
#: The copy of a document that the mock world can run.
RUNNABLE = "request.json"
#: Documents that can be imported into a running demo besides those that it runs by itself.
EXAMPLES = ("stepchain_pileup", "taskchain", "rereco_lumis")
REQUESTS = ("deploy/demo/requests/stepchain_scratch.json", "deploy/demo/requests/rereco_input.json")


def start(stack: Stack, supervisor: Supervisor) -> str:
    """Start all services and import the requests; returns the administrator's password, made afresh."""
    wanted, password = documents(stack), secrets.token_urlsafe(12)
    worlds = [_world(stack, document) for document in wanted] if os.environ.get("REQUEST") else []
    wanted = [world / RUNNABLE for world in worlds] or wanted
    stacks.start_doors(stack, supervisor, f"{ADMIN}:{password}")
    side_by_side(lambda: _seed_all(stack, worlds), lambda: _own_rows(stack, password))
    side_by_side(*(partial(import_request, stack, document) for document in wanted))
    stacks.start_engine(stack, supervisor)
    return password


def furnish_examples(stack: Stack) -> None:
    """The simulated world knows what all documents of ``deploy/demo/requests`` need, so that a person can import any of them.

    Beside a document of the person's own, too: its refusal would not tell that the demo was begun with another.
    """
    documents = [stack.layout.source / f"deploy/demo/requests/{name}.json" for name in EXAMPLES]
    for world in [_world(stack, document) for document in documents]:
        _input_dataset(stack, world / "seed.json")
    others = REQUESTS if os.environ.get("REQUEST") else ()
    say(f"can be imported too: {', '.join([*others, *(f'deploy/demo/requests/{name}.json' for name in EXAMPLES)])}")


def start_doors(stack: Stack, supervisor: Supervisor) -> None:
    """Start all but the engine; the simulators know what the demo's requests need."""
    stacks.start_doors(stack, supervisor, f"{ADMIN}:{secrets.token_urlsafe(12)}")
    _seed(stack)


def _seed(stack: Stack) -> None:
    simulators.seed(stack.layout, stack.directory, stack.ports["simulators"], stack.environment, stack.layout.source / SEED)


def _seed_all(stack: Stack, worlds: list[Path]) -> None:
    """The demo's own seeds, and those of the documents that somebody else wrote."""
    _seed(stack)
    _input_dataset(stack, stack.layout.source / INPUT_DATASET)
    for world in worlds:
        _input_dataset(stack, world / "seed.json")


def _world(stack: Stack, document: Path) -> Path:
    """A directory with what ``deploy.demo.world`` makes of a document; what it had to change is said."""
    directory = stack.directory / "demo" / document.stem
    argv = (str(stack.layout.python), "-m", "deploy.demo.world", "--file", str(document.resolve()), "--out", str(directory))
    said, errors = stack.directory / f"logs/world-{document.stem}.txt", stack.directory / f"logs/world-{document.stem}.log"
    said.parent.mkdir(parents=True, exist_ok=True)
    code = run_for_code(argv, output=said, errors=errors, environment=stack.environment, cwd=stack.layout.source, seconds=60)
    if code != 0:
        raise StackError(f"{document} cannot be read; the end of {errors}:\n{tail(errors)}")
    for line in said.read_text().splitlines():
        say(f"{document.name}: {line}")
    return directory


def _own_rows(stack: Stack, password: str) -> None:
    """What WMS2's database holds before its first request, and the administrator with this password."""
    stack.wms2.manage("wms2_init")
    argv = (str(stack.layout.python), "-m", "deploy.demo.login", ADMIN)
    environment = {**stack.environment, "WMS2_ADMIN_PASSWORD": password}
    run_logged(argv, log=stack.directory / "logs/login.log", environment=environment, cwd=stack.layout.source, seconds=120)


def _input_dataset(stack: Stack, seed_file: Path) -> None:
    """The demo's input: ROOT files on the sites' storages, then what DBS and Rucio say of them."""
    storage = ("--file", str(seed_file), "--storage-root", str(stack.directory / "storage"))
    log = stack.directory / "logs/input-dataset.log"
    for module in ("deploy.demo.inputs", "deploy.demo.replicas"):
        argv = (str(stack.layout.python), "-m", module, *storage)
        run_logged(argv, log=log, environment=stack.environment, cwd=stack.layout.source, seconds=300)
    simulators.seed(stack.layout, stack.directory, stack.ports["simulators"], stack.environment, seed_file)


def documents(stack: Stack) -> list[Path]:
    """The request documents to import: the one named by REQUEST, else the demo's."""
    chosen = os.environ.get("REQUEST")
    if chosen:
        if not Path(chosen).is_file():
            raise StackError(f"REQUEST={chosen}: no such file")
        return [Path(chosen)]
    return [stack.layout.source / name for name in REQUESTS]


def import_request(stack: Stack, document: Path) -> None:
    """Import one document; one that an earlier run imported goes on where it was."""
    argv = (str(stack.layout.python), "manage.py", "import_request", "--file", str(document), "--json")
    answer_file = stack.directory / f"logs/import-{_label(document)}.json"
    errors = stack.directory / f"logs/import-{_label(document)}.log"
    code = run_for_code(
        argv, output=answer_file, errors=errors, environment=stack.environment, cwd=stack.layout.source, seconds=300
    )  # fmt: skip
    try:
        answer = json.loads(answer_file.read_text())
    except ValueError:
        raise StackError(f"import_request printed no JSON for {document}; the end of {errors}:\n{tail(errors)}") from None
    if code == 0:
        say(f"imported {answer['request_name']}")
        return
    problems = "\n".join(f"  {p['field']}: {p['problem']}" for p in answer.get("problems", []))
    if "already" not in problems:
        raise StackError(f"{document} was refused:\n{problems}")
    say(f"{_label(document)} was imported before: going on with it")


def _label(document: Path) -> str:
    """What a document is called: the copy of one is named after the original."""
    return document.parent.name if document.name == RUNNABLE else document.stem


def stay_up(stack: Stack, supervisor: Supervisor) -> None:
    """Show progress and keep the services running until interrupted."""
    with _program(stack, "deploy.demo.follow") as follow:
        while follow.poll() is None:
            supervisor.check()
            time.sleep(POLL_SECONDS)
    raise StackError(f"the progress display ended with code {follow.returncode}")


def _program(stack: Stack, module: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    argv = (stack.layout.python, "-m", module)
    return attached(argv, environment=stack.environment, cwd=stack.layout.source)


def announce(stack: Stack, password: str) -> None:
    say(f"running after {seconds_since_start():.0f} s")
    rows = (
        ("pages", f"{stack.web_url}/   login {ADMIN}, password {password}"),
        ("flower", f"http://127.0.0.1:{stack.ports['flower']}/   the Celery workers; the same login"),
        ("logs", f"{stack.directory}/logs"),
        ("settings", f"{stack.directory}/env   (set -a; . {stack.directory}/env; set +a)"),
        ("to stop", "Ctrl-C here, or `make stop` anywhere in this checkout"),
    )
    for name, value in rows:
        print(f"    {name:<9} {value}", flush=True)


def verify(stack: Stack, supervisor: Supervisor, seconds: float) -> int:
    """Run the demo's verification, its output shown; returns its exit code. It waits for the requests itself."""
    say("verifying: deploy/demo/check.py")
    deadline = time.monotonic() + seconds
    with _program(stack, "deploy.demo.check") as check:
        while check.poll() is None:
            supervisor.check()
            if time.monotonic() > deadline:
                say(f"the verification did not end within {seconds:.0f} s; the worker's last lines:")
                print(tail(stack.directory / "logs/worker.log", 30), flush=True)
                return 1
            time.sleep(1)
    return int(check.returncode)
