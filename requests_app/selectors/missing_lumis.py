"""What an output dataset still lacks of what its request wants, as numbers with reasons and as lumis.

With input: lumis, each with one reason. Of a generation: events; the lumis are then those of work units that are not done, since
events without a work unit have no lumis yet. Counted from claims, exclusions and files, as the ledger is; never kept. A lumi of a
request that is split by files is missing while any of its files is not done.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet, TextChoices

from dags_app.models import WorkUnitClaim, WorkUnitState
from dags_app.planning import lumis
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import ExclusionKind, InputSpec, LumiRanges
from outputs_app.models import OutputDataset, OutputFile, Validity
from requests_app.models import DONE, TERMINAL, InputLumis, KeptAccount, LumiFate, Request, Workflow
from requests_app.work.ledger import files_claimed
from requests_app.work.lumi_account import lumis_left
from requests_app.work.spec import spec_of
from wms2.runtime.json_columns import numbered
from wms2.web.formatting import counted

#: Of a request that is split by files: with more of them its missing lumis are counted where they are asked for, not on its page.
MOST_FILES_ON_PAGE = 2_000
#: Reasons of refused lumis that are named.
MOST_TEXTS = 5
#: Intervals that a page names.
MOST_NAMED = 10


class MissingReason(TextChoices):
    """Why it lacks something. Of several reasons a lumi has the first."""

    INVALID = "invalid", "Made, but in files that are invalid now"
    UNACCOUNTED = "unaccounted", "In work units that are done, but whose output is not accounted for"
    PLANNED = "planned", "Planned or running"
    GIVEN_BACK = "given_back", "Tried and given back: planned again"
    LEFT = "left", "Not planned yet"
    GIVEN_UP = "given_up", "Given up: nothing more of it is planned"
    REFUSED = "refused", "Refused: no job may take them"
    EXCLUDED = "excluded", "Left out with their input files"
    TAKEN_OVER = "taken_over", "Taken over by a derived request"


class Reason(NamedTuple):
    """What is missing for one reason; ``lumis`` as far as they have numbers, ``said`` says more where there is more."""

    reason: MissingReason
    number: int
    said: str
    lumis: LumiRanges

    @property
    def label(self) -> str:
        """In words."""
        return str(self.reason.label)

    @property
    def first(self) -> str:
        """A few of the lumis, as people write them."""
        return described(self.lumis)


class MissingLumis(NamedTuple):
    """``unit``: lumis or events, of the numbers; ``wanted``: of the request."""

    request_name: str
    dataset: str
    unit: str
    wanted: int
    reasons: tuple[Reason, ...]

    @property
    def missing(self) -> int:
        """For all reasons together."""
        return sum(each.number for each in self.reasons)

    def lumis(self, reason: str = "") -> dict[str, list[list[int]]]:
        """As a lumi JSON: of one reason, or of all."""
        chosen = (each.lumis for each in self.reasons if reason in ("", each.reason))
        return lumis.to_json(lumis.union(*chosen))


class MissingNumber(NamedTuple):
    """For a request's page. ``number``: None, where it is counted only when it is asked for."""

    dataset: OutputDataset
    number: int | None
    unit: str


def described(ranges: LumiRanges) -> str:
    """The first intervals: ``1:3-8, 2:1 and 4 more ranges``."""
    parts = [f"{run}:{a}" if a == b else f"{run}:{a}-{b}" for run, intervals in ranges.items() for a, b in intervals]
    more = f" and {counted(len(parts) - MOST_NAMED, 'more range')}" if len(parts) > MOST_NAMED else ""
    return ", ".join(parts[:MOST_NAMED]) + more


def datasets_of(request: Request) -> QuerySet[OutputDataset]:
    """Its output datasets, for ``missing_lumis``."""
    return OutputDataset.objects.select_related("workflow").filter(workflow__request=request)


def missing_number(request: Request, workflow: Workflow, account: KeptAccount, dataset: OutputDataset) -> MissingNumber:
    """From the account where that has it; ``dataset`` may say how many ``invalid_files`` it has."""
    numbers, invalid = account.numbers, getattr(dataset, "invalid_files", 0)
    unit = "events" if not workflow.input_dataset else "lumis"
    if not numbers or (numbers["all_files"] > MOST_FILES_ON_PAGE and (invalid or not numbers["all_lumis"])):
        return MissingNumber(dataset, None, unit)
    if invalid or (workflow.input_dataset and not numbers["all_lumis"]):
        return MissingNumber(dataset, _counted(request.pk, dataset.pk, account.basis, invalid), unit)
    inherited = numbers["inherited_lumis"]  # inherited events of a generation are beside all its events
    return MissingNumber(dataset, numbers[f"all_{unit}"] - numbers[f"done_{unit}"] - inherited, unit)


@lru_cache(maxsize=512)
def _counted(request_id: Any, dataset_id: int, basis: str, invalid: int) -> int:
    """Counted once after each change of the account: a page asks again every few seconds."""
    dataset = OutputDataset.objects.select_related("workflow__request").get(pk=dataset_id)
    return missing_lumis(dataset.workflow.request, dataset).missing


def missing_lumis(request: Request, dataset: OutputDataset) -> MissingLumis:
    """Count, and name the lumis; the dataset is one of the request's."""
    workflow = dataset.workflow
    spec = spec_of(workflow)
    if spec.input is None:
        return _of_generation(request, workflow, dataset)
    by_lumi = spec.splitting.algorithm.by_lumi
    wanted, states = _of_lumis(workflow) if by_lumi else _of_files(workflow, spec.input)
    lost = _invalid(dataset)
    done = lumis.subtract(wanted, lumis.union(*states.values()))
    states[MissingReason.INVALID] = lumis.intersect(lost, done)
    if _plans_no_more(request):  # what is left is given up
        left = (states.pop(each, {}) for each in (MissingReason.LEFT, MissingReason.GIVEN_BACK))
        states[MissingReason.GIVEN_UP] = lumis.union(*left)
    texts = _texts(workflow) if by_lumi else {}
    taken: LumiRanges = {}
    reasons = []
    for reason in MissingReason:
        mine = lumis.subtract(states.get(reason, {}), taken)
        taken = lumis.union(taken, mine)
        if mine:
            reasons.append(Reason(reason, lumis.count(mine), texts.get(reason, ""), mine))
    return MissingLumis(request.request_name, dataset.name, "lumis", lumis.count(wanted), tuple(reasons))


def _plans_no_more(request: Request) -> bool:
    return request.status in (*DONE, *TERMINAL) or request.complete_early


def _of_lumis(workflow: Workflow) -> tuple[LumiRanges, dict[MissingReason, LumiRanges]]:
    listed: dict[str, list[tuple[int, int, int]]] = {fate: [] for fate in LumiFate.values}
    for fate, run, span in InputLumis.objects.filter(workflow=workflow).values_list("fate", "run", "span"):
        listed[fate].append((run, span.lower, span.upper - 1))
    fates = {LumiFate(fate): lumis.from_intervals(each) for fate, each in listed.items()}
    left = lumis_left(workflow)
    unaccounted = _claimed(workflow, WorkUnitClaim.KIND_RUN_LUMIS, WorkUnitState.DONE_UNACCOUNTED)
    planned = _claimed(workflow, WorkUnitClaim.KIND_RUN_LUMIS, WorkUnitState.PLANNED)
    own = lumis.union(*(ranges for fate, ranges in fates.items() if fate is not LumiFate.INHERITED))
    return own, {
        MissingReason.UNACCOUNTED: unaccounted,
        MissingReason.PLANNED: planned,
        MissingReason.GIVEN_BACK: left.tried,
        MissingReason.LEFT: left.fresh,
        MissingReason.REFUSED: fates[LumiFate.REFUSED],
        MissingReason.EXCLUDED: fates[LumiFate.EXCLUDED],
        MissingReason.TAKEN_OVER: fates[LumiFate.DERIVED],
    }


#: What a row of a request split by files says of its lumis -> the reason; the first that holds.
_OUT = {ExclusionKind.DERIVED: MissingReason.TAKEN_OVER}


def _of_files(workflow: Workflow, asked: InputSpec) -> tuple[LumiRanges, dict[MissingReason, LumiRanges]]:
    selection = WantedLumis(asked)
    found: dict[MissingReason | None, list[tuple[int, int, int]]] = {None: []}
    of_units = Q(unit__workflow=workflow, unit__state=WorkUnitState.DONE_UNACCOUNTED, live=True)
    unaccounted = frozenset(WorkUnitClaim.objects.filter(of_units).values_list("input_file_id", flat=True))
    fields = ("pk", "lumis", "excluded_kind", "unclaimed", "planned", "tried")
    rows = files_claimed(workflow).exclude(excluded_kind__in=(ExclusionKind.INHERITED, ExclusionKind.UNWANTED))
    for pk, held, kind, unclaimed, planned, tried in rows.values_list(*fields).iterator(chunk_size=2000):
        state: MissingReason | None = None
        if kind:
            state = _OUT.get(ExclusionKind(kind), MissingReason.EXCLUDED)
        elif unclaimed > 0:
            state = MissingReason.GIVEN_BACK if tried else MissingReason.LEFT
        elif planned:
            state = MissingReason.UNACCOUNTED if pk in unaccounted else MissingReason.PLANNED
        found.setdefault(state, []).extend(lumis.iterate(selection.among(lumis.from_json(held))))
    ranges = {state: lumis.from_intervals(intervals) for state, intervals in found.items()}
    done = ranges.pop(None)
    states = {state: each for state, each in ranges.items() if state is not None}
    return lumis.union(done, *states.values()), states


def _of_generation(request: Request, workflow: Workflow, dataset: OutputDataset) -> MissingLumis:
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, live=True, kind=WorkUnitClaim.KIND_GENERATED).order_by()
    made: dict[str, int] = {}
    for state, events in claims.values_list("unit__state", "events").iterator(chunk_size=2000):
        made[state] = made.get(state, 0) + events
    states = {MissingReason.UNACCOUNTED: WorkUnitState.DONE_UNACCOUNTED, MissingReason.PLANNED: WorkUnitState.PLANNED}
    numbers = {reason: made.get(state, 0) for reason, state in states.items()}
    left = workflow.requested_events - sum(numbers.values()) - made.get(WorkUnitState.DONE, 0)
    numbers[MissingReason.GIVEN_UP if _plans_no_more(request) else MissingReason.LEFT] = max(0, left)
    lost = _invalid(dataset)
    files = OutputFile.objects.filter(dataset=dataset, validity=Validity.INVALID)
    numbers[MissingReason.INVALID] = sum(files.values_list("events", flat=True)) if lost else 0
    held = {reason: _claimed(workflow, WorkUnitClaim.KIND_GENERATED_LUMIS, state) for reason, state in states.items()}
    held[MissingReason.INVALID] = lost
    reasons = (Reason(each, numbers[each], "", held.get(each, {})) for each in MissingReason if numbers.get(each))
    return MissingLumis(request.request_name, dataset.name, "events", workflow.requested_events, tuple(reasons))


def _claimed(workflow: Workflow, kind: int, state: WorkUnitState) -> LumiRanges:
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, unit__state=state, live=True, kind=kind).order_by()
    return lumis.from_intervals(claims.values_list("run", "first", "last").iterator(chunk_size=2000))


def _invalid(dataset: OutputDataset) -> LumiRanges:
    """Lumis of its invalid files that no valid one has. Without invalid ones, nothing more is read."""
    lost = _lumis_of(dataset, Validity.INVALID)
    return lumis.subtract(lost, _lumis_of(dataset, Validity.VALID)) if lost else {}


def _lumis_of(dataset: OutputDataset, validity: Validity) -> LumiRanges:
    rows = OutputFile.objects.filter(dataset=dataset, validity=validity).order_by().values_list("lumis", flat=True)
    held = rows.iterator(chunk_size=2000)
    return lumis.from_pairs((run, pair[0]) for each in held for run, pairs in numbered(each) for pair in pairs)


def _texts(workflow: Workflow) -> dict[MissingReason, str]:
    rows = InputLumis.objects.filter(workflow=workflow, fate=LumiFate.REFUSED).order_by("reason")
    found = list(rows.values_list("reason", flat=True).distinct()[: MOST_TEXTS + 1])
    more = ["…"] if len(found) > MOST_TEXTS else []
    return {MissingReason.REFUSED: "; ".join([*found[:MOST_TEXTS], *more])}
