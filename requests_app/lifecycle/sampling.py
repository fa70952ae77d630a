"""Samples of all requests together: how things stand, adding up what was accounted, and what becomes of old ones
(docs/design/samples.md).

Each step is one statement, done whole or not at all. The one that adds what was accounted to the buckets removes the fresh rows
that it was in: a crash before its commit leaves all as it was, and who comes second finds none.
"""

from __future__ import annotations

from datetime import datetime

from dags_app.models import BUCKETS, LIVE_DAG, SHORTEST_SECONDS
from outputs_app.models import OPEN_EFFECT
from requests_app.models import RequestStatus
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.runtime.sql import sql_fenced

#: Fresh rows that one statement adds, statements of a cycle, and old rows that a cycle removes of each length.
PORTION, PORTIONS, REMOVED = 20_000, 5, 5000

_SUMS = ("units", "events", "files", "failures", "core_seconds")
_COLUMNS = {
    "keys": "site, step, code, release, campaign",
    "names": ", ".join(_SUMS),
    "summed": ", ".join(f"sum({name}) AS {name}" for name in _SUMS),
    "added": ", ".join(f"{name} = was.{name} + excluded.{name}" for name in _SUMS),
}
#: A group for the total, for each value of a column, and for all columns together, of which those that are new and beyond the
#: bucket's number are added to their site alone, failures and then units first.
_FOLD = """
WITH gone AS (
  DELETE FROM samples WHERE id IN (SELECT id FROM samples WHERE seconds = 0 AND at < %(before)s ORDER BY at LIMIT %(portion)s)
  RETURNING *
), grouped AS (
  SELECT bucket.seconds, bucket.most, to_timestamp(floor(extract(epoch FROM at) / bucket.seconds) * bucket.seconds) AS at,
    CASE grouping(site, step, code, release, campaign) WHEN 0 THEN 'all' WHEN 31 THEN '' WHEN 15 THEN 'site' WHEN 23 THEN 'step'
      WHEN 27 THEN 'code' WHEN 29 THEN 'release' ELSE 'campaign' END AS by,
    coalesce(site, '') AS site, coalesce(step, '') AS step, coalesce(code, 0) AS code, coalesce(release, '') AS release,
    coalesce(campaign, '') AS campaign, {summed}
  FROM gone CROSS JOIN unnest(%(lengths)s::int[], %(most)s::int[]) AS bucket(seconds, most)
  GROUP BY bucket.seconds, bucket.most, 3,
    GROUPING SETS ((), (site), (step), (code), (release), (campaign), ({keys}))
), full_ones AS (
  SELECT seconds, at, count(*) AS groups FROM samples
  WHERE seconds > 0 AND by = 'all' AND (seconds, at) IN (SELECT seconds, at FROM grouped) GROUP BY 1, 2
), placed AS (
  SELECT grouped.*, known.id IS NOT NULL OR by <> 'all' OR most >= row_number() OVER (
      PARTITION BY grouped.seconds, grouped.at, by, known.id IS NULL ORDER BY grouped.failures DESC, grouped.units DESC,
      grouped.core_seconds DESC, site, step, code, release, campaign
    ) + coalesce(groups, 0) AS kept
  FROM grouped LEFT JOIN full_ones USING (seconds, at)
    LEFT JOIN (SELECT * FROM samples WHERE seconds > 0) known USING (seconds, by, at, {keys})
)
INSERT INTO samples AS was (seconds, by, at, {keys}, {names})
SELECT seconds, by, at, site, CASE WHEN kept THEN step ELSE '' END, CASE WHEN kept THEN code ELSE 0 END,
  CASE WHEN kept THEN release ELSE '' END, CASE WHEN kept THEN campaign ELSE '' END, {summed}
FROM placed WHERE NOT (by = 'step' AND step = '' OR by = 'code' AND code = 0)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT (seconds, by, at, {keys}) WHERE seconds > 0 DO UPDATE SET {added}
"""
_SAMPLE = """
WITH live AS (
  SELECT dags.nodes_running AS running, dags.nodes_idle AS idle, coalesce(schedds.pool, '') AS pool, requests.campaign
  FROM dags JOIN workflows ON workflows.id = dags.workflow_id JOIN requests USING (request_name)
  LEFT JOIN schedds ON schedds.id = dags.schedd_id
  WHERE dags.status = ANY(%(live)s)
), jobs AS (
  SELECT CASE grouping(pool, campaign) WHEN 3 THEN '' WHEN 1 THEN 'pool' ELSE 'campaign' END AS by,
    coalesce(pool, campaign, '') AS label, coalesce(sum(running), 0) AS running, coalesce(sum(idle), 0) AS idle
  FROM live GROUP BY GROUPING SETS ((), (pool), (campaign))
  UNION ALL SELECT 'site', name, jobs_running, jobs_idle FROM sites WHERE jobs_running > 0 OR jobs_idle > 0
), requests_now AS (
  SELECT split_part(kind, ':', 1) AS status, sum(number) AS number FROM row_counts WHERE counted = 'requests' GROUP BY 1
), look (what, by, label, total) AS (
  SELECT 'looks', '', '', 1
  UNION ALL SELECT 'running', by, label, running FROM jobs
  UNION ALL SELECT 'idle', by, label, idle FROM jobs
  UNION ALL SELECT 'requests', 'status', status, number FROM requests_now
  UNION ALL SELECT 'requests', '', '', coalesce(sum(number), 0) FROM requests_now
  UNION ALL SELECT 'queued', '', '', coalesce(sum(number), 0) FROM requests_now WHERE status = %(queued)s
  UNION ALL SELECT 'effects', 'status', state, count(*) FROM effects WHERE state = ANY(%(open)s) GROUP BY state
  UNION ALL SELECT 'effects', '', '', count(*) FROM effects WHERE state = ANY(%(open)s)
)
INSERT INTO state_samples AS was (seconds, at, what, by, label, total)
SELECT bucket, to_timestamp(floor(%(epoch)s / bucket) * bucket), what, by, label, total
FROM look CROSS JOIN unnest(%(lengths)s::int[]) AS bucket
WHERE total > 0 OR by = ''
ON CONFLICT (seconds, what, by, at, label) DO UPDATE SET total = was.total + excluded.total
"""
_REMOVE = """
DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE seconds = %(seconds)s AND at < %(before)s LIMIT %(portion)s)
"""


def samples_take(fenced: Fenced) -> None:
    """One look at how things stand; add what was accounted to its buckets; remove some of what has stayed long enough."""
    now, lengths = clock.now(), list(BUCKETS)
    sql_fenced(
        fenced, _SAMPLE, epoch=now.timestamp(), lengths=lengths, live=list(LIVE_DAG), open=list(OPEN_EFFECT),
        queued=RequestStatus.QUEUED.value,
    )  # fmt: skip
    samples_fold(fenced, now)
    for seconds, (stays, _) in BUCKETS.items():
        if stays is not None:
            for table in ("samples", "state_samples"):
                sql_fenced(fenced, _REMOVE.format(table=table), seconds=seconds, before=now - stays, portion=REMOVED)


def samples_fold(fenced: Fenced, now: datetime) -> None:
    """Fresh rows of the shortest buckets that have ended; what is committed late is added to its bucket all the same."""
    before = datetime.fromtimestamp(now.timestamp() // SHORTEST_SECONDS * SHORTEST_SECONDS, now.tzinfo)
    most = [groups for _, groups in BUCKETS.values()]
    for _ in range(PORTIONS):
        if not sql_fenced(fenced, _FOLD.format_map(_COLUMNS), before=before, portion=PORTION, lengths=list(BUCKETS), most=most):
            break
