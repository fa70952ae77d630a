"""Parents of merged files: what catalogues know of the files that a unit's jobs read. Pure.

A job of the first task reads the unit's input. One of a later task reads files of this unit, which nobody will know: in their
place stand the merged files that hold them, or, for an output that is only handed on, what that was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..contract.reports import NodeReport, UnmergedFile
from .groups import MergeGroup


class Parentage:
    """The unmerged files of a unit, with the merged file that each of them goes to."""

    def __init__(self, reports: Iterable[NodeReport], merged: Mapping[str, str]) -> None:
        """``merged``: unmerged LFN -> merged LFN, for outputs that are merged."""
        self._reports = {report.node: report for report in reports}
        self._files = {file.lfn: file for report in self._reports.values() for file in report.outputs}
        self._merged = merged

    def of(self, group: MergeGroup) -> tuple[str, ...]:
        """LFNs of the parents of the merged file of ``group``; none for generated events."""
        return tuple(sorted({parent for file in group.files for parent in self._parents(file)}))

    def _parents(self, file: UnmergedFile) -> set[str]:
        report = self._reports[file.node]
        if report.task == 1:
            return set(file.parents)
        found: set[str] = set()
        for lfn in (read["lfn"] for read in report.processed["files"]):
            found |= {self._merged[lfn]} if lfn in self._merged else self._parents(self._files[lfn])
        return found
