"""What is installed once per user and shared by checkouts: the HTCondor prefixes.

An HTCondor that is already on PATH is used and nothing is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deploy.htcondor import pool
from deploy.htcondor.install import InstallError, install, installed_version
from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, say

# WMS2_HTCONDOR chooses the series; each comes from the Debian suite that has it.
SUITES: Mapping[str, str] = {"23": "trixie", "25": "sid"}


def htcondor_series(environment: Mapping[str, str] = os.environ) -> str:
    series = environment.get("WMS2_HTCONDOR", "") or "23"
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


def ensure_htcondor(layout: Layout) -> pool.Release:
    """The HTCondor to use, installed when needed."""
    release = installed_htcondor(layout)
    if release is None:
        prefix = htcondor_prefix(layout)
        with locked(layout.tools / f"{prefix.name}.lock", "htcondor"):
            try:
                install(SUITES[htcondor_series()], prefix, layout.tools / "cache/debs")
            except InstallError as error:
                raise StackError(f"HTCondor could not be installed into {prefix}: {error}") from error
        release = pool.release_in_prefix(prefix)
    say(f"htcondor: {release.version} in {release.bin}")
    return release
