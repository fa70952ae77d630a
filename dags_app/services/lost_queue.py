"""DAGs whose queue may be lost: the evidence, the suspicion, an operator's confirmation, and what is done then.

Unreachable is not lost: suspicion needs a schedd that answers, whose queue and history do not know the job, and a directory in
which nothing proves how the DAG ended and nothing was written for as long as the window. A verdict needs a person: one button
for a schedd's whole queue, never by itself. It is taken where there is evidence: DAGs that a schedd which answers does not
know any more, for longer than the window, or a schedd that has been silent for longer than the window and whose DAGs write
nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from django.db.models import F, Q

from dags_app.models import DAG, IN_QUEUE, DAGStatus, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.payload.contract.layout import SUCCESS_CATEGORY, post_name
from dags_app.planning import writer
from dags_app.services import dag_files
from dags_app.services.stop import halt_file
from dags_app.services.units import UnitNodes, unit_nodes
from dags_app.states import dag_transition, history
from sites_app.models import QueueChange, Schedd
from sites_app.schedds import birthdate_text
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.due import mark_due_now
from wms2.runtime.levels import stretched
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted, exact

log = structlog.get_logger(__name__)
#: What a DAGMan that lives writes: its log, the log of its nodes, and every few seconds its status file.
_HEARTBEATS = (f"{layout.OUTER_DAG}.dagman.out", f"{layout.OUTER_DAG}.nodes.log", layout.OUTER_STATUS)


@dataclass(frozen=True, slots=True)
class DirectoryEvidence:
    """What DAGMan left in the DAG's directory. Empty texts: there is no such file."""

    written_at: datetime | None  # when DAGMan wrote last
    lock: str  # the cluster that holds the directory, by DAGMan's lock file
    metrics: str
    rescue: str
    units: str
    damaged: str = ""  # files that are there and not whole
    problem: str = ""

    def words(self) -> list[str]:
        """As sentences."""
        if self.problem:
            return [self.problem]
        said = [f"DAGMan wrote there last at {exact(self.written_at)}" if self.written_at else "DAGMan wrote nothing there"]
        said += [f"lock file of cluster {self.lock}"] if self.lock else []
        said += [f"metrics file of cluster {self.metrics}"] if self.metrics else []
        said += [f"rescue file {self.rescue}"] if self.rescue else ["no rescue file"]
        said += [f"not whole: {self.damaged}"] if self.damaged else []
        return [*said, self.units] if self.units else said

    def as_json(self) -> dict[str, Any]:
        """For an evidence column."""
        return asdict(self) | {"written_at": self.written_at.isoformat() if self.written_at else None}


def directory_evidence(dag: DAG) -> DirectoryEvidence:
    """Look into the DAG's directory; one that cannot be read is reported, and proves nothing."""
    place, file = Path(dag.submit_dir), Path(dag.dag_file_path)
    if not place.is_dir():
        return DirectoryEvidence(None, "", "", "", "", problem=f"{place} is not there")
    damaged: list[str] = []
    metrics, status = dag_files.metrics(file, damaged), dag_files.status(file, damaged)
    times = [time for time in map(_written, (place / name for name in _HEARTBEATS)) if time is not None]
    return DirectoryEvidence(
        written_at=max(times, default=None),
        lock=_first_line(file.with_name(f"{file.name}.lock")),
        metrics=metrics.cluster if metrics else "",
        rescue=dag_files.rescue_name(file),
        units=f"status file: {len(status.done_nodes())} of {len(status.nodes)} units done" if status else "",
        damaged=", ".join(damaged),
    )


def dag_suspect(dag: DAG) -> bool:
    """Whether the DAG is suspected lost; call when its schedd has answered and nothing proves its end.

    The first time after the window the suspicion is written down, with the evidence. A directory that is still being written
    to has a living DAGMan, whatever the queue says.
    """
    if dag.suspected_at is not None:
        return True
    now, window = clock.now(), timedelta(seconds=_window_seconds())
    if dag.missing_since is None or now - dag.missing_since < window:
        return False
    found = directory_evidence(dag)
    if found.written_at is not None and now - found.written_at < window:
        return False
    if DAG.objects.filter(pk=dag.pk, suspected_at__isnull=True, missing_since__isnull=False).update(suspected_at=now):
        history(dag, "suspected_lost", detail={"why": missing_sentence(dag), "directory": found.as_json()})
        log.error("DAG suspected lost", dag_id=str(dag.pk), cluster=dag.dagman_cluster_id, schedd=dag.schedd_name)
    dag.suspected_at = now
    return True


def queue_change_of(dag: DAG) -> QueueChange | None:
    """The newest change of its schedd's queue since it was submitted."""
    since = dag.submitted_at or dag.submit_intent_at
    if since is None or dag.schedd is None:
        return None
    return QueueChange.objects.filter(schedd=dag.schedd, seen_at__gte=since).first()


def missing_sentence(dag: DAG) -> str:
    """What is known of a DAGMan job that the schedd does not know."""
    words = f"DAGMan job {dag.dagman_cluster_id} is neither in the queue of {dag.schedd_name} nor in its history"
    if dag.missing_since is not None:
        words += f", missing since {exact(dag.missing_since)}"
    words += "; no file proves how it ended"
    change = queue_change_of(dag)
    if change is None:
        return f"{words}; the schedd's queue is the same as before"
    return (
        f"{words}; the schedd has had another queue since {exact(change.seen_at)}: born {birthdate_text(change.new_birthdate)},"
        f" before that {birthdate_text(change.old_birthdate)}"
    )


def dag_fence_off(dag: DAG, fenced: Fenced) -> str:
    """Nothing that a lost submission still does may count: POST scripts refuse merges of its fence, and a DAGMan that lives on
    unseen starts no further unit. Returns why it could not be done; the DAG's row ends all the same, and rows decide.
    """
    with fenced():
        rows = type(dag.workflow).objects.filter(pk=dag.workflow_id)
        rows.update(fence_counter=F("fence_counter") + 1)
        fence = rows.values_list("fence_counter", flat=True).get()
    try:
        writer.write_fence(Path(dag.submit_dir), fence)
        with writer.held_by(Path(dag.submit_dir), fence):
            halt_file(dag).touch()
    except (OSError, ServiceUnavailable) as error:
        log.warning("directory of a lost DAG not fenced off", dag_id=str(dag.pk), error=str(error))
        return f"its directory could not be fenced off: {error}"
    return ""


def dag_fenced_off(dag: DAG) -> bool:
    """Whether ``dag_fence_off`` was begun for this live DAG: only that raises the fence beyond the newest submission's."""
    return int(dag.workflow.fence_counter) > dag.fence


def lost_unit_nodes(dag: DAG) -> UnitNodes:
    """Units that are done for certain: by DAGMan's own files, or because the POST script of their merge has said so."""
    nodes, rescue = unit_nodes(dag) or UnitNodes(done=(), failed=()), dag_files.rescue(Path(dag.dag_file_path), [])
    done = {*nodes.done, *(rescue.done if rescue else ())}
    open_units = WorkUnit.objects.filter(round_id=dag.round_id).exclude(state=WorkUnitState.DONE)
    merged = [name for name in open_units.values_list("name", flat=True) if _merge_accepted(Path(dag.submit_dir) / name)]
    return UnitNodes(done=tuple(sorted(done | set(merged))), failed=nodes.failed)


def dag_end_lost(dag: DAG, *, why: str, evidence: dict[str, Any]) -> None:
    """The DAG's end after an operator's confirmation; in the caller's transaction."""
    recorded = {"why": why, "lost": True, "confirmation": dag.lost_confirmation, **evidence}
    dag_transition(dag, DAGStatus.REMOVED, event="lost", detail={"why": why}, outcome=recorded)


def lost_confirm(dag: DAG, *, actor: str, reason: str, evidence: dict[str, Any]) -> bool:
    """Write an operator's confirmation on the row; the life cycle acts on it. False when there is one, or the DAG has ended."""
    word = {"actor": actor, "reason": reason, **evidence}
    rows = DAG.objects.filter(pk=dag.pk, status=dag.status, fence=dag.fence, lost_confirmed_at__isnull=True)
    if rows.update(lost_confirmed_at=clock.now(), lost_confirmation=word, lost_settled_at=None) != 1:
        return False
    history(dag, "lost_confirmed", detail=word)
    return True


def _merge_accepted(unit_directory: Path) -> bool:
    try:
        post = json.loads((unit_directory / post_name(layout.MERGE)).read_text())
        return post["final"] is True and post["classification"]["category"] == SUCCESS_CATEGORY
    except (OSError, ValueError, KeyError, TypeError):
        return False  # not judged, or cut off: not certain


def _written(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").partition("\n")[0][:50]
    except OSError:
        return ""


#: So many changes of a queue are shown.
_CHANGES = 5


class LostDag(NamedTuple):
    """One DAG at the schedd: where it stands, in words, and what lies in its directory."""

    dag: DAG
    affected: bool  # by a confirmation now
    why: str
    directory: DirectoryEvidence


class LostQueue(NamedTuple):
    """What speaks for and against the loss of a schedd's queue. ``refusal`` is empty when a person may confirm it."""

    schedd: Schedd
    silent_seconds: float | None
    changes: tuple[QueueChange, ...]
    dags: tuple[LostDag, ...]
    refusal: str

    @property
    def affected(self) -> list[LostDag]:
        """DAGs that a confirmation gives up."""
        return [row for row in self.dags if row.affected]

    def words(self) -> list[str]:
        """The evidence as sentences."""
        schedd = self.schedd
        said = [f"Its queue was born {birthdate_text(schedd.job_queue_birthdate)}."]
        said += [
            f"Since {exact(row.seen_at)} it has had another queue, born {birthdate_text(row.new_birthdate)};"
            f" the former one, born {birthdate_text(row.old_birthdate)}, was seen last at {exact(row.old_answered_at)}."
            for row in self.changes
        ]
        if self.silent_seconds is None:
            said.append(f"It answers, last at {exact(schedd.last_answer_at)}.")
        else:
            says = f"; {schedd.collector_says}" if schedd.collector_says else ""
            said.append(f"It has been silent since {exact(schedd.unreachable_since)} ({self.silent_seconds:.0f} s){says}.")
        return said + [f"{row.dag.workflow.request_id}: {row.why}; {', '.join(row.directory.words())}." for row in self.affected]


def lost_queue_of(schedd: Schedd) -> LostQueue:
    """The evidence as it is now; reads rows and DAG directories, asks no schedd."""
    now, window = clock.now(), _window_seconds()
    silent = (now - schedd.unreachable_since).total_seconds() if schedd.unreachable_since else None
    # READY with an intent: it may have been submitted; only the schedd knows
    here = Q(status__in=IN_QUEUE) | Q(status=DAGStatus.READY, submit_intent_at__isnull=False)
    rows = DAG.objects.filter(here, schedd=schedd, lost_confirmed_at__isnull=True).select_related("schedd", "workflow")
    seen = [(dag, directory_evidence(dag)) for dag in rows.defer("workflow__psets", "workflow__spec").order_by("created_at")]
    # one DAGMan that lives shows that the machine lives, and the others with it
    newest = max((found.written_at for _, found in seen if found.written_at is not None), default=None)
    writes = newest is not None and now - newest < timedelta(seconds=window)
    gone = silent is not None and silent > window and not writes
    dags = tuple(_judged(dag, found, gone) for dag, found in seen)
    changes = tuple(QueueChange.objects.filter(schedd=schedd)[:_CHANGES])
    return LostQueue(schedd, silent, changes, dags, _refusal(schedd, silent, dags))


def schedd_confirm_lost(*, schedd: Schedd, actor: str, reason: str) -> LostQueue:
    """Take an operator's confirmation that these DAGs are lost; the life cycle sweeps, ends them, and holds their requests.

    Asked again within the window, with nothing new to confirm, it was done already.

    Raises:
        InvalidTransition: there is no evidence; it says what there is.
    """
    found = lost_queue_of(schedd)
    evidence = {"words": found.words(), "dags": [str(row.dag.pk) for row in found.affected]}
    with audited(actor=actor, action="schedd_confirm_lost", target=schedd.name, target_type="schedd", reason=reason, **evidence):
        if found.refusal:
            since = clock.now() - timedelta(seconds=conf().schedd_suspicion_seconds)
            if DAG.objects.filter(schedd=schedd, lost_confirmed_at__gte=since).exclude(lost_confirmation={}).exists():
                return found
            raise InvalidTransition(found.refusal)
        for row in found.affected:
            known = {"why": row.why, "directory": row.directory.as_json(), "queue_birthdate": schedd.job_queue_birthdate}
            if lost_confirm(row.dag, actor=actor, reason=reason, evidence=known):
                mark_due_now(row.dag.workflow.request.pk, "loss confirmed")
    return found


def _judged(dag: DAG, found: DirectoryEvidence, gone: bool) -> LostDag:
    if dag.suspected_at is not None:
        return LostDag(dag, True, missing_sentence(dag), found)
    job = f"DAGMan job {dag.dagman_cluster_id}" if dag.dagman_cluster_id else f"a submission with fence {dag.fence}"
    if gone:
        return LostDag(dag, True, f"{job}, seen last at {exact(dag.seen_at)}", found)
    if dag.missing_since is not None:
        return LostDag(dag, False, f"{job} missing since {exact(dag.missing_since)}; how it ended is looked for", found)
    return LostDag(dag, False, f"{job}, seen last at {exact(dag.seen_at)}; nothing speaks for its loss", found)


def _refusal(schedd: Schedd, silent: float | None, dags: Sequence[LostDag]) -> str:
    if any(row.affected for row in dags):
        return ""
    window = _window_seconds()
    if not dags:
        return f"No DAG at {schedd.name} could be lost."
    if silent is not None and silent <= window:
        return f"{schedd.name} has been silent for {silent:.0f} s only; unreachable is not lost before {window:.0f} s."
    if silent is not None:
        return f"{schedd.name} is silent, but its DAGMans still write into their directories: it runs."
    missing = [row for row in dags if row.dag.missing_since is not None]
    if missing:
        many = f"{counted(len(missing), 'DAG')} missing at {schedd.name}"
        return f"{many}; how they ended is looked for until nothing has been found for {window:.0f} s."
    born = birthdate_text(schedd.job_queue_birthdate)
    return f"{schedd.name} answers, its queue is the one born {born}, and {counted(len(dags), 'DAG')} are in it."


def _window_seconds() -> float:
    """Of suspicion; longer while the trouble may be ours."""
    return stretched(conf().schedd_suspicion_seconds)
