"""A DAG's directory as one file, ``<dag_id>.zip`` beside its place: packing it, and reading from it (ADR 0029).

A pack is written under a temporary name, brought to disk, compared with the directory byte for byte and renamed; only then is the
directory moved out of the way and removed. While the directory stands it alone counts. A crash at any point
is repaired by packing again. Owns no row and does not know which directories may be packed.
"""

from __future__ import annotations

import filecmp
import fnmatch
import os
import shutil
import stat
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dags_app.payload.contract.files import sync_directory
from wms2.errors import Wms2Error
from wms2.runtime.crash import crash_point

#: Of each file that a reader asks for, so much of its end is unpacked.
MOST_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
#: What a directory that is being removed is called: ``.<dag_id>.<random>.gone``; only verified ones get that name.
_GONE, _PART = "gone", "part"


class PackProblem(Wms2Error):
    """The directory cannot be packed; it is as it was."""


class PackedFile(NamedTuple):
    """A file of a DAG's directory, wherever it lies now."""

    path: str
    size_bytes: int
    modified_at: datetime


def pack_path(directory: Path) -> Path:
    """Where the pack of a DAG's directory lies."""
    return directory.with_name(f"{directory.name}.zip")


def pack(directory: Path) -> int:
    """Put the directory into its pack and remove it; returns the pack's bytes. Again, or after a crash, it does what is left.

    Raises:
        PackProblem: something in it is no file, changes, or does not read back; or there is neither directory nor pack.
        OSError: the file system refuses.
    """
    target = pack_path(directory)
    if directory.is_dir():
        if not _holds(target, directory):  # none, or of another attempt: the directory counts
            _write(directory, target)
            crash_point("pack.called")
        directory.rename(directory.with_name(f".{directory.name}.{uuid.uuid4().hex[:12]}.{_GONE}"))
        sync_directory(directory.parent)
        crash_point("pack.moved")
    if not target.is_file():
        raise PackProblem(f"there is neither {directory} nor {target.name}")
    for left in directory.parent.glob(f".{directory.name}.*.{_GONE}"):
        shutil.rmtree(left)
    for part in directory.parent.glob(f".{directory.name}.*.{_PART}"):
        part.unlink(missing_ok=True)
    return target.stat().st_size


def pack_copy(directory: Path, target: Path) -> None:
    """Have the pack of a directory lie at ``target`` too, whole or not at all. The caller removes the first one.

    Raises:
        PackProblem: what was written is not what was read.
        OSError: the file system refuses.
    """
    source = pack_path(directory)

    def copy(file: BinaryIO) -> None:
        with source.open("rb") as old:
            shutil.copyfileobj(old, file, _CHUNK_BYTES)

    target.parent.mkdir(parents=True, exist_ok=True)
    problem = f"{target} is not what was just copied from {source}: the disk errs"
    _put(target, copy, lambda part: filecmp.cmp(source, part, shallow=False), problem)


@contextmanager
def files_of(submit_dir: str, *names: str) -> Iterator[Path]:
    """The DAG's directory; once that is packed, a temporary one with the files of these names (``unit/file``) that it had.

    What cannot be unpacked is not there, as in a directory that is gone.
    """
    directory = Path(submit_dir)
    if directory.is_dir() or not pack_path(directory).is_file():
        yield directory
        return
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            _unpack(directory, name, Path(place))
        yield Path(place)


def is_there(submit_dir: str) -> bool:
    """Whether the DAG's directory, or its pack, can be read from this host."""
    return Path(submit_dir).is_dir() or pack_path(Path(submit_dir)).is_file()


def size_of(submit_dir: str, name: str) -> int | None:
    """Bytes of one file (``unit/file``) of the DAG's directory or its pack; None when it is not there."""
    directory = Path(submit_dir)
    try:
        if directory.is_dir():
            return (directory / name).stat().st_size
        return _archive(directory).getinfo(name).file_size
    except (KeyError, OSError, zipfile.BadZipFile):
        return None


def is_readable(root: Path) -> bool:
    """Whether the file system with DAGs' directories can be read: a mount that is away leaves no directory, or an empty one."""
    try:
        return any(root.iterdir())
    except OSError:
        return False


def files_like(submit_dir: str, *patterns: str) -> list[PackedFile]:
    """Files at the top of the DAG's directory, by name; empty when it is neither there nor packed."""
    directory = Path(submit_dir)
    if directory.is_dir():
        found = {path: path.stat() for pattern in patterns for path in directory.glob(pattern) if path.is_file()}
        return [PackedFile(str(p), found[p].st_size, datetime.fromtimestamp(found[p].st_mtime, UTC)) for p in sorted(found)]
    try:
        top = [info for info in _archive(directory).infolist() if "/" not in info.filename]
    except (OSError, zipfile.BadZipFile):
        return []
    infos = [info for info in top if any(fnmatch.fnmatchcase(info.filename, pattern) for pattern in patterns)]
    infos.sort(key=lambda info: info.filename)
    return [PackedFile(str(directory / i.filename), i.file_size, datetime(*i.date_time, tzinfo=UTC)) for i in infos]


def _archive(directory: Path) -> zipfile.ZipFile:
    path = pack_path(directory)
    found = path.stat()
    return _opened(str(path), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _opened(path: str, _modified_ns: int, _size: int) -> zipfile.ZipFile:
    """Kept open: a page asks for a file of each of hundreds of units, and the list of all files is read at opening."""
    return zipfile.ZipFile(path)


def _unpack(directory: Path, name: str, place: Path) -> None:
    """Nothing where it cannot be; a name leads nowhere but to a file that was packed under it."""
    try:
        archive = _archive(directory)
        info = archive.getinfo(name)
    except (KeyError, OSError, zipfile.BadZipFile):
        return
    target = place / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(info) as source, target.open("wb") as file:
            source.seek(max(0, info.file_size - MOST_BYTES))
            shutil.copyfileobj(source, file, _CHUNK_BYTES)
    except (OSError, zipfile.BadZipFile, zlib.error):
        target.unlink(missing_ok=True)


def _write(directory: Path, target: Path) -> None:
    def fill(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for name, path in _contents(directory).items():
                _add(archive, name, path)

    def is_same(part: Path) -> bool:
        crash_point("pack.claimed")
        return _holds(part, directory)

    problem = f"{directory} is not what was just packed of it: it is still being written to, or the disk errs"
    _put(target, fill, is_same, problem)


def _put(target: Path, fill: Callable[[BinaryIO], None], is_same: Callable[[Path], bool], problem: str) -> None:
    """A file, whole or not at all, once it is on disk and ``is_same``."""
    part = target.with_name(f".{target.stem}.{uuid.uuid4().hex[:12]}.{_PART}")
    try:
        with part.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what is compared comes from the disk
        if not is_same(part):
            raise PackProblem(problem)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(target.parent)


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    """With the time in UTC and the mode, so that ``unzip`` gives back what was there."""
    info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    info.date_time = max(modified.timetuple()[:6], (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    if info.is_dir():
        archive.writestr(info, b"")
        return
    with path.open("rb") as source, archive.open(info, "w") as file:
        shutil.copyfileobj(source, file, _CHUNK_BYTES)


def _holds(target: Path, directory: Path) -> bool:
    """Whether the pack has exactly what is in the directory, byte for byte."""
    if not target.is_file():
        return False
    contents = _contents(directory)
    try:
        with zipfile.ZipFile(target) as archive:
            names = archive.namelist()
            if sorted(names) != sorted(contents):
                return False
            return all(name.endswith("/") or _same(archive, name, path) for name, path in contents.items())
    except (zipfile.BadZipFile, zlib.error, FileNotFoundError):
        return False


def _same(archive: zipfile.ZipFile, name: str, path: Path) -> bool:
    with archive.open(name) as packed, path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if packed.read(_CHUNK_BYTES) != chunk:
                return False
        return not packed.read(1)


def _contents(directory: Path) -> dict[str, Path]:
    """Name in the pack -> path, of all files and directories below.

    Raises:
        PackProblem: something is neither; a pack could not give it back.
    """

    def refuse(error: OSError) -> None:
        raise error

    paths = [Path(place, name) for place, below, files in os.walk(directory, onerror=refuse) for name in (*below, *files)]
    found: dict[str, Path] = {}
    for path in sorted(paths):
        mode, name = path.lstat().st_mode, str(path.relative_to(directory))
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise PackProblem(f"{path} is neither a file nor a directory")
        found[f"{name}/" if stat.S_ISDIR(mode) else name] = path
    return found
