"""Small file operations that must survive being killed: atomic writes, checksums, bounded tails. Owns no format."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 4 * 1024 * 1024


def write_atomic(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: a reader sees the old file or the new one, never a part of either.

    OSError when the disk refuses; the old file is as it was, and nothing is left beside it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document atomically, keys in the order given."""
    write_atomic(path, json.dumps(document, indent=1) + "\n")


def append_line(path: Path, line: str) -> None:
    """Append one line by a single ``write``, so lines of parallel writers do not mix.

    OSError(ENOSPC) when only a part of it found room: a full disk takes what it can and says nothing.
    """
    data = (line + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if _is_torn(path):
            data = b"\n" + data  # the next line must not be lost with the one that was cut off
        written = os.write(descriptor, data)
    finally:
        os.close(descriptor)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written", str(path))


def _is_torn(path: Path) -> bool:
    """Whether the file ends in the middle of a line."""
    with path.open("rb") as stream:
        if not stream.seekable() or stream.seek(0, os.SEEK_END) == 0:
            return False
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) != b"\n"


def read_text(path: Path) -> str:
    """A text file; empty when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Inside, this process alone has the lock file."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sync_directory(path: Path) -> None:
    """Make a rename inside ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def adler32(path: Path) -> str:
    """Adler-32 of a file as 8 hexadecimal digits, the form DBS and Rucio use."""
    value = 1
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            value = zlib.adler32(chunk, value)
    return f"{value & 0xFFFFFFFF:08x}"


def copy_durably(source: Path, target: Path) -> None:
    """Copy ``source`` to ``target`` and flush it to the disk."""
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
        writer.flush()
        os.fsync(writer.fileno())


def tail_text(path: Path, lines: int, max_bytes: int = 65536) -> str:
    """The last ``lines`` lines of a text file, at most ``max_bytes``; empty when there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - max_bytes))
        text = stream.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])
