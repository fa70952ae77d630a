"""What is installed once per user and shared by checkouts: HTCondor prefixes, the Rucio server's environment, the tests' browser.

An HTCondor that is already on PATH is used and nothing is installed, unless WMS2_HTCONDOR asks for a series. The browser is
always our own, so that pictures of pages come out alike everywhere, unless WMS2_CHROMIUM names another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deploy.browser import install as browser_install
from deploy.htcondor import pool
from deploy.htcondor.install import installed_version
from deploy.rucio import environment as rucio_environment
from deploy.rucio.settings import from_environment
from deploy.stack import venv
from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, run_logged, say

# WMS2_HTCONDOR chooses the series; each comes from the Debian suite that has it.
SUITES: Mapping[str, str] = {"23": "trixie", "25": "sid"}
DEFAULT_SERIES = "23"
BROWSER_VARIABLE = "WMS2_CHROMIUM"
INSTALL_SECONDS = 900.0
RUCIO_INSTALL = (
    "import os; from deploy.rucio import environment, settings; environment.install(settings.from_environment(os.environ))"
)


def htcondor_series(environment: Mapping[str, str] = os.environ) -> str:
    series = environment.get("WMS2_HTCONDOR", "") or DEFAULT_SERIES
    if series not in SUITES:
        raise StackError(f"WMS2_HTCONDOR={series!r} is not known: use one of {', '.join(SUITES)}")
    return series


def htcondor_prefix(layout: Layout) -> Path:
    return layout.tools / f"htcondor-{htcondor_series()}"


def installed_htcondor(layout: Layout) -> pool.Release | None:
    """The HTCondor to use, or None when one must be installed first."""
    if not os.environ.get("WMS2_HTCONDOR"):
        found = pool.release_on_path(os.environ.get("PATH", os.defpath))
        if found:
            return found
    prefix = htcondor_prefix(layout)
    return pool.release_in_prefix(prefix) if installed_version(prefix) else None


def ensure_htcondor(layout: Layout) -> None:
    """Install HTCondor unless one is there."""
    if installed_htcondor(layout) is not None:
        return
    prefix, suite = htcondor_prefix(layout), SUITES[htcondor_series()]
    log = layout.tools / f"{prefix.name}.log"
    with locked(layout.tools / f"{prefix.name}.lock", "htcondor"):
        say(f"htcondor: installing from Debian {suite} into {prefix} (log: {log})")
        argv = (venv.interpreter(), "-m", "deploy.htcondor.install", "--suite", suite)
        places = ("--prefix", prefix, "--cache", layout.tools / "cache/debs")
        run_logged((*argv, *places), log=log, environment=os.environ, cwd=layout.source, seconds=INSTALL_SECONDS)
    say("htcondor: installed")


def htcondor(layout: Layout) -> pool.Release:
    """The HTCondor to use; it must have been ensured."""
    release = installed_htcondor(layout)
    if release is None:
        raise StackError("HTCondor is not installed: run `make setup`")
    return release


def rucio_venv(layout: Layout) -> Path:
    """The Rucio server's environment. Named by its locks: another checkout's server may be running from another one."""
    return layout.tools / f"rucio-{rucio_environment.checksum()[:8]}"


def ensure_rucio(layout: Layout) -> None:
    """Install the Rucio server unless it is there."""
    state = layout.tools / "rucio-install"
    places = {"STATE": str(state), "VENV": str(rucio_venv(layout)), "PYTHON": venv.interpreter()}
    if rucio_environment.is_finished(from_environment(places)):
        return
    log = layout.tools / "rucio-install.log"
    say(f"rucio: installing the server into {rucio_venv(layout)} (log: {state}/log/install.log)")
    argv = (venv.interpreter(), "-c", RUCIO_INSTALL)
    run_logged(argv, log=log, environment={**os.environ, **places}, cwd=layout.source, seconds=INSTALL_SECONDS)
    say("rucio: installed")


def browser_prefix(layout: Layout) -> Path:
    return layout.tools / f"browser-{browser_install.SUITE}"


def ensure_browser(layout: Layout) -> None:
    """Install the tests' browser unless it is there, or another is chosen."""
    prefix = browser_prefix(layout)
    if os.environ.get(BROWSER_VARIABLE) or browser_install.installed_version(prefix):
        return
    log = layout.tools / f"{prefix.name}.log"
    with locked(layout.tools / f"{prefix.name}.lock", "browser"):
        say(f"browser: installing Chromium from Debian {browser_install.SUITE} into {prefix} (log: {log})")
        argv = (venv.interpreter(), "-m", "deploy.browser.install")
        places = ("--prefix", prefix, "--cache", layout.tools / "cache/debs")
        run_logged((*argv, *places), log=log, environment=os.environ, cwd=layout.source, seconds=INSTALL_SECONDS)
    say("browser: installed")


def browser(layout: Layout) -> Path:
    """The program of the tests' browser; it must have been ensured."""
    chosen = os.environ.get(BROWSER_VARIABLE)
    return Path(chosen) if chosen else browser_install.program(browser_prefix(layout))
