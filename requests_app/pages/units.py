"""Work units of a DAG as they are drawn: as rows and DAGMan's status file have them."""

from __future__ import annotations

from dataclasses import dataclass

from dags_app import live
from dags_app.dagman import NodeState, NodeStatus
from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitState

#: Work units drawn one by one; the others are counted.
MOST_UNITS = 1_000
_RUNNING = (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)
_FAILED = (NodeState.ERROR, NodeState.FUTILE)


@dataclass(frozen=True, slots=True)
class UnitCell:
    """A work unit as it is drawn. ``state``: waiting, running, done, unaccounted, failing, failed or abandoned."""

    unit: WorkUnit
    state: str
    words: str


def unit_cells(dag: DAG) -> tuple[tuple[UnitCell, ...], int, str]:
    """Units of the newest round, those not done as DAGMan's status file has them; how many more; why that file says nothing."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id).only("name", "state", "site", "problem").order_by("index")
    units = list(rows[:MOST_UNITS])
    left_out = max(0, dag.total_work_units - len(units))
    if not dag.dagman_cluster_id:
        return tuple(_cell(unit, None) for unit in units), left_out, ""
    reading = live.outer_status(dag)
    nodes = {node.name: node for node in reading.status.nodes} if reading.status else {}
    if dag.status not in LIVE_DAG:  # the file may say running, but nothing runs
        nodes = {name: node for name, node in nodes.items() if node.state in _FAILED}
    problem = reading.problem if dag.status in LIVE_DAG else ""
    return tuple(_cell(unit, nodes.get(unit.name)) for unit in units), left_out, problem


def _cell(unit: WorkUnit, node: NodeStatus | None) -> UnitCell:
    state, words = _check(unit, node)
    return UnitCell(unit, state, f"{words} at {unit.site}" if unit.site else words)


def _check(unit: WorkUnit, node: NodeStatus | None) -> tuple[str, str]:
    if unit.state == WorkUnitState.DONE:
        return "done", "done"
    if unit.state == WorkUnitState.DONE_UNACCOUNTED:
        return "unaccounted", f"done, unaccounted: {unit.problem}"
    if unit.state == WorkUnitState.FAILED:
        return "failed", f"failed: {unit.problem}" if unit.problem else "failed"
    if unit.state == WorkUnitState.ABANDONED:
        return "abandoned", "abandoned"
    if node is None or node.state in (NodeState.NOT_READY, NodeState.READY):
        return "waiting", "waiting"
    if node.was_removed:
        return "waiting", "was removed from the queue, and waits for the DAG's next submission"
    if node.state in _FAILED:
        cause = unit.problem or node.details
        return "failing", f"failed in this DAG: {cause}" if cause else "failed in this DAG"
    return "running", "running" if node.state in _RUNNING else "done, being accounted"
