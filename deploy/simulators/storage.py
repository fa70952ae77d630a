"""SQLite storage shared by the simulated services: one file per service, safe with many threads, kept over restarts.

Owns: connections (a pool; each is used by one request at a time), write transactions (one writer at a time) and streaming
reads in bounded memory. Does not own any table: each service passes its schema.
"""
# ruff: noqa: S608 - the statements come from the services' own code; every value is bound

import queue
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FETCH_ROWS = 1000
BUSY_MS = 60_000


class Storage:
    """One SQLite file. Readers run in parallel with the one writer (WAL)."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._pool: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._write_lock = threading.Lock()
        self._lock_holder: sqlite3.Connection | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            connection.executescript(schema)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._pool.get_nowait()
        except queue.Empty:
            connection = self._open()
        try:
            yield connection
        finally:
            self._pool.put(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end, rolled back when an exception passes."""
        with self._write_lock, self._connection() as connection:
            # deferred: the look-ups before the first change still work on a locked file, as a real server's do
            connection.execute(f"PRAGMA busy_timeout = {0 if self._lock_holder else BUSY_MS}")
            connection.execute("BEGIN" if self._lock_holder else "BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def lock(self, *, locked: bool) -> None:
        """A fault: while locked, the first change of every write transaction fails with SQLite's own ``database is locked``."""
        with self._write_lock:
            if locked and self._lock_holder is None:
                self._lock_holder = self._open()
                self._lock_holder.execute("BEGIN IMMEDIATE")
            elif not locked and self._lock_holder is not None:
                self._lock_holder.close()
                self._lock_holder = None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self._connection() as connection:
            return connection.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        """The first row of a query, or None."""
        with self._connection() as connection:
            found: sqlite3.Row | None = connection.execute(sql, values).fetchone()
            return found

    def stream_json(self, sql: str, values: Sequence[Any] = ()) -> Iterator[str]:
        """The rows of a query as JSON objects, a batch at a time, written by SQLite itself: ten times faster than row by row in
        Python. The connection is freed when the iterator ends or is closed."""
        with self._connection() as connection:
            columns = [column[0] for column in connection.execute(f"SELECT * FROM ({sql}) LIMIT 0", values).description]
            pairs = ", ".join(f"'{name}', \"{name}\"" for name in columns)
            cursor = connection.execute(f"SELECT json_object({pairs}) FROM ({sql})", values)
            try:
                while batch := cursor.fetchmany(FETCH_ROWS):
                    yield from (text for (text,) in batch)
            finally:
                cursor.close()

    def close(self) -> None:
        """Close all idle connections; the last one folds the write-ahead log into the file."""
        self.lock(locked=False)
        while True:
            try:
                self._pool.get_nowait().close()
            except queue.Empty:
                return
