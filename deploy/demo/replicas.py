"""Registers a seeded input dataset in Rucio: container, closed blocks, and the files' replicas where they lie.

``python -m deploy.demo.replicas --file rereco_input_dataset.json --storage-root DIR``, in WMS2's environment, once the files are
written (``deploy.demo.inputs``). Repeatable.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from wms2.adapters import factory
from wms2.adapters.rucio import RucioFile


def register(seed_file: Path, storage_root: Path) -> int:
    """Register every block of the seed; returns the number of files.

    Raises:
        FileNotFoundError: a file of the seed was not written.
    """
    rucio = factory.rucio()
    count = 0
    for dataset in json.loads(seed_file.read_text())["dbs"]["datasets"]:
        rucio.ensure_container(dataset["dataset"])
        for block in dataset["blocks"]:
            name = block["block_name"]
            rucio.ensure_block(dataset["dataset"], name)
            for rse in block.get("rses", [block["origin_site_name"]]):
                files = [_file(storage_root / rse, record["lfn"]) for record in block["files"]]
                rucio.register_files(rse, name, files)
            rucio.close_block(name)
            count += len(block["files"])
    return count


def _file(storage: Path, lfn: str) -> RucioFile:
    content = (storage / lfn.lstrip("/")).read_bytes()
    return RucioFile(lfn, len(content), f"{zlib.adler32(content):08x}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.replicas", description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="the seed document")
    parser.add_argument("--storage-root", type=Path, required=True, help="where the sites' storages lie")
    options = parser.parse_args(arguments)
    print(f"{register(options.file, options.storage_root)} files registered in Rucio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
