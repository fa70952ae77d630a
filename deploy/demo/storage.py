"""Opening the files of the mock sites' storage: what is really in the bytes. Owns adler32 and the names of the trees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import uproot

from deploy.demo.facts import EventId, LumiId, RootFile

OVER_ROOT = "root://"
_CHUNK_BYTES = 1 << 20
#: Tiers that are no EDM files.
_WITHOUT_GUID = {"NANOAOD", "NANOAODSIM", "DQMIO"}
_COPY_SECONDS = 120
_WMCORE_JOB = """import FWCore.ParameterSet.Config as cms
process = cms.Process("READ")
process.source = cms.Source("PoolSource", fileNames=cms.untracked.vstring({names}))
process.source.enforceGUIDInFileName = cms.untracked.bool(True)
process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(-1))
process.options = cms.untracked.PSet()
"""
#: Flags 0: read only.
_READ = re.compile(r" ofs_open: 0-\d+ \(\d+\) fn=(\S+)")
#: What reading a file that is no such ROOT file may raise.
UNREADABLE = (OSError, ValueError, KeyError, uproot.KeyInFileError, uproot.deserialization.DeserializationError)


def path_of(pfn: str) -> Path:
    """The path behind a PFN of the mock sites, e.g. ``file://localhost:0/storage/T2_CH_CERN/store/...``."""
    return Path(unquote(urlsplit(pfn).path))


def adler32(path: Path) -> str:
    """Eight hexadecimal digits, as the catalogues keep it."""
    value = 1
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            value = zlib.adler32(chunk, value)
    return f"{value:08x}"


def read_numbers(path: Path) -> tuple[tuple[EventId, ...], frozenset[LumiId]]:
    """Events and lumis of a file of the simulated cmsRun; raises one of ``UNREADABLE``."""
    with uproot.open(path) as file:
        events = file["Events"].arrays(["run", "luminosityBlock", "event"], library="np")
        blocks = file["LuminosityBlocks"].arrays(["run", "luminosityBlock"], library="np")
    columns = (events[name].tolist() for name in ("run", "luminosityBlock", "event"))
    lumis = zip(blocks["run"].tolist(), blocks["luminosityBlock"].tolist(), strict=True)
    return tuple(zip(*columns, strict=True)), frozenset(lumis)


def open_file(lfn: str, rse: str, path: Path) -> RootFile:
    """Everything the bytes tell; a file that cannot be read has a ``problem`` instead."""
    try:
        size_bytes, checksum = path.stat().st_size, adler32(path)
        events, lumis = read_numbers(path)
    except UNREADABLE as error:
        return RootFile(lfn, rse, str(path), problem=f"cannot be read at {path}: {error}")
    return RootFile(lfn, rse, str(path), size_bytes, checksum, events, lumis)


def open_pfn(lfn: str, rse: str, pfn: str) -> RootFile:
    """The same of a replica, which is brought over root:// where the PFN says so."""
    if not pfn.startswith(OVER_ROOT):
        return open_file(lfn, rse, path_of(pfn))
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "replica.root"
        words = ["xrdcp", "--nopbar", pfn, str(copy)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_COPY_SECONDS)
        if done.returncode != 0:
            return RootFile(lfn, rse, pfn, problem=f"cannot be had from {pfn}: {done.stderr.strip()}")
        return replace(open_file(lfn, rse, copy), path=pfn)


def refused_by_wmcore(files: Iterable[RootFile]) -> str:
    """What cmsRun says in a job of WMCore's that reads these files, each of which has to be named by the GUID inside; empty: it
    ends well."""
    names = [
        file.path if file.path.startswith(OVER_ROOT) else f"file:{file.path}"
        for file in files
        if not file.problem and not _WITHOUT_GUID.intersection(file.lfn.split("/"))
    ]
    if not names:
        return ""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CMSSIM_SPEED": "1e9"}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "PSet.py").write_text(_WMCORE_JOB.format(names=names))
        words = [sys.executable, "-m", "deploy.simulators.worker.cmsrun", "PSet.py"]
        done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"cmsRun ended with {done.returncode}: {done.stderr.strip()}"


def given_out(log: Path) -> frozenset[str]:
    """LFNs of the files that clients of the XRootD server opened to read them, as its log tells."""
    return frozenset(_READ.findall(log.read_text(errors="replace"))) if log.exists() else frozenset()


def files_below(directories: Iterable[Path]) -> Iterator[Path]:
    """All files in these directories and below; a directory that does not exist holds none."""
    for directory in directories:
        yield from (path for path in sorted(directory.rglob("*")) if path.is_file())
