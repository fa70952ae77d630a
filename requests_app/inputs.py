"""Input files: imported from DBS and Rucio once, handed to planning as values (spec 4.3, 4.5; ``contracts.md`` 4.3, 5.2).

Import is streamed block by block and committed block by block: memory is bounded by the largest block, and a crash goes on
where it stopped. Replicas are asked by block, never by file. Sites come through CRIC's many-to-many mapping at planning time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import structlog
from django.db.models import Sum
from django.utils import timezone

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import ExcludedFile, InputFileSpec, WorkflowSpec
from requests_app.evaluation import Fence
from requests_app.ledger import files_left
from requests_app.models import InputFile, Workflow
from requests_app.workflow_spec import spec_of
from sites_app.selectors import sites_by_rse
from wms2.adapters import factory
from wms2.adapters.types import BlockInfo
from wms2.crash import crash_point
from wms2.errors import PlanningRefused

log = structlog.get_logger(__name__)
BATCH = 1000


def inputs_import(*, workflow: Workflow, fenced: Fence) -> None:
    """Read the input dataset into InputFile rows. Repeatable: blocks that are stored whole are skipped.

    Raises:
        PlanningRefused: the dataset does not exist, or has no valid file.
        ServiceUnavailable: DBS or Rucio did not answer; what is stored stays.
    """
    spec = spec_of(workflow)
    if spec.input is None or workflow.input_imported_at is not None:
        return
    dbs = factory.dbs()
    if not dbs.dataset_exists(spec.input.dataset):
        raise PlanningRefused(f"input dataset {spec.input.dataset} is not in DBS")
    stored = set(InputFile.objects.filter(workflow=workflow).values_list("block_name", flat=True).distinct())
    for block in dbs.blocks(spec.input.dataset):
        if block.block_name not in stored:
            _import_block(workflow, spec, block, fenced)
            crash_point("import.called")
    with fenced():
        events = InputFile.objects.filter(workflow=workflow).aggregate(total=Sum("events"))["total"]
        if not InputFile.objects.filter(workflow=workflow).exists():
            raise PlanningRefused(f"input dataset {spec.input.dataset} has no valid file")
        Workflow.objects.filter(pk=workflow.pk).update(input_imported_at=timezone.now(), requested_events=events or 0)
    workflow.refresh_from_db()
    log.info("input imported", request_name=workflow.request_id, dataset=spec.input.dataset, events=events)


def _import_block(workflow: Workflow, spec: WorkflowSpec, block: BlockInfo, fenced: Fence) -> None:
    """One block in one transaction, so that a stored block is a whole block."""
    dbs, name = factory.dbs(), block.block_name
    files = list(dbs.files(name))
    pairs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in dbs.file_lumis(name):
        pairs[row.lfn].append((row.run, row.lumi))
    parents: dict[str, list[str]] = defaultdict(list)
    if spec.input is not None and spec.input.include_parents:
        for link in dbs.file_parents(name):
            parents[link.lfn].append(link.parent_lfn)
    rses = sorted(rse for rse, complete in factory.rucio().block_locations([name]).get(name, {}).items() if complete)
    with fenced():
        InputFile.objects.bulk_create(
            [
                InputFile(
                    workflow=workflow,
                    lfn=file.lfn,
                    block_name=name,
                    size_bytes=file.size_bytes,
                    events=file.events,
                    adler32=file.adler32 if len(file.adler32) <= 8 else "",
                    lumis=lumis.to_json(lumis.from_pairs(pairs.get(file.lfn, ()))),
                    rses=rses,
                    parents=sorted(parents.get(file.lfn, ())),
                )
                for file in files
            ],
            batch_size=BATCH,
        )


def input_specs(workflow: Workflow, *, tried: bool) -> Iterator[InputFileSpec]:
    """What is left of the input as planning wants it: LFNs ascending, with the event ranges left; fresh files or tried ones."""
    sites = sites_by_rse()
    for row in files_left(workflow).filter(tried=tried).iterator(chunk_size=2000):
        yield InputFileSpec(
            lfn=row.lfn,
            size_bytes=row.size_bytes,
            events=row.events,
            lumis=lumis.from_intervals((int(run), a, b) for run, spans in row.lumis.items() for a, b in spans),
            locations=frozenset(site for rse in row.rses for site in sites.get(rse, ())),
            parents=tuple(row.parents),
            left=_left(row) if row.unclaimed < row.weight else None,
        )


def exclude_files(*, workflow: Workflow, excluded: Iterable[ExcludedFile], actor: str = "planner") -> None:
    """Files that no job will read, each with its reason; in the caller's transaction."""
    now = timezone.now()
    for file in excluded:
        InputFile.objects.filter(workflow=workflow, lfn=file.lfn, excluded_at__isnull=True).update(
            excluded_at=now, excluded_reason=file.reason, excluded_by=actor
        )


def _left(row: Any) -> tuple[tuple[int, int], ...]:
    """Event ranges of a partly claimed file that nobody has claimed, 0-based and inclusive."""
    claimed = sorted((c.span.lower, c.span.upper - 1) for c in WorkUnitClaim.objects.filter(input_file=row, live=True))
    found, start = [], 0
    for first, last in claimed:
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    if start < row.events:
        found.append((start, row.events - 1))
    return tuple(found)
