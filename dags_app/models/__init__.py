"""Rows of dags_app: DAG submissions, work units and their claims, failures, what was measured and decided, jobs at a site."""

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
from dags_app.models.sample import ALL, BUCKETS, DAY_SECONDS, FRESH, SHORTEST_SECONDS, Sample, StateSample
from dags_app.models.site_job import LIVE_SITE_JOB, Leftover, SiteJob, SiteJobPurpose, SiteJobState
from dags_app.models.work_unit import LIVE_UNIT, WorkUnit, WorkUnitClaim, WorkUnitState
