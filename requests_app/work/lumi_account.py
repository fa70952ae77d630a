"""Counting the work of a request split by lumi: in lumis, exactly; in files; in events, estimated (ADR 0007).

Owns the queries. PostgreSQL's multiranges do the set algebra of lumis, so that one in several files counts once; files are
looked up in what comes out. Costs go with the number of files and intervals. A file is done when all its wanted lumis are.
Events are those that planning gave to units, and for what is not planned a file's average per lumi.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import Sum

from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning import lumis
from dags_app.planning.specs import ExclusionKind, LumiRanges
from requests_app.models import InputFile, LumiFate, Workflow
from wms2.runtime.sql import sql_rows

_PLANNED = (WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED)
#: What a file holds of wanted lumis -> its state; the first that fits.
_STATES = {"tried": "attempted", "fresh": "left", "planned": "planned"}
#: What the query counts, after all of them.
_LUMIS = ("done", "planned", "attempted", "excluded", "refused", "inherited", "left")


def _length(multirange: str) -> str:
    return f"(SELECT coalesce(sum(upper(part) - lower(part)), 0) FROM unnest({multirange}) part)"  # noqa: S608  (only names of columns, here and below)


#: One row a run: what the input lists, what units have claimed of it, and what nothing claims.
_RUNS = """
WITH listed AS (
  SELECT run, sum(upper(span) - lower(span)) AS listed,
    range_agg(span) FILTER (WHERE fate = %(wanted)s) AS wanted,
    range_agg(span) FILTER (WHERE fate = ANY(%(excluded)s)) AS excluded,
    range_agg(span) FILTER (WHERE fate = %(refused)s) AS refused,
    range_agg(span) FILTER (WHERE fate = %(inherited)s) AS inherited
  FROM input_lumis WHERE workflow_id = %(workflow)s GROUP BY run
), claimed AS (
  SELECT claim.run,
    range_agg(int8range(claim.first, claim.last, '[]')) FILTER (WHERE claim.live AND unit.state = %(done)s) AS done,
    range_agg(int8range(claim.first, claim.last, '[]')) FILTER (WHERE claim.live AND unit.state = ANY(%(planned)s)) AS planned,
    range_agg(int8range(claim.first, claim.last, '[]')) FILTER (WHERE NOT claim.live) AS tried
  FROM work_unit_claims claim JOIN work_units unit ON unit.id = claim.unit_id
  WHERE unit.workflow_id = %(workflow)s AND claim.kind = %(kind)s GROUP BY 1
), filled AS (
  SELECT coalesce(listed.run, claimed.run) AS run, coalesce(listed.listed, 0) AS listed,
    coalesce(wanted, '{}') AS wanted, coalesce(excluded, '{}') AS excluded, coalesce(refused, '{}') AS refused,
    coalesce(inherited, '{}') AS inherited,
    coalesce(done, '{}') AS done, coalesce(planned, '{}') AS planned, coalesce(tried, '{}') AS tried
  FROM listed FULL JOIN claimed ON claimed.run = listed.run
), runs AS MATERIALIZED (SELECT filled.*, wanted - done - planned AS unclaimed FROM filled)
"""

_COUNT_LUMIS = f"""{_RUNS}
SELECT coalesce(sum(listed), 0), coalesce(sum({_length("done")}), 0), coalesce(sum({_length("planned")}), 0),
  coalesce(sum({_length("unclaimed * tried")}), 0), coalesce(sum({_length("excluded")}), 0),
  coalesce(sum({_length("refused")}), 0), coalesce(sum({_length("inherited")}), 0),
  coalesce(sum({_length("unclaimed - tried")}), 0)
FROM runs
"""  # noqa: S608

#: The intervals that say in which state a file is, and what is left.
_RANGES = f"""{_RUNS}
SELECT kind, run, lower(part), upper(part) - 1 FROM runs
CROSS JOIN LATERAL (VALUES ('wanted', wanted), ('planned', planned), ('gone', excluded + refused), ('fresh', unclaimed - tried),
  ('tried', unclaimed * tried), ('inherited', inherited)) kinds(kind, ranges)
CROSS JOIN LATERAL unnest(ranges) part
WHERE kind = ANY(%(kinds)s)
"""  # noqa: S608


class LumisLeft(NamedTuple):
    """Wanted lumis that nothing claims: never tried ones, and those of failed units."""

    fresh: LumiRanges
    tried: LumiRanges


def lumis_left(workflow: Workflow) -> LumisLeft:
    """What is left to be planned."""
    ranges = _ranges(workflow, ["fresh", "tried"])
    return LumisLeft(ranges.get("fresh", {}), ranges.get("tried", {}))


def count(workflow: Workflow, whole: bool) -> dict[str, int]:
    """Where the wanted lumis stand: each is in exactly one of the numbers after the first, unless the account is wrong. If
    ``whole``, also files, and events: those that planning gave to units that are done or planned, others estimated."""
    (row,) = _rows(_COUNT_LUMIS, workflow)
    numbers = {f"{state}_lumis": int(number) for state, number in zip(("all", *_LUMIS), row, strict=True)}
    if whole:
        units = WorkUnit.objects.filter(workflow=workflow).order_by().values_list("state").annotate(total=Sum("events"))
        sums = Counter(dict(units))
        numbers |= _count_files(workflow)
        numbers |= {"done_events": sums[WorkUnitState.DONE], "planned_events": sum(sums[state] for state in _PLANNED)}
        numbers["all_events"] = sum(numbers[f"{part}_events"] for part in ("done", "planned", "excluded", "inherited", "left"))
    return numbers


def _count_files(workflow: Workflow) -> dict[str, int]:
    """Where the files stand, looked up in the intervals one by one, and events that are left, inherited, or gone with excluded
    and refused lumis, estimated. A file whose wanted lumis are all refused is excluded too."""
    ranges = _ranges(workflow, ["wanted", "planned", "gone", "fresh", "tried", "inherited"])
    counts: Counter[str] = Counter()
    left = gone = inherited = 0.0
    rows = InputFile.objects.filter(workflow=workflow).values_list("lumis", "events", "excluded_kind")
    for stored, events, kind in rows.iterator(chunk_size=2000):
        held = lumis.from_json(stored)
        share = {kind: lumis.count(lumis.intersect(held, each)) for kind, each in ranges.items()}
        total = max(lumis.count(held), 1)
        gone += events * share.get("gone", 0) / total
        inherited += events * share.get("inherited", 0) / total
        if kind or not share.get("wanted"):
            others = kind == ExclusionKind.INHERITED or (not kind and share.get("inherited"))
            counts["inherited" if others else "excluded"] += 1
            continue
        left += events * (share.get("fresh", 0) + share.get("tried", 0)) / total
        counts[next((state for kind, state in _STATES.items() if share.get(kind)), "done")] += 1
    files = {f"{state}_files": number for state, number in counts.items()}
    estimated = {"left_events": round(left), "excluded_events": round(gone), "inherited_events": round(inherited)}
    return {"all_files": counts.total(), **files, **estimated}


def _ranges(workflow: Workflow, kinds: list[str]) -> dict[str, LumiRanges]:
    intervals = defaultdict[str, list[tuple[int, int, int]]](list)
    for kind, run, first, last in _rows(_RANGES, workflow, kinds):
        intervals[kind].append((run, first, last))
    return {kind: lumis.from_intervals(each) for kind, each in intervals.items()}


def _rows(query: str, workflow: Workflow, kinds: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    parameters: dict[str, Any] = {
        "workflow": workflow.pk,
        "kind": WorkUnitClaim.KIND_RUN_LUMIS,
        "wanted": LumiFate.WANTED.value,
        "excluded": [LumiFate.EXCLUDED.value, LumiFate.DERIVED.value],
        "inherited": LumiFate.INHERITED.value,
        "refused": LumiFate.REFUSED.value,
        "done": WorkUnitState.DONE.value,
        "planned": [state.value for state in _PLANNED],
        "kinds": kinds,
    }
    return sql_rows(query, parameters)
