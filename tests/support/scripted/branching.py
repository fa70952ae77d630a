"""Scenarios that many tests begin with: brought about once by a process, put back for every further test that asks for them.

A function of a world that is marked ``once`` runs when it is asked for the first time. All that it has led to is kept then: rows,
files, what stands outside, the moment by the world's clock, what it returned. Asked for again in a world that stands where it
began that time, with the same settings, patches and arguments, it is put back, at a twentieth of what it costs to run. In any
other world it runs.

So a world stands at a branching point from ``World.furnish`` on, and no longer when a test has changed anything. It is compared
with what was kept: rows, files, what is outside, settings, patches and clock; not with what a test changes in the process
without ``monkeypatch``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pytest
from django.db import connection, transaction

from tests.support.flushing import filled_sql
from tests.support.scripted.snapshot import tables
from wms2.work.resources import resources_ensure
from wms2.work.workers import pools_ensure

if TYPE_CHECKING:
    from tests.support.scripted.world import World

P = ParamSpec("P")
T = TypeVar("T")
#: Table -> its rows as COPY has them; tables without rows are not there.
Rows = dict[str, bytes]
#: Path below a world's directory -> mode, time of modification in ns, content; a directory has none, a link where it leads to.
Files = dict[str, tuple[int, int, bytes]]
_PLAIN = (str, int, float, bool, type(None), tuple, frozenset)


@dataclass(frozen=True, slots=True)
class Point:
    """The end of a scenario. ``outside`` is pickled with what the scenario returned, so what is one object stays one."""

    key: str
    rows: Rows
    files: Files
    outside: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class Stand:
    """The point where a world stands, and how everything looked there."""

    key: str
    rows: Rows
    files: dict[str, tuple[int, int]]
    outside: bytes
    ahead: timedelta


_points: dict[str, Point] = {}
#: Each content once: every DAG brings the same payload.
_contents: dict[bytes, bytes] = {}


@pytest.fixture(scope="session", name="_only_place")
def _of_this_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture
def place(_only_place: Path) -> Path:
    """An empty directory for a world: the same for all tests of a process, since rows and files hold its path."""
    _write(_only_place, {})
    return _only_place


def once(scenario: Callable[Concatenate[World, P], T]) -> Callable[Concatenate[World, P], T]:
    """A scenario that changes nothing but the world, takes plain arguments, and leaves no fault waiting."""

    @functools.wraps(scenario)
    def brought(world: World, *args: P.args, **kwargs: P.kwargs) -> T:
        begun = _begun(world)
        asked = (begun, scenario.__module__, scenario.__qualname__, args, sorted(kwargs.items()), _settings(), _patches(world))
        key = hashlib.sha256(repr(asked).encode()).hexdigest()
        if not begun:
            world.stand = None
            return scenario(world, *args, **kwargs)
        if key not in _points:
            result = scenario(world, *args, **kwargs)
            _points[key] = Point(key, _rows(), _read(world.root), _pickled(world, result), world.clock.now())
            world.stand = _stand(world, key, _points[key].rows)
            return result
        return _put_back(world, _points[key])  # type: ignore[no-any-return]

    return brought


def wipe() -> None:
    """A database as it is after its migrations. What was kept is of no use any more, since the numbers of rows begin anew."""
    _points.clear()
    names = ", ".join(f'"{table}"' for table in tables())
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
    resources_ensure()
    pools_ensure()


# --- where a world stands


def _begun(world: World) -> str:
    """What a scenario begins with; empty where that is not known, or cannot be put back."""
    if not _superuser() or _patches(world) is None:
        return ""
    if world.stand is not None:
        try:
            now = _stand(world, world.stand.key, _rows())
        except (pickle.PicklingError, AttributeError, TypeError):  # a test has put code of its own into it
            return ""
        return now.key if now == world.stand else ""
    if world.root.is_dir() and any(world.root.iterdir()):
        return ""
    return f"{world.root} {[(table, rows.count(10)) for table, rows in _rows().items()]}"


def _stand(world: World, key: str, rows: Rows) -> Stand:
    return Stand(key, rows, _seen(world.root), _pickled(world, None), world.clock.ahead)


def _settings() -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in os.environ.items() if name.startswith("WMS2_"))


def _patches(world: World) -> list[tuple[str, str, str]] | None:
    """What is patched, and with what; None where a test has put in something of its own that does not say what it is."""
    found = []
    for number, (target, name, _) in enumerate(world.patch._setattr):
        value = getattr(target, name, None)
        if not isinstance(value, _PLAIN) and number >= world.own_patches:
            return None
        found.append((str(target), name, repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__))
    return found


@functools.cache
def _superuser() -> bool:
    """Whether this session may put rows in as they were, without triggers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser')")
        return bool(cursor.fetchone() == ("on",))


# --- rows


def _rows() -> Rows:
    """All rows of WMS2."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(filled_sql(tables()))
        for (table,) in cursor.fetchall():
            with cursor.copy(f'COPY "{table}" TO STDOUT') as rows:  # without generated columns
                found[table] = b"".join(rows)
    return found


def _replace(there: Rows, wanted: Rows) -> None:
    """As they were: no trigger runs, and no column is filled anew."""
    other = sorted(table for table in there.keys() | wanted.keys() if there.get(table) != wanted.get(table))
    deleted = "".join(f'DELETE FROM "{table}"; ' for table in other if table in there)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL session_replication_role = replica; {deleted}")
        for table in other:
            if table in wanted:
                with cursor.copy(f'COPY "{table}" FROM STDIN') as rows:
                    rows.write(wanted[table])


# --- files


def _seen(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of modification of each file."""
    found = {}
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = f"{directory}/{name}"
            info = os.lstat(path)
            found[path] = (info.st_size, info.st_mtime_ns)
    return found


def _read(root: Path) -> Files:
    found = {}
    for name in _seen(root):
        path = Path(name)
        info, content = path.lstat(), b""
        if path.is_symlink():
            content = bytes(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[name] = (info.st_mode, info.st_mtime_ns, _contents.setdefault(content, content))
    return found


def _write(root: Path, files: Files) -> None:
    """These and no others."""
    for entry in root.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, (mode, _, content) in files.items():  # a directory comes before what is in it
        path = Path(name)
        if stat.S_ISDIR(mode):
            path.mkdir()
        elif stat.S_ISLNK(mode):
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)
            path.chmod(stat.S_IMODE(mode))
    for name, (mode, modified, _) in reversed(files.items()):
        if not stat.S_ISLNK(mode):
            os.utime(name, ns=(modified, modified))


# --- what stands outside


class _Pickler(pickle.Pickler):
    def persistent_id(self, found: Any) -> str | None:
        from tests.support.scripted.world import World

        if isinstance(found, World):
            return "world"
        return "thread" if isinstance(found, threading.Thread) else None  # one that has ended


class _Unpickler(pickle.Unpickler):
    world: World

    def persistent_load(self, name: str) -> World | None:
        return self.world if name == "world" else None


def _pickled(world: World, result: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump((world.outside(), result))
    return written.getvalue()


def _put_back(world: World, point: Point) -> Any:
    _replace(world.stand.rows if world.stand is not None else _rows(), point.rows)
    _write(world.root, point.files)
    reader = _Unpickler(io.BytesIO(point.outside))
    reader.world = world
    outside, result = reader.load()
    world.outside_is(outside)
    world.clock.set(point.at)
    world.stand = _stand(world, point.key, point.rows)
    return result
