"""Copy a checkout to a place the servers' user can read, changing only what differs.

Packing (as root, who can read the checkout) and unpacking (as the servers' user, who owns the copy) are apart, so
that root never writes into a directory another user controls. Version control, environments and caches are left
out; files that left the checkout leave the copy too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

SKIPPED_DIRECTORIES = frozenset({".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis",
                                 ".import_linter_cache", "node_modules"})  # fmt: skip
#: What is at a path: a directory (None), where a link leads, or a file's bytes and mode.
Content = tuple[bytes, int] | str | None
Packed = Mapping[Path, Content]


def entries(root: Path) -> Iterator[Path]:
    """Directories and files below ``root``, relative, parents first."""
    for directory, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_DIRECTORIES)
        here = Path(directory).relative_to(root)
        yield from (here / name for name in (*names, *sorted(files)))


def is_readable(root: Path) -> bool:
    """Whether the current user can read everything that a copy of a tree, or of one file, would hold."""
    for entry in (Path(), *entries(root)):
        path = root / entry
        wanted = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
        if path.exists() and not os.access(path, wanted):
            return False
    return True


def _content(path: Path) -> Content:
    if path.is_symlink():
        return str(path.readlink())
    return None if path.is_dir() else (path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)


def pack(source: Path) -> Packed:
    """The tree, or one file; sockets and the like are left out."""
    paths = ((entry, source / entry) for entry in ([Path()] if source.is_file() else entries(source)))
    return {entry: _content(path) for entry, path in paths if path.is_symlink() or path.is_dir() or path.is_file()}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _place(path: Path, content: Content) -> bool:
    """Put one entry in its place; whether anything had to change."""
    if os.path.lexists(path):
        if _content(path) == content:
            return False
        _remove(path)
    match content:
        case None:
            path.mkdir()
        case str():
            path.symlink_to(content)
        case text, mode:
            path.write_bytes(text)
            path.chmod(mode)
    return True


def unpack(packed: Packed, target: Path) -> int:
    """Make ``target`` hold exactly what was packed; returns how many entries changed."""
    (target.parent if Path() in packed else target).mkdir(parents=True, exist_ok=True)
    stale = [entry for entry in entries(target) if entry not in packed]
    for entry in stale:
        _remove(target / entry)
    return len(stale) + sum(_place(target / entry, content) for entry, content in packed.items())
