"""What units and failures come to over time, written in the transaction of their account (docs/design/samples.md).

Each transaction inserts rows of its own, so that no writer waits for another; the leader adds them together
(``requests_app.lifecycle.sampling``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dags_app.models import ALL, DAG, FRESH, SHORTEST_SECONDS
from dags_app.services.units import Settled
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

#: A failure that is read later than that counts as of that time.
LATEST = timedelta(days=1)


class _Key(NamedTuple):
    """What is counted apart."""

    at: datetime
    site: str = ""
    step: str = ""
    code: int = 0
    release: str = ""
    campaign: str = ""


_COUNTED = ("units", "events", "files", "failures", "core_seconds")
_COLUMNS = ("seconds", "by", *_Key._fields, *_COUNTED)
#: As plain text: each unit inserts some, and to compose it costs more than it does.
_INSERT = f"INSERT INTO samples ({', '.join(_COLUMNS)})"
_ROW = f"({', '.join(['%s'] * len(_COLUMNS))})"
_Counts = defaultdict[_Key, Counter[str]]


def units_sample(*, spec: Mapping[str, Any], settled: Iterable[Settled]) -> None:
    """Units that are done now; in the caller's transaction. ``spec``: of their workflow."""
    at, (campaign, releases) = _bucket(clock.now()), _names(spec.get("campaign"), spec.get("steps"))
    first, found = next(iter(releases.values()), ""), _Counts(Counter)
    for row in settled:
        site = row.manifest.site
        files = sum(len(output.files) for output in row.manifest.outputs)
        found[_Key(at, site, release=first, campaign=campaign)].update(units=1, events=row.events, files=files)
        for step, jobs in row.manifest.step_metrics.items():
            spent: Any = sum(job.wall_seconds * job.processes * job.threads for job in jobs)
            found[_Key(at, site, step[:200], 0, releases.get(step, first), campaign)].update(core_seconds=spent)
    _insert(found)


def failures_sample(*, dag: DAG, failed: Iterable[tuple[datetime, str, str, int]]) -> None:
    """Failed attempts by (when, site, step, code); in the caller's transaction."""
    # of a workflow's row these alone: it may have megabytes of lumis and PSets
    columns = DAG.objects.filter(pk=dag.pk).values_list("workflow__spec__campaign", "workflow__spec__steps")
    now, (campaign, releases) = clock.now(), _names(*columns.get())
    found = _Counts(Counter)
    for at, site, step, code in failed:
        logged = at if at.tzinfo else at.replace(tzinfo=UTC)
        between = min(max(logged, now - LATEST), now)  # of the clock of another host
        found[_Key(_bucket(between), site[:100], step[:200], code, releases.get(step, ""), campaign)].update(failures=1)
    _insert(found)


def _names(campaign: str | None, steps: Iterable[Mapping[str, Any]] | None) -> tuple[str, Mapping[str, str]]:
    """The campaign, and step -> release, the first step first."""
    return (campaign or "")[:255], {str(step["name"]): str(step["cmssw_version"])[:100] for step in steps or ()}


def _bucket(at: datetime) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // SHORTEST_SECONDS * SHORTEST_SECONDS, UTC)


def _insert(found: _Counts) -> None:
    values = [[FRESH, ALL, *key, *(counts[name] for name in _COUNTED)] for key, counts in found.items()]
    if values:
        sql_rows(f"{_INSERT} VALUES {', '.join([_ROW] * len(values))}", [value for row in values for value in row])
