"""A site's storage: stage-out, reading, listing and removal, by LFN. Owns how a file gets there whole, and its verification.

A file counts as staged out when the storage reports its size and Adler-32, or it was read back; one that differs is removed
and tried again. What a site's volumes are is ``siteconf``'s, how they are spoken to ``doors``'s.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..contract import codes, files
from ..contract.codes import PayloadError
from ..contract.documents import STAGE_OUT_PAUSES
from ..contract.reports import StoredFile
from . import siteconf
from .doors import KNOWN, Door, FileSystem, door, local_path
from .siteconf import Description, Protocol, StorageProblem

_T = TypeVar("_T")
#: Seconds between the tries of a file, separated by spaces, where a worker node has its own; else ``job.json`` says them.
PAUSES_VARIABLE = "WMS2_STAGE_OUT_PAUSES"


class _Way(NamedTuple):
    """A protocol of a volume, with its door."""

    protocol: Protocol
    door: Door


@dataclass(frozen=True)
class Volume:
    """A volume that a site's jobs stage out to, with the ways to it in the order to be tried."""

    description: Description
    ways: tuple[_Way, ...]
    #: Whether jobs write to it from here; from another part of the site they may.
    is_written: bool = True

    @property
    def rse(self) -> str:
        """Its name in Rucio."""
        return self.description.rse

    def pfn(self, lfn: str) -> str:
        """What the first way calls ``lfn``."""
        return self.description.pfn(self.ways[0].protocol, lfn)


def site_volumes(site: str) -> tuple[Volume, ...]:
    """All volumes that jobs at ``site`` may have left files in: those of here, then those of the site's other parts, as
    subsites have their own. PayloadError when none is written from here."""
    found = list(_written(site))
    for method in siteconf.methods_elsewhere(site):
        tool = door(method)
        if tool is not None and method.description.rse not in {volume.rse for volume in found}:
            found.append(Volume(method.description, (_Way(method.protocol, tool),), is_written=False))
    return tuple(found)


def _written(site: str) -> tuple[Volume, ...]:
    """What jobs stage out to from here: its own volume first, then those it falls back to; PayloadError when the site names
    none."""
    ways: dict[Description, list[_Way]] = {}
    unknown: dict[str, list[str]] = {}
    for method in siteconf.methods(site):
        tool = door(method)
        if tool is None:
            unknown.setdefault(method.description.site, []).append(method.command)
        else:
            ways.setdefault(method.description, []).append(_Way(method.protocol, tool))
    if not ways or (site in unknown and site not in {each.site for each in ways}):
        commands = unknown.get(site) or [command for each in unknown.values() for command in each]
        text = f"{site} stages out by {', '.join(commands)}; known are {KNOWN}"
        raise PayloadError(codes.STORAGE_UNUSABLE, text)
    for at, commands in unknown.items():
        siteconf.leave_out(site, f"into {at} by {', '.join(commands)}; known are {KNOWN}")
    return tuple(Volume(description, tuple(each)) for description, each in ways.items())


def volume_with(volumes: Sequence[Volume], rse: str) -> Volume:
    """The volume that is ``rse``; StorageProblem when the site has no such volume any more."""
    for volume in volumes:
        if volume.rse == rse:
            return volume
    text = f"files are at {rse}, which is not one of the volumes here: {', '.join(volume.rse for volume in volumes)}"
    raise StorageProblem(codes.STORAGE_UNUSABLE, text)


def size(volume: Volume, lfn: str, waits: Sequence[float] = ()) -> int | None:
    """Bytes of a file as the storage reports them; None when it is not there. Asked again after each of ``waits``, in seconds.

    StorageProblem when no way to the volume answers.
    """
    for wait in waits:
        with suppress(StorageProblem):
            return _ask(volume, lfn, lambda door, pfn: door.size(pfn))
        time.sleep(wait)
    return _ask(volume, lfn, lambda door, pfn: door.size(pfn))


def checksum(volume: Volume, lfn: str) -> str | None:
    """Adler-32 of a file as the storage reports it, or of what is read from it; None when it is not there."""
    bytes_there = size(volume, lfn)
    return None if bytes_there is None else _ask(volume, lfn, lambda door, pfn: _checksum(door, pfn, bytes_there))


def listed(volume: Volume, lfn_directory: str) -> list[str]:
    """Names in a directory, sorted; empty when there is none."""
    return sorted(_ask(volume, lfn_directory, lambda door, pfn: door.listed(pfn)))


def remove(volume: Volume, lfn: str) -> bool:
    """Remove a file, with its leftovers; False when it was not there."""
    return _ask(volume, lfn, lambda door, pfn: door.remove(pfn))


def remove_directory(volume: Volume, lfn_directory: str) -> None:
    """Remove an empty directory."""
    _ask(volume, lfn_directory, lambda door, pfn: door.remove_directory(pfn))


def text(volume: Volume, lfn: str) -> str | None:
    """What a small file holds; None when it is not there."""
    bytes_there = size(volume, lfn)
    if bytes_there is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        _ask(volume, lfn, lambda door, pfn: door.get(pfn, copy, bytes_there))
        return copy.read_text(encoding="utf-8", errors="replace")


def readable(volumes: Sequence[Volume], file: StoredFile) -> str | None:
    """What cmsRun opens to read a file where it lies: its ``file:`` or ``root:`` name by any protocol of the volume, the ways
    to stage out first; one that is mounted only where it is there. None: it has to be fetched."""
    volume = volume_with(volumes, file.rse)
    description, first = volume.description, [way.protocol for way in volume.ways]
    others = (each for each in description.protocols if each not in first and each.access != "virtual")
    for protocol in (*first, *others):
        try:
            pfn = description.pfn(protocol, file.lfn)
        except StorageProblem:  # no rule of this protocol is for such files
            continue
        if pfn.startswith("root:"):
            return pfn
        if pfn.startswith("file:") and local_path(pfn).is_file():
            return f"file:{local_path(pfn).resolve()}"
    return None


def bring(volumes: Sequence[Volume], file: StoredFile, directory: Path) -> Path:
    """A path at which a file can be read: its own one in a mounted file system, else a copy in ``directory``; compared.

    PayloadError(FILE_OPEN_FAILED) when it is not there, cannot be fetched, or is not what was staged out.
    """
    try:
        volume = volume_with(volumes, file.rse)
        place, is_mounted = volume.pfn(file.lfn), isinstance(volume.ways[0].door, FileSystem)
        if size(volume, file.lfn) is None:
            raise PayloadError(codes.FILE_OPEN_FAILED, f"{place} ({file.rse}), which a job staged out, is not there")
        path = local_path(place) if is_mounted else directory / Path(file.lfn).name
        if not is_mounted:
            _ask(volume, file.lfn, lambda door, pfn: door.get(pfn, path, file.size_bytes))
        found = (path.stat().st_size, files.adler32(path))
    except (OSError, StorageProblem) as error:
        raise PayloadError(codes.FILE_OPEN_FAILED, f"{file.lfn} at {file.rse} cannot be read: {error}") from error
    if found != (file.size_bytes, file.adler32):
        raise PayloadError(
            codes.FILE_OPEN_FAILED,
            f"{place} has {found[0]} bytes, adler32 {found[1]}; its job staged out {file.size_bytes}, {file.adler32}",
        )
    return path


def _ask(volume: Volume, lfn: str, question: Callable[[Door, str], _T]) -> _T:
    """The answer of the first way that gives one; StorageProblem with what each said."""
    problems = []
    for way in volume.ways:
        try:
            return question(way.door, volume.description.pfn(way.protocol, lfn))
        except (OSError, StorageProblem) as error:
            problems.append(error)
    raise _all(problems)


def _all(problems: Sequence[Exception]) -> StorageProblem:
    """Several in one, with the code of the first that has one."""
    known = (problem.code for problem in problems if isinstance(problem, StorageProblem))
    return StorageProblem(next(known, codes.STAGE_OUT_FAILED), "; ".join(dict.fromkeys(map(str, problems))))


def pauses(asked_seconds: Sequence[float] = STAGE_OUT_PAUSES) -> tuple[float, ...]:
    """Seconds to wait before each further try of a file: the worker node's own, else those asked for."""
    own = os.environ.get(PAUSES_VARIABLE)
    try:
        return tuple(asked_seconds) if own is None else tuple(float(word) for word in own.split())
    except ValueError:
        print(f"wms2_payload: {PAUSES_VARIABLE}={own!r} is no list of seconds: {asked_seconds} are taken", file=sys.stderr)
        return tuple(asked_seconds)


def stage_out(source: Path, volume: Volume, lfn: str, waits: Sequence[float] = (), *, begun: bool = False) -> StoredFile:
    """Copy ``source`` to where ``lfn`` lies in a volume, by each way in turn, and again after each of ``waits``, in seconds.

    Never over something that was there before: the name is this start's own, so what comes under it later is of a try of this.
    ``begun``: it was tried in another volume, which may be the same storage. StorageProblem when it is not there in the end; what
    is left of it is removed if possible.
    """
    size_bytes, adler32 = source.stat().st_size, files.adler32(source)
    problems: list[Exception] = []
    for wait, way in [(wait if way is volume.ways[0] else 0.0, way) for wait in (0.0, *waits) for way in volume.ways]:
        time.sleep(wait)
        try:
            pfn = volume.description.pfn(way.protocol, lfn)
            if begun:
                way.door.remove(pfn)
            elif way.door.size(pfn) is not None:
                raise FileExistsError(f"File exists: {pfn}")
            begun = True  # the name was free, so what is there now is ours
            _put(way.door, source, pfn, size_bytes, adler32)
            return StoredFile(lfn, pfn, volume.rse, size_bytes, adler32)
        except (OSError, StorageProblem) as error:
            problems.append(error)
            if not begun and isinstance(error, FileExistsError):
                break
    if begun:
        try:
            remove(volume, lfn)
        except StorageProblem as error:
            problems.append(error)
    problem = _all(problems)
    raise StorageProblem(problem.code, f"stage-out of {source.name} to {volume.pfn(lfn)} ({volume.rse}) failed: {problem}")


def _put(door: Door, source: Path, pfn: str, size_bytes: int, adler32: str) -> None:
    """Copy a file in and compare."""
    try:
        door.put(source, pfn)
    except FileExistsError:  # a request that the client repeated, or a directory that another job made at the same moment
        door.remove(pfn)
        door.put(source, pfn)
    bytes_there = door.size(pfn)
    there = _checksum(door, pfn, size_bytes) if bytes_there == size_bytes else None
    if there != adler32:
        found, expected = f"{bytes_there} bytes, adler32 {there}", f"{size_bytes} bytes, adler32 {adler32}"
        raise StorageProblem(codes.STAGE_OUT_FAILED, f"{pfn} is not what was written: {found}, expected {expected}")


def _checksum(door: Door, pfn: str, size_bytes: int) -> str:
    """Adler-32 as the storage reports it, or of the file read back where it cannot."""
    found = door.checksum(pfn, size_bytes)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        door.get(pfn, copy, size_bytes)
        return files.adler32(copy)
