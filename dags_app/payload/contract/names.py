"""Logical file names of unmerged and merged files and of their journals. Pure; owns the naming rule.

A name is a version 5 UUID in the workflow's own namespace, of what the file is and of the start of the job that writes it
(``Slot.execution``): no two starts ever write the same name, so a copy that comes back late overwrites nothing. Which files count
is what the accepted manifest says (docs/design/model.md, A unit is done).
"""

from __future__ import annotations

from uuid import uuid5

from .documents import JobDocument, Output, Staged, UnitDocument

#: Work units that share one directory number: keeps directories of a big workflow small.
UNITS_PER_DIRECTORY = 1000


def directory_number(unit: UnitDocument) -> str:
    """The NNNNN part of a file name."""
    return f"{unit.index // UNITS_PER_DIRECTORY:05d}"


def unmerged_lfn(job: JobDocument, unit: UnitDocument, node: str, output: Staged, execution: str, number: int = 0) -> str:
    """LFN of the file that the ``number``-th (from 0) cmsRun of one start of ``node`` writes for ``output``."""
    what = f"unmerged/{job.round_index}/{unit.unit}/{node}/{output.step}/{output.module}/{execution}"
    what += f"/{number}" if number else ""
    return f"{output.unmerged_lfn_base}/{directory_number(unit)}/{uuid5(job.workflow_id, what)}.root"


def merged_lfn(job: JobDocument, unit: UnitDocument, output: Output, number: int, execution: str) -> str:
    """LFN of the ``number``-th (from 0) merged file of ``output`` in this unit, as one start of the merge writes it."""
    what = f"{job.round_index}/{unit.unit}/{output.step}/{output.module}/{number}/{execution}"
    return f"{output.merged_lfn_base}/{directory_number(unit)}/{uuid5(job.workflow_id, what)}.root"


def journals_lfn(job: JobDocument, unit: UnitDocument, role: str) -> str:
    """LFN of the directory of a unit's journals of one role, beside its unmerged files; the unit must have an output."""
    name = uuid5(job.workflow_id, f"journal/{job.round_index}/{unit.unit}")
    return f"{job.outputs[0].unmerged_lfn_base}/{directory_number(unit)}/{name}.{role}_journals"
