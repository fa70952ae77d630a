"""Prometheus metrics of WMS2's own work; labels are bounded (status, kind, service, operation, outcome). Spec 4.10.

Gauges over rows are not kept here: a collector reads them from PostgreSQL at scrape time, so that several processes agree.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

EFFECTS_TOTAL = Counter("wms2_effects_total", "Effects run, by kind and outcome", ["kind", "outcome"])
CYCLES_TOTAL = Counter("wms2_lifecycle_cycles_total", "Life cycle runs by outcome", ["outcome"])
CYCLE_SECONDS = Histogram("wms2_lifecycle_cycle_seconds", "Duration of a life cycle run")
JOBS_ENDED_TOTAL = Counter(
    "wms2_jobs_ended_total", "Ended processing and merge jobs: failed attempts, and those of accounted work units", ["outcome"]
)
TRACKING_SECONDS = Histogram(
    "wms2_tracking_seconds",
    "From the end of a work unit on the pool, by its own DAGMan, to its account",
    buckets=(1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 14_400),
)
EVALUATIONS_TOTAL = Counter("wms2_evaluations_total", "Evaluations of requests by status and outcome", ["status", "outcome"])
FORGOTTEN_TOTAL = Counter(
    "wms2_forgotten_requests_total", "Requests in which a sweep found something to do that nothing had woken them for"
)
TRANSITIONS_TOTAL = Counter("wms2_transitions_total", "Status changes", ["status"])
ALERTS_TOTAL = Counter("wms2_alerts_total", "Alerts raised for operators", ["type"])
ALERT_MESSAGES_TOTAL = Counter(
    "wms2_alert_messages_total", "Messages and repeated states of alerts, by kind of channel and outcome", ["kind", "outcome"]
)
EXTERNAL_CALL_SECONDS = Histogram("wms2_external_call_seconds", "Calls to outside services", ["service", "operation", "outcome"])
HINTS_LOST_TOTAL = Counter("wms2_nudges_lost_total", "Hints that the broker did not take; the next cycle acts instead")
DENIALS_TOTAL = Counter(
    "wms2_denials_total", "Calls, sign-ins and imports that were refused, by kind (401, 403, 429, sign_in, import)", ["kind"]
)
SIGN_INS_BRAKED_TOTAL = Counter(
    "wms2_sign_ins_braked_total", "Sign-ins that were not judged after too many failures, by way (password, token)", ["way"]
)
BREAK_GLASS_TOTAL = Counter("wms2_break_glass_sign_ins_total", "Sign-ins of break-glass accounts")
POOL_WAIT_SECONDS = Histogram(
    "wms2_worker_pool_wait_seconds",
    "From the moment that something is due until a worker of the pool takes it",
    ["pool"],
    buckets=(0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200),
)
SHED_TOTAL = Counter("wms2_calls_shed_total", "Calls refused (503) because the web process had too much to do, by call", ["call"])
RATE_LIMITED_TOTAL = Counter("wms2_rate_limited_total", "Calls refused (429) because there were too many, by rate", ["rate"])
RATE_LIMITS_OPEN_TOTAL = Counter("wms2_rate_limits_open_total", "Calls whose rate the broker did not count; they were served")
ROWS_EXPIRED_TOTAL = Counter("wms2_rows_expired_total", "Rows removed because they were older than is kept", ["table"])
DAGS_PACKED_TOTAL = Counter("wms2_dags_packed_total", "Directories of ended DAGs, by outcome (packed, failed)", ["outcome"])
SITE_JOBS_TOTAL = Counter(
    "wms2_site_jobs_total", "Jobs at sites that are no nodes of a DAG, by purpose and end (done, failed)", ["purpose", "state"]
)
VALIDATIONS_TOTAL = Counter(
    "wms2_validations_total",
    "Looks at registered blocks, by what was looked at (catalogues, storage) and result; blocks validated",
    ["at", "result"],
)
LEFTOVERS_REMOVED_TOTAL = Counter(
    "wms2_leftovers_removed_total", "Files that were not needed any more, removed from sites' storage", ["site"]
)
LOCKS_REFUSED_TOTAL = Counter(
    "wms2_locks_refused_total",
    "Steps put off because another process held a row or lock for too long, by kind of step",
    ["step"],
)
ROWS_BROKEN_TOTAL = Counter(
    "wms2_rows_broken_total", "Rows that broke in a pass over many (said on the row), by pass; the others went on", ["step"]
)
READERS_REFUSED_TOTAL = Counter(
    "wms2_event_readers_refused_total", "Readers of the event feed that would have waited as too many"
)
STREAMS_TOTAL = Counter(
    "wms2_streams_total", "Streams of the process stream that ended, by why (life, left, behind, silent, stopped, …)", ["why"]
)
