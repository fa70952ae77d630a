"""Rows of dags_app: DAG submissions, work units and their claims, failure rules, what failed, what was measured and decided."""

from dags_app.models.dag import DAG, IN_QUEUE, LIVE_DAG, DAGHistory, DAGKind, DAGStatus
from dags_app.models.failure import (
    FailedInputFile,
    FailureAction,
    FailureCategory,
    FailureGroup,
    FailureLog,
    FailureRule,
    FailureSample,
    UnreadableInput,
)
from dags_app.models.measurement import SizingDecision, StepMeasurement
from dags_app.models.work_unit import LIVE_UNIT, WorkUnit, WorkUnitClaim, WorkUnitState

__all__ = [
    "DAG",
    "IN_QUEUE",
    "LIVE_DAG",
    "LIVE_UNIT",
    "DAGHistory",
    "DAGKind",
    "DAGStatus",
    "FailedInputFile",
    "FailureAction",
    "FailureCategory",
    "FailureGroup",
    "FailureLog",
    "FailureRule",
    "FailureSample",
    "SizingDecision",
    "StepMeasurement",
    "UnreadableInput",
    "WorkUnit",
    "WorkUnitClaim",
    "WorkUnitState",
]
