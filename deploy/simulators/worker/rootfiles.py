"""ROOT files as the simulated programs write and read them. Owns the trees.

``Events``: run (u4), luminosityBlock (u4), event (u8) and ``payload``, random bytes of the profile's size per event.
``LuminosityBlocks``: run, luminosityBlock, of every lumi, also of those without events. ``Runs``: run. Flat trees like
NanoAOD's, so that uproot or ROOT itself opens them without CMSSW. ``GUID``: the identifier of the file, as EDM files have one.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import uproot

from .errors import FILE_READ, CmsException

_CHUNK_BYTES = 32 * 1024 * 1024
_COMPRESSION = uproot.ZLIB(1)
_GUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Numbers = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class EventTable:
    """Run, lumi and event numbers, one entry per event, in the order of the file."""

    run: Numbers
    lumi: Numbers
    event: Numbers

    def __len__(self) -> int:
        return len(self.event)

    def take(self, which: npt.NDArray[np.bool_] | slice) -> EventTable:
        """A part of the table."""
        return EventTable(self.run[which], self.lumi[which], self.event[which])

    def lumi_counts(self) -> dict[tuple[int, int], int]:
        """Events by (run, lumi)."""
        return dict(sorted(Counter(zip(self.run.tolist(), self.lumi.tolist(), strict=True)).items()))


def concatenate(tables: list[EventTable]) -> EventTable:
    """Several tables one after the other."""
    if not tables:
        return EventTable(np.empty(0, "u4"), np.empty(0, "u4"), np.empty(0, "u8"))
    return EventTable(*(np.concatenate([getattr(table, name) for table in tables]) for name in ("run", "lumi", "event")))


@contextmanager
def _opened(path: Path) -> Iterator[uproot.ReadOnlyDirectory]:
    """For reading. From an open file: for names uproot starts threads and a file system of its own."""
    with path.open("rb") as raw, uproot.open(raw) as file:
        yield file


@contextmanager
def _recreated(path: Path) -> Iterator[uproot.WritableDirectory]:
    """For writing, from nothing."""
    with path.open("w+b") as raw, uproot.recreate(raw, compression=_COMPRESSION) as file:
        yield file


def stem(name: str) -> str:
    """What CMSSW takes for the GUID in a file's name: from the last slash, or a colon where there is none, up to the next dot."""
    return (name.rpartition("/")[2] if "/" in name else name.rpartition(":")[2]).partition(".")[0]


def write_events(
    path: Path, events: EventTable, lumis: list[tuple[int, int]], payload_bytes: int, seed: int, guid: str = ""
) -> None:
    """Write a file with these events and lumis; the payload depends on ``seed`` alone.

    Without ``guid`` it is what CMS has in its storage: a file that is named by a GUID has that one inside, another a random one.
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    branches: dict[str, object] = {"run": "u4", "luminosityBlock": "u4", "event": "u8"}
    if payload_bytes:
        branches["payload"] = np.dtype(("u1", (payload_bytes,)))
    step = max(1, _CHUNK_BYTES // max(1, payload_bytes))
    with _recreated(path) as file:
        tree = file.mktree("Events", branches)
        for start in range(0, len(events), step):
            part = events.take(slice(start, start + step))
            columns = {"run": part.run.astype("u4"), "luminosityBlock": part.lumi.astype("u4"), "event": part.event.astype("u8")}
            if payload_bytes:
                columns["payload"] = random.integers(0, 256, (len(part), payload_bytes), dtype="u1")
            tree.extend(columns)
        _write_lumis(file, lumis)
        file["GUID"] = guid or (stem(path.name) if _GUID.fullmatch(stem(path.name)) else str(uuid.uuid4()))


def _write_lumis(file: uproot.WritableDirectory, lumis: list[tuple[int, int]]) -> None:
    runs = sorted({run for run, _ in lumis})
    tree = file.mktree("LuminosityBlocks", {"run": "u4", "luminosityBlock": "u4"})
    if lumis:
        tree.extend({"run": np.array([r for r, _ in lumis], "u4"), "luminosityBlock": np.array([n for _, n in lumis], "u4")})
    tree = file.mktree("Runs", {"run": "u4"})
    if runs:
        tree.extend({"run": np.array(runs, "u4")})


def read_events(path: Path) -> tuple[EventTable, list[tuple[int, int]]]:
    """Events and lumis of a file; CmsException(FileReadError) when it is not such a file."""
    try:
        with _opened(path) as file:
            columns = file["Events"].arrays(["run", "luminosityBlock", "event"], library="np")
            blocks = file["LuminosityBlocks"].arrays(["run", "luminosityBlock"], library="np")
    except (
        OSError,
        ValueError,
        KeyError,
        uproot.exceptions.KeyInFileError,
        uproot.deserialization.DeserializationError,
    ) as error:
        raise CmsException(FILE_READ, "FileReadError", f"file {path} is not a ROOT file: {error}") from error
    lumis = sorted({(int(run), int(lumi)) for run, lumi in zip(blocks["run"], blocks["luminosityBlock"], strict=True)})
    return EventTable(columns["run"], columns["luminosityBlock"], columns["event"]), lumis


def read_guid(path: Path) -> str:
    """The identifier inside a file; a random one where there is none, as in CMSSW."""
    with _opened(path) as file:
        return str(file.get("GUID", None) or uuid.uuid4())


def merge_files(inputs: list[Path], output: Path, guid: str = "") -> tuple[EventTable, list[tuple[int, int]]]:
    """Write all trees of ``inputs``, one after the other, into ``output``; the events and lumis of the result."""
    tables: list[EventTable] = []
    lumis: set[tuple[int, int]] = set()
    with _recreated(output) as file:
        tree = None
        for path in inputs:
            events, blocks = read_events(path)
            tables.append(events)
            lumis.update(blocks)
            with _opened(path) as source:
                if tree is None:
                    tree = file.mktree("Events", _branches(source["Events"]))
                for part in source["Events"].iterate(step_size="32 MB", library="np"):
                    tree.extend(part)
        _write_lumis(file, sorted(lumis))
        if guid:
            file["GUID"] = guid
    return concatenate(tables), sorted(lumis)


def _branches(tree: uproot.TTree) -> dict[str, object]:
    """Names and types of a tree's branches, for writing another like it."""
    return {branch.name: branch.interpretation.to_dtype.newbyteorder("=") for branch in tree.branches}
