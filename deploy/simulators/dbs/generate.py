"""Large input datasets made inside the simulator (the ``/admin/seed`` door): 100,000 files in seconds.

Everything follows from the specification by rule (LFNs and block names are UUIDs of dataset and number), so the same
specification always makes the same dataset, and asking for it twice changes nothing.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deploy.simulators.dbs.context import Caller, find_id, find_or_insert
from deploy.simulators.dbs.datasets import insert_block, insert_dataset
from deploy.simulators.dbs.reference import (
    insert_acquisition_era,
    insert_data_tier,
    insert_primary_dataset,
    insert_processing_era,
)

_NAMESPACE = uuid.UUID("6f0c9d0e-5a51-4a52-9d7e-0c2f5f0f6b1d")
FILES_PER_LFN_DIRECTORY = 1000


class SeedRefused(Exception):
    """A seed that cannot be applied; the text says which part and why."""


@dataclass(frozen=True, slots=True)
class GeneratedDataset:
    """What to make. Lumis are numbered through from ``first_lumi``; a new run starts every ``lumis_per_run`` lumis (0: never)."""

    dataset: str
    files: int
    files_per_block: int
    events_per_file: int
    lumis_per_file: int
    lumis_per_run: int
    first_run: int
    first_lumi: int
    file_size: int
    sites: tuple[str, ...]
    primary_ds_type: str
    dataset_access_type: str


def read_specification(dataset: str, record: dict[str, Any], primary_ds_type: str, access_type: str) -> GeneratedDataset:
    """The specification with its defaults.

    Raises:
        SeedRefused: an unknown key, a number below its least value, or no sites.
    """
    defaults = {
        "files": 0,
        "files_per_block": 500,
        "events_per_file": 1000,
        "lumis_per_file": 1,
        "lumis_per_run": 0,
        "first_run": 1,
        "first_lumi": 1,
        "file_size": 2_000_000_000,
    }
    numbers = {name: record.get(name, default) for name, default in defaults.items()}
    unknown = set(record) - set(defaults) - {"sites"}
    wrong = [
        name
        for name, value in numbers.items()
        if not isinstance(value, int) or value < (0 if name in ("lumis_per_run", "events_per_file") else 1)
    ]
    sites = record.get("sites")
    if unknown or wrong or not isinstance(sites, list) or not sites:
        raise SeedRefused(f"{dataset}: generate: unknown keys {sorted(unknown)}, wrong numbers {wrong}, sites {sites!r}")
    return GeneratedDataset(
        dataset=dataset, sites=tuple(sites), primary_ds_type=primary_ds_type, dataset_access_type=access_type, **numbers
    )


def generate(db: sqlite3.Connection, spec: GeneratedDataset, caller: Caller) -> int:
    """Make the dataset; returns the number of files made (0 when it is there already).

    Raises:
        SeedRefused: the name is no dataset name, or the dataset exists with another number of files.
    """
    existing = find_id(db, "dataset", spec.dataset)
    if existing is not None:
        (count,) = db.execute("SELECT count(*) FROM files WHERE dataset_id = ?", (existing,)).fetchone()
        if count != spec.files:
            raise SeedRefused(f"{spec.dataset} exists with {count} files, not {spec.files}")
        return 0
    primary, processed, tier = split_dataset(spec.dataset)
    era, _, version = processed.partition("-")
    number = processed.rpartition("-v")[2]
    parents = dataset_parents(db, primary, spec.primary_ds_type, tier, era, int(number), spec.dataset_access_type, caller)
    record = {
        "dataset": spec.dataset,
        "processed_ds_name": processed,
        "dataset_access_type": spec.dataset_access_type,
        "xtcrosssection": 0.0,
        "prep_id": "",
        "creation_date": 0,
        "create_by": "",
        "last_modified_by": "",
    }
    dataset_id = insert_dataset(db, record, parents, caller)
    type_id = find_or_insert(db, "file_type", "EDM")
    base = f"/store/{'mc' if spec.primary_ds_type == 'mc' else 'data'}/{era}/{primary}/{tier}/{version}"
    first_file_id = int(db.execute("SELECT coalesce(max(file_id), 0) FROM files").fetchone()[0]) + 1
    for first in range(0, spec.files, spec.files_per_block):
        count = min(spec.files_per_block, spec.files - first)
        block = _block_record(spec, first // spec.files_per_block, count)
        block_id = insert_block(db, block, dataset_id, caller)
        shared = (dataset_id, block_id, type_id)
        rows = (
            _file_row(first_file_id + index, _lfn(base, spec.dataset, index), shared, spec, caller)
            for index in range(first, first + count)
        )
        db.executemany(f"INSERT INTO files VALUES ({', '.join('?' * 16)})", rows)
    db.executemany("INSERT INTO file_lumis VALUES (?, ?, ?, ?)", _lumis(spec, first_file_id))
    return spec.files


def split_dataset(dataset: str) -> tuple[str, str, str]:
    """Primary, processed and tier of ``/primary/era-string-vN/TIER``.

    Raises:
        SeedRefused: it has another form.
    """
    parts = dataset.split("/")
    if len(parts) != 4 or parts[0] or not all(parts[1:]) or not parts[2].rpartition("-v")[2].isdigit() or "-" not in parts[2]:
        raise SeedRefused(f"{dataset!r} is not of the form /primary/era[-string]-vN/TIER")
    return parts[1], parts[2], parts[3]


def dataset_parents(
    db: sqlite3.Connection, primary: str, primary_type: str, tier: str, era: str, version: int, access_type: str, caller: Caller
) -> dict[str, int]:
    """The ids of a dataset's reference data, made when missing."""
    blank = {"creation_date": 0, "create_by": "", "description": ""}
    return {
        "primary_ds_id": insert_primary_dataset(
            db, {"primary_ds_name": primary, "primary_ds_type": primary_type, **blank}, caller
        ),
        "data_tier_id": insert_data_tier(db, {"data_tier_name": tier}, caller),
        "dataset_access_type_id": find_or_insert(db, "access_type", access_type),
        "acquisition_era_id": insert_acquisition_era(
            db, {"acquisition_era_name": era, "start_date": 0, "end_date": 0, **blank}, caller
        ),
        "processing_era_id": insert_processing_era(db, {"processing_version": version, **blank}, caller),
        "physics_group_id": find_or_insert(db, "physics_group", "DataOps"),
    }


def _block_record(spec: GeneratedDataset, number: int, count: int) -> dict[str, Any]:
    return {
        "block_name": f"{spec.dataset}#{uuid.uuid5(_NAMESPACE, f'{spec.dataset}#{number}')}",
        "open_for_writing": 0,
        "origin_site_name": spec.sites[number % len(spec.sites)],
        "block_size": count * spec.file_size,
        "file_count": count,
        "creation_date": 0,
        "create_by": "",
        "last_modified_by": "",
    }


def _lfn(base: str, dataset: str, index: int) -> str:
    return f"{base}/{index // FILES_PER_LFN_DIRECTORY:05d}/{uuid.uuid5(_NAMESPACE, f'{dataset}/{index}')}.root"


def _file_row(
    file_id: int, lfn: str, shared: tuple[int, int, int], spec: GeneratedDataset, caller: Caller
) -> tuple[int | str | float, ...]:
    """The columns of ``files`` in their order; ``shared`` is dataset, block and file type."""
    name = lfn.encode()
    facts = (str(zlib.crc32(name)), spec.events_per_file, spec.file_size, f"{zlib.adler32(name):08x}", "NOTSET", 0.0)
    return (file_id, lfn, 1, *shared, *facts, caller.at, caller.create_by, caller.at, caller.create_by)


def _lumis(spec: GeneratedDataset, first_file_id: int) -> Iterator[tuple[int, int, int, int]]:
    share, rest = divmod(spec.events_per_file, spec.lumis_per_file)
    for index in range(spec.files):
        for position in range(spec.lumis_per_file):
            number = index * spec.lumis_per_file + position
            run = spec.first_run + (number // spec.lumis_per_run if spec.lumis_per_run else 0)
            yield first_file_id + index, run, spec.first_lumi + number, share + (1 if position < rest else 0)
