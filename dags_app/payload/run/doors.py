"""Doors of storages: how a file gets in and out by a file system, by XRootD's and by gfal2's commands.

Owns the command lines, their time limits and the reading of their answers. Names here are PFNs. A door tries once and believes
its tool; whether a file is what was written is ``storage``'s to check. It raises OSError, or StorageProblem with the command, its
status and its last lines.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Union
from uuid import uuid4

from ..contract import codes, files
from .processes import Answer, run_limited
from .siteconf import Method, StorageProblem

#: Time limits in seconds: of a question, and of a copy beside what its bytes take at the slowest rate that is worth waiting for.
ANSWER_SECONDS, COPY_SECONDS = 180.0, 900.0
_BYTES_PER_SECOND = 1_000_000
_LAST_LINES = 5

_LOCAL = re.compile(r"(?:file:(?://)?)?(?=/)")
_ROOT = re.compile(r"(x?roots?://[^/]+)/+(.*)")
#: XRootD's clients wait for a server that is gone for half an hour of their own; storage waits between tries instead.
_XROOTD_SETTINGS = {"XRD_CONNECTIONWINDOW": "30", "XRD_CONNECTIONRETRY": "2", "XRD_STREAMERRORWINDOW": "60"}


class Door(Protocol):
    """One tool, with the options that the site gives its copies."""

    def size(self, pfn: str) -> int | None:
        """Bytes of a file; None when the storage says that there is none, or that it is a directory."""

    def checksum(self, pfn: str, size_bytes: int) -> str | None:
        """Adler-32 as the storage itself reports it, 8 hexadecimal digits; None when it cannot. It may have to read the file."""

    def listed(self, pfn: str) -> list[str]:
        """Names in a directory; empty when there is none."""

    def put(self, source: Path, pfn: str) -> None:
        """Copy a file in, with the directories above it, never over something that is there."""

    def get(self, pfn: str, target: Path, size_bytes: int) -> None:
        """Copy a file out."""

    def remove(self, pfn: str) -> bool:
        """Remove a file; False when the storage says that there is none."""

    def remove_directory(self, pfn: str) -> None:
        """Remove an empty directory; an error when it is not."""


class FileSystem:
    """A file system that is mounted: files appear whole, by a rename."""

    def size(self, pfn: str) -> int | None:
        path = local_path(pfn)
        return path.stat().st_size if path.is_file() else None

    def checksum(self, pfn: str, size_bytes: int) -> str | None:
        return files.adler32(local_path(pfn))

    def listed(self, pfn: str) -> list[str]:
        path = local_path(pfn)
        return [each.name for each in path.iterdir()] if path.is_dir() else []

    def put(self, source: Path, pfn: str) -> None:
        """The name is taken first, by making an empty file that only one process can make."""
        target = local_path(pfn)
        part = target.with_name(f".{target.name}.{uuid4().hex}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            files.copy_durably(source, part)
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        files.sync_directory(target.parent)

    def get(self, pfn: str, target: Path, size_bytes: int) -> None:
        shutil.copyfile(local_path(pfn), target)

    def remove(self, pfn: str) -> bool:
        """With what copies that were killed have left beside it."""
        path = local_path(pfn)
        for part in path.parent.glob(f".{path.name}.*.part"):
            part.unlink(missing_ok=True)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def remove_directory(self, pfn: str) -> None:
        local_path(pfn).rmdir()


class XRootD(NamedTuple):
    """``xrdcp`` and ``xrdfs``."""

    options: tuple[str, ...]

    def size(self, pfn: str) -> int | None:
        answer = self._asked(pfn, "stat")
        return None if answer is None or "IsDir" in answer.stdout else int(_found(r"(?m)^Size:\s*(\d+)", answer, "xrdfs stat"))

    def checksum(self, pfn: str, size_bytes: int) -> str | None:
        host, path = _split(pfn)
        answer = _run(["xrdfs", host, "query", "checksum", path], copy_seconds(size_bytes), _XROOTD_SETTINGS)
        return _adler32(r"\Aadler32\s+([0-9a-f]{1,8})\b", answer)

    def listed(self, pfn: str) -> list[str]:
        answer = self._asked(pfn, "ls")
        return [] if answer is None else [line.rstrip("/").rpartition("/")[2] for line in answer.stdout.splitlines()]

    def put(self, source: Path, pfn: str) -> None:
        self._copy(str(source), pfn, source.stat().st_size, "--path", *self.options)

    def get(self, pfn: str, target: Path, size_bytes: int) -> None:
        self._copy(pfn, str(target), size_bytes, "--force")

    def remove(self, pfn: str) -> bool:
        return self._asked(pfn, "rm") is not None

    def remove_directory(self, pfn: str) -> None:
        self._asked(pfn, "rmdir")

    def _copy(self, source: str, target: str, size_bytes: int, *options: str) -> None:
        words = ["xrdcp", "--nopbar", *options, source, target]
        _ended_well(words, _run(words, copy_seconds(size_bytes), _XROOTD_SETTINGS))

    def _asked(self, pfn: str, question: str) -> Answer | None:
        """None: the server says that there is no such file (kXR_NotFound)."""
        host, path = _split(pfn)
        words = ["xrdfs", host, question, path]
        answer = _run(words, ANSWER_SECONDS, _XROOTD_SETTINGS)
        if answer.status and "[3011]" in answer.stderr + answer.stdout:
            return None
        return _ended_well(words, answer)


class Gfal(NamedTuple):
    """gfal2's commands, for WebDAV and all that has no door of its own."""

    options: tuple[str, ...]

    def size(self, pfn: str) -> int | None:
        answer = self._asked("gfal-stat", pfn)
        if answer is None or re.search(r"(?m)^\s*Size:.*\bdirectory\b", answer.stdout):
            return None
        return int(_found(r"(?m)^\s*Size:\s*(\d+)", answer, "gfal-stat"))

    def checksum(self, pfn: str, size_bytes: int) -> str | None:
        answer = _run(["gfal-sum", pfn, "ADLER32"], copy_seconds(size_bytes))
        return _adler32(r"\s([0-9a-f]{1,8})\s*$", answer)

    def listed(self, pfn: str) -> list[str]:
        answer = self._asked("gfal-ls", pfn)
        return [] if answer is None else [line.strip().rstrip("/") for line in answer.stdout.splitlines()]

    def put(self, source: Path, pfn: str) -> None:
        self._copy(source.resolve().as_uri(), pfn, source.stat().st_size, *self.options)

    def get(self, pfn: str, target: Path, size_bytes: int) -> None:
        self._copy(pfn, target.resolve().as_uri(), size_bytes, "-f")

    def remove(self, pfn: str) -> bool:
        return self._asked("gfal-rm", pfn) is not None

    def remove_directory(self, pfn: str) -> None:
        """It stays: the one command there is would take with it what has come meanwhile."""

    def _copy(self, source: str, target: str, size_bytes: int, *options: str) -> None:
        seconds = copy_seconds(size_bytes)
        words = ["gfal-copy", "-p", "-t", f"{seconds:.0f}", "-T", f"{seconds:.0f}", *options, source, target]
        _ended_well(words, _run(words, seconds))

    def _asked(self, *words: str) -> Answer | None:
        """None: there is no such file. gfal2's commands end with the error's number, 2; so does one called wrongly."""
        answer = _run(words, ANSWER_SECONDS)
        if answer.status == 2 and re.search(r"no such file|not found|missing", answer.stderr + answer.stdout, re.IGNORECASE):
            return None
        return _ended_well(words, answer)


#: By CMS's names of them; Fermilab's is xrdcp into its EOS.
_COMMANDS: dict[str, Union[type[XRootD], type[Gfal]]] = {"xrdcp": XRootD, "stageout-xrdcp-fnal": XRootD, "gfal2": Gfal}
KNOWN = f"cp, {', '.join(_COMMANDS)}"


def door(method: Method) -> Door | None:
    """The door of a method; None when its command is not known here. What is mounted needs none."""
    if _LOCAL.match(method.protocol.example):
        return FileSystem()
    kind = _COMMANDS.get(method.command or ("xrdcp" if _ROOT.match(method.protocol.example) else "gfal2"))
    return kind(method.options) if kind else None


def local_path(pfn: str) -> Path:
    """The path of a file of a mounted file system."""
    return Path(_LOCAL.sub("", pfn, count=1))


def copy_seconds(size_bytes: int) -> float:
    """The time limit of a copy."""
    return COPY_SECONDS + size_bytes / _BYTES_PER_SECOND


def _split(pfn: str) -> tuple[str, str]:
    """Server and path."""
    match = _ROOT.fullmatch(pfn)
    if match is None:
        raise StorageProblem(codes.STORAGE_UNUSABLE, f"{pfn} is no name that XRootD's commands take")
    return match[1], f"/{match[2]}"


def _run(words: Sequence[str], seconds: float, settings: dict[str, str] | None = None) -> Answer:
    try:
        answer = run_limited(words, seconds, {**(settings or {}), **os.environ})
    except OSError as error:
        raise StorageProblem(codes.STAGE_OUT_FAILED, f"{words[0]} cannot be started: {error}") from error
    if answer.status is None:
        raise StorageProblem(codes.STAGE_OUT_TOO_LONG, f"{_shown(words, answer)}ended after its time limit of {seconds:.0f} s")
    return answer


def _ended_well(words: Sequence[str], answer: Answer) -> Answer:
    if answer.status != 0 and re.search(r"file exists", answer.stderr + answer.stdout, re.IGNORECASE):
        raise FileExistsError(f"{_shown(words, answer)}exit status {answer.status}")
    if answer.status != 0:
        raise StorageProblem(codes.STAGE_OUT_FAILED, f"{_shown(words, answer)}exit status {answer.status}")
    return answer


def _shown(words: Sequence[str], answer: Answer) -> str:
    lines = [line.strip() for line in (answer.stdout + "\n" + answer.stderr).splitlines() if line.strip()]
    return f"{' '.join(words)}: {' | '.join([*lines[-_LAST_LINES:], ''])}"


def _adler32(pattern: str, answer: Answer) -> str | None:
    match = re.search(pattern, answer.stdout, re.IGNORECASE)
    return match[1].lower().zfill(8) if match and answer.status == 0 else None


def _found(pattern: str, answer: Answer, command: str) -> str:
    match = re.search(pattern, answer.stdout)
    if match is None:
        raise StorageProblem(codes.STAGE_OUT_FAILED, f"{command} does not say what was asked: {answer.stdout[:200]!r}")
    return match[1]
