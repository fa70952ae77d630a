"""An attempt's packed logs (``<node>.<attempt>.logs.tar.gz``): ads, configurations, framework reports, ends of logs.

An attempt number repeats after a rescue, so the job ad inside says whose they are.
Everything read is bounded; an archive that is missing or torn has nothing in it.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from .layout import logs_name

JOB_AD, MACHINE_AD = "job.ad", "machine.ad"

_LOG_BYTES = 256 * 1024
_LOGS_BYTES = 8 * 1024 * 1024

#: Several times what ``write_logs`` packs at most.
_MOST_PACKED_BYTES = 32 * 1024 * 1024
_MOST_UNPACKED_BYTES = 32 * 1024 * 1024
_MOST_BYTES = 1024 * 1024
_MOST_MEMBERS = 500
#: Of a step's directory; several cmsRun side by side have one each, ``step1_Gen.0`` and on.
_REPORT = re.compile(r"step(\d+)_(\w+)(?:\.\d+)?/FrameworkJobReport\.xml")
_STDERR = re.compile(r"[\w.]+/[\w.-]+\.stderr")
_CLUSTER = re.compile(r"^ClusterId = (\d+)$", re.MULTILINE)
_PROC = re.compile(r"^ProcId = (\d+)$", re.MULTILINE)


def write_logs(target: Path, ads: Iterable[tuple[str, bytes]], steps_directory: Path) -> None:
    """Pack the ads of job and machine, configurations, framework reports and the ends of the logs of every step; bounded."""
    total = 0
    with tarfile.open(target, "w:gz") as archive:
        for name, data in ads:
            _add(archive, name, data)
        for path in sorted(steps_directory.glob("*/*")):
            if path.suffix not in (".py", ".json", ".xml", ".stdout", ".stderr") or not path.is_file() or path.is_symlink():
                continue
            data = _end_of(path)
            total += len(data)
            if total > _LOGS_BYTES:
                break
            _add(archive, str(path.relative_to(steps_directory)), data, int(path.stat().st_mtime))


def _add(archive: tarfile.TarFile, name: str, data: bytes, modified: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(data), modified
    archive.addfile(entry, io.BytesIO(data))


def _end_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(0, io.SEEK_END)
        stream.seek(max(0, stream.tell() - _LOG_BYTES))
        return stream.read()


def framework_reports(directory: Path, node: str, attempt: int, job_id: str) -> Iterator[tuple[str, str]]:
    """(step, text) of the framework reports in this job's logs, the last step first; none when the logs are another job's."""
    members = read_members(directory / logs_name(node, attempt))
    if job_of(members.get(JOB_AD, "")) != job_id:
        return
    found = [(match, text) for name, text in members.items() if (match := _REPORT.fullmatch(name))]
    for match, text in sorted(found, key=lambda pair: int(pair[0].group(1)), reverse=True):
        yield match.group(2), text


def last_stderr(directory: Path, node: str, attempt: int, job_id: str, lines: int) -> str:
    """The end of the stderr that the last program of this job wrote; empty when there is none."""
    members = read_members(directory / logs_name(node, attempt))
    if job_of(members.get(JOB_AD, "")) != job_id:
        return ""
    texts = [text for name, text in members.items() if _STDERR.fullmatch(name) and text.strip()]
    return "\n".join(texts[-1].splitlines()[-lines:]) if texts else ""


def job_of(ad: str) -> str:
    """``<cluster>.<proc>`` of a job ad in HTCondor's line form; empty when it has none."""
    cluster, proc = _CLUSTER.search(ad), _PROC.search(ad)
    return f"{cluster.group(1)}.{proc.group(1)}" if cluster and proc else ""


def read_members(path: Path) -> dict[str, str]:
    """Text of the archive's files by name, each up to 1 MB; what comes before damage, or before a bound, is kept.

    Bounded before anything is unpacked: an archive that is larger than any that a job writes is not opened, and one that unpacks
    to more than such a job packs is read no further.
    """
    found: dict[str, str] = {}
    try:
        if path.stat().st_size > _MOST_PACKED_BYTES:
            return found
        with gzip.open(path) as unpacked, tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None and len(found) < _MOST_MEMBERS:
                    found[member.name] = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return found
    return found


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
