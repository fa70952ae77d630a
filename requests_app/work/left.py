"""What is left of a request's work, and rows for what planning leaves out of it, with its reason (spec 4.5;
docs/design/model.md, Ledger).

Fresh work comes before that of failed units (error-handling 5.2). Nothing is written while jobs are drawn: what a splitter
leaves out is collected (``dags_app.planning.plan``), and recorded by ``record_left_out`` before the round is.
"""

from __future__ import annotations

from django.db.models import Max, Q

from dags_app.planning.plan import LeftOut, WorkLeft
from dags_app.planning.specs import GenerationLeft, GenerationSpec, WorkflowSpec
from outputs_app.owning import lumi_next
from requests_app.models import InputFile, Workflow
from requests_app.work.input_lumis import lumis_left, lumis_rebuild, lumis_refuse
from requests_app.work.input_places import Places, waiting_record
from requests_app.work.inputs import exclude_files, file_specs, lumi_specs
from requests_app.work.ledger import Ledger
from wms2.conf import conf
from wms2.errors import ShortOfEvents


def work_left(workflow: Workflow, spec: WorkflowSpec, ledger: Ledger) -> WorkLeft | None:
    """What a round may take, input files as iterators over their rows; None when nothing is left.

    Raises:
        ShortOfEvents: rounds keep losing events.
    """
    if not ledger.work_left:
        return None
    if spec.generation is not None:
        _refuse_runaway(spec.generation, ledger)
        lumi = max(workflow.next_first_lumi, lumi_next(request_id=workflow.request.pk))
        return WorkLeft(GenerationLeft(event_next(workflow), lumi, ledger.left_events))
    places, rows = Places(workflow, spec), dict[str, tuple[int, int]]()
    if spec.splitting.algorithm.by_lumi:
        # the parts share no lumi, so a lumi in several files is in one part, with all of them
        left = lumis_left(workflow)
        parts = [lumi_specs(workflow, places, part) for part in (left.fresh, left.tried) if part]
    else:
        some = {False: ledger.left_files, True: ledger.attempted_files}
        parts = [file_specs(workflow, places, rows, tried=tried) for tried, number in some.items() if number]
    waiting = InputFile.objects.filter(workflow=workflow, waiting_since__isnull=False)
    return WorkLeft(parts=parts, waited=frozenset(waiting.values_list("lfn", flat=True)), rows=rows)


def record_left_out(workflow: Workflow, spec: WorkflowSpec, left_out: LeftOut, *, actor: str = "planner") -> None:
    """Exclusions and refusals as rows; in the caller's transaction."""
    waiting_record(workflow, waiting=left_out.waiting, found=left_out.found)
    exclude_files(workflow=workflow, excluded=left_out.files, actor=actor)
    refused = left_out.refused
    if spec.input is not None and spec.splitting.algorithm.by_lumi and (left_out.files or refused):
        lumis_refuse(workflow, refused)
        lumis_rebuild(workflow, spec.input)


def event_next(workflow: Workflow) -> int:
    """Its first event number that is free, also of requests it shares a generation with: derived ones, and what these were
    derived from. To be looked up after the lumi: of two that plan at once, the lumis refuse one."""
    request = workflow.request
    if not request.derived_by and request.derived_from_id is None:
        return workflow.next_first_event
    shared = Workflow.objects.filter(~Q(request__derived_by="") | Q(request__derived_from__isnull=False))
    found: int = shared.filter(request__family=request.family).aggregate(most=Max("next_first_event"))["most"]
    return max(workflow.next_first_event, found or 1)


def events_most(asked: GenerationSpec) -> int:
    """As many events are planned at most, lost ones and extensions included."""
    return int(asked.events * conf().generation_excess_factor)


def _refuse_runaway(asked: GenerationSpec, ledger: Ledger) -> None:
    """Rounds that keep losing events end at a multiple of the request; then a person looks (docs/design/model.md, Ledger)."""
    most, made = events_most(asked), ledger.made_events
    if made + ledger.left_events > most:
        raise ShortOfEvents(
            f"{made} events were planned for {asked.events} asked, {ledger.left_events} are left; "
            f"planning them would pass {most}: most work fails, see the errors of the last round"
        )
