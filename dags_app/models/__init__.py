"""Rows of dags_app: DAG submissions, work units, and what each unit claims of the work."""

from dags_app.models.dag import DAG, LIVE_DAG, DAGHistory, DAGKind, DAGStatus
from dags_app.models.work_unit import LIVE_UNIT, WorkUnit, WorkUnitClaim, WorkUnitState

__all__ = ["DAG", "LIVE_DAG", "LIVE_UNIT", "DAGHistory", "DAGKind", "DAGStatus", "WorkUnit", "WorkUnitClaim", "WorkUnitState"]
