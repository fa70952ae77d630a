"""Counting the work of a request split by lumi: in lumis, exactly; in files; in events, estimated (``model.md`` section 3).

Owns the queries. PostgreSQL's multiranges do the set algebra, so a lumi in several files counts once, and costs go with the
number of files and intervals. A file is done when all its wanted lumis are. Events are those that planning gave to units, and
for what is not planned a file's average per lumi.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Sum

from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from requests_app.models import LumiFate, Workflow

_PLANNED = (WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED)


def _length(multirange: str) -> str:
    return f"(SELECT coalesce(sum(upper(part) - lower(part)), 0) FROM unnest({multirange}) part)"  # noqa: S608  (only names of columns, here and below)


#: One row a run: what the input lists, what units have claimed of it, and what nobody has claimed.
_RUNS = """
WITH listed AS (
  SELECT run, sum(upper(span) - lower(span)) AS listed,
    range_agg(span) FILTER (WHERE fate = %(wanted)s) AS wanted,
    range_agg(span) FILTER (WHERE fate = %(excluded)s) AS excluded,
    range_agg(span) FILTER (WHERE fate = %(refused)s) AS refused
  FROM input_lumis WHERE workflow_id = %(workflow)s GROUP BY run
), claimed AS (
  SELECT lower(claim.run) AS run,
    range_agg(claim.span) FILTER (WHERE claim.live AND unit.state = %(done)s) AS done,
    range_agg(claim.span) FILTER (WHERE claim.live AND unit.state = ANY(%(planned)s)) AS planned,
    range_agg(claim.span) FILTER (WHERE NOT claim.live) AS tried
  FROM work_unit_claims claim JOIN work_units unit ON unit.id = claim.unit_id
  WHERE unit.workflow_id = %(workflow)s AND claim.kind @> %(kind)s::bigint GROUP BY 1
), filled AS (
  SELECT coalesce(listed.run, claimed.run) AS run, coalesce(listed.listed, 0) AS listed,
    coalesce(wanted, '{}') AS wanted, coalesce(excluded, '{}') AS excluded, coalesce(refused, '{}') AS refused,
    coalesce(done, '{}') AS done, coalesce(planned, '{}') AS planned, coalesce(tried, '{}') AS tried
  FROM listed FULL JOIN claimed ON claimed.run = listed.run
), runs AS MATERIALIZED (SELECT filled.*, wanted - done - planned AS unclaimed FROM filled)
"""

_COUNT_LUMIS = f"""{_RUNS}
SELECT coalesce(sum(listed), 0), coalesce(sum({_length("done")}), 0), coalesce(sum({_length("planned")}), 0),
  coalesce(sum({_length("unclaimed * tried")}), 0), coalesce(sum({_length("excluded")}), 0),
  coalesce(sum({_length("refused")}), 0), coalesce(sum({_length("unclaimed - tried")}), 0)
FROM runs
"""  # noqa: S608

#: Files by state, with the events of their lumis that are gone and of those that are left.
_COUNT_FILES = f"""{_RUNS}
, shares AS (
  SELECT file.id, file.events, file.excluded_at IS NOT NULL AS out, {_length("spans")} AS lumis,
    coalesce(spans && wanted, false) AS of_wanted, coalesce(spans && planned, false) AS of_planned,
    coalesce(spans && (unclaimed * tried), false) AS of_tried,
    {_length("spans * unclaimed")} AS unclaimed, {_length("spans * (excluded + refused)")} AS gone
  FROM input_files file
  LEFT JOIN LATERAL jsonb_each(file.lumis) entry ON true
  LEFT JOIN LATERAL (
    SELECT range_agg(int8range((pair->>0)::bigint, (pair->>1)::bigint, '[]')) AS spans FROM jsonb_array_elements(entry.value) pair
  ) intervals ON true
  LEFT JOIN runs ON runs.run = entry.key::bigint
  WHERE file.workflow_id = %(workflow)s
), files AS (
  SELECT
    CASE WHEN bool_or(out) OR NOT bool_or(of_wanted) THEN 'excluded' WHEN bool_or(of_tried) THEN 'attempted'
      WHEN sum(unclaimed) > 0 THEN 'left' WHEN bool_or(of_planned) THEN 'planned' ELSE 'done' END AS state,
    CASE WHEN bool_or(out) THEN 0 ELSE min(events) * sum(unclaimed) / greatest(sum(lumis), 1) END AS left_events,
    min(events) * sum(gone) / greatest(sum(lumis), 1) AS gone_events
  FROM shares GROUP BY id
)
SELECT state, count(*), coalesce(round(sum(left_events)), 0)::bigint, coalesce(round(sum(gone_events)), 0)::bigint
FROM files GROUP BY state
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class LumiCounts:
    """Every wanted lumi is in exactly one of the numbers after the first, unless the account is wrong."""

    listed: int
    done: int
    planned: int
    attempted: int
    excluded: int
    refused: int
    left: int


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files by state, and events that are left or gone with excluded and refused lumis, estimated."""

    done: int = 0
    planned: int = 0
    attempted: int = 0
    excluded: int = 0
    left: int = 0
    left_events: int = 0
    gone_events: int = 0


@dataclass(frozen=True, slots=True)
class UnitEvents:
    """Events that planning gave to the units done, and to those planned."""

    done: int
    planned: int


def count_lumis(workflow: Workflow) -> LumiCounts:
    """Where the wanted lumis stand."""
    (row,) = _rows(_COUNT_LUMIS, workflow)
    return LumiCounts(*(int(number) for number in row))


def count_files(workflow: Workflow) -> FileCounts:
    """Where the files stand. A file whose wanted lumis are all refused is excluded too."""
    counts: dict[str, int] = {}
    left = gone = 0
    for state, files, left_events, gone_events in _rows(_COUNT_FILES, workflow):
        counts[state] = files
        left, gone = left + left_events, gone + gone_events
    return FileCounts(**counts, left_events=left, gone_events=gone)


def count_unit_events(workflow: Workflow) -> UnitEvents:
    """Events of the units that count."""
    sums = dict(WorkUnit.objects.filter(workflow=workflow).order_by().values_list("state").annotate(total=Sum("events")))
    return UnitEvents(sums.get(WorkUnitState.DONE, 0), sum(sums.get(state, 0) for state in _PLANNED))


def _rows(query: str, workflow: Workflow) -> Iterable[tuple[Any, ...]]:
    parameters = {
        "workflow": workflow.pk,
        "kind": WorkUnitClaim.KIND_RUN_LUMIS,
        "wanted": LumiFate.WANTED.value,
        "excluded": LumiFate.EXCLUDED.value,
        "refused": LumiFate.REFUSED.value,
        "done": WorkUnitState.DONE.value,
        "planned": [state.value for state in _PLANNED],
    }
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()
