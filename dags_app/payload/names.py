"""Logical file names of unmerged and merged files. Pure; owns the naming rule that makes a repeated attempt overwrite itself.

A name is a version 5 UUID in the workflow's own namespace, so it depends on what the file is and not on when or where it
was written (``model.md`` section 3, "A unit is done").
"""

from __future__ import annotations

from uuid import uuid5

from .documents import JobDocument, Output, Staged, UnitDocument

#: Work units that share one directory number: keeps directories of a big workflow small.
UNITS_PER_DIRECTORY = 1000


def directory_number(unit: UnitDocument) -> str:
    """The NNNNN part of a file name."""
    return f"{unit.index // UNITS_PER_DIRECTORY:05d}"


def unmerged_lfn(job: JobDocument, unit: UnitDocument, node: str, output: Staged) -> str:
    """LFN of the file that ``node`` writes for ``output``."""
    name = uuid5(job.workflow_id, f"unmerged/{job.round_index}/{unit.unit}/{node}/{output.step}/{output.module}")
    return f"{output.unmerged_lfn_base}/{directory_number(unit)}/{name}.root"


def merged_lfn(job: JobDocument, unit: UnitDocument, output: Output, number: int) -> str:
    """LFN of the ``number``-th (from 0) merged file of ``output`` in this unit."""
    name = uuid5(job.workflow_id, f"{job.round_index}/{unit.unit}/{output.step}/{output.module}/{number}")
    return f"{output.merged_lfn_base}/{directory_number(unit)}/{name}.root"


def journal_lfn(job: JobDocument, unit: UnitDocument) -> str:
    """LFN of the unit's merge journal, beside its unmerged files; the unit must have an output."""
    name = uuid5(job.workflow_id, f"journal/{job.round_index}/{unit.unit}")
    return f"{job.outputs[0].unmerged_lfn_base}/{directory_number(unit)}/{name}.merge_journal.json"
