"""Requests that need a person, each by its first cause: held, an alert, or what stands beside it without one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet

from dags_app.models import WorkUnitState
from outputs_app.models import CaseState, DriftState
from outputs_app.selectors import STUCK
from requests_app.models import EVALUATED, HarvestState, HoldCode, Request, RequestStatus
from requests_app.selectors.alert_texts import AlertText, words_of
from requests_app.selectors.explain import hold_advice
from wms2.runtime.sql import sql_rows
from wms2.web.formatting import word

#: How the cause of a held request begins; its hold code follows. Other causes are codes of alerts, raised or not.
HELD = "held:"
#: Requests that are named for each cause.
NAMED = 3
#: Causes that are listed; there are not many more codes.
MOST_CAUSES = 60

#: Of the one cause that is no alert.
_UNHARVESTED = AlertText("DQM harvesting has failed; its page says why.", "Repair the cause, then harvest again, or discard it.")

_NEEDING = """
WITH needing (rank, cause, request_id, since, why) AS (
  SELECT 0, 'held:' || hold_code, id, status_since, hold_reason FROM requests WHERE status = %(held)s
  UNION ALL
  SELECT 1, alert_code, id, coalesce(alerted_at, status_since), '' FROM requests WHERE alert_code <> ''
  UNION ALL
  SELECT 2, 'effect_' || e.state, e.request_id, coalesce(e.first_failed_at, r.status_since), e.last_error
  FROM effects e JOIN requests r ON r.id = e.request_id AND r.epoch = e.epoch WHERE e.state = ANY(%(stuck)s)
  UNION ALL
  SELECT 3, 'units_unaccounted', r.id, coalesce(u.problem_since, r.status_since), u.problem
  FROM work_units u JOIN workflows w ON w.id = u.workflow_id JOIN requests r USING (request_name)
  WHERE u.state = %(unaccounted)s AND r.status = ANY(%(evaluated)s)
  UNION ALL
  SELECT 4, 'drift_unsettled', request_id, since, '' FROM drift WHERE state = %(unsettled)s AND request_id IS NOT NULL
  UNION ALL
  SELECT 5, 'cases_wait', request_id, created_at, '' FROM integrity_cases WHERE state = %(new)s
  UNION ALL
  SELECT 6, 'harvest_failed', r.id, coalesce(h.ended_at, h.next_try_at), h.problem
  FROM harvests h JOIN requests r USING (request_name) WHERE h.state = %(unharvested)s
), first AS (
  SELECT request_id, min(rank) AS rank, (array_agg(cause ORDER BY rank, since))[1] AS cause,
    (array_agg(since ORDER BY rank, since))[1] AS since, (array_agg(why ORDER BY why = '', rank, since))[1] AS why
  FROM needing GROUP BY request_id
)
"""
_BY_CAUSE = f"""{_NEEDING}
SELECT cause, count(*), bool_or(urgent), min(since), (array_agg(request_name ORDER BY urgent DESC, since, r.id))[1:%(named)s],
  (array_agg(why ORDER BY urgent DESC, since, r.id))[1]
FROM first JOIN requests r ON r.id = request_id GROUP BY cause ORDER BY bool_or(urgent) DESC, min(rank), min(since) LIMIT %(most)s
"""  # noqa: S608  (constants alone)
_OF_CAUSE = f"{_NEEDING} SELECT request_id FROM first WHERE cause = %(cause)s"  # noqa: S608
_STATES: dict[str, Any] = {
    "held": RequestStatus.HELD.value,
    "stuck": [state.value for state in STUCK],
    "unaccounted": WorkUnitState.DONE_UNACCOUNTED.value,
    "evaluated": [status.value for status in EVALUATED],
    "unsettled": DriftState.UNSETTLED.value,
    "new": CaseState.NEW.value,
    "unharvested": HarvestState.FAILED.value,
    "named": NAMED,
    "most": MOST_CAUSES,
}


class Cause(NamedTuple):
    """Requests that need a person for the same.

    Attributes:
        code: as the filter ``needs`` of the requests' list takes it.
        urgent: whether one of them is.
        since: of the first of them.
        names: the first ones.
        why: of the first of these, in its own words; may be empty.
    """

    code: str
    number: int
    urgent: bool
    since: datetime
    names: list[str]
    why: str

    @property
    def is_held(self) -> bool:
        """Whether they are held, and a release lets them go on."""
        return self.code.startswith(HELD)

    @property
    def label(self) -> str:
        """What it is."""
        return f"Held: {word(HoldCode, self.code.removeprefix(HELD)).label}." if self.is_held else _words(self.code).means

    @property
    def todo(self) -> str:
        """What to do about it."""
        return hold_advice(self.code.removeprefix(HELD)) if self.is_held else _words(self.code).todo

    @property
    def more(self) -> int:
        """How many are not named."""
        return self.number - len(self.names)


def _words(code: str) -> AlertText:
    return _UNHARVESTED if code == "harvest_failed" else words_of(code)


def needs_by_cause() -> list[Cause]:
    """Causes with urgent requests first, then held ones; one statement, whatever the number of requests."""
    return [Cause(*row) for row in sql_rows(_BY_CAUSE, _STATES)]


def needing_for(rows: QuerySet[Request], cause: str) -> QuerySet[Request]:
    """Of these the requests of one cause, as they are counted there; they are read first, since they are few."""
    return rows.filter(pk__in=[key for (key,) in sql_rows(_OF_CAUSE, _STATES | {"cause": cause})])
