"""Samples of how far requests are, at most one of each in a window, and what becomes of old ones (ADR 0029).

Each step is one statement, done whole or not at all; repeated, it finds nothing to do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dags_app.models import LIVE_DAG
from requests_app.models import EVALUATED
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.runtime.sql import sql_fenced

WINDOW_SECONDS = 60
MEAN_SECONDS = 600
KEEP_SAMPLES, KEEP_MEANS = timedelta(days=1), timedelta(days=30)
#: Steps of ten minutes that are folded in one cycle, and old means that are removed.
STEPS, PORTION = 5, 5000

#: Requests at work, and those that ceased to be a moment ago; of each round its newest DAG, whose counts contain those before it.
_SAMPLE = """
WITH counted AS (
  SELECT requests.id AS request_id, sum(dag.total_work_units) AS units, sum(dag.units_done) AS units_done,
    sum(dag.nodes_failed) AS units_failed, sum(dag.nodes_idle * live) AS jobs_idle, sum(dag.nodes_running * live) AS jobs_running,
    sum(dag.nodes_held * live) AS jobs_held
  FROM requests JOIN workflows USING (request_name)
  CROSS JOIN LATERAL (
    SELECT DISTINCT ON (round_id) dags.*, (status = ANY(%(live)s))::int AS live FROM dags WHERE workflow_id = workflows.id
    ORDER BY round_id, created_at DESC, fence DESC) dag
  WHERE requests.status = ANY(%(evaluated)s) OR requests.status_since > %(lately)s
  GROUP BY requests.id
), changed AS (
  INSERT INTO progress AS was (request_id, first_at, at, units, units_done, units_failed, jobs_idle, jobs_running, jobs_held,
    peak_running, job_seconds)
  SELECT request_id, %(at)s, %(at)s, c.units, c.units_done, c.units_failed, c.jobs_idle, c.jobs_running, c.jobs_held,
    c.jobs_running, 0
  FROM counted c LEFT JOIN progress p USING (request_id)
  WHERE p.request_id IS NULL OR p.at < %(at)s
    AND (c.units, c.units_done, c.units_failed, c.jobs_idle, c.jobs_running, c.jobs_held)
      <> (p.units, p.units_done, p.units_failed, p.jobs_idle, p.jobs_running, p.jobs_held)
  ON CONFLICT (request_id) DO UPDATE SET at = excluded.at, units = excluded.units, units_done = excluded.units_done,
    units_failed = excluded.units_failed, jobs_idle = excluded.jobs_idle, jobs_running = excluded.jobs_running,
    jobs_held = excluded.jobs_held, peak_running = greatest(was.peak_running, excluded.jobs_running),
    job_seconds = was.job_seconds + was.jobs_running * extract(epoch FROM excluded.at - was.at)
  WHERE was.at < excluded.at
  RETURNING request_id, at, units, units_done, units_failed, jobs_idle, jobs_running, jobs_held
), sampled AS (
  INSERT INTO progress_samples (mean, request_id, at, units, units_done, units_failed, jobs_idle, jobs_running, jobs_held)
  SELECT false, changed.* FROM changed
)
INSERT INTO events (request_id, kind, data, at)
SELECT request_id, 'request.progress', to_jsonb(changed) - 'request_id', clock_timestamp() FROM changed
"""
#: The oldest ten minutes of which there are samples, if all of it is old enough; their events in the feed go with it.
_FOLD = """
WITH step AS (
  SELECT begins, begins + %(length)s * interval '1 second' AS ends
  FROM (SELECT to_timestamp(floor(extract(epoch FROM min(at)) / %(length)s) * %(length)s) AS begins
        FROM progress_samples WHERE NOT mean) oldest
), gone AS (
  DELETE FROM progress_samples sample USING step
  WHERE NOT mean AND at >= begins AND at < ends AND ends <= %(before)s RETURNING sample.*, begins
), events_gone AS (
  DELETE FROM events USING step
  WHERE kind = 'request.progress' AND at >= begins AND at < ends + %(window)s * interval '1 second' AND ends <= %(before)s
)
INSERT INTO progress_samples (request_id, mean, at, units, units_done, units_failed, jobs_idle, jobs_running, jobs_held)
SELECT request_id, true, begins, (array_agg(units ORDER BY at DESC))[1], (array_agg(units_done ORDER BY at DESC))[1],
  (array_agg(units_failed ORDER BY at DESC))[1], round(avg(jobs_idle)), round(avg(jobs_running)), round(avg(jobs_held))
FROM gone GROUP BY request_id, begins
"""
_PRUNE = """
DELETE FROM progress_samples
WHERE id IN (SELECT id FROM progress_samples WHERE mean AND at < %(before)s ORDER BY at LIMIT %(portion)s)
"""


def progress_sample(fenced: Fenced) -> None:
    """Sample what has changed in this window, fold some of what is older than a day, remove means that are older than a month."""
    now = clock.now()
    at = datetime.fromtimestamp(now.timestamp() // WINDOW_SECONDS * WINDOW_SECONDS, UTC)
    lately = now - timedelta(seconds=10 * WINDOW_SECONDS)
    sql_fenced(fenced, _SAMPLE, at=at, lately=lately, live=list(LIVE_DAG), evaluated=list(EVALUATED))
    for _ in range(STEPS):
        if not sql_fenced(fenced, _FOLD, length=MEAN_SECONDS, window=WINDOW_SECONDS, before=now - KEEP_SAMPLES):
            break
    sql_fenced(fenced, _PRUNE, before=now - KEEP_MEANS, portion=PORTION)
