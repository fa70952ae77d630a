"""The commands behind the Makefile."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.htcondor.pool import Pool
from deploy.htcondor.sites import write_site_configuration
from deploy.stack import paths, ports, pool_check, tools
from deploy.stack.errors import Interrupted, StackError
from deploy.stack.paths import Layout
from deploy.stack.services import htcondor
from deploy.stack.steps import kill_running_commands, say
from deploy.stack.supervisor import Supervisor, interruptible


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def pool_of(layout: Layout, kind: str, chosen: Mapping[str, int]) -> Pool:
    directory = layout.kind(kind)
    release = tools.ensure_htcondor(layout)
    write_site_configuration(directory / "siteconf", directory / "storage")
    job_environment = {
        "SITECONF_ROOT": str(directory / "siteconf"),
        "PATH": f"{directory}/worker/bin:/usr/local/bin:/usr/bin:/bin",
        "WMS2_STACK": str(directory),
    }
    series = release.version.split(".")[0]
    return Pool(directory / f"htcondor-{series}", release, chosen["htcondor"], _user(), job_environment)


def command_pool_check(layout: Layout) -> int:
    """Start the pool, run the hand-written DAG on it, stop the pool."""
    directory = layout.kind("test")
    with Supervisor(directory, say) as supervisor:
        chosen = ports.allocate("test", directory, layout.tools / "ports.json")
        service = htcondor.service(pool_of(layout, "test", chosen), {"PATH": os.environ["PATH"], "HOME": str(Path.home())})
        supervisor.start([service])
        where = directory / "submit/pool-check"
        if where.exists():
            shutil.rmtree(where)
        begun = time.monotonic()
        site = pool_check.run_example(where, service.environment)
        say(f"the example DAG ran at {site} in {time.monotonic() - begun:.1f} s: every event once")
    say("pool stopped")
    return 0


COMMANDS: Mapping[str, Callable[[Layout], int]] = {"pool-check": command_pool_check}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="deploy/bootstrap", description=__doc__)
    parser.add_argument("command", choices=sorted(COMMANDS))
    options = parser.parse_args(arguments)
    try:
        with interruptible():
            return COMMANDS[options.command](paths.layout())
    except StackError as error:
        print(f"wms2: {error}", file=sys.stderr)
        return 1
    except Interrupted as interruption:
        kill_running_commands()
        say("interrupted; everything is stopped")
        return 128 + interruption.signal_number
