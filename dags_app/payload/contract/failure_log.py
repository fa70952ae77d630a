"""The failures of a whole DAG in one file, and whether it fails with one and the same error everywhere.

Owns ``failures.jsonl`` in the DAG's directory (schema ``wms2.failure/1``): one bounded line for each failed attempt, which
WMS2 reads on from where it stopped; and ``succeeded.fence``, which says in which submission a node last did well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import files
from .layout import FAILURE_SCHEMA, FAILURES_FILE, SUCCEEDED_FILE
from .reading import json_lines
from .rules import PERMANENT, TRANSIENT

#: Bounds of one line; it is written at once, so that lines of scripts that run side by side do not mix.
MESSAGE_CHARACTERS = 1500
TAIL_CHARACTERS = 4000
TAIL_LINES = 40
MOST_BAD_FILES = 50


def did_well(dag_directory: Path, fence: int | None) -> bool:
    """Whether a node has done well in this submission."""
    return files.read_text(dag_directory / SUCCEEDED_FILE) == str(fence)


def append_failure(dag_directory: Path, record: dict[str, Any], message: str) -> None:
    """Add a failed attempt, from its ``post.json`` record."""
    verdict = record["classification"]
    line = {
        "schema": FAILURE_SCHEMA,
        "at": record["timestamp"],
        "unit": record["unit"],
        "node": record["node_name"],
        **{name: record[name] for name in ("role", "attempt", "job_id", "fence", "final")},
        "site": record["job"]["site"] or "",
        **{name: verdict[name] for name in ("code", "step", "category", "action", "rule")},
        "reason": verdict["reason"][:MESSAGE_CHARACTERS],
        "message": message[:MESSAGE_CHARACTERS],
        "bad_input_files": verdict["bad_input_files"][:MOST_BAD_FILES],
        "log_tail": "\n".join(record["log_tail"].splitlines()[-TAIL_LINES:])[-TAIL_CHARACTERS:],
    }
    files.append_line(dag_directory / FAILURES_FILE, json.dumps(line))


def fails_everywhere(dag_directory: Path, fence: int | None, record: dict[str, Any], units: int) -> bool:
    """Whether ``units`` work units, this one included, have given up with one error in this submission, and nothing else ended.

    Faults of sites and of input files are no error of the whole DAG, whatever their number.
    """
    verdict = record["classification"]
    if units < 1 or verdict["category"] not in (PERMANENT, TRANSIENT) or did_well(dag_directory, fence):
        return False
    final = [line for line in read_failures(dag_directory / FAILURES_FILE) if line.get("fence") == fence and line.get("final")]
    same = all(line.get(name) == verdict[name] for line in final for name in ("code", "step", "rule"))
    return same and len({record["unit"], *(str(line.get("unit")) for line in final)}) >= units


def read_failures(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a failure log; a damaged one is left out."""
    return json_lines(files.read_text(path))
