"""Which attempts' packed logs stay in a DAG's directory (ADR 0012). Owns ``kept_logs.jsonl`` there, oldest first.

Of failed attempts the first of each kind of error and the newest of each node, within the DAG's bounds; of those that did well a
share. What goes is removed once the list no longer has it.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..contract import files, scripts
from ..contract.codes import PayloadError
from ..contract.convert import read, to_json
from ..contract.layout import RULES_FILE, RULES_SCHEMA, STORED_LOGS_FILE
from ..contract.packed import StoredLogs, read_stored_logs
from ..contract.reading import load_document
from ..contract.rules import Limits, LogLimits

#: Of each kind of error (code and step), so many of the DAG's first are kept.
FIRST_OF_A_KIND = 3


def settle(unit: Path, record: dict[str, Any]) -> None:
    """Keep the packed logs of the attempt that was just judged, or remove them, and older ones that they replace.

    Trouble with them is noted in the scripts' log: it changes nothing about the attempt.
    """
    try:
        if record["logs"] is not None:
            _settle(unit, record)
    except (OSError, ValueError) as error:
        scripts.log(unit, f"post: {record['logs']} could not be put among the kept logs: {error}")


def _settle(unit: Path, record: dict[str, Any]) -> None:
    dag, verdict = unit.parent, record["classification"]
    size_bytes = (unit / record["logs"]).stat().st_size
    node, attempt, job_id, at = (record[name] for name in ("node_name", "attempt", "job_id", "timestamp"))
    new = StoredLogs(unit.name, node, attempt, job_id, at, verdict["code"], verdict["step"], size_bytes)
    try:  # rules take a third of the time of a script that needs none, and a success stays one without them
        limits = read(load_document(dag / RULES_FILE, RULES_SCHEMA)["limits"], Limits).logs
    except PayloadError:
        limits = LogLimits()
    # the same answer each time
    if new.code == 0 and zlib.crc32(f"{new.unit}/{new.node}".encode()) >= limits.share_of_successes * 2**32:
        (unit / new.name).unlink(missing_ok=True)
        return
    with files.locked(dag / ".kept_logs.lock"):
        known = [each for each in read_stored_logs(dag) if (each.unit, each.name) != (new.unit, new.name)] + [new]
        kept = choose(known, limits)
        files.write_atomic(dag / STORED_LOGS_FILE, "".join(json.dumps(to_json(each)) + "\n" for each in kept))
        for gone in set(known).difference(kept):
            (dag / gone.unit / gone.name).unlink(missing_ok=True)


def choose(known: Sequence[StoredLogs], limits: LogLimits) -> list[StoredLogs]:
    """Those that are kept, in their order (oldest first). The newest is always among them: its script may run again."""
    kinds: Counter[tuple[int, str]] = Counter()
    first, newest = [], {}
    for each in known:
        kinds[each.code, each.step] += 1
        if kinds[each.code, each.step] <= FIRST_OF_A_KIND:
            first.append(each)
        newest[each.unit, each.node, each.code == 0] = each
    last = set(newest.values())
    ranked = dict.fromkeys([*known[-1:], *first, *(each for each in reversed(known) if each in last)])
    kept: set[StoredLogs] = set()
    units: Counter[str] = Counter()
    size_bytes = 0
    for each in ranked:
        fits = units[each.unit] < limits.per_unit and len(kept) < limits.per_dag
        if not kept or (fits and size_bytes + each.size_bytes <= limits.bytes_per_dag):
            kept.add(each)
            units[each.unit] += 1
            size_bytes += each.size_bytes
    return [each for each in known if each in kept]
