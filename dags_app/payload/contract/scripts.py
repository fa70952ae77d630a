"""Files that the submit-host scripts of a unit share: include files, and the scripts' log. Owns their form.

``site.inc``, ``avoid.inc`` and ``memory.inc`` are read by ``condor_submit`` each time a node is submitted, so they are only
ever replaced whole.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import files, layout

_AVOID = re.compile(r"^\s*\w*AVOID\s*=(.*)$", re.MULTILINE)
_SITE = re.compile(rf"^\s*{layout.SITE_MACRO}\s*=\s*(\S+)\s*$", re.MULTILINE)
_FENCE = re.compile(rf"My\.{layout.FENCE_ATTRIBUTE}\s*=\s*\"?(\d+)")


def ensure_includes(unit_directory: Path) -> None:
    """Create the unit's include files that the submit files always read, where they are absent."""
    texts = {layout.AVOID_INCLUDE: f"{layout.UNIT_AVOID_MACRO} =\n", layout.FIRST_INCLUDE: "", layout.MEMORY_INCLUDE: ""}
    for name, text in texts.items():
        if not (unit_directory / name).exists():
            files.write_atomic(unit_directory / name, text)


def elected_site(unit_directory: Path) -> str | None:
    """The site the unit is pinned to; None before its landing job ended."""
    found = _SITE.search(files.read_text(unit_directory / layout.SITE_INCLUDE))
    return found.group(1) if found else None


def avoided_sites(unit_directory: Path) -> set[str]:
    """Sites that the ``avoid.inc`` of the DAG or of the unit lists."""
    return listed_sites(unit_directory.parent / layout.AVOID_INCLUDE) | listed_sites(unit_directory / layout.AVOID_INCLUDE)


def listed_sites(path: Path) -> set[str]:
    """Sites that one ``avoid.inc`` lists; empty if the file is absent."""
    return {site for line in _AVOID.findall(files.read_text(path)) for site in re.split(r"[,\s]+", line) if site}


def submission_fence(unit_directory: Path) -> int | None:
    """The fence of the DAG's current submission, from the file that stamps its jobs; None when there is none."""
    found = _FENCE.search(files.read_text(unit_directory.parent / layout.FENCE_INCLUDE))
    return int(found.group(1)) if found else None


def log(directory: Path, text: str) -> None:
    """Add to the scripts' log: DAGMan throws away what its scripts print."""
    files.append_line(directory / layout.SCRIPTS_LOG, f"{layout.utc_now()} {text}")
