"""Large input datasets made inside the simulator (the ``/admin/seed`` door): 100,000 files in seconds.

Everything follows from the specification by rule (LFNs and block names are UUIDs of dataset and number), so the same
specification always makes the same dataset, and asking for it twice changes nothing.
"""

import sqlite3
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from deploy.simulators.dbs.bulkblocks import post_bulkblock
from deploy.simulators.dbs.context import Caller, find_id
from deploy.simulators.seed import bulkblocks_of

_NAMESPACE = uuid.UUID("6f0c9d0e-5a51-4a52-9d7e-0c2f5f0f6b1d")
FILES_PER_LFN_DIRECTORY = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """What to make. Lumis are numbered through from ``first_lumi``; a new run starts every ``lumis_per_run`` lumis (0: never)."""

    sites: Any
    files: int
    files_per_block: int = 500
    events_per_file: int = 1000
    lumis_per_file: int = 1
    lumis_per_run: int = 0
    first_run: int = 1
    first_lumi: int = 1
    file_size: int = 2_000_000_000

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "sites"):
            value, least = getattr(self, name), 0 if name in ("lumis_per_run", "events_per_file") else 1
            if not isinstance(value, int) or value < least:
                raise ValueError(f"generate: {name} is {value!r}, at least {least} is needed")
        if not isinstance(self.sites, list) or not self.sites:
            raise ValueError(f"generate: sites is {self.sites!r}, a list of names is needed")


def generate(db: sqlite3.Connection, record: dict[str, Any]) -> int:
    """Make the dataset of a seed; returns the number of files made (0 when it is there already).

    Raises:
        ValueError: the specification is wrong, or the dataset exists with another number of files.
        TypeError: it has unknown keys, or none that it must have.
    """
    name, rule = record["dataset"], Rule(**record["generate"])
    existing = find_id(db, "dataset", name)
    if existing is not None:
        (count,) = db.execute("SELECT count(*) FROM files WHERE dataset_id = ?", (existing,)).fetchone()
        if count != rule.files:
            raise ValueError(f"{name} exists with {count} files, not {rule.files}")
        return 0
    for body in bulkblocks_of({**record, "blocks": _blocks(record, rule)}, None):
        body |= {"dataset_conf_list": [], "file_conf_list": []}
        post_bulkblock(db, body, Caller("seed"), concurrent=True)
    return rule.files


def _blocks(record: dict[str, Any], rule: Rule) -> Iterator[dict[str, Any]]:
    name = record["dataset"]
    for number, first in enumerate(range(0, rule.files, rule.files_per_block)):
        yield {
            "block_name": f"{name}#{uuid.uuid5(_NAMESPACE, f'{name}#{number}')}",
            "origin_site_name": rule.sites[number % len(rule.sites)],
            "files": [_file(record, rule, index) for index in range(first, min(first + rule.files_per_block, rule.files))],
        }


def _file(record: dict[str, Any], rule: Rule, index: int) -> dict[str, Any]:
    name = record["dataset"]
    _, primary, processed, tier = name.split("/")
    era, _, version = processed.partition("-")
    base = f"/store/{'mc' if record.get('primary_ds_type') == 'mc' else 'data'}/{era}/{primary}/{tier}/{version}"
    lfn = f"{base}/{index // FILES_PER_LFN_DIRECTORY:05d}/{uuid.uuid5(_NAMESPACE, f'{name}/{index}')}.root"
    share, rest = divmod(rule.events_per_file, rule.lumis_per_file)
    lumis = []
    for position in range(rule.lumis_per_file):
        number = index * rule.lumis_per_file + position
        run = rule.first_run + (number // rule.lumis_per_run if rule.lumis_per_run else 0)
        lumis.append({"run": run, "lumi": rule.first_lumi + number, "events": share + (position < rest)})
    facts = {"size_bytes": rule.file_size, "adler32": f"{zlib.adler32(lfn.encode()):08x}", "events": rule.events_per_file}
    return {"lfn": lfn, **facts, "lumis": lumis}
