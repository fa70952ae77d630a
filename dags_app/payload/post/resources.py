"""What a node asks HTCondor for, read from the DAG's files as HTCondor reads them; and raising its memory and wall time.

Owns ``memory.inc`` (``MEMORY_<node> = <MB>``, ``WALL_<node> = <times the expected wall time>``). Nodes of a unit share it, and
their POST scripts run side by side. What is asked for by default may be a macro of the DAG's ``sizes.inc``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ..contract import files
from ..contract.layout import INNER_DAG, LANDING, MEMORY_INCLUDE, MEMORY_MACRO, SIZES_INCLUDE, WALL_FACTOR, WALL_MACRO

_LOCK = ".memory.lock"
_MEMORY = re.compile(r"^request_memory\s*=\s*\$\(MEMORY_\$\(JOB\):(.+)\)\s*$", re.MULTILINE)
_CORES = re.compile(r"^request_cpus\s*=\s*(.+?)\s*$", re.MULTILINE)
_VARIABLE = re.compile(r'(\w+)="([^"]*)"')
_SIZE = re.compile(r"^(\w+) = (\d+)$", re.MULTILINE)
_MACRO = re.compile(r"\$\((\w+)\)")


class Asked(NamedTuple):
    """Memory in MB and cores of a node's next submission."""

    memory_mb: int
    cores: int


def asked_by(directory: Path, node: str) -> Asked | None:
    """What the node's submit file asks for now; None when that is not known."""
    dag = files.read_text(directory / INNER_DAG)
    submit = re.search(rf"^JOB {re.escape(node)} (\S+)", dag, re.MULTILINE)
    if submit is None:
        return None
    sizes = files.read_text(directory.parent / SIZES_INCLUDE)
    variables = {**dict(_SIZE.findall(sizes)), **_variables(dag, node)}
    text = files.read_text(directory / submit.group(1))
    default, cores = _whole(_MEMORY.search(text), variables), _whole(_CORES.search(text), variables)
    memory = files.read_text(directory / MEMORY_INCLUDE)
    raised = re.search(rf"^{MEMORY_MACRO}_{re.escape(node)} = (\d+)$", memory, re.MULTILINE)
    if cores is None or (default is None and raised is None):
        return None
    return Asked(int(raised.group(1)) if raised is not None else default or 0, cores)


def ask_for_more(directory: Path, node: str, memory_mb: int | None, wall_too_short: int) -> None:
    """Let the node's next submission ask for ``memory_mb``, and for four times as much wall time for each attempt whose was too
    short; the submit file has the most that there is, which three retries reach."""
    if memory_mb is None and not wall_too_short:
        return
    path = directory / MEMORY_INCLUDE
    with files.locked(directory / _LOCK):
        wall = WALL_FACTOR * 4**wall_too_short if wall_too_short else None
        for name, value in ((f"{MEMORY_MACRO}_{node}", memory_mb), (f"{WALL_MACRO}_{node}", wall)):
            if value is not None:
                kept = [line for line in files.read_text(path).splitlines() if not line.startswith(f"{name} ")]
                files.write_atomic(path, "\n".join([*kept, f"{name} = {value}"]) + "\n")


def landing_sites(directory: Path) -> set[str]:
    """Sites where the unit may land, as planned."""
    return {site for site in _variables(files.read_text(directory / INNER_DAG), LANDING).get("sites", "").split(",") if site}


def _variables(dag: str, node: str) -> dict[str, str]:
    lines = re.findall(rf"^VARS {re.escape(node)} (.*)$", dag, re.MULTILINE)
    return {name: value for line in lines for name, value in _VARIABLE.findall(line)}


def _whole(found: re.Match[str] | None, variables: dict[str, str]) -> int | None:
    if found is None:
        return None
    text = _MACRO.sub(lambda macro: variables.get(macro.group(1), ""), found.group(1)).strip()
    return int(text) if text.isdigit() else None
