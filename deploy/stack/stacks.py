"""One stack: which services it has and their settings. Kinds: demo, check (a fresh demo), bench, test and apart (for tests)."""

from __future__ import annotations

import math
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.htcondor import pool as condor
from deploy.htcondor.pool import Pool
from deploy.htcondor.sites import write_site_configuration
from deploy.simulators.worker.install import install as install_worker_programs
from deploy.stack import environment, identity, ports, process, tools, venv
from deploy.stack.errors import StackError
from deploy.stack.paths import TEST_KINDS, Layout
from deploy.stack.services import external, htcondor, postgres, rucio, simulators, sso, valkey, xrootd
from deploy.stack.services.base import Place, Service
from deploy.stack.services.django import Wms2
from deploy.stack.supervisor import Supervisor
from deploy.xrootd.install import PACKAGES as XROOTD
from deploy.xrootd.server import Server

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PORTS_REGISTER = "ports.json"
# More jobs at once would not end sooner, and leave nothing to what drives them. Jobs of tests sleep more than they work.
JOBS_PER_CORE = 3
WATCH_SECONDS = 0.5
#: Jobs of mere seconds try again, and give a storage up, within some too.
IMPATIENT_STORAGE = {"WMS2_STAGE_OUT_PAUSES": "2 5", "XRD_CONNECTIONWINDOW": "15", "XRD_CONNECTIONRETRY": "2"}
#: 2: the stack runs a second pool beside its own.
POOLS_VARIABLE = "WMS2_STACK_POOLS"
SECOND_POOL = "second"
# Stacks that run Flower, to which the pages link, and the process stream, which tells them what happens.
WITH_FLOWER = ("demo", "check", "bench")


@dataclass(frozen=True, slots=True)
class Stack(Place):
    """Everything about one stack that is known before it starts. Its environment is complete: PATH and the settings."""

    ports: Mapping[str, int]
    databases: tuple[Service, ...]
    neighbours: tuple[Service, ...]
    pools: tuple[Service, ...]
    settings: Mapping[str, str]
    wms2: Wms2

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['web']}"


def empty(directory: Path) -> None:
    """Remove a stack's state but its ports and its lock, which the caller holds."""
    for entry in directory.iterdir() if directory.exists() else ():
        if entry.name in (ports.PORTS_FILE, "supervisor.lock"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            _remove_tree(entry)
        else:
            entry.unlink()


def _remove_tree(tree: Path) -> None:
    # Jobs may leave directories without write permission behind.
    for place, _, _ in os.walk(tree):
        Path(place).chmod(stat.S_IRWXU)
    shutil.rmtree(tree)


def _worker_node(layout: Layout, directory: Path, storage: Server) -> dict[str, str]:
    """Programs and site configuration of the pool's worker nodes; returns the environment every job gets."""
    programs = directory / "worker/bin"
    install_worker_programs(programs, layout.python, layout.bytecode)
    python = programs / "python3"
    python.unlink(missing_ok=True)
    python.symlink_to(venv.interpreter())
    write_site_configuration(directory / "siteconf", directory / "storage", storage.url)
    return {
        "PATH": f"{programs}:{storage.prefix}/bin:{SYSTEM_PATH}",
        "SITECONF_ROOT": str(directory / "siteconf"),
        "X509_CERT_DIR": str(storage.authorities),
        **IMPATIENT_STORAGE,
        "LANG": "C.UTF-8",
        process.MARKER: str(directory),
    }


def _pools(layout: Layout, kind: str, directory: Path, chosen: Mapping[str, int], storage: Server) -> list[Pool]:
    """Configured, so that clients that start before the daemons find configuration and token: the stack's own pool; where it is
    asked for, and for the tests, a second one with a schedd of its own, for the same sites and directories."""
    release = tools.htcondor(layout)
    series = release.version.split(".")[0]
    user = pwd.getpwuid(os.getuid()).pw_name
    few = JOBS_PER_CORE * (os.cpu_count() or 1)
    jobs = _worker_node(layout, directory, storage)
    most = None if kind in TEST_KINDS else few
    if kind in TEST_KINDS:
        jobs["CMSSIM_CLOCK"] = "simulated"  # programs take their time without the processor
    pools = [Pool(directory / f"htcondor-{series}", release, chosen["htcondor"], user, jobs, most)]
    if kind in TEST_KINDS or os.environ.get(POOLS_VARIABLE) == "2":
        second = directory / f"{SECOND_POOL}-{series}"
        pools.append(Pool(second, release, chosen[SECOND_POOL], user, jobs, few, name=SECOND_POOL))
    for pool in pools:
        condor.configure(pool)
    return pools


def _databases(place: Place, *, durable: bool) -> tuple[str, str, str, tuple[Service, ...]]:
    """URLs of the database, of the broker and of Rucio's database (if it is not to keep its own), and the services to start."""
    database_url, broker_url = (os.environ.get(name, "") for name in ("WMS2_DATABASE_URL", "WMS2_BROKER_URL"))
    rucio_url, services = "", []
    if database_url:
        external.check(place, "WMS2_DATABASE_URL", database_url)
    else:
        server = postgres.embedded(place, durable=durable)
        database_url, rucio_url = server.url(), server.url(postgres.RUCIO_DATABASE)
        services.append(server.service())
    if broker_url:
        external.check(place, "WMS2_BROKER_URL", broker_url)
    else:
        broker_url = valkey.url(place.directory)
        services.append(valkey.service(place))
    return database_url, broker_url, rucio_url, tuple(services)


def assemble(layout: Layout, kind: str) -> Stack:
    """Prepare a stack's directory and describe its services. The caller holds the stack's lock."""
    directory = layout.kind(kind)
    for name in ("logs", "submit", "static"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    try:
        chosen = ports.allocate(kind, directory, layout.tools / PORTS_REGISTER)
        storage = xrootd.server(directory, tools.prefix(XROOTD, layout), chosen["xrootd"])
        pool, *more = _pools(layout, kind, directory, chosen, storage)
    except OSError as error:
        raise StackError(str(error)) from error
    own = identity.load(kind, directory)
    path = f"{layout.venv}/bin:{pool.release.path}:{storage.prefix}/bin:{SYSTEM_PATH}"
    bare = Place(layout, directory, {**environment.base(os.environ, path, layout.bytecode), process.MARKER: str(directory)})
    database_url, broker_url, rucio_url, databases = _databases(bare, durable=kind == "demo")
    servers = {"database_url": database_url, "broker_url": broker_url}
    settings = environment.contract(kind, directory, own, pool, **servers, simulators_port=chosen["simulators"])
    if kind in WITH_FLOWER:
        settings["WMS2_FLOWER_URL"] = f"http://127.0.0.1:{chosen['flower']}/"
        settings["WMS2_STREAM_URL"] = f"http://127.0.0.1:{chosen['stream']}/stream"
    if kind in sso.WITH_SSO:
        settings |= sso.settings(directory, chosen["sso"])
    if more:
        settings[environment.SECOND_CONFIG] = str(more[0].config_file)
    settings |= environment.chosen_settings(os.environ, settings)
    place = replace(bare, environment={**bare.environment, **settings})
    return Stack(
        layout=layout,
        directory=directory,
        environment=place.environment,
        ports=chosen,
        databases=databases,
        neighbours=(
            simulators.service(bare, chosen["simulators"]),
            rucio.service(bare, chosen["rucio"], tools.rucio_venv(layout), rucio_url, chosen["xrootd"]),
            xrootd.service(bare, storage),
            *([sso.service(bare, chosen["sso"], chosen["web"])] if kind in sso.WITH_SSO else ()),
        ),
        # the tests start their second one when they need it
        pools=tuple(htcondor.service(each, bare.environment) for each in (pool, *(() if kind in TEST_KINDS else more))),
        settings=settings,
        wms2=Wms2(place, chosen["web"], chosen["flower"], chosen["stream"]),
    )


#: HTCondor's own command line needs its Python modules, which come with the bindings in WMS2's environment, whatever series runs.
_HTCONDOR = """\
#!/bin/sh
exec python3 -c 'import sys; from htcondor_cli.cli import main; sys.exit(main())' "$@"
"""


def write_env_file(stack: Stack) -> None:
    """Let a person source the stack's settings, with a command ``htcondor`` that works."""
    programs = stack.directory / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "htcondor").write_text(_HTCONDOR)
    (programs / "htcondor").chmod(0o755)
    environment.write_env_file(stack.directory, {"PATH": f"{programs}:{stack.environment['PATH']}", **stack.settings})


def start_backends(stack: Stack, supervisor: Supervisor) -> None:
    """Start everything WMS2 stands on."""
    write_env_file(stack)
    supervisor.start(stack.databases)
    supervisor.start([*stack.neighbours, *stack.pools])


def start_doors(stack: Stack, supervisor: Supervisor) -> None:
    """Start the databases, the other services, and beside those what only shows: the web, its streams and Flower."""
    write_env_file(stack)
    stack.wms2.metrics_begin()
    supervisor.start(stack.databases)
    supervisor.start([*stack.neighbours, stack.wms2.web(), stack.wms2.flower(), stack.wms2.stream()])


def start_engine(stack: Stack, supervisor: Supervisor) -> None:
    """Start what moves requests. The pool last: jobs of an earlier run take the machine's cores as soon as it is there."""
    supervisor.start([stack.wms2.worker(), stack.wms2.verbs(), stack.wms2.ticker(), stack.wms2.beat(), *stack.pools])


def run_attended(
    stack: Stack,
    supervisor: Supervisor,
    module: str,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    stop_signal: int = signal.SIGTERM,
    seconds: float = math.inf,
) -> int:
    """Run a module that speaks to the person; returns its exit code. Services that die meanwhile are started again.

    Raises:
        TimeoutError: it was ended, because it took longer than ``seconds``.
    """
    argv: tuple[str | Path, ...] = (stack.layout.python, "-m", module, *arguments)
    environment = {**stack.environment, **(settings or {})}
    deadline = time.monotonic() + seconds
    with process.attached(argv, environment=environment, cwd=stack.layout.source, stop_signal=stop_signal) as run:
        while time.monotonic() < deadline:
            try:
                return run.wait(WATCH_SECONDS)
            except subprocess.TimeoutExpired:
                supervisor.check()
    raise TimeoutError(f"{module} did not end within {seconds:.0f} s")
