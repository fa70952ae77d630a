"""Files that the submit-host scripts of a unit share: include files, and the scripts' log. Owns their form.

``site.inc``, ``avoid.inc`` and ``memory.inc`` are read by ``condor_submit`` each time a node is submitted, so they are only
ever replaced whole.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import files
from .layout import (
    AVOID_INCLUDE,
    ELECTED_LOG,
    FENCE_ATTRIBUTE,
    FENCE_INCLUDE,
    MEMORY_INCLUDE,
    SCRIPTS_LOG,
    SITE_INCLUDE,
    SITE_MACRO,
    UNIT_AVOID_MACRO,
    utc_now,
)

_AVOID = re.compile(r"^\s*\w*AVOID\s*=(.*)$", re.MULTILINE)
_SITE = re.compile(rf"^\s*{SITE_MACRO}\s*=\s*(\S+)\s*$", re.MULTILINE)
_FENCE = re.compile(rf"My\.{FENCE_ATTRIBUTE}\s*=\s*\"?(\d+)")


def ensure_includes(unit_directory: Path) -> None:
    """Create the unit's include files that the submit files always read, where they are absent."""
    for name, text in ((AVOID_INCLUDE, f"{UNIT_AVOID_MACRO} =\n"), (MEMORY_INCLUDE, "")):
        if not (unit_directory / name).exists():
            files.write_atomic(unit_directory / name, text)


def write_elected_site(unit_directory: Path, site: str) -> None:
    """Pin the unit to ``site`` and remember that it was elected."""
    files.write_atomic(unit_directory / SITE_INCLUDE, f"{SITE_MACRO} = {site}\n")
    files.append_line(unit_directory / ELECTED_LOG, f"{utc_now()} {site}")


def elected_site(unit_directory: Path) -> str | None:
    """The site the unit is pinned to; None before its landing job ended."""
    found = _SITE.search(files.read_text(unit_directory / SITE_INCLUDE))
    return found.group(1) if found else None


def avoided_sites(unit_directory: Path) -> set[str]:
    """Sites that the ``avoid.inc`` of the DAG or of the unit lists."""
    return _listed(unit_directory.parent / AVOID_INCLUDE) | _listed(unit_directory / AVOID_INCLUDE)


def _listed(path: Path) -> set[str]:
    return {site for line in _AVOID.findall(files.read_text(path)) for site in re.split(r"[,\s]+", line) if site}


def avoid_site(unit_directory: Path, site: str) -> None:
    """Add a site to those where this unit may not land again."""
    path = unit_directory / AVOID_INCLUDE
    files.write_atomic(path, f"{UNIT_AVOID_MACRO} = {','.join(sorted(_listed(path) | {site}))}\n")


def submission_fence(unit_directory: Path) -> int | None:
    """The fence of the DAG's current submission, from the file that stamps its jobs; None when there is none."""
    found = _FENCE.search(files.read_text(unit_directory.parent / FENCE_INCLUDE))
    return int(found.group(1)) if found else None


def log(directory: Path, text: str) -> None:
    """Add to the scripts' log: DAGMan throws away what its scripts print."""
    files.append_line(directory / SCRIPTS_LOG, f"{utc_now()} {text}")
