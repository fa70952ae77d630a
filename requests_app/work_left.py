"""What is left of a request's work, as jobs; what cannot be done is recorded with its reason (spec 4.5; ``model.md`` section 3).

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
from requests_app.input_lumis import lumis_left, lumis_rebuild, lumis_refuse
from requests_app.inputs import exclude_files, file_specs, lumi_specs
from requests_app.ledger import Ledger
from requests_app.models import Workflow
from wms2.conf import conf
from wms2.errors import ShortOfEvents


@dataclass(slots=True)
class LeftOut:
    """Files and lumis that no job takes, each with its reason."""

    files: list[ExcludedFile] = field(default_factory=list)
    lumis: list[RefusedLumi] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.files or self.lumis)


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
    if spec.splitting.algorithm.by_lumi:
        return _jobs(_by_lumi(workflow, spec, left_out), left_out)
    return _jobs(_by_file(workflow, spec, left_out), left_out)


def record_left_out(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut, *, actor: str = "planner") -> None:
    """Exclusions and refusals as rows; in the caller's transaction."""
    exclude_files(workflow=workflow, excluded=left_out.files, actor=actor)
    if spec.input is not None and spec.splitting.algorithm.by_lumi:
        lumis_refuse(workflow, left_out.lumis)
        lumis_rebuild(workflow, spec.input)


def _by_file(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut) -> Iterator[PlanItem]:
    """Each part has ascending LFNs."""
    anywhere = spec.trust_sitelists
    parts = (file_specs(workflow, tried=tried, anywhere=anywhere) for tried in (False, True))
    return chain.from_iterable(split(spec, _readable(files, left_out)) for files in parts)


def _by_lumi(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut) -> Iterator[PlanItem]:
    """The parts share no lumi, so a lumi in several files is in one part, with all of them."""
    left = lumis_left(workflow)
    parts = (lumi_specs(workflow, part, anywhere=spec.trust_sitelists) for part in (left.fresh, left.tried) if part)
    return chain.from_iterable(split(spec, _readable(files, left_out)) for files in parts)


def _readable(files: Iterable[InputFileSpec | ExcludedFile], left_out: LeftOut) -> Iterator[InputFileSpec]:
    for file in files:
        if isinstance(file, ExcludedFile):
            left_out.files.append(file)
        else:
            yield file


def _jobs(items: Iterable[PlanItem], left_out: LeftOut) -> Iterator[JobSpec]:
    for item in items:
        if isinstance(item, ExcludedFile):
            left_out.files.append(item)
        elif isinstance(item, RefusedLumi):
            left_out.lumis.append(item)
        else:
            yield item


def _refuse_runaway(workflow: Workflow, ledger: Ledger) -> None:
    """Rounds that keep losing events end at a multiple of the request; then a person looks (``model.md`` section 3)."""
    most = int(workflow.requested_events * conf().generation_excess_factor)
    if ledger.taken_numbers + ledger.left_events > most:
        raise ShortOfEvents(
            f"{ledger.taken_numbers} events were planned for {workflow.requested_events} asked, {ledger.left_events} are left; "
            f"planning them would pass {most}: most work fails, see the errors of the last round"
        )
