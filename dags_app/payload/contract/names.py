"""Logical file names of unmerged and merged files and of their journals. Pure; owns the naming rule.

An EDM file is named by the GUID inside it, which cmsRun makes anew in each start and which CMS's readers compare with the name.
Any other is named by a version 5 UUID in the workflow's own namespace, of what the file is and of the start of the job that
writes it (``Slot.execution``). So no two starts ever write the same name, and a copy that comes back late overwrites nothing.
Which files count is what the accepted manifest says (docs/design/model.md, A unit is done).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import uuid5

from .documents import JobDocument, Output, Staged, UnitDocument

#: Work units that share one directory number: keeps directories of a big workflow small.
UNITS_PER_DIRECTORY = 1000
#: Of the number of a directory that one start of a merge has for itself.
_OWN_DIGITS = 18
#: As releases write GUIDs: older ones in capitals.
GUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GUID = re.compile(GUID)
#: Releases that compare names with GUIDs: of these cycles from this one on, of later cycles all. Others refuse the parameter.
_COMPARING = {(8, 0): 34, (9, 3): 17, (9, 4): 16, (10, 2): 20, (10, 6): 8}
_ALL_COMPARE, _COMPARING_PATCHES = (11, 0), ("CMSSW_7_1_45_patch3",)
_FIRST_WITH_PROGRESS = (7, 6, 0)


def directory_number(unit: UnitDocument) -> str:
    """The NNNNN part of a file name."""
    return f"{unit.index // UNITS_PER_DIRECTORY:05d}"


def unmerged_lfn(
    job: JobDocument, unit: UnitDocument, node: str, output: Staged, execution: str, number: int = 0, guid: str | None = None
) -> str:
    """LFN of the file that the ``number``-th (from 0) cmsRun of one start of ``node`` writes for ``output``.

    ``guid``: that of an EDM file.
    """
    what = f"unmerged/{job.round_index}/{unit.unit}/{node}/{output.step}/{output.module}/{execution}"
    what += f"/{number}" if number else ""
    return f"{output.unmerged_lfn_base}/{directory_number(unit)}/{guid or uuid5(job.workflow_id, what)}.root"


def merged_lfn(job: JobDocument, unit: UnitDocument, output: Output, number: int, execution: str, guid: str | None = None) -> str:
    """LFN of the ``number``-th (from 0) merged file of ``output`` in this unit, as one start of the merge writes it."""
    what = f"{job.round_index}/{unit.unit}/{output.step}/{output.module}/{number}/{execution}"
    return f"{output.merged_lfn_base}/{directory_number(unit)}/{guid or uuid5(job.workflow_id, what)}.root"


def copied_lfn(job: JobDocument, unit: UnitDocument, output: Output, execution: str, guid: str) -> str:
    """LFN of an EDM file that one start of the merge stages out as it is.

    It keeps its GUID, which another start copies too: the directory, a number as for all files, is this start's own.
    """
    own = f"{uuid5(job.workflow_id, execution).int:039d}"[-_OWN_DIGITS:]
    return f"{output.merged_lfn_base}/{directory_number(unit)}{own}/{guid}.root"


def is_guid(text: str) -> bool:
    """Whether it has the form of a GUID."""
    return bool(_GUID.fullmatch(text))


def guid_of(name: str) -> str:
    """The GUID that a file is named by; empty where it is named otherwise."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return stem if is_guid(stem) else ""


def are_compared(lfns: Iterable[str], release: str) -> bool:
    """Whether cmsRun of ``release`` is to compare the names of these EDM files with the GUIDs inside them."""
    major, middle, minor = _numbers(release)
    first = _COMPARING.get((major, middle), minor if (major, middle) >= _ALL_COMPARE else minor + 1)
    able = minor >= first or release in _COMPARING_PATCHES
    found = [guid_of(lfn) for lfn in lfns]
    return able and bool(found) and all(found)


def tells_progress(release: str) -> bool:
    """Whether cmsRun of ``release`` has the service that reports its progress to HTCondor."""
    return _numbers(release) >= _FIRST_WITH_PROGRESS


def _numbers(release: str) -> tuple[int, int, int]:
    major, middle, minor = [*(int(word) for word in release.split("_")[1:4] if word.isdigit()), 0, 0, 0][:3]
    return major, middle, minor


def journals_lfn(job: JobDocument, unit: UnitDocument, role: str) -> str:
    """LFN of the directory of a unit's journals of one role, beside its unmerged files; the unit must have an output."""
    name = uuid5(job.workflow_id, f"journal/{job.round_index}/{unit.unit}")
    return f"{job.outputs[0].unmerged_lfn_base}/{directory_number(unit)}/{name}.{role}_journals"
