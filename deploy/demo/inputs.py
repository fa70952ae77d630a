"""Writes the ROOT files of a seeded input dataset, so that the requests of the demo have something to read.

``python -m deploy.demo.inputs --file rereco_input_dataset.json --storage-root DIR`` makes ``DIR/<RSE>/store/...`` for each
file of the seed, with the runs, lumis and consecutive event numbers that the seed names (``first_event`` of the file). Files
that are there are kept. DBS gets their sizes and checksums with ``python -m deploy.simulators seed --storage-root DIR``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploy.simulators.worker.rootfiles import EventTable, write_events

PAYLOAD_BYTES_PER_EVENT = 500


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a seed; ``lumis`` are (run, lumi, events)."""

    lfn: str
    rse: str  # one for each RSE that holds it
    first_event: int
    lumis: tuple[tuple[int, int, int], ...]


def input_files(seed_file: Path) -> Iterator[InputFile]:
    """The files of all datasets of a seed whose blocks are written out.

    Raises:
        ValueError: a file without ``first_event``, or whose lumis do not add up to its events.
    """
    for dataset in json.loads(seed_file.read_text())["dbs"]["datasets"]:
        for block in dataset.get("blocks", []):
            for record in block["files"]:
                lumis = tuple((lumi["run"], lumi["lumi"], lumi["events"]) for lumi in record["lumis"])
                if "first_event" not in record or sum(events for _, _, events in lumis) != record["events"]:
                    raise ValueError(
                        f"{record['lfn']}: first_event is missing, or its lumis do not add up to {record['events']} events"
                    )
                for rse in block.get("rses", [block["origin_site_name"]]):
                    yield InputFile(record["lfn"], rse, record["first_event"], lumis)


def write_inputs(seed_file: Path, storage_root: Path) -> tuple[int, int]:
    """Write the files that are not there; returns how many there are and how many of them are new."""
    total = new = 0
    written: dict[str, Path] = {}
    for file in input_files(seed_file):
        total += 1
        path = storage_root / file.rse / file.lfn.lstrip("/")
        original = written.setdefault(file.lfn, path)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        if original != path:
            shutil.copyfile(original, partial)  # replicas of a file have the same bytes
        else:
            blocks = [(run, lumi) for run, lumi, _ in file.lumis]
            write_events(partial, _events(file), blocks, PAYLOAD_BYTES_PER_EVENT, seed=zlib.crc32(file.lfn.encode()))
        partial.rename(path)
        new += 1
    return total, new


def _events(file: InputFile) -> EventTable:
    counts = [events for _, _, events in file.lumis]
    run = np.repeat([run for run, _, _ in file.lumis], counts).astype("u4")
    lumi = np.repeat([lumi for _, lumi, _ in file.lumis], counts).astype("u4")
    return EventTable(run, lumi, np.arange(len(run), dtype="u8") + np.uint64(file.first_event))


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.inputs", description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="the seed with the dataset")
    parser.add_argument("--storage-root", type=Path, required=True, help="directory that has one directory for each RSE")
    options = parser.parse_args(arguments)
    total, new = write_inputs(options.file, options.storage_root)
    print(f"{total} input files below {options.storage_root}, {new} of them new")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
