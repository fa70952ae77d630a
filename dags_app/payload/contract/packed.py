"""Reading an attempt's packed logs (``<node>.<attempt>.logs.tar.gz``): whose they are, framework reports, ends of logs, ads.

Their writing is ``reports.write_logs``'s. An attempt number repeats after a rescue, so the job ad inside says whose they are.
Everything read is bounded; an archive that is missing or torn has nothing in it.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from .layout import logs_name

JOB_AD, MACHINE_AD = "job.ad", "machine.ad"

#: Several times what ``reports.write_logs`` packs at most.
_MOST_PACKED_BYTES = 32 * 1024 * 1024
_MOST_UNPACKED_BYTES = 32 * 1024 * 1024
_MOST_BYTES = 1024 * 1024
_MOST_MEMBERS = 500
_REPORT = re.compile(r"step(\d+)_(\w+)/FrameworkJobReport\.xml")
_STDERR = re.compile(r"\w+/[\w.-]+\.stderr")
_CLUSTER = re.compile(r"^ClusterId = (\d+)$", re.MULTILINE)
_PROC = re.compile(r"^ProcId = (\d+)$", re.MULTILINE)


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
