"""What must hold after every step of any request's life (docs/design/model.md), asked of the rows and of the world.

Written for speed: rows are read whole, once a check, and a request's account is only counted again when its units have changed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from django.db.models import Count, F, Sum

from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.packs import files_of
from dags_app.payload.contract import layout
from dags_app.planning.specs import NOT_MISSED
from dags_app.services.claims import claims_of
from outputs_app.effects.invalidation import TAKING_BACK
from outputs_app.models import (
    REPORTS,
    RULED,
    SETTLED_EFFECT,
    BlockStatus,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from requests_app.limits import limits_now
from requests_app.models import (
    AFTER_WORK,
    TERMINAL,
    Alert,
    Event,
    InputFile,
    InputLumis,
    LumiFate,
    Request,
    RequestStatus,
    RequestTransition,
    Workflow,
)
from requests_app.selectors.summary import stored_counts
from requests_app.states import TRANSITIONS, WORKFLOW_STATUS
from requests_app.work.ledger import ledger_check, ledger_of
from tests.support.scripted import losses
from tests.support.scripted.world import World
from wms2.metrics.row_counts import counts_fold

S = RequestStatus
#: Statuses in which nothing of the request may run or be about to.
QUIET = (S.NEW, S.SUBMITTED, S.QUEUED, S.RESUBMITTING, S.HELD, *AFTER_WORK, S.COMPLETED, *TERMINAL)


def check(world: World) -> None:
    """Everything at once.

    Raises:
        AssertionError: says which request and what.
    """
    assert not world.errors, f"an evaluation failed, or a call was made under no lease:\n{world.errors[0]}"
    requests = list(Request.objects.select_related("lease").defer("request_data"))
    _statuses(world, requests)
    _dags(world, {request.request_name: request for request in requests})
    _accounts(world)
    _schedd(world)
    _outside(world)
    _counts(requests)
    _alerts(requests)


def _alerts(requests: list[Request]) -> None:
    """What a request shows is the newest of its open alerts, and none where it has none."""
    rows = Alert.objects.filter(ended_at=None, condition=False).order_by("since", "id")
    newest = dict(rows.values_list("request", "code"))
    assert {row.pk: row.alert_code for row in requests if row.alert_code} == newest


def _counts(requests: list[Request]) -> None:
    """What the database keeps count of is what there is, before and after a fold."""
    for _ in range(2):
        kept = stored_counts()
        assert +Counter(kept.requests) == Counter(row.status for row in requests)
        assert +Counter(kept.held) == Counter(row.hold_code for row in requests if row.status == S.HELD)
        assert kept.alerted_requests == sum(row.alert_code != "" for row in requests)
        assert +Counter(kept.workflows) == Counter(Workflow.objects.values_list("status", flat=True))
        assert +Counter(kept.blocks) == Counter(ProcessingBlock.objects.values_list("status", flat=True))
        counts_fold()


def _statuses(world: World, requests: list[Request]) -> None:
    edges: dict[Any, list[tuple[str, str]]] = defaultdict(list)
    for pk, left, reached in RequestTransition.objects.order_by("id").values_list("request_id", "from_status", "to_status"):
        edges[pk].append((left, reached))
    reported: dict[Any, list[str]] = defaultdict(list)
    for pk, reached in Event.objects.filter(kind="request.status").order_by("id").values_list("request_id", "data__to"):
        reported[pk].append(reached)
    for request in requests:
        name, rows = f"{request.request_name} ({request.status})", edges[request.pk]
        assert rows, f"{name}: no transition on record"
        assert rows[0][0] == "", name
        assert rows[-1][1] == request.status, f"{name}: the last transition went to {rows[-1][1]}"
        for (_, reached), (left, to) in pairwise(rows):
            assert left == reached, f"{name}: left {left} after {reached}"
            # from a status to itself: more time, because work advances
            assert left == to or S(to) in TRANSITIONS[S(left)], f"{name}: {left} -> {to}"
        assert reported[request.pk] == [to for left, to in rows if left != to], f"{name}: the feed tells another story"
        assert bool(request.stop_intent) == (request.status == S.STOPPING), f"{name}: stop_intent {request.stop_intent!r}"
        if request.status == S.HELD:
            assert request.hold_code, name
            assert request.hold_reason, name
        elif request.status != S.STOPPING:
            assert not request.hold_code, f"{name}: hold_code {request.hold_code}"
        over = not request.lease.owner or request.lease.expires_at < world.clock.now()  # it cannot be given back while cut off
        assert over, f"{name}: a lease outlived its evaluation"


def _dags(world: World, requests: dict[str, Request]) -> None:
    """Where nothing may run nothing runs; one live DAG each; fences rise from one submission to the next."""
    running = Counter(job.request_name for job in losses.followed(world))
    live, fences = Counter[str](), defaultdict[str, list[int]](list)
    rows = DAG.objects.order_by("created_at").values_list("workflow__request_id", "status", "fence")
    for name, status, fence in rows:
        live[name] += status in LIVE_DAG
        if fence:
            fences[name].append(fence)
    for name, request in requests.items():
        assert live[name] <= 1, f"{name}: {live[name]} live DAGs"
        if request.status in QUIET:
            assert not live[name], f"{name} ({request.status}) has a live DAG"
            assert not running[name], f"{name} ({request.status}): a DAGMan job runs"
        assert fences[name] == sorted(set(fences[name])), f"{name}: fences {fences[name]}"
    assert live.total() <= limits_now().max_active_dags, f"{live.total()} live DAGs"


def _accounts(world: World) -> None:
    units = Counter[tuple[Any, str]]()
    for workflow_id, state, count in WorkUnit.objects.order_by().values_list("workflow_id", "state").annotate(Count("pk")):
        units[workflow_id, state] += count
    for workflow in Workflow.objects.select_related("request").defer("psets", "request__request_data"):
        status = S(workflow.request.status)
        name = f"{workflow.request_id} ({status})"
        assert workflow.status == WORKFLOW_STATUS[status], name
        mine = {state: n for (pk, state), n in units.items() if pk == workflow.pk}
        picture = (status, workflow.next_first_event, workflow.input_imported_at, sorted(mine.items()))
        if world.checked.get(name) == picture:
            continue
        ledger = ledger_of(workflow)
        ledger_check(ledger)
        if status in (S.ABORTED, S.FAILED, S.COMPLETED, *AFTER_WORK):
            assert ledger.planned_events == ledger.planned_files == ledger.planned_lumis == 0, f"{name}: {ledger}"
        if status == S.COMPLETED:
            _completed(name, workflow)
            if not workflow.request.complete_early:
                assert not ledger.work_left, f"{name}: {ledger}"
                (_every_lumi_once if ledger.by_lumi else _every_event_once)(name, workflow)
        world.checked[name] = picture


def _completed(name: str, workflow: Workflow) -> None:
    owed = Effect.objects.filter(request__workflow=workflow).exclude(kind__in=REPORTS)
    open_effects = owed.exclude(state__in=SETTLED_EFFECT)
    assert not open_effects.exists(), f"{name}: {list(open_effects)}"
    blocks = ProcessingBlock.objects.filter(workflow=workflow)
    discarded = Effect.objects.filter(request__workflow=workflow, state=EffectState.DISCARDED)
    ends = {BlockStatus.ARCHIVED} | ({BlockStatus.GIVEN_UP} if discarded.exists() else set())
    assert {block.status for block in blocks} <= ends, f"{name}: {[(b.block_index, b.status) for b in blocks]}"
    assert not WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE_UNACCOUNTED).exists(), name
    valid = OutputFile.objects.filter(dataset__workflow=workflow, validity=Validity.VALID)  # lost ones are made again
    unprotected = valid.exclude(RULED).exclude(block__in=discarded.values("block"))
    unprotected = unprotected.exclude(block__effects__kind=EffectKind.RUCIO_UNPROTECT)  # what keeps them is others' by then
    assert not unprotected.exists(), f"{name}: {unprotected.count()} files without a rule"


def _every_lumi_once(name: str, workflow: Workflow) -> None:
    """By the manifests on disk of the units that count: the wanted lumis, none twice."""
    seen: Counter[tuple[int, int]] = Counter()
    for unit, kept in _units_that_count(workflow):
        for job in _manifest(unit)["jobs"] if kept is None else ():
            seen.update(_each(job["processed"]["lumis"]))
        seen.update((claim.run, lumi) for claim in kept or () for lumi in range(claim.first, claim.last + 1))
    wanted = set()
    for row in InputLumis.objects.filter(workflow=workflow, fate=LumiFate.WANTED):
        wanted.update((row.run, lumi) for lumi in range(row.span.lower, row.span.upper))
    assert set(seen) == wanted, f"{name}: missing {wanted - set(seen)}, extra {set(seen) - wanted}"
    assert not [lumi for lumi, times in seen.items() if times > 1], f"{name}: {seen}"


def _units_that_count(workflow: Workflow) -> Iterator[tuple[WorkUnit, list[WorkUnitClaim] | None]]:
    """But for those whose files were lost: all that they had done is made again. With what is left of its claims where a part
    of a unit was lost, which its manifest still names; else None."""
    done = (
        WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE, claims__live=True).select_related("dag").distinct()
    )
    cut = set(WorkUnitClaim.objects.filter(unit__workflow=workflow, live=False).values_list("unit", flat=True))
    for unit in done:
        yield unit, claims_of([unit.pk])[unit.pk] if unit.pk in cut else None


def _manifest(unit: WorkUnit) -> dict[str, Any]:
    """In the DAG's directory, or in the pack of it."""
    name = f"{unit.name}/{layout.MANIFEST_FILE}"
    with files_of(unit.dag.submit_dir, name) as place:
        found: dict[str, Any] = json.loads((place / name).read_text())
    return found


def _each(ranges: dict[str, list[list[int]]]) -> list[tuple[int, int]]:
    return [(int(run), lumi) for run, spans in ranges.items() for first, last in spans for lumi in range(first, last + 1)]


def _every_event_once(name: str, workflow: Workflow) -> None:
    """By the manifests on disk of the units that count: generated events in number, input files range by range."""
    seen: dict[str, list[tuple[int, int | None]]] = {}
    events = 0
    for unit, kept in _units_that_count(workflow):
        for job in _manifest(unit)["jobs"] if kept is None else ():
            events += job["processed"]["events"]
            for file in job["processed"]["files"]:
                seen.setdefault(file["lfn"], []).append((file.get("first_event", 0), file.get("last_event")))
        events += sum(claim.events for claim in kept or ())
        for claim in (each for each in kept or () if each.input_file is not None):
            seen.setdefault(claim.input_file.lfn, []).append((claim.first, claim.first + claim.events - 1))
    for file in InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True):
        ranges = sorted((first, file.events - 1 if last is None else last) for first, last in seen[file.lfn])
        assert ranges[0][0] == 0, f"{name}: {file.lfn} {ranges}"
        assert ranges[-1][1] == file.events - 1, f"{name}: {file.lfn} {ranges}"
        assert all(b == a + 1 for (_, a), (b, _) in pairwise(ranges)), f"{name}: {file.lfn} {ranges}"
    # those of which nothing is among what is requested of this one
    out = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=False).exclude(excluded_kind__in=NOT_MISSED)
    left_out = sum(file.events if file.wanted_events is None else file.wanted_events for file in out)
    wanted = workflow.requested_events - left_out
    assert events == wanted, f"{name}: {events} events of {wanted}"
    for dataset in workflow.output_datasets.all():
        total = OutputFile.objects.filter(dataset=dataset, validity=Validity.VALID).aggregate(total=Sum("events"))["total"]
        assert total == wanted, f"{name}: {dataset.name} has {total} events"


def _schedd(world: World) -> None:
    """One DAGMan job a request, halted only where it was to stop, and fences that only rise."""
    jobs = losses.followed(world)
    double = [name for name, n in Counter(job.request_name for job in jobs).items() if n > 1]
    assert not double, f"more than one DAGMan job of {double}"
    halted = DAG.objects.filter(pk__in=[job.dag_id for job in jobs if job.halted])
    unasked = halted.filter(stop_requested_at__isnull=True, lost_confirmed_at__isnull=True)
    assert not unasked, f"halted, and was not to stop: {list(unasked)}"
    for name, fences in world.schedd.fences.items():
        assert fences == sorted(set(fences)), f"{name}: fences arrived as {fences}"


def _outside(world: World) -> None:
    """What is registered is what our rows say, once; nothing that succeeded was done again."""
    ours: dict[str, set[str]] = {name: set() for name in ProcessingBlock.objects.values_list("dbs_block_name", flat=True)}
    for block, lfn in OutputFile.objects.values_list("block__dbs_block_name", "lfn"):
        ours[block].add(lfn)
    places: Counter[str] = Counter()
    for block, there in world.dbs.registered.items():
        assert block in ours, f"DBS has {block}, we have not"
        assert there.files.keys() <= ours[block], f"{block}: DBS has files that we have not"
        places.update(list(there.files))
    assert not [lfn for lfn, n in places.items() if n > 1]
    _at_one_place(world)
    assert world.rucio.held.keys() <= ours.keys()
    for block, held in world.rucio.held.items():
        assert held.files.keys() <= ours[block], f"{block}: Rucio has files that we have not"
    double = [key for key, ids in world.rucio.rules.items() if len(ids) > 1]
    assert not double, f"more than one rule: {double}"
    tapes = Counter(name for name, rse in world.rucio.rules if rse.endswith("_Tape"))
    assert not [name for name, n in tapes.items() if n > 1], "a block has tape rules at two places"
    _kept(world)
    wanted = Effect.objects.filter(state=EffectState.PENDING, epoch__lt=F("request__epoch")).exclude(kind__in=TAKING_BACK)
    assert not wanted.exists(), f"of a former epoch, and pending: {list(wanted)}"
    _once(world)


def _kept(world: World) -> None:
    """A valid file that was protected is kept where it lies, by its rule or its block's, until their end is asked for."""
    ends = (EffectKind.RUCIO_UNPROTECT, EffectKind.FILES_INVALIDATE)
    not_yet = Effect.objects.filter(kind=EffectKind.RUCIO_PROTECT).exclude(state=EffectState.DONE)
    asked, valid = Effect.objects.filter(kind__in=ends), OutputFile.objects.filter(validity=Validity.VALID)
    valid = valid.filter(block__sealed_at__isnull=False).exclude(block__in=asked.values("block"))
    valid = valid.exclude(block__in=not_yet.values("block"))
    released = Effect.objects.filter(kind=EffectKind.RUCIO_RELEASE).values("request__request_name")
    places = dict[str, set[str]]()
    for lfn, rse in valid.exclude(dataset__workflow__request_id__in=released).values_list("lfn", "rse"):
        places.setdefault(rse, set()).add(lfn)
    lost = [lfn for rse, lfns in places.items() for lfn in lfns - world.rucio.kept_at(rse)]
    assert not lost, f"valid, and under no rule where they lie: {lost}"


def _at_one_place(world: World) -> None:
    """Files of a block, and our rules on them, are at its RSE and nowhere else; DBS is told so. A file has one rule at most."""
    elsewhere = OutputFile.objects.exclude(rse=F("block__origin_rse"))
    assert not elsewhere.exists(), f"not where their blocks are: {list(elsewhere)}"
    origins = dict(OutputFile.objects.values_list("lfn", "block__origin_rse"))
    origins |= dict(ProcessingBlock.objects.values_list("dbs_block_name", "origin_rse"))
    at_source = [(name, rse) for name, rse in world.rucio.rules if not rse.endswith("_Tape")]
    strayed = [(name, rse) for name, rse in at_source if origins.get(name, rse) != rse]
    assert not strayed, f"rules on files where they are not: {strayed}"
    reported = {name: block.origin for name, block in world.dbs.registered.items()}
    wrong = ProcessingBlock.objects.filter(dbs_block_name__in=reported)
    assert all(reported[name] == rse for name, rse in wrong.values_list("dbs_block_name", "origin_rse")), reported


#: A call that is made for each file of a block, and a question.
_REPEATED = ("ensure_block", "block_files")
#: Made for each rule of one effect: all of them are made again when a process dies after it.
_TOGETHER = "delete_rule"


def _once(world: World) -> None:
    """A call that was answered is not made again, unless the process died, or lost its lease, between the answer and the record;
    each request of a family makes sure of the datasets that they share.
    """
    names = Counter(OutputDataset.objects.values_list("name", flat=True))
    again = len(names) - names.total()
    for script in (world.dbs.script, world.rucio.script):
        counted = [(operation, n - 1) for (operation, content), n in script.answered.items() if content]
        again += sum(n for operation, n in counted if operation not in (*_REPEATED, _TOGETHER))
        again += max((n for operation, n in counted if operation == _TOGETHER), default=0)
    lost = sum(script.lost for script in world.scripts.values())
    assert again <= world.deaths + lost, f"{again} answered calls were made again; {world.deaths} deaths, {lost} leases lost"
