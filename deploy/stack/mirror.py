"""Copy a checkout to a place the servers' user can read, changing only what differs.

Packing (as root, who can read the checkout) and unpacking (as the servers' user, who owns the copy) are apart, so
that root never writes into a directory another user controls. Version control, environments and caches are left
out; files that left the checkout leave the copy too.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

SKIPPED_DIRECTORIES = frozenset({".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis",
                                 ".import_linter_cache", "node_modules"})  # fmt: skip


def entries(root: Path) -> Iterator[Path]:
    """Directories and files below ``root``, relative, parents first."""
    for directory, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_DIRECTORIES)
        here = Path(directory).relative_to(root)
        yield from (here / name for name in (*names, *sorted(files)))


def is_readable(root: Path) -> bool:
    """Whether the current user can read everything that a copy would hold."""
    if not os.access(root, os.R_OK | os.X_OK):
        return False
    for entry in entries(root):
        path = root / entry
        wanted = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
        if path.exists() and not os.access(path, wanted):
            return False
    return True


def pack(source: Path) -> bytes:
    """The tree as an uncompressed tar."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry in entries(source):
            archive.add(source / entry, arcname=str(entry), recursive=False)
    return stream.getvalue()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def _write(path: Path, content: bytes, mode: int) -> bool:
    if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o777 == mode and path.read_bytes() == content:
        return False
    _remove(path)
    path.write_bytes(content)
    path.chmod(mode)
    return True


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bool:
    """Put one entry in its place; whether anything had to change."""
    if member.isdir():
        if path.is_dir() and not path.is_symlink():
            return False
        _remove(path)
        path.mkdir()
        return True
    if member.issym():
        if path.is_symlink() and str(path.readlink()) == member.linkname:
            return False
        _remove(path)
        path.symlink_to(member.linkname)
        return True
    content = archive.extractfile(member)
    return content is not None and _write(path, content.read(), 0o755 if member.mode & 0o100 else 0o644)


def unpack(packed: bytes, target: Path) -> int:
    """Make ``target`` hold exactly the packed tree; returns how many entries changed."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = archive.getmembers()
        wanted = {Path(member.name) for member in members}
        stale = [entry for entry in entries(target) if entry not in wanted]
        for entry in stale:
            _remove(target / entry)
        return len(stale) + sum(_place(archive, member, target / member.name) for member in members)
