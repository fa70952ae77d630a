"""Scenarios that many tests begin with: brought about once by a process, put back for every further test that asks for them.

A function of a world that is marked ``once`` runs when it is asked for the first time. All that it has led to is kept then: rows,
files, what stands outside, the world's clock, what it returned. Asked for again in a world that stands where it began that time,
with the same settings, patches and arguments, it is put back as if it had run just now, at a twentieth of what it costs to run:
all moments are later by the time that has passed meanwhile. In any other world it runs.

So a world stands at a branching point from ``World.furnish`` on, until a test has changed anything or was handed out a part of
it: a scenario that returns something is the last that is put back. Compared are rows, files, what is outside, settings, patches
and clock; not what a test changes in the process without ``monkeypatch``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import re
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
from django.utils import timezone

from tests.support.flushing import filled_sql
from tests.support.scripted import snapshot
from tests.support.scripted.snapshot import tables
from wms2.runtime import levels

if TYPE_CHECKING:
    from tests.support.scripted.world import World

P = ParamSpec("P")
T = TypeVar("T")
#: Table -> its rows as COPY has them; tables without rows are not there.
Rows = dict[str, bytes]
#: Path below a world's directory -> mode, time of modification in ns, content; a directory has none, a link where it leads to.
Files = dict[str, tuple[int, int, bytes]]
_NAME = "place-of-worlds"
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(?:\.\d+)?\+00(?::00)?\b")
#: No scenario takes longer by the clock of its processor. What is older than that is no moment of it.
_LONGEST = timedelta(minutes=5)
_PLAIN = (str, int, float, bool, type(None), tuple, frozenset)


@dataclass(frozen=True, slots=True)
class Point:
    """The end of a scenario. ``outside`` is pickled with what the scenario returned, so what is one object stays one."""

    key: str
    rows: Rows
    files: Files
    outside: bytes
    ahead: timedelta
    kept_at: datetime


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
    return tmp_path_factory.mktemp(_NAME)


@pytest.fixture
def world_root(_only_place: Path) -> Path:
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
            outside, ahead = _pickled(world, result), world.clock.ahead
            _points[key] = Point(key, all_rows(), _read(world.root), outside, ahead, timezone.now() - ahead)
            _stands(world, _points[key].rows, key, result)
            return result
        return _put_back(world, _points[key])  # type: ignore[no-any-return]

    return brought


def wipe() -> None:
    """A database as it is after its migrations. What was kept is of no use any more, since the numbers of rows begin anew."""
    _points.clear()
    snapshot.wipe()


# --- where a world stands


def _begun(world: World) -> str:
    """What a scenario begins with; empty where that is not known, or cannot be put back."""
    if not world.root.name.startswith(_NAME) or not _superuser() or _patches(world) is None:
        return ""
    if world.stand is not None:
        try:
            now = _stand(world, world.stand.key, all_rows())
        except (pickle.PicklingError, AttributeError, TypeError):  # a test has put code of its own into it
            return ""
        return now.key if now == world.stand else ""
    if world.root.is_dir() and any(world.root.iterdir()):
        return ""
    return f"{world.root} {[(table, rows.count(10)) for table, rows in all_rows().items()]}"


def _stands(world: World, rows: Rows, key: str, result: object) -> None:
    """Nothing is put in the place of what a test has been handed out: it would go on with what is no more there."""
    world.stand = _stand(world, key, rows) if result is None else None


def _stand(world: World, key: str, rows: Rows) -> Stand:
    return Stand(key, rows, _seen(world.root), _pickled(world, None), world.clock.ahead)


def _settings() -> list[tuple[str, str]]:
    """And how much the machine has to do."""
    ours = [(name, value) for name, value in os.environ.items() if name.startswith("WMS2_")]
    return [("", str(levels.known())), *sorted(ours)]


def _patches(world: World) -> list[tuple[str, str, str]] | None:
    """What is patched, and with what; None where a test has put in something of its own that does not say what it is."""
    found = []
    for number, (target, name, _) in enumerate(world.patch._setattr):
        value = getattr(target, name, None)
        reported = repr(value) if isinstance(value, _PLAIN) else getattr(value, "__qualname__", "")
        if number >= world.own_patches and (not reported or "<" in reported):  # code that may hold anything
            return None
        found.append((str(target), name, reported))
    return found


@functools.cache
def _superuser() -> bool:
    """Whether this session may put rows in as they were, without triggers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser')")
        return bool(cursor.fetchone() == ("on",))


# --- rows


def all_rows() -> Rows:
    """All rows of WMS2."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(filled_sql(tables()))
        for (table,) in cursor.fetchall():
            with cursor.copy(f'COPY "{table}" TO STDOUT') as rows:  # without generated columns
                found[table] = b"".join(rows)
    return found


def put_rows(there: Rows, wanted: Rows) -> None:
    """As they were: no trigger runs, and no column is filled anew."""
    other = sorted(table for table in there.keys() | wanted.keys() if there.get(table) != wanted.get(table))
    deleted = "".join(f'DELETE FROM "{table}"; ' for table in other if table in there)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL session_replication_role = replica; {deleted}")
        for table in other:
            if table in wanted:
                with cursor.copy(f'COPY "{table}" FROM STDIN') as rows:
                    rows.write(wanted[table])


def _later(rows: bytes, since: datetime, passed: timedelta) -> bytes:
    """The same, all moments since then so much later: those of columns, and of JSON in them."""

    def moved(found: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(found[0].decode())
        if at < since:
            return found[0]
        later = at + passed
        if found[1] == b"T":
            return later.isoformat().encode()
        fraction = f".{later.microsecond:06}".rstrip("0") if later.microsecond else ""
        return f"{later:%Y-%m-%d %H:%M:%S}{fraction}+00".encode()

    return _MOMENT.sub(moved, rows)


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


def _write(root: Path, files: Files, passed: timedelta = timedelta()) -> None:
    """These and no others, written so much later."""
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
            at = modified + passed // timedelta(microseconds=1) * 1000
            os.utime(name, ns=(at, at))


# --- what stands outside


class _Pickler(pickle.Pickler):
    def persistent_id(self, found: Any) -> object:
        from tests.support.scripted.world import World

        if isinstance(found, World):
            return "world"
        if isinstance(found, threading.Thread):  # one that has ended
            return "thread"
        return ("at", str(found)) if isinstance(found, datetime) else None


class _Unpickler(pickle.Unpickler):
    world: World
    since: datetime
    passed: timedelta

    def persistent_load(self, name: Any) -> Any:
        if isinstance(name, tuple):
            at = datetime.fromisoformat(name[1])
            return at + self.passed if at > self.since else at
        return self.world if name == "world" else None


def _pickled(world: World, result: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump((world.outside(), result))
    return written.getvalue()


def _put_back(world: World, point: Point) -> Any:
    world.clock.ahead = timedelta()
    passed = timezone.now() - point.kept_at
    since = point.kept_at - _LONGEST
    rows = {table: _later(content, since, passed) for table, content in point.rows.items()}
    put_rows(world.stand.rows if world.stand is not None else all_rows(), rows)
    _write(world.root, point.files, passed)
    reader = _Unpickler(io.BytesIO(point.outside))
    reader.world, reader.since, reader.passed = world, since, passed
    outside, result = reader.load()
    world.outside_is(outside)
    world.clock.ahead = point.ahead
    _stands(world, rows, point.key, result)
    return result
