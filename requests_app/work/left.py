"""What is left of a request's work, as jobs; what cannot be done, or not yet, is recorded with its reason (spec 4.5;
docs/design/model.md, Ledger).

Fresh work comes before that of failed units (error-handling 5.2). Nothing is written while jobs are drawn: what a splitter
leaves out is collected, and recorded by ``record_left_out`` before the round is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from dags_app.planning.specs import (
    ExcludedFile,
    GenerationLeft,
    InputFileSpec,
    JobSpec,
    PlanItem,
    RefusedLumi,
    WorkflowSpec,
)
from dags_app.planning.splitters import split
from outputs_app.owning import lumi_next
from requests_app.models import InputFile, Workflow
from requests_app.work.input_lumis import lumis_left, lumis_rebuild, lumis_refuse
from requests_app.work.input_places import Places, WaitingFile, waiting_record
from requests_app.work.inputs import exclude_files, file_specs, lumi_specs
from requests_app.work.ledger import Ledger
from wms2.conf import conf
from wms2.errors import ShortOfEvents


@dataclass(slots=True)
class LeftOut:
    """Files and lumis that no job takes, each with its reason.

    Attributes:
        waiting: LFN -> why no job can be planned for it now; it is left.
        found: files that waited and that jobs can be planned for.
    """

    files: list[ExcludedFile] = field(default_factory=list)
    lumis: list[RefusedLumi] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.files or self.lumis or self.waiting or self.found)


def jobs_left(workflow: Workflow, spec: WorkflowSpec, ledger: Ledger, left_out: LeftOut) -> Iterator[JobSpec] | None:
    """The jobs of what is left, lazily, or None when nothing is; ``left_out`` fills while they are drawn.

    Raises:
        PlanningRefused: it cannot be planned as asked, now or while drawing.
    """
    if not ledger.work_left:
        return None
    if spec.generation is not None:
        _refuse_runaway(workflow, ledger)
        lumi = max(workflow.next_first_lumi, lumi_next(request_id=workflow.request.pk))
        left = GenerationLeft(workflow.next_first_event, lumi, ledger.left_events)
        return _jobs(split(spec, generation_left=left), left_out)
    readable = _Readable(workflow, spec, left_out)
    items = _by_lumi(readable) if spec.splitting.algorithm.by_lumi else _by_file(readable)
    return _jobs(items, left_out)


def record_left_out(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut, *, actor: str = "planner") -> None:
    """Exclusions and refusals as rows; in the caller's transaction."""
    waiting_record(workflow, waiting=left_out.waiting, found=left_out.found)
    exclude_files(workflow=workflow, excluded=left_out.files, actor=actor)
    if spec.input is not None and spec.splitting.algorithm.by_lumi and (left_out.files or left_out.lumis):
        lumis_refuse(workflow, left_out.lumis)
        lumis_rebuild(workflow, spec.input)


class _Readable:
    """The files of one planning that jobs can read now; those that wait are told to ``left_out``."""

    def __init__(self, workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut) -> None:
        self.workflow, self.spec, self.places = workflow, spec, Places(workflow, spec)
        self._left_out = left_out
        waiting = InputFile.objects.filter(workflow=workflow, waiting_since__isnull=False)
        self._waited = frozenset(waiting.values_list("lfn", flat=True))

    def of(self, files: Iterable[InputFileSpec | WaitingFile]) -> Iterator[InputFileSpec]:
        for file in files:
            if isinstance(file, WaitingFile):
                self._left_out.waiting[file.lfn] = file.reason
                continue
            if file.lfn in self._waited:
                self._left_out.found.append(file.lfn)
            yield file


def _by_file(readable: _Readable) -> Iterator[PlanItem]:
    """Each part has ascending LFNs."""
    parts = (file_specs(readable.workflow, readable.places, tried=tried) for tried in (False, True))
    return chain.from_iterable(split(readable.spec, readable.of(files)) for files in parts)


def _by_lumi(readable: _Readable) -> Iterator[PlanItem]:
    """The parts share no lumi, so a lumi in several files is in one part, with all of them."""
    left = lumis_left(readable.workflow)
    parts = (lumi_specs(readable.workflow, readable.places, part) for part in (left.fresh, left.tried) if part)
    return chain.from_iterable(split(readable.spec, readable.of(files)) for files in parts)


def _jobs(items: Iterable[PlanItem], left_out: LeftOut) -> Iterator[JobSpec]:
    for item in items:
        if isinstance(item, ExcludedFile):
            left_out.files.append(item)
        elif isinstance(item, RefusedLumi):
            if item.for_lack_of_site:
                left_out.waiting |= dict.fromkeys(item.lfns, item.reason)
            else:
                left_out.lumis.append(item)
        else:
            yield item


def _refuse_runaway(workflow: Workflow, ledger: Ledger) -> None:
    """Rounds that keep losing events end at a multiple of the request; then a person looks (docs/design/model.md, Ledger)."""
    most = int(workflow.requested_events * conf().generation_excess_factor)
    if ledger.taken_numbers + ledger.left_events > most:
        raise ShortOfEvents(
            f"{ledger.taken_numbers} events were planned for {workflow.requested_events} asked, {ledger.left_events} are left; "
            f"planning them would pass {most}: most work fails, see the errors of the last round"
        )
