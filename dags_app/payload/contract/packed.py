"""A job's packed logs (``<node>.<attempt>.<job id>.logs.tar.gz``), and ``kept_logs.jsonl``, the list of those that a DAG keeps.

Packed are facts about the job and, of every step, its configurations, framework reports and logs; a long one loses its middle,
which is said in its place, and what looks like a secret is replaced. Everything read is bounded; an archive that is missing or
torn has nothing in it, or what came before.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from . import convert, files
from .codes import PayloadError
from .layout import STORED_LOGS_FILE, logs_name
from .reading import Value, json_lines

JOB_AD, MACHINE_AD = "job.ad", "machine.ad"

_LOG_BYTES = 512 * 1024
_LOGS_BYTES = 8 * 1024 * 1024
_PACKED = (".py", ".json", ".xml", ".stdout", ".stderr")

#: Several times what ``write_logs`` packs at most.
MOST_PACKED_BYTES = 32 * 1024 * 1024
_MOST_UNPACKED_BYTES = 32 * 1024 * 1024
_MOST_BYTES = 1024 * 1024
_MOST_MEMBERS = 2000
_MOST_KEPT = 20_000
#: Of a step's directory; several cmsRun side by side have one each, ``step1_Gen.0`` and on.
_REPORT = re.compile(r"step(\d+)_([^/]+?)(?:\.\d+)?/FrameworkJobReport\.xml")
_STDERR = re.compile(r"[^/]+/[^/]+\.stderr")
#: Keys and certificates, also one that the cut went through; signed tokens; what follows "Bearer"; passwords of URLs.
_SECRET = re.compile(
    rb"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)|\A[A-Za-z0-9+/=\s]*-----END [A-Z ]+-----"
    rb"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?<=bearer)(?:\s|%20)+[\w.~+/=-]{16,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.DOTALL | re.IGNORECASE,
)


class LogFile(NamedTuple):
    """A file of an archive; of a larger one than WMS2 packs the beginning."""

    name: str
    size_bytes: int
    data: bytes

    @property
    def text(self) -> str:
        """What of it is text."""
        return self.data.decode("utf-8", "replace")


class StoredLogs(NamedTuple):
    """One archive that is kept. ``code`` is 0 of an attempt that did well."""

    unit: str
    node: str
    attempt: int
    job_id: str
    at: str
    code: int
    step: str
    size_bytes: int

    @property
    def job(self) -> tuple[str, str, int, str]:
        """What names it within the DAG."""
        return (self.unit, self.node, self.attempt, self.job_id)

    @property
    def name(self) -> str:
        """In its unit's directory."""
        return logs_name(self.node, self.attempt, self.job_id)


def read_stored_logs(dag_directory: Path) -> list[StoredLogs]:
    """The archives that are kept, oldest first; a line that cannot be read is left out."""
    found = []
    for line in json_lines(files.tail_text(dag_directory / STORED_LOGS_FILE, _MOST_KEPT, _MOST_UNPACKED_BYTES)):
        try:
            found.append(convert.read(Value(line, STORED_LOGS_FILE), StoredLogs))
        except PayloadError:
            continue
    return found


def write_logs(target: Path, facts: Iterable[tuple[str, bytes]], steps_directory: Path) -> None:
    """Pack facts by name, and the files of the steps, among which the room is divided."""
    paths = [path for path in sorted(steps_directory.glob("*/*")) if path.suffix in _PACKED and not path.is_symlink()]
    paths = [path for path in paths if path.is_file()]
    most = min(_LOG_BYTES, _LOGS_BYTES // max(len(paths), 1))
    with tarfile.open(target, "w:gz") as archive:
        for name, data in facts:
            _add(archive, name, _cut(io.BytesIO(data), _LOG_BYTES))
        for path in paths:
            with path.open("rb") as stream:
                _add(archive, str(path.relative_to(steps_directory)), _cut(stream, most), int(path.stat().st_mtime))


def _add(archive: tarfile.TarFile, name: str, data: bytes, modified: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(data), modified
    archive.addfile(entry, io.BytesIO(data))


def _cut(stream: IO[bytes], most: int) -> bytes:
    """A file whole, or its beginning and its end."""
    size, half = stream.seek(0, io.SEEK_END), most // 2
    stream.seek(0)
    if size <= most:
        return without_secrets(stream.read(most))
    head = stream.read(half)
    stream.seek(size - half)
    gap = f"\n[... WMS2 left out {size - 2 * half} bytes here ...]\n".encode()
    return without_secrets(head) + gap + without_secrets(stream.read(half))


def without_secrets(data: bytes) -> bytes:
    """With keys, tokens and passwords replaced."""
    return _SECRET.sub(b"[left out: a secret]", data)


def framework_reports(directory: Path, node: str, attempt: int, job_id: str) -> Iterator[tuple[str, str]]:
    """(step, text) of the framework reports in this job's logs, the last step first."""
    packed = read_logs(directory / logs_name(node, attempt, job_id))
    found = [(match, each.text) for each in packed if (match := _REPORT.fullmatch(each.name))]
    for match, text in sorted(found, key=lambda pair: int(pair[0].group(1)), reverse=True):
        yield match.group(2), text


def reporting(packed: Iterable[LogFile]) -> LogFile | None:
    """The stderr of the last program that wrote any, which mostly shows why a job failed."""
    return next((each for each in reversed([*packed]) if _STDERR.fullmatch(each.name) and each.data.strip()), None)


def read_logs(path: Path) -> tuple[LogFile, ...]:
    """The plain files of an archive in its order, each up to 1 MB; what comes before damage, or before a bound.

    Bounded before anything is unpacked: an archive that is larger than any that a job writes is not opened, and one that unpacks
    to more than such a job packs is read no further. Nothing is written anywhere, and links lead nowhere.
    """
    found: list[LogFile] = []
    try:
        if path.stat().st_size > MOST_PACKED_BYTES:
            return ()
        with gzip.open(path) as unpacked, tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None and len(found) < _MOST_MEMBERS:
                    name = member.name.encode("utf-8", "replace").decode()
                    found.append(LogFile(name, member.size, stream.read(_MOST_BYTES)))
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error):
        pass
    return tuple(found)


class _Bounded(io.BufferedIOBase):
    """Gives no more than ``_MOST_UNPACKED_BYTES`` of a stream, however small it was packed; then it seems cut off."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        super().__init__()
        self._stream = stream
        self._left = _MOST_UNPACKED_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(self._left if size is None or size < 0 else min(size, self._left))
        self._left -= len(data)
        return data
