"""What an operation would do to requests, computed before it is done: sentences for the page that asks for confirmation."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dags_app.counts import UnitCounts, unit_counts
from dags_app.models import DAG, IN_QUEUE, LIVE_DAG
from dags_app.services.submit import units_to_land
from outputs_app.effects.invalidation import outputs_counted
from requests_app.models import CleanupPolicy, Request, RequestStatus, Workflow
from requests_app.selectors.admission import queue_now
from requests_app.services.cleaning import dependents
from requests_app.services.invalidation import files_refused, invalidation_refused
from requests_app.services.release import ReleaseMode, release_plan
from requests_app.services.restart import successor_name
from wms2.errors import InvalidTransition
from wms2.web.formatting import counted

S = RequestStatus
#: For these the priority that leads there is shown.
_PLACES = 5
#: Who has risen by the same differs by nearly a whole number.
_NEARLY = 1e-6
_STAY = "they stay until an operator invalidates them, and so do their source rules unless they are validated before."
_WAYS = {ReleaseMode.RESCUE: "rescue", ReleaseMode.NEXT_ROUND: "next round"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What stands behind a request: its live DAG, its work units, whether its inputs are read."""

    dag: DAG | None = None
    units: UnitCounts = field(default_factory=UnitCounts)
    inputs_read: bool = False


def facts_of(requests: Sequence[Request]) -> Mapping[str, Facts]:
    """By request name; three queries for all."""
    names = [request.request_name for request in requests]
    rows = Workflow.objects.filter(request_id__in=names).only("pk", "request_id", "input_dataset", "input_imported_at")
    workflows = {row.pk: row for row in rows}
    dags = {dag.workflow_id: dag for dag in DAG.objects.filter(workflow_id__in=workflows, status__in=LIVE_DAG)}
    counts = unit_counts(workflows)
    return {
        row.request_id: Facts(dags.get(key), counts[key], bool(row.input_imported_at or not row.input_dataset))
        for key, row in workflows.items()
    }


Report = Callable[[Request, Facts], list[str]]


def with_facts(report: Report) -> Callable[[Sequence[Request]], dict[uuid.UUID, list[str]]]:
    """A preview of several requests, whose facts are asked for together."""

    def preview(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
        found = facts_of(requests)
        return {request.pk: report(request, found.get(request.request_name, Facts())) for request in requests}

    return preview


@with_facts
def hold(request: Request, facts: Facts) -> list[str]:
    """Put it aside."""
    if request.status == S.STOPPING:
        return ["It is being stopped already; it will be held instead of going on."]
    if request.status in (S.ACTIVE, S.PLANNING) and facts.dag is not None:
        return [*_dag_removed(facts), "Once that is proved, it is held; a release goes on from the rescue file."]
    return ["It is held at once.", *_stays(facts)]


@with_facts
def move(request: Request, facts: Facts) -> list[str]:
    """Go on at another schedd."""
    if facts.dag is None and request.status not in (S.ACTIVE, S.STOPPING):
        return ["Its next DAG goes to another schedd; what is not done is planned anew if that does not see its directory."]
    return [
        *_dag_removed(facts),
        "Once that is proved, it is queued again, and goes on at another schedd: from its rescue file where its directory is"
        " seen, else with what is not done planned anew. While its schedd is silent nothing is proved, and it waits.",
    ]


@with_facts
def release(request: Request, facts: Facts) -> list[str]:
    """Let it go on."""
    if not facts.inputs_read:
        return ["Its inputs are read again; then it is queued."]
    lines = ["It is queued and goes on when its turn has come.", *_stays(facts)]
    plan = release_plan(request)
    if plan.mode is None:
        return lines
    else_anew = "; with other sizes or retries, or files left out: next round" if plan.mode is ReleaseMode.RESCUE else ""
    chosen = f"Without a mode: {_WAYS[plan.mode]}, because {plan.why}{else_anew}."
    return [*lines, chosen, *(_way(request, mode) for mode in ReleaseMode)]


def _way(request: Request, mode: ReleaseMode) -> str:
    """What a mode would do, or why it is impossible."""
    label = _WAYS[mode]
    try:
        plan = release_plan(request, mode)
    except InvalidTransition as error:
        return f"{label[0].upper()}{label[1:]}: not possible; {error}."
    again = counted(plan.units_again, "work unit")
    if mode is ReleaseMode.RESCUE:
        return f"Rescue: {again} run again in the same DAG, each from where it stood."
    return f"Next round: what {again} had to do is planned anew, under the settings in force then."


@with_facts
def sites(request: Request, facts: Facts) -> list[str]:
    """What the DAG that runs needs of the new list, too."""
    return [
        "Further rounds are planned for these sites; a rescue leaves out those that are not among them.",
        "Work units of a DAG that runs land there no more, those whose landing job waits for a slot included.",
        *(_to_land(facts.dag) if facts.dag is not None and facts.dag.status in IN_QUEUE else []),
    ]


def _to_land(dag: DAG) -> list[str]:
    try:
        found = sorted(units_to_land(dag).items(), key=lambda each: (len(each[0]), *sorted(each[0])))
    except OSError as error:
        return [f"Where its units that have not landed may land cannot be read here: {error}"]
    need = [f"{counted(n, 'work unit')}: {' or '.join(sorted(where)) or 'none is left'}" for where, n in found[:_PLACES]]
    rest = sum(n for _, n in found[_PLACES:])
    more = f"; {counted(rest, 'other')} may land at more" if rest else ""
    return [f"Not landed yet, and without a site if none of these is on the list: {'; '.join(need)}{more}."] if need else []


@with_facts
def stop(request: Request, facts: Facts) -> list[str]:
    """Stop it cleanly."""
    if facts.dag is None:
        return ["Its DAG, if one is found, is removed; then it is queued again."]
    now = "Now: the DAG is removed, jobs that run are lost. Drain: work units that run finish, no other starts."
    return [now, "Then it is queued again and goes on from its rescue file.", *_stays(facts)]


def _first_stopped(facts: Facts) -> list[str]:
    return [*_dag_removed(facts), "Once that is proved:"] if facts.dag is not None else []


@with_facts
def fail(request: Request, facts: Facts) -> list[str]:
    """Give it up as failed."""
    return [
        *_first_stopped(facts),
        "It is failed; what is not done is given up.",
        f"Its blocks are registered with the work units that are done, and listed in an invalidation manifest; {_STAY}",
    ]


@with_facts
def complete(request: Request, facts: Facts) -> list[str]:
    """Plan nothing more."""
    return [*_first_stopped(facts), "Nothing more of it is planned; what is done is registered, and it completes. It stays so."]


@with_facts
def restart(request: Request, facts: Facts) -> list[str]:
    """Kill and clone."""
    if request.cleanup_policy == CleanupPolicy.IMMEDIATE_CLEANUP:
        fate = "are invalidated once the new version is complete"
    else:
        fate = "stay; once the new version is complete they count as superseded"
    return [
        *_first_stopped(facts),
        f"It is failed, and {successor_name(request)} begins from nothing, with every processing version one higher.",
        f"Its outputs {fate}, unless another policy is chosen below.",
    ]


def invalidate(request: Request) -> list[str]:
    """Take outputs back."""
    if invalidation_refused(request):
        return []
    totals = outputs_counted(request.workflow.pk)
    return [
        f"{counted(totals['rules'], 'rule')} of {counted(totals['blocks'], 'block')} in {counted(totals['datasets'], 'dataset')}"
        " are deleted, then the files and datasets become INVALID in DBS.",
        "Rucio may remove the files from an hour on.",
    ]


def invalidate_files(request: Request) -> list[str]:
    """Take single files or blocks back."""
    if files_refused(request):
        return []
    return [
        "Of the files named below the rules that protect nothing else are deleted; then the files become INVALID in DBS.",
        "Other files of their blocks stay, and so do the blocks' tape rules: that of a block that is named as a whole is unlocked"
        " and deleted too.",
        "It is refused while something that was made of them is valid, or another request reads them, unless that is accepted:"
        " these stay as they are.",
        "The account of the request's work is not changed by it: what the files held counts as done, and is not made again.",
        "Rucio may remove the files from an hour on.",
    ]


@with_facts
def abort(request: Request, facts: Facts) -> list[str]:
    """End it for good."""
    blocks = [f"Its blocks are registered with the work units that are done; {_STAY}"] if facts.units.done else []
    last = "The document can be imported again under another name."
    if facts.dag is not None or request.status in (S.ACTIVE, S.STOPPING):
        return [*_dag_removed(facts), "Once that is proved, it is aborted; what is not done is given up.", *blocks, last]
    given_up = ["What is not done is given up."] if facts.units.planned else []
    return ["It is aborted at once.", *_stays(facts), *given_up, *blocks, last]


@with_facts
def clean(request: Request, facts: Facts) -> list[str]:
    """Remove all it made."""
    if request.status == S.CLEANING:
        return [f"It is being cleaned. If the rest is accepted, it counts as cleaned; it waits for {request.waiting_for}."]
    others = dependents(request)
    rest = f"{counted(len(others), 'request')} rest on it, which must be accepted: {', '.join(others[:10])}."
    totals = outputs_counted(request.workflow.pk) if hasattr(request, "workflow") else {"rules": 0, "datasets": 0}
    return [
        *([rest] if others else []),
        *_first_stopped(facts),
        f"{counted(totals['rules'], 'rule')} are deleted, the files of {counted(totals['datasets'], 'dataset')} become INVALID in"
        " DBS.",
        f"Then what {counted(facts.units.total, 'work unit')} have written is removed, by jobs at sites or by Rucio.",
        "Its work is lost.",
    ]


def _dag_removed(facts: Facts) -> list[str]:
    if facts.dag is None:
        return ["Its DAG, if one is found, is removed."]
    cluster = facts.dag.dagman_cluster_id
    where = f"DAGMan job {cluster} at {facts.dag.schedd_name}" if cluster else "its submission is not recorded yet"
    return [f"Its DAG is removed ({where}); jobs that run now are lost.", *_stays(facts)]


def _stays(facts: Facts) -> list[str]:
    units = facts.units
    if not units.total:
        return []
    return [f"{units.done} of {counted(units.total, 'work unit')} are done and stay registered."]


def priority(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Another place in the queue: which, and what makes it others."""
    queue = queue_now() if any(request.status == S.QUEUED for request in requests) else None
    ranked = {row.waiting.key: row for row in queue.ranked} if queue else {}
    heads = [next(same) for _, same in groupby(ranked.values(), lambda row: (row.waiting.urgent, row.priority))]
    reported = {}
    for request in requests:
        then = "It counts at once for its jobs in the queue of the schedd; running jobs go on."
        if request.status == S.QUEUED:
            then = "Its place in the queue changes at once."
        if (row := ranked.get(request.pk)) is not None:
            ahead = [each for each in heads if each.waiting.urgent == row.waiting.urgent and each.place < row.place]
            shown = ahead[:: math.ceil(len(ahead) / _PLACES) or 1]
            first = f"the first of {'those that are urgent' if request.urgent else 'those that are not urgent'}"
            places = {
                int(each.priority - row.priority + _NEARLY) + request.priority: first
                if each is ahead[0]
                else f"in place {each.place}"
                for each in reversed(shown)
            }
            steps = [f"with more than {least} it is {place}" for least, place in reversed(places.items())]
            where = f"Its place in the queue is {row.place} of {len(ranked)} and changes at once"
            then = f"{where}; {', '.join(steps) or f'it is {first}'}."
        reported[request.pk] = [f"Its priority is {request.priority} now.", then]
    return reported
