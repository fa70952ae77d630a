"""Reads what DAGMan leaves behind: status file, metrics, job-state log, rescue files, and the ad of a DAGMan job.

Owns the formats of HTCondor 23.9 to 25 and nothing of what follows from them: every function takes text, a path or an ad and
returns frozen values. docs/design/htcondor.md, DAGMan's files; spec 4.6.
"""

from dags_app.dagman.files import (
    last_rescue,
    newest_rescue,
    parse_metrics,
    parse_status,
    read_jobstate,
    read_metrics,
    read_rescue,
    read_status,
)
from dags_app.dagman.jobs import DAGMAN_ATTRIBUTES, dagman_job, job_outcome, metrics_outcome
from dags_app.dagman.values import (
    DagmanCounts,
    DagmanFileError,
    DagmanJob,
    DagmanStatus,
    DagMetrics,
    DagOutcome,
    DagStatusFile,
    JobstateChunk,
    JobstateEvent,
    NodeState,
    NodeStatus,
    RescueFile,
)

__all__ = [
    "DAGMAN_ATTRIBUTES",
    "DagMetrics",
    "DagOutcome",
    "DagStatusFile",
    "DagmanCounts",
    "DagmanFileError",
    "DagmanJob",
    "DagmanStatus",
    "JobstateChunk",
    "JobstateEvent",
    "NodeState",
    "NodeStatus",
    "RescueFile",
    "dagman_job",
    "job_outcome",
    "last_rescue",
    "metrics_outcome",
    "newest_rescue",
    "parse_metrics",
    "parse_status",
    "read_jobstate",
    "read_metrics",
    "read_rescue",
    "read_status",
]
