"""DAGs whose queue may be lost: the evidence, the suspicion, and what is done once a person has confirmed it.

Unreachable is not lost: suspicion needs a schedd that answers, whose queue and history do not know the job, and a directory in
which nothing proves how the DAG ended and nothing was written for as long as the window. A verdict needs a person.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from django.db.models import F
from pydantic import BaseModel, ConfigDict, ValidationError

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.payload.contract.layout import SUCCESS_CATEGORY, post_name
from dags_app.planning import writer
from dags_app.services import dag_files
from dags_app.services.stop import halt_file
from dags_app.services.units import UnitNodes, unit_nodes
from dags_app.states import dag_transition, history
from sites_app.models import QueueChange
from sites_app.schedds import birthdate_text
from wms2 import clock
from wms2.conf import conf
from wms2.errors import ServiceUnavailable
from wms2.locks import Fenced
from wms2.words import exact

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
    """Look into the DAG's directory; one that cannot be read is told, and proves nothing."""
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
    now, window = clock.now(), timedelta(seconds=conf().schedd_suspicion_seconds)
    if dag.missing_since is None or now - dag.missing_since < window:
        return False
    found = directory_evidence(dag)
    if found.written_at is not None and now - found.written_at < window:
        return False
    if DAG.objects.filter(pk=dag.pk, suspected_at__isnull=True, missing_since__isnull=False).update(suspected_at=now):
        history(dag, "suspected_lost", detail={"why": missing_words(dag), "directory": found.as_json()})
        log.error("DAG suspected lost", dag_id=str(dag.pk), cluster=dag.dagman_cluster_id, schedd=dag.schedd_name)
    dag.suspected_at = now
    return True


def queue_change_of(dag: DAG) -> QueueChange | None:
    """The newest change of its schedd's queue since it was submitted."""
    since = dag.submitted_at or dag.submit_intent_at
    if since is None or dag.schedd is None:
        return None
    return QueueChange.objects.filter(schedd=dag.schedd, seen_at__gte=since).first()


def missing_words(dag: DAG) -> str:
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
    told, rescue = unit_nodes(dag), dag_files.rescue(Path(dag.dag_file_path), [])
    done = (set(told.done) if told else set()) | (set(rescue.done) if rescue else set())
    open_units = WorkUnit.objects.filter(round_id=dag.round_id).exclude(state=WorkUnitState.DONE)
    merged = [name for name in open_units.values_list("name", flat=True) if _merge_accepted(Path(dag.submit_dir) / name)]
    return UnitNodes(done=tuple(sorted(done | set(merged))), failed=told.failed if told else ())


def dag_end_lost(dag: DAG, *, why: str, evidence: dict[str, Any]) -> None:
    """The DAG's end after an operator's confirmation; in the caller's transaction."""
    kept = {"why": why, "lost": True, "confirmation": dag.lost_confirmation, **evidence}
    dag_transition(dag, DAGStatus.REMOVED, event="lost", detail={"why": why}, outcome=kept)


def lost_confirm(dag: DAG, *, actor: str, reason: str, evidence: dict[str, Any]) -> bool:
    """Write an operator's confirmation on the row; the life cycle acts on it. False when there is one, or the DAG has ended."""
    word = {"actor": actor, "reason": reason, **evidence}
    rows = DAG.objects.filter(pk=dag.pk, status=dag.status, fence=dag.fence, lost_confirmed_at__isnull=True)
    if rows.update(lost_confirmed_at=clock.now(), lost_confirmation=word, lost_settled_at=None) != 1:
        return False
    history(dag, "lost_confirmed", detail=word)
    return True


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    category: str


class _MergePost(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    final: bool
    classification: _Verdict


def _merge_accepted(unit_directory: Path) -> bool:
    try:
        text = (unit_directory / post_name(layout.MERGE)).read_text()
        post = _MergePost.model_validate_json(text)
    except (OSError, ValidationError):
        return False  # not judged, or cut off: not certain
    return post.final and post.classification.category == SUCCESS_CATEGORY


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
