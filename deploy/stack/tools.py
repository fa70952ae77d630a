"""What is installed once per user and shared by checkouts: HTCondor, XRootD, nginx and Prometheus prefixes, the Rucio server, a
browser.

An HTCondor that is already on PATH is used and nothing is installed, unless WMS2_HTCONDOR asks for a series. The browser is
always our own, so that pictures of pages come out alike everywhere, unless WMS2_CHROMIUM names another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deploy.browser.install import PACKAGES as BROWSER
from deploy.browser.install import program
from deploy.htcondor import pool
from deploy.prefix import Packages, installed_version
from deploy.rucio import environment as rucio_environment
from deploy.stack import venv
from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, run_logged, say

# WMS2_HTCONDOR chooses the series; each comes from the Debian suite that has it.
SUITES: Mapping[str, str] = {"23": "trixie", "25": "sid"}
DEFAULT_SERIES = "23"
BROWSER_VARIABLE = "WMS2_CHROMIUM"
INSTALL_SECONDS = 900.0


def htcondor_series() -> str:
    series = os.environ.get("WMS2_HTCONDOR", "") or DEFAULT_SERIES
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


def _lay_out(layout: Layout, where: Path, name: str, suite: str) -> None:
    """Install the packages of ``deploy.<name>.install`` into a prefix."""
    log = layout.tools / f"{where.name}.log"
    with locked(layout.tools / f"{where.name}.lock", name):
        say(f"{name}: installing from Debian {suite} into {where} (log: {log})")
        argv = (venv.interpreter(), "-m", f"deploy.{name}.install", "--suite", suite)
        places = ("--prefix", where, "--cache", layout.tools / "cache/debs")
        run_logged((*argv, *places), log=log, environment=os.environ, cwd=layout.source, seconds=INSTALL_SECONDS)
    say(f"{name}: installed")


def ensure_htcondor(layout: Layout) -> None:
    """Install HTCondor unless one is there."""
    if installed_htcondor(layout) is None:
        _lay_out(layout, htcondor_prefix(layout), "htcondor", SUITES[htcondor_series()])


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
    directory = rucio_venv(layout)
    log, lock = (directory.with_name(f"{directory.name}.{kind}") for kind in ("log", "lock"))
    rucio_environment.environment(directory).ensure(python=venv.interpreter(), log=log, locked_by=lock)


def prefix(packages: Packages, layout: Layout) -> Path:
    """Where these packages are laid out."""
    return layout.tools / f"{packages.name}-{packages.suite}"


def ensure(packages: Packages, layout: Layout) -> None:
    """Lay these packages out unless they are."""
    where = prefix(packages, layout)
    if not installed_version(where):
        _lay_out(layout, where, packages.name, packages.suite)


def ensure_browser(layout: Layout) -> None:
    """Install the tests' browser unless it is there, or another is chosen."""
    if not os.environ.get(BROWSER_VARIABLE):
        ensure(BROWSER, layout)


def browser(layout: Layout) -> Path:
    """The program of the tests' browser; it must have been ensured."""
    chosen = os.environ.get(BROWSER_VARIABLE)
    return Path(chosen) if chosen else program(prefix(BROWSER, layout))
