"""Stage-out of one start of a job, and the journals of what each start has set out to write. Owns ``wms2.journal/1``.

One journal for each start, in every volume that it writes to, beside the unmerged files, written before the first of the files
that it names. One that learns names as it goes on, as a merge does, has a longer one before the shorter is removed. What is in a
volume's journal, and not accepted as being there, is a loser's: of a start that was killed, failed, went on to another volume,
or came back late.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract import codes, files
from ..contract.codes import PayloadError
from ..contract.documents import STAGE_OUT_PAUSES
from ..contract.layout import JOURNAL_SCHEMA, utc_now
from ..contract.reading import Value, check_schema
from ..contract.reports import Slot, StoredFile
from . import storage
from .siteconf import StorageProblem
from .storage import Volume


@dataclass(frozen=True)
class Journals:
    """The journals of one unit and role in a volume; ``directory`` is an LFN."""

    volume: Volume
    directory: str

    def keep(self, name: str, document: dict[str, Any], waits: Sequence[float]) -> None:
        """Have one written durably; StorageProblem when the storage refuses, PayloadError when something else is in its place.

        What is there and is not whole is this start's own, of a copy that broke off.
        """
        lfn = f"{self.directory}/{name}"
        try:
            with tempfile.TemporaryDirectory() as directory:
                source = Path(directory) / name
                files.write_json(source, document)
                size_bytes = storage.size(self.volume, lfn, waits)
                if size_bytes == source.stat().st_size:
                    return
                if size_bytes is not None:
                    storage.remove(self.volume, lfn)
                storage.stage_out(source, self.volume, lfn, waits)
        except StorageProblem:
            if storage.size(self.volume, self.directory) is not None:
                raise PayloadError(codes.INVALID_DOCUMENT, f"{self.directory} is no directory of journals") from None
            raise

    def read(self) -> dict[str, tuple[str, ...]]:
        """The LFNs that each journal names.

        None for one that was never finished: its start has written no file, and one that is late cannot finish it any more.
        """
        return {name: self._files(name) for name in storage.listed(self.volume, self.directory)}

    def _files(self, name: str) -> tuple[str, ...]:
        held = storage.text(self.volume, f"{self.directory}/{name}") if name.endswith(".json") else None
        try:
            document = Value(json.loads(held or ""), name)
        except ValueError:
            return ()
        check_schema(document, JOURNAL_SCHEMA)
        return document["files"].texts()

    def remove(self, names: Collection[str]) -> None:
        """Forget journals whose files are settled; one that has come since, of a late start, stays with its directory."""
        for name in names:
            storage.remove(self.volume, f"{self.directory}/{name}")
        if names and not storage.listed(self.volume, self.directory):
            with suppress(StorageProblem):  # one has come this moment
                storage.remove_directory(self.volume, self.directory)


class StageOut:
    """The stage-out of one start of ``node``: each file into the first of the site's volumes that takes it.

    ``directory`` (an LFN) is that of its journals, ``lfns`` what it knows by now that it will write, ``pauses``
    seconds between the tries of a file.
    """

    def __init__(
        self,
        volumes: Sequence[Volume],
        directory: str,
        dag_id: str,
        node: str,
        slot: Slot,
        lfns: Iterable[str] = (),
        pauses: Sequence[float] = STAGE_OUT_PAUSES,
    ) -> None:
        self.volumes = volumes
        self._pauses = storage.pauses(pauses)
        self._directory = directory
        self._document = {
            "schema": JOURNAL_SCHEMA,
            "dag_id": dag_id,
            "unit": slot.unit,
            "node": node,
            "job_id": slot.job_id,
            "execution": slot.execution,
            "written_at": utc_now(),
            "files": sorted(lfns),
        }
        self._added = 0
        self._written: dict[str, str] = {}  # name of the journal, by RSE
        self._refused: set[str] = set()  # RSEs that have failed with patience once: later files ask them once

    def add(self, lfn: str) -> None:
        """A name that was not known before."""
        self._added += 1
        self._document = {**self._document, "files": sorted([*self._document["files"], lfn])}

    def store(self, source: Path, lfn: str) -> StoredFile:
        """Stage out one file; PayloadError with what each volume said when none takes it.

        The journal is written before, and again after it: a start that is late finds that cleanup has settled it meanwhile.
        """
        problems: list[StorageProblem] = []
        for volume in (each for each in self.volumes if each.is_written):
            waits = () if volume.rse in self._refused else self._pauses
            try:
                self._journal(volume, waits)
                stored = storage.stage_out(source, volume, lfn, waits, begun=bool(problems))
                self._journal(volume, waits)
                return stored
            except StorageProblem as problem:
                self._refused.add(volume.rse)
                problems.append(problem)
        raise PayloadError(problems[0].code, "; ".join(f"{problem}" for problem in problems))

    def _journal(self, volume: Volume, waits: Sequence[float]) -> None:
        number = f".{self._added}" if self._added > 1 else ""
        name = f"{self._document['node']}.{self._document['execution']}{number}.json"
        Journals(volume, self._directory).keep(name, self._document, waits)
        before = self._written.get(volume.rse, name)
        if before != name:
            with suppress(StorageProblem):  # read beside the longer one it changes nothing
                storage.remove(volume, f"{self._directory}/{before}")
        self._written[volume.rse] = name
