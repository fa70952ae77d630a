"""What is installed once per user and shared by checkouts: HTCondor, XRootD, nginx and Prometheus prefixes, the Rucio server, a
browser.

An HTCondor that is already on PATH is used and nothing is installed, unless WMS2_HTCONDOR asks for a series. The browser is
always our own, so that pictures of pages come out alike everywhere, unless WMS2_CHROMIUM names another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deploy.browser import install as browser_install
from deploy.htcondor import pool
from deploy.nginx import install as nginx_install
from deploy.prefix import installed_version
from deploy.prometheus import install as prometheus_install
from deploy.rucio import environment as rucio_environment
from deploy.stack import venv
from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, run_logged, say
from deploy.xrootd import install as xrootd_install

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


def _lay_out(layout: Layout, prefix: Path, name: str, program: str, suite: str) -> None:
    """Install the packages of ``deploy.<name>.install`` into a prefix."""
    log = layout.tools / f"{prefix.name}.log"
    with locked(layout.tools / f"{prefix.name}.lock", name):
        say(f"{name}: installing {program}from Debian {suite} into {prefix} (log: {log})")
        argv = (venv.interpreter(), "-m", f"deploy.{name}.install", "--suite", suite)
        places = ("--prefix", prefix, "--cache", layout.tools / "cache/debs")
        run_logged((*argv, *places), log=log, environment=os.environ, cwd=layout.source, seconds=INSTALL_SECONDS)
    say(f"{name}: installed")


def ensure_htcondor(layout: Layout) -> None:
    """Install HTCondor unless one is there."""
    if installed_htcondor(layout) is None:
        _lay_out(layout, htcondor_prefix(layout), "htcondor", "", SUITES[htcondor_series()])


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


def xrootd_prefix(layout: Layout) -> Path:
    return layout.tools / f"xrootd-{xrootd_install.PACKAGES.suite}"


def ensure_xrootd(layout: Layout) -> None:
    """Install the XRootD server and its clients unless they are there."""
    prefix = xrootd_prefix(layout)
    if not installed_version(prefix):
        _lay_out(layout, prefix, "xrootd", "", xrootd_install.PACKAGES.suite)


def nginx_prefix(layout: Layout) -> Path:
    return layout.tools / f"nginx-{nginx_install.PACKAGES.suite}"


def ensure_nginx(layout: Layout) -> None:
    """Install the nginx of the tests unless it is there."""
    prefix = nginx_prefix(layout)
    if not installed_version(prefix):
        _lay_out(layout, prefix, "nginx", "", nginx_install.PACKAGES.suite)


def prometheus_prefix(layout: Layout) -> Path:
    return layout.tools / f"prometheus-{prometheus_install.PACKAGES.suite}"


def ensure_prometheus(layout: Layout) -> None:
    """Install Prometheus and Alertmanager unless they are there."""
    prefix = prometheus_prefix(layout)
    if not installed_version(prefix):
        _lay_out(layout, prefix, "prometheus", "and Alertmanager ", prometheus_install.PACKAGES.suite)


def browser_prefix(layout: Layout) -> Path:
    return layout.tools / f"browser-{browser_install.PACKAGES.suite}"


def ensure_browser(layout: Layout) -> None:
    """Install the tests' browser unless it is there, or another is chosen."""
    prefix = browser_prefix(layout)
    if not os.environ.get(BROWSER_VARIABLE) and not installed_version(prefix):
        _lay_out(layout, prefix, "browser", "Chromium ", browser_install.PACKAGES.suite)


def browser(layout: Layout) -> Path:
    """The program of the tests' browser; it must have been ensured."""
    chosen = os.environ.get(BROWSER_VARIABLE)
    return Path(chosen) if chosen else browser_install.program(browser_prefix(layout))
