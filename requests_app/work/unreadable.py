"""What jobs of a workflow said of input files that they could not read: where, and when (docs/adr/0040).

Reads ``UnreadableInput``; what follows from it for a file is ``input_places.py``'s. What was said before an operator let a file
in again (``restored_at``) does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from dags_app.models import UnreadableInput
from requests_app.models import InputFile, Workflow
from wms2.conf import conf


class Unreadable:
    """The evidence as it is when this is made; one query."""

    def __init__(self, workflow: Workflow) -> None:
        self._rows: dict[str, list[UnreadableInput]] = defaultdict(list)
        for row in UnreadableInput.objects.filter(workflow=workflow):
            self._rows[row.lfn].append(row)
        self._apart = timedelta(seconds=conf().unreadable_apart_seconds)

    def at(self, file: InputFile) -> Mapping[str, datetime]:
        """Sites that failed to read it, and when last."""
        found: dict[str, datetime] = {}
        for row in self._of(file):
            found[row.site] = max(row.last_at, found.get(row.site, row.last_at))
        return found

    def again_at(self, file: InputFile) -> datetime:
        """When it may be tried again where it failed; it has failed."""
        return max(row.last_at for row in self._of(file)) + self._apart

    def __contains__(self, lfn: str) -> bool:
        return lfn in self._rows

    def twice(self, file: InputFile, *, looked_at: datetime) -> bool:
        """Whether it failed in two submissions far enough apart for a storage to come back in between, the first before
        ``looked_at``.
        """
        rows = self._of(file)
        first = [row for row in rows if row.last_at < looked_at]
        return any(two.last_at - one.last_at >= self._apart for one in first for two in rows if two.fence != one.fence)

    def words(self, file: InputFile) -> str:
        """All of it in one line."""
        said = [f"at {row.site} on {row.last_at:%Y-%m-%d %H:%M} UTC (code {row.code})" for row in self._of(file)]
        return "could not be read " + ", ".join(said)

    def _of(self, file: InputFile) -> list[UnreadableInput]:
        rows = self._rows.get(file.lfn, [])
        return [row for row in rows if file.restored_at is None or row.last_at > file.restored_at]
