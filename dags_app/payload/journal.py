"""The merge journal: which merged files a unit's merge jobs have set out to write. Owns ``wms2.merge_journal/1``.

Written to the site's storage, beside the unmerged files, before the first merged file: a merge that is repeated after a
kill and groups its files otherwise knows what an earlier one may have left, and removes what is not its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from . import codes, files
from .codes import PayloadError
from .formats import MERGE_JOURNAL_SCHEMA
from .reading import load_document


@dataclass(frozen=True)
class Journal:
    """The journal of one unit at its place in the storage."""

    path: Path
    unit: str
    dag_id: str

    def planned(self) -> set[str]:
        """LFNs that merge jobs of this unit have set out to write; empty before the first."""
        if not self.path.is_file():
            return set()
        return set(load_document(self.path, MERGE_JOURNAL_SCHEMA)["merged"].texts())

    def plan(self, lfns: set[str]) -> None:
        """Record ``lfns`` durably; PayloadError when the storage refuses."""
        document = {"schema": MERGE_JOURNAL_SCHEMA, "unit": self.unit, "dag_id": self.dag_id, "merged": sorted(lfns)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomic(self.path, json.dumps(document, indent=1) + "\n")
            files.sync_directory(self.path.parent)
        except OSError as error:
            raise PayloadError(codes.STAGE_OUT_FAILED, f"the merge journal {self.path} cannot be written: {error}") from error
