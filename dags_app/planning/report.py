"""The answer of ``plan_request``: a whole request planned without any service, as plain JSON values.

The format is in docs/splitting.md, The planner's formats. Owns the order of the answer and nothing of the planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dags_app.planning import lumis
from dags_app.planning.plan import PlanLimits, PlanningInput, WorkLeft, plan
from dags_app.planning.selection import SiteChoice
from dags_app.planning.sizing import LevelWalls
from dags_app.planning.specs import DagLimits, DagSpec, ExcludedFile, InputFileSpec, JobSpec, RefusedLumi, WorkflowSpec
from wms2.errors import PlanningRefused

Document = dict[str, Any]

#: Reason for a file of which nothing is left to read.
ALL_REFUSED = "every lumi of the file that is wanted is refused"


def plan_document(workflow: WorkflowSpec, files: Sequence[InputFileSpec], limits: PlanLimits | None = None) -> Document:
    """Plan the whole request, not only a first round.

    Returns:
        ``{"jobs", "excluded", "refused", "warnings", "levels"}``; jobs of one location group stand together. ``jobs`` are the
        first task's, ``levels`` says of every task how many jobs it has and how long they are expected to take. A request that
        cannot be planned has no jobs and one entry in ``refused``, without run and lumi.
    """
    excluded: list[ExcludedFile] = []
    files = _chosen(workflow, files, excluded)
    # a splitter by lumis takes all files at once, since files of two groups may share a lumi, and keeps groups together itself
    by_lumi = workflow.generation is None and workflow.splitting.algorithm.by_lumi
    work = WorkLeft(parts=([files] if by_lumi else _groups(workflow, files)) or [[]])
    dag = DagSpec("", "", "", 0, workflow, (), DagLimits())
    try:
        planned = plan(PlanningInput(dag, work, limits or PlanLimits()))
    except PlanningRefused as refusal:
        refused_whole = [{"reason": str(refusal), "run": None, "lumi": None}]
        return {"jobs": [], "excluded": [], "refused": refused_whole, "warnings": list(workflow.warnings), "levels": []}
    jobs, refused, warning = planned.jobs, planned.left_out.lumis, planned.too_long
    unit_of = {id(job): unit.name for unit in planned.dag.units for job in unit.jobs}
    left_out = [*excluded, *planned.left_out.files, *_refused_whole(jobs, refused)]
    return {
        "jobs": [_job(job, unit_of[id(job)]) for job in jobs],
        "excluded": [{"lfn": each.lfn, "reason": each.reason} for each in left_out],
        "refused": [{"reason": each.reason, "run": each.run, "lumi": each.lumi} for each in refused],
        "warnings": [*workflow.warnings, *([f"it would be held: {warning}"] if warning else [])],
        "levels": [_level(level) for level in planned.walls],
    }


def _chosen(workflow: WorkflowSpec, files: Sequence[InputFileSpec], excluded: list[ExcludedFile]) -> list[InputFileSpec]:
    """The files of the blocks that the block lists want."""
    wanted = workflow.input
    if wanted is None or not (wanted.block_whitelist or wanted.block_blacklist):
        return list(files)
    white, black = frozenset(wanted.block_whitelist), frozenset(wanted.block_blacklist)
    found = []
    for file in files:
        if file.block in black:
            excluded.append(ExcludedFile(file.lfn, f"its block {file.block} is on BlockBlacklist"))
        elif white and file.block not in white:
            excluded.append(ExcludedFile(file.lfn, f"its block {file.block} is not on BlockWhitelist"))
        else:
            found.append(file)
    return found


def _refused_whole(jobs: Sequence[JobSpec], refused: Sequence[RefusedLumi]) -> list[ExcludedFile]:
    """Files that no job reads because each of their lumis is refused: so every file of the input is in a job or named."""
    if not refused:
        return []
    unread = {lfn for each in refused for lfn in each.lfns} - {file.lfn for job in jobs for file in job.files}
    return [ExcludedFile(lfn, ALL_REFUSED) for lfn in sorted(unread)]


def _groups(workflow: WorkflowSpec, files: Sequence[InputFileSpec]) -> list[list[InputFileSpec]]:
    """Files by location group, names ascending, groups in order of their first file: nothing streams here, so one by one."""
    choice = SiteChoice(workflow)
    groups: dict[frozenset[str], list[InputFileSpec]] = {}
    for file in sorted(files, key=lambda file: file.lfn):
        groups.setdefault(choice.group(file.locations), []).append(file)
    return list(groups.values())


def _level(level: LevelWalls) -> Document:
    return {
        "task": level.task,
        "name": level.name,
        "splitting": str(level.algorithm),
        "jobs": level.jobs,
        "most_events": level.most_events,
        "longest_wall_hours": round(level.longest_seconds / 3600, 2),
        "mean_wall_hours": round(level.total_seconds / level.jobs / 3600, 2) if level.jobs else 0.0,
        "too_long": level.too_long,
    }


def _job(job: JobSpec, unit: str) -> Document:
    made, cut = job.generate, job.files[0] if job.files else None
    return {
        "files": [file.lfn for file in job.files],
        "events": job.events,
        "first_event": made.first_event if made else cut.first_event if cut else None,
        "last_event": made.last_event if made else cut.last_event if cut else None,
        "first_lumi": made.first_lumi if made else None,
        "last_lumi": made.last_lumi if made else None,
        "mask": None if job.mask is None else lumis.to_json(job.mask),
        "sites": sorted(job.sites),
        "work_unit": unit,
    }
