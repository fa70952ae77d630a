"""Which unmerged files go into which merged file. Pure: order, groups, parents, and what each merged file must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..contract import codes, lumis
from ..contract.codes import PayloadError
from ..contract.documents import MergeLimits, Task
from ..contract.lumis import LumiCounts
from ..contract.reports import NodeReport, UnmergedFile
from ..run.shares import Held

#: Unmerged files that become one merged file, in the order of their lumis.
Group = tuple[UnmergedFile, ...]


def content_of(group: Group) -> Held:
    """What the merged file must hold: the sum of its inputs."""
    total: LumiCounts = {}
    for file in group:
        lumis.add_counts(total, file.lumis)
    return Held(sum(file.events for file in group), total)


class Parentage:
    """What catalogues know of the files that a unit's jobs read.

    A job of the first task reads the unit's input. One of a later task reads files of this unit, which no catalogue has: in their
    place stand the merged files that hold them, or, for an output that is only handed on, what that was made of.
    """

    def __init__(self, reports: Iterable[NodeReport], merged: dict[str, str]) -> None:
        """``merged``: unmerged LFN -> merged LFN, as far as the merge has come: what a file was made of is merged before it."""
        self._reports = {report.node: report for report in reports}
        self._files = {file.lfn: file for report in self._reports.values() for file in report.outputs}
        self.merged = merged

    def of(self, group: Group) -> tuple[str, ...]:
        """LFNs of the parents of the merged file of ``group``; none for generated events."""
        return tuple(sorted({parent for file in group for parent in self._parents(file)}))

    def _parents(self, file: UnmergedFile) -> set[str]:
        report = self._reports[file.node]
        if report.task == 1:
            return set(file.parents)
        found: set[str] = set()
        for lfn in (read["lfn"] for read in report.processed["files"]):
            found |= {self.merged[lfn]} if lfn in self.merged else self._parents(self._files[lfn])
        return found


def check_read_once(tasks: Iterable[Task], reports: Sequence[NodeReport]) -> None:
    """Refuse a unit in which a later task's jobs, together, did not read each file that was left to them exactly once."""
    read: Counter[tuple[int, str]] = Counter()
    for report in reports:
        for file in report.processed["files"] if report.task > 1 else ():
            read[report.task, file["lfn"]] += file["events"]
    for task in tasks:
        for file in (file for report in reports for file in report.outputs):
            events = read[task.number, file.lfn]
            if (file.step, file.module) == (task.input_step, task.input_module) and events != file.events:
                raise PayloadError(
                    codes.PROCESSED_DIFFERS,
                    f"the jobs of task {task.number} read {events} events of {file.lfn}, it holds {file.events}",
                )


def group_files(files: Iterable[UnmergedFile], limits: MergeLimits) -> list[Group]:
    """Fill merged files in lumi order up to ``max_bytes`` and ``max_events``; a node's files above the limits stay alone.

    What a node's processes wrote stays together, as if it were one file: a merged file names the pieces of whole nodes. The last
    one takes from the one before until it has ``min_bytes``, as long as that one keeps as many. A unit's files never leave the
    unit, so a small unit gives a small file.
    """
    nodes: dict[str, list[UnmergedFile]] = {}
    # by first lumi, those without lumis last, equal ones (two jobs of one long lumi) by node
    for file in sorted(files, key=lambda file: (min(lumis.lumi_set(file.lumis), default=(2**63, 0)), file.node)):
        nodes.setdefault(file.node, []).append(file)
    groups: list[list[list[UnmergedFile]]] = []
    for mine in nodes.values():
        if groups and _fits([*groups[-1], mine], limits):
            groups[-1].append(mine)
        else:
            groups.append([mine])
    if len(groups) > 1:
        _fill_last(groups[-2], groups[-1], limits)
    return [tuple(file for mine in group for file in mine) for group in groups]


def _fill_last(before: list[list[UnmergedFile]], last: list[list[UnmergedFile]], limits: MergeLimits) -> None:
    while (
        _bytes(last) < limits.min_bytes
        and len(before) > 1
        and _bytes(before[:-1]) >= limits.min_bytes
        and _fits([before[-1], *last], limits)
    ):
        last.insert(0, before.pop())


def _bytes(nodes: list[list[UnmergedFile]]) -> int:
    return sum(file.size_bytes for files in nodes for file in files)


def _fits(nodes: list[list[UnmergedFile]], limits: MergeLimits) -> bool:
    return _bytes(nodes) <= limits.max_bytes and sum(file.events for files in nodes for file in files) <= limits.max_events


def check_same(expected: Held, merged: Held, name: str, *, events: bool = True) -> None:
    """Refuse a merged file that does not hold exactly what its inputs held.

    Args:
        events: False for formats that hold none; the events in the reports of such inputs are those that the step looked at.
    """
    if events and merged.events != expected.events:
        raise PayloadError(codes.MERGE_DIFFERS, f"{name} holds {merged.events} events, its inputs hold {expected.events}")
    have, want = lumis.lumi_set(merged.lumis), lumis.lumi_set(expected.lumis)
    if have != want:
        raise PayloadError(
            codes.MERGE_DIFFERS,
            f"{name} holds other lumis than its inputs: missing {lumis.describe(want - have) or 'none'}, "
            f"extra {lumis.describe(have - want) or 'none'}",
        )
    for run, lumi in sorted(want) if events else ():
        there, wanted = merged.lumis[run][lumi], expected.lumis[run][lumi]
        if there is not None and wanted is not None and there != wanted:
            raise PayloadError(codes.MERGE_DIFFERS, f"{name} holds {there} events of lumi {run}:{lumi}, its inputs {wanted}")
