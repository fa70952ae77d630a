"""The version of a DAG, for ``ETag`` and ``If-Match``: its submission, where it stands, and what was asked of it."""

from __future__ import annotations

from dags_app.models import DAG
from wms2.api.preconditions import etag_of


def dag_etag(dag: DAG) -> str:
    """Without the counts, which move by themselves; with the state of its DAGMan job, which a pause changes."""
    return etag_of(
        dag.pk,
        dag.fence,
        dag.attempt,
        dag.status,
        dag.dagman_cluster_id,
        dag.queue_birthdate,
        dag.observed.get("job_status"),
        dag.stop_requested_at,
        dag.stop_mode,
        dag.missing_since,
        dag.suspected_at,
        dag.lost_confirmed_at,
    )
