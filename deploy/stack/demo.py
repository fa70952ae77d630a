"""The demo: the whole of WMS2 on one machine, running a request to its end while a person looks on."""

from __future__ import annotations

import json
import os
import secrets
from functools import partial
from pathlib import Path

from deploy.demo.world import write as write_world
from deploy.prometheus.install import PACKAGES as PROMETHEUS
from deploy.stack import stacks, tools
from deploy.stack.errors import StackError
from deploy.stack.services import monitoring, simulators, sso
from deploy.stack.services.base import Place
from deploy.stack.stacks import Stack, run_attended
from deploy.stack.steps import say, seconds_since_start, side_by_side, tail
from deploy.stack.supervisor import Supervisor

ADMIN = "admin"
SEED = "deploy/demo/seed.json"
INPUT_DATASET = "deploy/demo/rereco_input_dataset.json"
#: The copy of a document that the mock world can run.
RUNNABLE = "request.json"
#: Documents that can be imported into a running demo besides those that it runs by itself.
EXAMPLES = ("stepchain_pileup", "taskchain", "rereco_lumis")
#: Of those that it runs, the one that goes on in rounds sized by what those before measured.
ADAPTIVE = "stepchain_adaptive"
#: Those that are imported. The others are assigned in ReqMgr2, where WMS2 finds them by itself; REQUEST's too.
IMPORTED = ("rereco_root", ADAPTIVE)
REQUESTS = tuple(f"deploy/demo/requests/{name}.json" for name in ("stepchain_scratch", "rereco_input", *IMPORTED))


def start(stack: Stack, supervisor: Supervisor) -> str:
    """Start all services and import the requests; returns the administrator's password, made afresh."""
    wanted, password = documents(stack), secrets.token_urlsafe(12)
    worlds = [_world(stack, document) for document in wanted] if os.environ.get("REQUEST") else []
    wanted = [world / RUNNABLE for world in worlds] or wanted
    stacks.start_doors(stack, supervisor)
    side_by_side(lambda: _seed_all(stack, worlds), lambda: stack.wms2.first_rows(ADMIN, password))
    side_by_side(*(partial(import_request, stack, document) for document in wanted))
    stacks.start_engine(stack, supervisor)
    return password


def start_monitoring(stack: Stack, supervisor: Supervisor) -> None:
    """Start Prometheus, Alertmanager and the receiver of alerts, which know nothing of WMS2's settings."""
    stack.wms2.reader_token(monitoring.READER, monitoring.token_file(stack))
    bare = {name: value for name, value in stack.environment.items() if name not in stack.settings}
    place = Place(stack.layout, stack.directory, bare)
    supervisor.start(monitoring.services(place, tools.prefix(PROMETHEUS, stack.layout), stack.ports))


def furnish_examples(stack: Stack) -> None:
    """The simulated world knows what all documents of ``deploy/demo/requests`` need, so that a person can import any of them.

    Beside a document of the person's own, too: its refusal would not tell that the demo was begun with another.
    """
    named = [f"deploy/demo/requests/{name}.json" for name in EXAMPLES]
    for world in [_world(stack, stack.layout.source / name) for name in named]:
        _input_dataset(stack, world / "seed.json")
    say(f"can be imported too: {', '.join([*(REQUESTS if os.environ.get('REQUEST') else ()), *named])}")


def start_doors(stack: Stack, supervisor: Supervisor) -> None:
    """Start all but the engine; the simulators know what the demo's requests need."""
    stacks.start_doors(stack, supervisor)
    _seed(stack, stack.layout.source / SEED)


def _seed(stack: Stack, file: Path) -> None:
    simulators.seed(stack, stack.ports["simulators"], file)


def _seed_all(stack: Stack, worlds: list[Path]) -> None:
    """The demo's own seeds, and those of the documents that others wrote."""
    _seed(stack, stack.layout.source / SEED)
    for file in (stack.layout.source / INPUT_DATASET, *(world / "seed.json" for world in worlds)):
        _input_dataset(stack, file)


def _world(stack: Stack, document: Path) -> Path:
    """A directory with what ``deploy.demo.world`` makes of a document; what it had to change is said."""
    directory = stack.directory / "demo" / document.stem
    try:
        changed = write_world(document, directory)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StackError(f"{document} cannot be read: {type(error).__name__}: {error}") from error
    for line in changed:
        say(f"{document.name}: {line}")
    return directory


def _input_dataset(stack: Stack, seed_file: Path) -> None:
    """The demo's input: ROOT files on the sites' storages, then what Rucio and DBS say of them."""
    words = ("-m", "deploy.demo.inputs", "--file", seed_file, "--storage-root", stack.directory / "storage")
    stack.python("input-dataset", *words)
    _seed(stack, seed_file)


def documents(stack: Stack) -> list[Path]:
    """The request documents to import: the one named by REQUEST, else the demo's."""
    chosen = os.environ.get("REQUEST")
    if chosen:
        if not Path(chosen).is_file():
            raise StackError(f"REQUEST={chosen}: no such file")
        return [Path(chosen)]
    return [stack.layout.source / name for name in REQUESTS]


def import_request(stack: Stack, document: Path) -> None:
    """Import one document, or have it staged in ReqMgr2; one that an earlier run imported goes on where it was."""
    label = document.parent.name if document.name == RUNNABLE else document.stem  # the copy of one is named after the original
    if label not in IMPORTED:
        say(f"staged in ReqMgr2: {simulators.submit(stack, stack.ports['simulators'], document)}")
        return
    name, rounds = f"import-{label}", ("--adaptive",) if label == ADAPTIVE else ()
    code, said = stack.ask(name, "manage.py", "import_request", "--file", document, "--json", *rounds)
    try:
        answer = json.loads(said)
    except ValueError:
        end = f"the end of {stack.log(name)}:\n{tail(stack.log(name))}"
        raise StackError(f"import_request printed no JSON for {document}; {end}") from None
    if code == 0:
        say(f"imported {answer['request_name']}")
        return
    problems = "\n".join(f"  {p['field']}: {p['problem']}" for p in answer.get("problems", []))
    if "already" not in problems:
        raise StackError(f"{document} was refused:\n{problems}")
    say(f"{label} was imported before: going on with it")


def verify(stack: Stack, supervisor: Supervisor, seconds: float) -> int:
    """Run the demo's verification, its output shown; returns its exit code. It waits for the requests itself."""
    say("verifying: deploy/demo/check.py")
    try:
        return run_attended(stack, supervisor, "deploy.demo.check", seconds=seconds)
    except TimeoutError:
        say(f"the verification did not end within {seconds:.0f} s; the worker's last lines:")
        print(tail(stack.log("worker"), 30), flush=True)
        return 1


def announce(stack: Stack, password: str) -> None:
    say(f"running after {seconds_since_start():.0f} s")
    rows = (
        ("pages", f"{stack.web_url}/   login {ADMIN}, password {password}"),
        ("sso", f"{', '.join(sso.PEOPLE)} sign in by CERN SSO (simulated), password {sso.password(stack.directory)}"),
        ("flower", f"http://127.0.0.1:{stack.ports['flower']}/   the Celery workers, once you are signed in to the pages"),
        *(monitoring.announced(stack.ports) if monitoring.wanted() else ()),
        ("logs", f"{stack.directory}/logs"),
        ("settings", f"{stack.directory}/env   (set -a; . {stack.directory}/env; set +a)"),
        ("to stop", "Ctrl-C here, or `make stop` anywhere in this checkout"),
    )
    for name, value in rows:
        print(f"    {name:<12} {value}", flush=True)
