"""Journals of stage-out: what each start of a unit's jobs has set out to write. Owns ``wms2.journal/1``.

One file for each start, in the site's storage beside the unmerged files, written before the first of the files it names. What is
in a journal and in no accepted report or manifest is a loser's: of a start that was killed, failed, or came back late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import codes, files
from .codes import PayloadError
from .layout import JOURNAL_SCHEMA, utc_now
from .reading import load_document
from .reports import Slot


@dataclass(frozen=True)
class Journal:
    """What one start of a job has set out to write."""

    path: Path
    document: dict[str, Any]

    def keep(self) -> None:
        """Have it written durably; PayloadError when the storage refuses.

        Before the first file, and after each: a start that is late finds that cleanup has settled its journal meanwhile.
        """
        if self.path.is_file():
            return
        directory = self.path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
            files.write_json(self.path, self.document)
            files.sync_directory(directory)
        except FileExistsError:
            raise PayloadError(codes.INVALID_DOCUMENT, f"{directory} is no directory of journals") from None
        except OSError as error:
            raise PayloadError(codes.STAGE_OUT_FAILED, f"the journal {self.path} cannot be written: {error}") from error


@dataclass(frozen=True)
class Journals:
    """The journals of one unit and role, at their place in the storage."""

    directory: Path
    dag_id: str

    def of(self, node: str, slot: Slot, lfns: Iterable[str]) -> Journal:
        """The journal of this start of ``node``, which will write ``lfns``; not written yet."""
        document = {
            "schema": JOURNAL_SCHEMA,
            "dag_id": self.dag_id,
            "unit": slot.unit,
            "node": node,
            "job_id": slot.job_id,
            "execution": slot.execution,
            "written_at": utc_now(),
            "files": sorted(lfns),
        }
        return Journal(self.directory / f"{node}.{slot.execution}.json", document)

    def read(self) -> dict[Path, tuple[str, ...]]:
        """The LFNs of every journal that is there."""
        return {path: load_document(path, JOURNAL_SCHEMA)["files"].texts() for path in sorted(self.directory.glob("*.json"))}

    def remove(self, journals: Iterable[Path]) -> None:
        """Forget journals whose files are settled; one that has come since, of a late start, stays with its directory.

        One that was never finished goes as well: its start has written no file, and one that is late cannot finish it any more.
        """
        for path in (*journals, *self.directory.glob(files.UNFINISHED)):
            path.unlink(missing_ok=True)
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()
