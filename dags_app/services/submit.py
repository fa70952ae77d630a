"""At-most-once submission of a DAG (docs/design/control.md, Submission).

The schedd's queue and history are searched for this DAG's id, and what is found is adopted. Otherwise the intent (attempt and
fence) is committed, the DAG is submitted, the result recorded. After a time-out or a crash the intent stands open and the outcome
is unknown: later calls look again, and "not there" counts only when queue and history both answered and the grace has passed.
A schedd that does not answer before an intent is open costs nothing: the request gives its slot back.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import structlog
from django.db.models import F
from django.db.models.functions import Greatest

from dags_app.counts import jobs_per_unit
from dags_app.models import DAG, DAGHistory, DAGStatus, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.scripts import elected_site, listed_sites
from dags_app.planning import writer
from dags_app.planning.dagfiles import avoid_inc, credential_inc, limits_inc, units_limits_inc
from dags_app.planning.sizing import sizes_from_json
from dags_app.planning.specs import MAX_WALL_SECONDS, AccountingSpec
from dags_app.planning.throttles import Throttles
from dags_app.services import dag_files
from dags_app.services.stop import halt_file
from dags_app.services.watch import LONGEST_WALL
from dags_app.states import dag_transition, history
from sites_app.models import PoolSite, Schedd, ScheddState
from sites_app.schedds import adapter
from sites_app.services import NO_SITE, avoided_sentence, sites_avoided
from wms2.adapters import factory
from wms2.adapters.htcondor_process import since_boot
from wms2.adapters.types import FoundDag
from wms2.conf import conf
from wms2.errors import NoPileup, NoSite, PlanningRefused, ServiceRejected, ServiceUnavailable, StaleState
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.credentials import CredentialUnusable
from wms2.runtime.locks import Fenced

log = structlog.get_logger(__name__)
#: No DAG is submitted whose jobs' credential ends sooner; a token has to be good for the wall time that they ask for as well.
CREDENTIAL_MARGIN_SECONDS = 2 * 3600
#: Event type in DAGHistory; its detail holds every fence that a submission of a directory may carry.
SUBMIT_INTENT = "submit_intent"
#: In it: ``start_time`` of the metrics file that lay in the directory before, of an earlier submission.
_METRICS_BEFORE = "metrics_before"

_SITES = re.compile(rf'^VARS {layout.LANDING} sites="([^"]*)"$', re.MULTILINE)


class Avoided(NamedTuple):
    """Sites that a submission avoids, with the reasons, and the open units that have no site left; of these the ones that have
    none because of their pileup, even if sites are opened again."""

    reasons: dict[str, str]
    stranded: tuple[str, ...]
    short_of_pileup: tuple[str, ...]

    def __str__(self) -> str:
        return avoided_sentence(self.reasons, self.reasons)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The DAG runs under this cluster id; the row still has to be recorded."""

    cluster: int
    adopted: bool
    avoided: Avoided | None = None


@dataclass(frozen=True, slots=True)
class SubmissionUndecided:
    """Nothing may be concluded now; look again next cycle."""

    reason: str


def dag_submit(
    *,
    dag: DAG,
    request_name: str,
    priority: int,
    fenced: Fenced,
    pileup: Callable[[], tuple[str, frozenset[str] | None] | None] = lambda: None,
) -> Submitted | SubmissionUndecided:
    """Bring a READY DAG to its schedd, at most once.

    Args:
        pileup: asked once it is certain that this call submits: ``pileup.json`` to write, and the sites that have it (None:
            any). Its errors: nothing was sent.

    Raises:
        ServiceUnavailable: the schedd did not answer the look-up, takes no new DAG any more, or the jobs' credential ends too
            soon; nothing was sent.
        ServiceRejected: the schedd refused; the intent is closed, nothing runs.
        NoSite: every site of every open unit is banned, draining or closed; nothing was sent.
        NoPileup: for some of them, because their pileup is elsewhere by now.
    """
    adopted = dag_adopt(dag=dag, fenced=fenced)
    if adopted is not None:
        return adopted
    if not dag.submit_intent_at and (fence := fence_forgotten(dag)):
        return SubmissionUndecided(
            f"the job of submission {fence}, which its directory knows of and the database, restored from before, does not;"
            " no queue and no history has it: look for what it left, then hold the request"
        )
    condor = adapter(_schedd_of(dag))
    if dag.submit_intent_at:
        left_seconds = submission_unknown_seconds(dag)
        if left_seconds > 0:
            return SubmissionUndecided(
                f"submission attempt {dag.attempt} has no known outcome; looking again for {int(left_seconds) + 1} s"
            )
        # proved absent: what follows may refuse the submission, and the request must not wait for an outcome then
        _close_intent(dag, f"attempt {dag.attempt} never arrived at {dag.schedd_name}", fenced, event="submit_absent")
        if (schedd := _schedd_of(dag)).state != ScheddState.ENABLED:  # since it was chosen; the next one is chosen anew
            raise ServiceUnavailable("htcondor", "submit", f"{schedd.name} is {schedd.get_state_display().lower()} by now")
    _refuse_changed_files(dag)
    expected = dag.round.sizing.get(LONGEST_WALL, 0.0)  # of its longest job
    if why := credential_obstacle(float(min(layout.WALL_FACTOR * expected, MAX_WALL_SECONDS))):
        raise ServiceUnavailable("htcondor", "submit", f"waits for {why}", "credential")
    text, pileup_at = pileup() or ("", None)
    avoided = _avoid(dag, pileup_at)
    _open_intent(dag, fenced)
    crash_point("submit.claimed")
    _write_files(dag, avoided, text)
    begun = since_boot()  # before the moment that the grace counts from: who is paused in between has no time left to submit
    _still_ours(dag, fenced)
    try:
        cluster = condor.submit_dag(
            Path(dag.submit_dir),
            Path(dag.dag_file_path).name,
            {"WMS2_Instance": dag.instance, "WMS2_Request": request_name, "WMS2_DagID": str(dag.pk), "WMS2_Fence": dag.fence},
            priority,
            begun,
            dag.merge_groups if dag.throttles else 0,
        )
    except ServiceRejected as error:
        _close_intent(dag, str(error), fenced)
        raise
    crash_point("submit.called")
    return Submitted(cluster=cluster, adopted=False, avoided=avoided)


def fence_forgotten(dag: DAG) -> int:
    """The fence of a submission that the DAG's directory knows of and the database, restored from before it, does not; 0 without
    one. Until its job is found, a READY row must not be taken for one that was never submitted."""
    written = writer.written_fence(Path(dag.submit_dir))
    return written if written > dag.workflow.fence_counter else 0


def maybe_submitted(dag: DAG) -> bool:
    """Whether a READY DAG may be in a queue, or have been in one: only if not may it be discarded unasked."""
    return dag.submit_intent_at is not None or fence_forgotten(dag) > 0


def dag_adopt(*, dag: DAG, fenced: Fenced) -> Submitted | None:
    """The DAGMan job that a READY DAG has already, in a queue or a history; at any schedd where the row does not say at which.

    Raises:
        ServiceUnavailable: a schedd did not answer; nothing may be concluded.
    """
    since = dag.workflow.created_at if fence_forgotten(dag) else dag.created_at
    for schedd, found in _found_at([dag.schedd] if dag.schedd is not None else None, str(dag.pk), since):
        log.warning("DAGMan job adopted", dag_id=str(dag.pk), cluster=found.cluster, attempt=dag.attempt)
        if dag.schedd is None:
            with fenced():
                dag_place(dag=dag, schedd=schedd, why={"adopted": found.cluster}, units=dag.merge_groups, throttles=dag.throttles)
        if found.fence is not None and found.fence > dag.fence:
            _record_forgotten(dag, found, fenced)
        return Submitted(cluster=found.cluster, adopted=True)
    return None


def dag_in_queue(dag_id: str, since: datetime) -> str:
    """A DAGMan job of this DAG in a queue, of any schedd, in words; empty: none has one.

    Raises:
        ServiceUnavailable: a schedd did not answer; nothing may be concluded.
    """
    live = (f"DAGMan job {one.cluster} at {schedd.name}" for schedd, one in _found_at(None, dag_id, since) if one.in_queue)
    return next(live, "")


def _found_at(schedds: Iterable[Schedd] | None, dag_id: str, since: datetime) -> Iterator[tuple[Schedd, FoundDag]]:
    for schedd in schedds if schedds is not None else Schedd.objects.exclude(state=ScheddState.DISCOVERED):
        if (found := adapter(schedd).find_dag(dag_id, since)) is not None:
            yield schedd, found


def accounting() -> AccountingSpec:
    """To whom jobs that are submitted now are counted."""
    settings = conf()
    return AccountingSpec(
        settings.accounting_group, settings.accounting_group_user, settings.environment == "production", settings.io_slots
    )


def credential_obstacle(asked_seconds: float = 0) -> str:
    """What a submission waits for because of the credential that its jobs carry; empty when it may go.

    ``asked_seconds``: the wall time that they ask for. A token is to outlive that: HTCondor renews only proxies of jobs that run.
    """
    carried, margin_seconds, asked = factory.job_credential(), float(CREDENTIAL_MARGIN_SECONDS), ""
    if carried is not None and carried.is_token and asked_seconds > margin_seconds:
        margin_seconds, asked = asked_seconds, f" for the {asked_seconds / 3600:.1f} h that they ask for"
    try:
        if carried is not None:
            carried.require(margin_seconds)
    except CredentialUnusable as error:
        return f"a credential that its jobs may carry{asked}: {error}"
    return ""


def metrics_before(dag: DAG) -> float | None:
    """``started_at`` of the metrics that an earlier submission had left in the directory before this one; None without any.

    An intent that was forgotten has none: then those by which the end of the submission before was judged.
    """
    if dag.parent_dag is None:
        return None
    intents = DAGHistory.objects.filter(dag=dag, event_type=SUBMIT_INTENT).order_by("-pk")
    found: float | None = intents.values_list(f"detail__{_METRICS_BEFORE}", flat=True).first()
    return found or dag.parent_dag.outcome.get("metrics", {}).get("started_at")


def submission_unknown_seconds(dag: DAG) -> float:
    """How long a submission whose outcome is unknown may still turn up; at most 0 when "not there" is a proof.

    The grace begins when the call can live no longer: the intent is committed right before it, and it has a time limit.
    """
    if dag.submit_intent_at is None:
        return 0.0
    settings = conf()
    ends_at = dag.submit_intent_at + timedelta(seconds=settings.submit_timeout_seconds + settings.submit_unknown_grace_seconds)
    return (ends_at - clock.now()).total_seconds()


def dag_record_submission(*, dag: DAG, submitted: Submitted) -> None:
    """READY -> SUBMITTED; in the caller's transaction, together with the request's transition."""
    dag_transition(
        dag,
        DAGStatus.SUBMITTED,
        event="adopted" if submitted.adopted else "submitted",
        detail={"cluster": submitted.cluster, "schedd": dag.schedd_name, "attempt": dag.attempt, "fence": dag.fence},
        dagman_cluster_id=str(submitted.cluster),
        queue_birthdate=Schedd.objects.values_list("job_queue_birthdate", flat=True).get(pk=_schedd_of(dag).pk),
        submitted_at=clock.now(),
        submit_error="",
    )


def dag_place(*, dag: DAG, schedd: Schedd, why: dict[str, object], units: int, throttles: dict[str, int | None]) -> None:
    """Choose the schedd once, and how many units run at once there; later attempts of the same row stay with both (a silent
    schedd means wait, never another). What was rendered before ``throttles`` were kept keeps its number."""
    chosen = {"schedd": schedd, "schedd_name": schedd.name, "placement": why}
    if dag.throttles:
        chosen |= {"merge_groups": units, "throttles": throttles}
    if DAG.objects.filter(pk=dag.pk, schedd__isnull=True).update(**chosen):
        for name, value in chosen.items():
            setattr(dag, name, value)


def _schedd_of(dag: DAG) -> Schedd:
    if dag.schedd is None:
        raise StaleState(f"DAG {dag.pk} has no schedd yet")
    return dag.schedd


def _avoid(dag: DAG, pileup_at: frozenset[str] | None) -> Avoided:
    """Keep new work of a DAG away from banned, draining and closed sites (error-handling 6.5; ``avoid.inc``), and from those that
    have its pileup no more.

    What is in the queue already goes on. A DAG none of whose open units has a site left is not submitted: it would only stand in
    the queue, and no one would know why.

    Raises:
        NoSite, NoPileup: no open unit has a site left; nothing was written.
    """
    avoided = closed = sites_avoided(dag.workflow_id)
    open_units = WorkUnit.objects.filter(round_id=dag.round_id).exclude(state=WorkUnitState.DONE)
    names = sorted(open_units.values_list("name", flat=True)) if avoided or pileup_at is not None else []
    lands = {name: _landing_sites(Path(dag.submit_dir), name) for name in names}
    if pileup_at is not None:
        avoided = dict.fromkeys(frozenset().union(*lands.values()) - pileup_at, "short of its pileup by now") | avoided
    stranded = tuple(name for name in names if not lands[name] - avoided.keys())
    short = [name for name in stranded if pileup_at is not None and (lands[name] - closed.keys() or not lands[name] & pileup_at)]
    found = Avoided(avoided, stranded, tuple(short))
    if stranded and len(stranded) == len(names):
        raise NoPileup(f"{found}") if short else NoSite(f"{NO_SITE}{found}")
    if avoided:
        history(
            dag, "avoids", detail={"sites": avoided, "without_site": list(stranded[:20]), "units_without_site": len(stranded)}
        )
    return found


def dag_avoid(dag: DAG, sites: Collection[str]) -> int:
    """Have a DAG that is in a queue land at none of these sites any more: units to come by their file, landing jobs that wait for
    a slot in the queue. Returns how many of these were changed; to be asked again while there are any.

    Raises:
        StaleState: a later submission has the directory. ServiceUnavailable, ServiceRejected: the schedd.
    """
    directory = Path(dag.submit_dir)
    with writer.held_by(directory, dag.fence):
        avoided = frozenset(listed_sites(directory / layout.AVOID_INCLUDE).union(sites))
        writer.replace_file(directory / layout.AVOID_INCLUDE, avoid_inc(avoided))
    return adapter(_schedd_of(dag)).avoid_sites(str(dag.directory_id), dag.fence, sites)


def units_to_land(dag: DAG) -> Counter[frozenset[str]]:
    """How many units of a DAG that is in a queue have not landed yet, by the sites where they still may."""
    avoided = listed_sites(Path(dag.submit_dir) / layout.AVOID_INCLUDE)
    return Counter(sites - avoided for site, sites in units_open(dag).values() if not site)


def units_open(dag: DAG) -> dict[str, tuple[str | None, frozenset[str]]]:
    """Units of a DAG that is in a queue that are not done: where each has landed, if it has, and where it may, as rendered."""
    directory = Path(dag.submit_dir)
    planned = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.PLANNED).values_list("name", flat=True)
    return {name: (elected_site(directory / name), _landing_sites(directory, name)) for name in planned}


def _landing_sites(directory: Path, unit: str) -> frozenset[str]:
    """Sites where a unit may land, as rendered."""
    found = _SITES.search((directory / unit / layout.INNER_DAG).read_text())
    return frozenset(found[1].split(",")) if found and found[1] else frozenset()


def _refuse_changed_files(dag: DAG) -> None:
    """What was rendered is immutable; a directory that was edited or lost files runs something that was not planned."""
    try:
        changed = writer.changed_files(Path(dag.submit_dir))
    except FileNotFoundError as error:
        raise PlanningRefused(f"the DAG directory {dag.submit_dir} is gone: {error}") from error
    if changed:
        raise PlanningRefused(f"{len(changed)} files in {dag.submit_dir} are not as they were rendered, e.g. {changed[0]}")


def _write_files(dag: DAG, avoided: Avoided, pileup: str) -> None:
    """What this submission reads, only while no later one has the directory: one who was replaced writes nothing over it.

    Raises:
        StaleState: a later submission has it.
    """
    directory = Path(dag.submit_dir)
    writer.write_fence(directory, dag.fence, sizes_from_json(dag.sizes) if dag.sizes else None)
    # slots by site, for the first look of each landing; none unless a check saw that the pool does not spread (ADR 0005)
    slots = PoolSite.objects.filter(pool=_schedd_of(dag).pool, pool__spreads=False, total_slots__gt=0)
    spread = dict(slots.values_list("site_id", "total_slots"))
    files = {
        layout.AVOID_INCLUDE: avoid_inc(frozenset(avoided.reasons)),
        layout.SPREAD_FILE: json.dumps(spread, sort_keys=True) + "\n",
        layout.CREDENTIAL_INCLUDE: credential_inc(factory.job_credential()),
    }
    if pileup and f"  {layout.PILEUP_FILE}\n" not in read_text(directory / layout.SUMS):  # a former release lists it as fixed
        files[layout.PILEUP_FILE] = pileup
    if dag.throttles:  # what was rendered before includes no such file
        limits = Throttles.of(dag.throttles)  # more than it begins with: how many that are may change while it runs
        most = max(limits.most_units(jobs_per_unit(dag)), dag.merge_groups)
        files[layout.LIMITS_INCLUDE] = limits_inc(most)
        files[layout.UNITS_LIMITS_INCLUDE] = units_limits_inc(limits.processing_in_unit(most))
    with writer.held_by(directory, dag.fence):
        halt_file(dag).unlink(missing_ok=True)  # after the fence was raised: a drain of the one before cannot put it back
        for name, text in files.items():
            writer.replace_file(directory / name, text)


def _open_intent(dag: DAG, fenced: Fenced) -> None:
    left = dag_files.metrics(Path(dag.dag_file_path), []) if dag.parent_dag_id else None
    before = {_METRICS_BEFORE: left.started_at} if left is not None else {}
    with fenced():
        workflow = type(dag.workflow).objects.select_for_update(no_key=True).get(pk=dag.workflow_id)
        workflow.fence_counter += 1
        workflow.save(update_fields=["fence_counter"])
        now = clock.now()
        rows = DAG.objects.filter(pk=dag.pk, status=DAGStatus.READY, attempt=dag.attempt)
        if rows.update(attempt=F("attempt") + 1, fence=workflow.fence_counter, submit_intent_at=now) != 1:
            raise StaleState(f"DAG {dag.pk}: another attempt has begun")
        dag.attempt, dag.fence, dag.submit_intent_at = dag.attempt + 1, workflow.fence_counter, now
        history(dag, SUBMIT_INTENT, detail={"attempt": dag.attempt, "fence": dag.fence, "schedd": dag.schedd_name} | before)


def _still_ours(dag: DAG, fenced: Fenced) -> None:
    """A process that slept long enough to be replaced must not submit any more; the grace counts from this moment."""
    with fenced():
        now = clock.now()
        DAG.objects.filter(pk=dag.pk, fence=dag.fence).update(submit_intent_at=now)
    dag.submit_intent_at = now


def _close_intent(dag: DAG, error: str, fenced: Fenced, *, event: str = "submit_refused") -> None:
    with fenced():
        DAG.objects.filter(pk=dag.pk, fence=dag.fence).update(submit_intent_at=None, submit_error=error)
        history(dag, event, detail={"error": error})
    dag.submit_intent_at = None


def _record_forgotten(dag: DAG, found: FoundDag, fenced: Fenced) -> None:
    """The database was restored from before the submission: what carries its fence counts, and no later one gets the same.
    The row is not younger than its job, whose end is looked for since then."""
    fence = dag.fence = found.fence or 0
    if found.history is not None:
        dag.created_at = min(dag.created_at, datetime.fromtimestamp(found.history.queued_at_seconds, UTC))
    with fenced():
        workflows = type(dag.workflow).objects.filter(pk=dag.workflow_id)
        workflows.update(fence_counter=Greatest("fence_counter", fence))
        DAG.objects.filter(pk=dag.pk).update(fence=fence, created_at=dag.created_at)
        history(dag, SUBMIT_INTENT, detail={"attempt": dag.attempt, "fence": fence, "schedd": dag.schedd_name})
