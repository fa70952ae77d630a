"""What a DAGMan that has ended left in a DAG's directory, read without believing more than it says.

A damaged file counts as absent: its name goes on a list, which the judgement of the DAG's end reports. Owns also which units
were removed from the queue rather than failed (docs/design/model.md, Failed units), and whether a rescue file may be run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from dags_app import dagman
from dags_app.dagman import DagmanFileError, DagMetrics, DagStatusFile, NodeState, RescueFile
from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from wms2.adapters.types import DagStatus

T = TypeVar("T")
log = structlog.get_logger(__name__)
#: Ends of a DAG that leave something to rescue.
RESCUABLE = (DAGStatus.PARTIAL, DAGStatus.FAILED, DAGStatus.STOPPED, DAGStatus.REMOVED)


def metrics(dag_file: Path, damaged: list[str]) -> DagMetrics | None:
    """The metrics file; None when there is none or it is cut off."""
    return _read(dagman.read_metrics, dag_file.with_name(f"{dag_file.name}.metrics"), damaged)


def status(dag_file: Path, damaged: list[str]) -> DagStatusFile | None:
    """The status file; None when there is none or it is cut off."""
    return _read(dagman.read_status, dag_file.with_name(f"{dag_file.name}.status"), damaged)


def logged_done(dag: DAG) -> frozenset[str]:
    """Units whose success the running DAGMan has written down, at once; none where that is not to be read."""
    try:
        text = Path(dag.submit_dir, layout.JOBSTATE_LOG).read_text(errors="replace")
    except OSError:
        return frozenset()
    return dagman.done_by_jobstate(text, dag.dagman_cluster_id)


def rescue_name(dag_file: Path) -> str:
    """The newest rescue file, which a submission of ``dag_file`` would start from; "" when there is none."""
    path = dagman.newest_rescue(dag_file)
    return path.name if path else ""


def rescue(dag_file: Path, damaged: list[str]) -> RescueFile | None:
    """What the newest rescue file says; None when there is none or it is not whole."""
    path = dagman.newest_rescue(dag_file)
    return _read(dagman.read_rescue, path, damaged) if path else None


def removed_units(directory: Path, found: DagStatusFile | None, outer: DagMetrics | None) -> tuple[str, ...]:
    """Units in ERROR whose DAGMan was removed while the DAG went on: no failures.

    After a retry that was refused the outer status file only names the PRE script, so the unit's own metrics are asked, if they
    are not older than this run of the outer DAGMan.
    """
    if found is None:
        return ()
    names = []
    for node in found.nodes:
        if node.state is not NodeState.ERROR:
            continue
        inner = metrics(directory / node.name / layout.INNER_DAG, [])
        of_this_run = inner is not None and outer is not None and inner.started_at >= outer.started_at
        if node.was_removed or (of_this_run and inner is not None and inner.status is DagStatus.REMOVED):
            names.append(node.name)
    return tuple(names)


class RescueLeft(NamedTuple):
    """The newest rescue file of a DAG's directory: its name, empty without one, and what it says, None if it is not whole."""

    name: str
    file: RescueFile | None


def rescue_left(dag: DAG) -> RescueLeft:
    """Read what ``rescue_obstacle`` judges. A file system may hang: not in a transaction."""
    name = rescue_name(Path(dag.dag_file_path))
    return RescueLeft(name, rescue(Path(dag.dag_file_path), []) if name else None)


def rescue_obstacle(dag: DAG, left: RescueLeft) -> str:
    """Why a DAG that has ended cannot be rescued; empty if it can. Asks the rows only.

    A rescue file must know of every unit that is done: DAGMan would run the others again, over files that are registered.
    """
    if dag.outcome.get("aborted"):
        return "the DAG aborted itself"
    name, found = left.name, left.file
    if dag.status not in RESCUABLE or not name:
        return "there is no rescue file"
    if dag.outcome.get("lost") or dag.outcome.get("unproved"):  # its jobs may still write under the names of its round
        if dag.outcome.get("lost") and dag.lost_settled_at is None:
            return f"{dag.schedd_name} has not said that the lost DAG is gone; it may still run in that directory"
        if name == Path(dag.rescue_dag_path).name:
            return "there is no rescue file of its own"
    if found is None:
        return f"{name} is not whole"
    accounted = WorkUnit.objects.filter(round_id=dag.round_id, state__in=(WorkUnitState.DONE, WorkUnitState.DONE_UNACCOUNTED))
    forgotten = sorted(set(accounted.values_list("name", flat=True)) - found.done)
    if forgotten:
        return f"{name} does not know of {len(forgotten)} work units that are done, e.g. {forgotten[0]}, and would run them again"
    return ""


def lines_from(path: Path, start: int, most_bytes: int) -> bytes:
    """Whole lines of a file from there on; one that is being written is the next look's."""
    with path.open("rb") as stream:
        stream.seek(start)
        data = stream.read(most_bytes)
    return data[: data.rfind(b"\n") + 1]


def _read(read: Callable[[Path], T | None], path: Path, damaged: list[str]) -> T | None:
    """``read`` of a file; None, and its name on the list, when it is there and not whole."""
    try:
        found = read(path)
    except (DagmanFileError, UnicodeDecodeError) as error:
        log.warning("a file of DAGMan cannot be used", path=str(path), error=str(error))
        damaged.append(path.name)
        return None
    if found is None and path.exists():
        damaged.append(path.name)
    return found
