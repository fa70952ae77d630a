"""Which requests are failing: jobs of their live DAG failed in the last hours. One statement, which writes what has changed."""

from __future__ import annotations

from datetime import timedelta

from dags_app.models import LIVE_DAG
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.runtime.sql import sql_fenced

#: A failure is of the present for so long.
FAILING_FOR = timedelta(hours=3)

#: Rows that another session has just then are marked with the next window.
_MARK = """
WITH fails AS (
  SELECT DISTINCT workflows.request_name FROM dags JOIN workflows ON workflows.id = dags.workflow_id
  JOIN failure_groups ON failure_groups.workflow_id = workflows.id AND failure_groups.last_at > %(since)s
  WHERE dags.status = ANY(%(live)s)
), changed AS (
  SELECT id FROM requests WHERE failing AND request_name NOT IN (SELECT request_name FROM fails)
  UNION ALL
  SELECT id FROM requests JOIN fails USING (request_name) WHERE NOT failing
)
UPDATE requests SET failing = NOT failing
WHERE id IN (SELECT id FROM requests WHERE id = ANY(ARRAY(SELECT id FROM changed)) FOR NO KEY UPDATE SKIP LOCKED)
"""


def mark_failing(fenced: Fenced) -> None:
    """Mark those that fail, and no longer those that do not."""
    sql_fenced(fenced, _MARK, since=clock.now() - FAILING_FOR, live=list(LIVE_DAG))
