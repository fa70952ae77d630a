"""Makes the input datasets of a seed: ROOT files on the sites' storages, and what Rucio knows of them.

``python -m deploy.demo.inputs --file rereco_input_dataset.json --storage-root DIR``, in WMS2's environment, makes
``DIR/<RSE>/store/...`` for each file of the seed, with the runs, lumis and consecutive event numbers that the seed names
(``first_event`` of the file), then container, closed blocks and replicas in Rucio. Files that are there are kept. DBS gets their
sizes and checksums with ``python -m deploy.simulators seed --storage-root DIR``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploy.simulators.worker.rootfiles import EventTable, write_events
from wms2.adapters import factory
from wms2.adapters.rucio_types import RucioFile

PAYLOAD_BYTES_PER_EVENT = 500
Record = dict[str, Any]


def blocks_of(seed_file: Path) -> Iterator[tuple[str, Record, list[str]]]:
    """Dataset, record and RSEs of each block that a seed writes out."""
    for dataset in json.loads(seed_file.read_text())["dbs"]["datasets"]:
        for block in dataset.get("blocks", []):
            yield dataset["dataset"], block, block.get("rses", [block["origin_site_name"]])


def write_inputs(seed_file: Path, storage_root: Path) -> tuple[int, int]:
    """Write the files that are not there; returns how many there are, one for each RSE that holds it, and how many are new.

    Raises:
        ValueError: a file without ``first_event``, or whose lumis do not add up to its events.
    """
    total = new = 0
    written: dict[str, Path] = {}
    for _, block, rses in blocks_of(seed_file):
        for record, rse in ((record, rse) for record in block["files"] for rse in rses):
            total += 1
            path = _path(storage_root, rse, record)
            original = written.setdefault(record["lfn"], path)
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".part")
            if original != path:
                shutil.copyfile(original, partial)  # replicas of a file have the same bytes
            else:
                blocks = [(lumi["run"], lumi["lumi"]) for lumi in record["lumis"]]
                write_events(partial, _events(record), blocks, PAYLOAD_BYTES_PER_EVENT, seed=zlib.crc32(record["lfn"].encode()))
            partial.rename(path)
            new += 1
    return total, new


def _path(storage_root: Path, rse: str, record: Record) -> Path:
    return storage_root / rse / str(record["lfn"]).lstrip("/")


def _events(record: Record) -> EventTable:
    counts = [lumi["events"] for lumi in record["lumis"]]
    if "first_event" not in record or sum(counts) != record["events"]:
        raise ValueError(f"{record['lfn']}: first_event is missing, or its lumis do not add up to {record['events']} events")
    run, lumi = (np.repeat([each[name] for each in record["lumis"]], counts).astype("u4") for name in ("run", "lumi"))
    return EventTable(run, lumi, np.arange(len(run), dtype="u8") + np.uint64(record["first_event"]))


def register(seed_file: Path, storage_root: Path) -> int:
    """Register every block of the seed in Rucio; returns the number of files. Repeatable.

    Raises:
        FileNotFoundError: a file of the seed was not written.
    """
    rucio = factory.rucio()
    count = 0
    for dataset, block, rses in blocks_of(seed_file):
        name = block["block_name"]
        rucio.ensure_container(dataset)
        rucio.ensure_block(dataset, name)
        for rse in rses:
            contents = {record["lfn"]: _path(storage_root, rse, record).read_bytes() for record in block["files"]}
            files = [RucioFile(lfn, len(content), f"{zlib.adler32(content):08x}") for lfn, content in contents.items()]
            rucio.register_files(rse, name, files)
        rucio.close_block(name)
        count += len(block["files"])
    return count


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.inputs", description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="the seed with the dataset")
    parser.add_argument("--storage-root", type=Path, required=True, help="directory that has one directory for each RSE")
    options = parser.parse_args(arguments)
    total, new = write_inputs(options.file, options.storage_root)
    print(f"{total} input files below {options.storage_root}, {new} of them new")
    print(f"{register(options.file, options.storage_root)} files registered in Rucio")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
