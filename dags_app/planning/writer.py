"""Puts a rendered DAG on disk. The only module of planning that writes.

A directory is written under ``.<dag_id>.<random>.tmp``, brought to disk, and renamed: it is there whole or not at all, and a
crash at any point is repaired by calling again. Two that write the same DAG at the same time, one of which was replaced, never
touch each other's files. What is rendered is immutable; ``SHA256SUMS`` says what it was. The files that
change between submissions (includes, the step profile) are replaced atomically, since DAGMan may be reading them.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dags_app.payload.contract import layout
from dags_app.payload.contract.files import read_text, sync_directory, write_atomic
from dags_app.planning.dagfiles import fence_inc, render
from dags_app.planning.sizing import Sizes
from dags_app.planning.specs import DagSpec
from wms2.errors import ServiceUnavailable, StaleState, Wms2Error

#: Directories below a request's that hold a DAG planned once more, where another attempt's directory stands in its place.
AGAIN = "again-"
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOCK_TRIES, _LOCK_PAUSE_SECONDS = 20, 0.1


class DagDirectoryConflict(Wms2Error):
    """A directory of this DAG id exists and holds something else; nothing was changed."""


class Programs(NamedTuple):
    """What goes into a DAG directory beside the rendered text."""

    payload: bytes  # the zipapp
    sandbox: bytes  # tar.gz with psets/
    rules: bytes  # failure rules, JSON (payload/contract/rules.py)


class WrittenDag(NamedTuple):
    """A DAG directory on disk. ``files_sha256`` is the sum of ``SHA256SUMS``."""

    directory: Path
    files_sha256: str


def write_dag_directory(spec: DagSpec, programs: Programs, *, parent: Path) -> WrittenDag:
    """Write ``parent/<dag_id>``.

    Args:
        parent: the request's directory below the submit root; made when absent.

    Raises:
        DagDirectoryConflict: the directory exists with other contents. With the same contents (a crash came after the
            rename) it is left alone and returned.
        ValueError: the spec cannot be rendered.
        OSError: the disk refused.
    """
    final = parent / spec.dag_id
    temporary = parent / f".{spec.dag_id}.{uuid.uuid4().hex[:12]}.tmp"
    parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir()
    with _opened(temporary) as place:
        sums = _write_files(place, spec, programs)
        text = "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items()))
        written = WrittenDag(final, hashlib.sha256(text.encode()).hexdigest())
        if not final.exists():
            _write(place, layout.SUMS, text.encode())
            sync_filesystem(place)  # one for all: an fsync per file costs milliseconds each, also for those on disk already
            try:
                temporary.rename(final)
            except OSError:
                if not final.exists():
                    raise
            else:
                sync_directory(parent)
                return written
    shutil.rmtree(temporary)
    if read_text(final / layout.SUMS) != text:
        raise DagDirectoryConflict(f"{final} exists with other contents than planned now")
    return written


def remove_leftovers(kept: Path, *, parent: Path) -> None:
    """Remove what other attempts at this DAG have left below ``parent``, once ``kept`` is recorded: no other can be any more."""
    dag_id = kept.name
    for place in (parent, *parent.glob(f"{AGAIN}*")):
        for path in (place / dag_id, *place.glob(f".{dag_id}.*tmp")):
            if path != kept and path.is_dir() and not written_fence(path):
                shutil.rmtree(path, ignore_errors=True)


def other_work(directory: Path, spec: DagSpec) -> str:
    """The first work unit that does other work, or is in one of the two alone; empty where the DAG runs what ``spec`` says."""
    mine = {path: text for path, text, _ in render(spec) if path.endswith(f"/{layout.UNIT_FILE}")}
    units = mine.keys() | {f"{path.parent.name}/{path.name}" for path in directory.glob(f"*/{layout.UNIT_FILE}")}
    return next((path.partition("/")[0] for path in sorted(units) if read_text(directory / path) != mine.get(path, "")), "")


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """A descriptor of a directory, for calls with names below it: thousands of whole paths need not be made and followed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_files(place: int, spec: DagSpec, programs: Programs) -> dict[str, str]:
    """Write everything but the sums; path -> sha256 of what is immutable."""
    sums = dict[str, str]()
    for name in (layout.PAYLOAD.partition("/")[0], *(unit.name for unit in spec.units)):
        os.mkdir(name, dir_fd=place)
    for path, text, mutable in render(spec):
        data = text.encode()
        _write(place, path, data)
        if not mutable:
            sums[path] = hashlib.sha256(data).hexdigest()
    for path, data, mode in (
        (layout.SANDBOX_FILE, programs.sandbox, 0o644),
        (layout.PAYLOAD, programs.payload, 0o755),
        (layout.RULES_FILE, programs.rules, 0o644),
    ):
        _write(place, path, data)
        os.chmod(path, mode, dir_fd=place)
        sums[path] = hashlib.sha256(data).hexdigest()
    return sums


def _write(place: int, path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=place)
    try:
        left = memoryview(data)
        while left:  # a full disk takes what it can, and refuses the next
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def sync_filesystem(descriptor: int) -> None:
    """Bring the file system of ``descriptor`` to disk: ``os.sync`` waits for every disk of the machine, and hides what failed.

    OSError when the disk refused something that was written since the descriptor was opened.
    """
    if _LIBC.syncfs(descriptor):
        raise OSError(ctypes.get_errno(), f"syncfs: {os.strerror(ctypes.get_errno())}")


def changed_files(directory: Path) -> list[str]:
    """Immutable files that are no longer what was rendered, missing ones included; empty when all is well."""
    changed = []
    for line in (directory / layout.SUMS).read_text().splitlines():
        digest, path = line.split("  ", 1)
        try:
            same = hashlib.sha256((directory / path).read_bytes()).hexdigest() == digest
        except FileNotFoundError:
            same = False
        if not same:
            changed.append(path)
    return changed


def write_fence(directory: Path, fence: int, sizes: Sizes | None = None) -> None:
    """Stamp what is submitted from now on with ``fence``; before each submission, whose ``sizes`` go with it. The number only
    ever rises.

    Raises:
        StaleState: a larger number stands there; nothing was written, and nothing may be submitted under this one.
        ServiceUnavailable: another process has been writing it for long, e.g. because it was paused.
        OSError: the disk refused.
    """
    path = directory / layout.FENCE_INCLUDE
    with _locked(directory / f".{layout.FENCE_INCLUDE}.lock"):
        written = written_fence(directory)
        if written > fence:
            raise StaleState(f"{path} has fence {written} already; fence {fence} is of the past")
        replace_file(path, fence_inc(fence))
        for name, text in (sizes.files() if sizes is not None else {}).items():
            replace_file(directory / name, text)


@contextmanager
def held_by(directory: Path, fence: int) -> Iterator[None]:
    """While this is open no later submission takes the directory: what is written there is of the one with ``fence``.

    Raises:
        StaleState: the directory is another submission's; nothing may be written for this one.
        ServiceUnavailable: as ``write_fence``.
    """
    with _locked(directory / f".{layout.FENCE_INCLUDE}.lock"):
        written = written_fence(directory)
        if written != fence:
            raise StaleState(f"{directory} is of the submission with fence {written}; fence {fence} is of the past")
        yield


def written_fence(directory: Path) -> int:
    """What ``write_fence`` has written last; 0 before the first submission, and where there is no such directory."""
    found = re.search(r"\d+", read_text(directory / layout.FENCE_INCLUDE).partition("=")[2])
    return int(found.group()) if found is not None else 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            raise ServiceUnavailable("wms2", "write_fence", f"{path} is locked by another process")
        yield  # closing the file gives the lock back


def replace_file(path: Path, text: str) -> None:
    """Replace one of the files that change between submissions; DAGMan may be reading it. Inside ``held_by``."""
    write_atomic(path, text)
    sync_directory(path.parent)
