"""The account of an input dataset in one statement: what is claimed of each file is summed once, then joined to the files.

For readers with a deadline; a file without events counts as one, so that its lumis are work too (``requests_app.ledger``).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import connection

_SQL = """
WITH claimed AS (
    SELECT c.input_file_id AS file_id,
           sum(CASE WHEN f.events = 0 THEN 1 ELSE c.events END) FILTER (WHERE c.live AND u.state = 'done') AS done,
           sum(CASE WHEN f.events = 0 THEN 1 ELSE c.events END)
               FILTER (WHERE c.live AND u.state IN ('planned', 'done_unaccounted')) AS planned,
           bool_or(NOT c.live) AS tried
      FROM work_unit_claims c
      JOIN work_units u ON u.id = c.unit_id
      JOIN input_files f ON f.id = c.input_file_id
     WHERE u.workflow_id = %(workflow)s
     GROUP BY c.input_file_id
), account AS (
    SELECT f.events,
           greatest(f.events, 1) AS weight,
           f.excluded_at IS NOT NULL AS excluded,
           coalesce(c.done, 0) AS done,
           coalesce(c.planned, 0) AS planned,
           coalesce(c.tried, false) AS tried
      FROM input_files f LEFT JOIN claimed c ON c.file_id = f.id
     WHERE f.workflow_id = %(workflow)s
)
SELECT coalesce(sum(events), 0),
       coalesce(sum(done) FILTER (WHERE NOT excluded AND events > 0), 0),
       coalesce(sum(planned) FILTER (WHERE NOT excluded AND events > 0), 0),
       coalesce(sum(events) FILTER (WHERE excluded), 0),
       coalesce(sum(weight - done - planned) FILTER (WHERE NOT excluded AND events > 0), 0),
       count(*),
       count(*) FILTER (WHERE NOT excluded AND done >= weight),
       count(*) FILTER (WHERE NOT excluded AND done + planned = weight AND planned > 0),
       count(*) FILTER (WHERE NOT excluded AND done + planned < weight AND tried),
       count(*) FILTER (WHERE excluded),
       count(*) FILTER (WHERE NOT excluded AND done + planned < weight AND NOT tried),
       count(*) FILTER (WHERE NOT excluded AND done + planned > weight)
  FROM account
"""


@dataclass(frozen=True, slots=True)
class InputSums:
    """Files and events by what became of them. ``overclaimed_files``: more is claimed of them than they have; always 0."""

    all_events: int
    done_events: int
    planned_events: int
    excluded_events: int
    left_events: int
    all_files: int
    done_files: int
    planned_files: int
    attempted_files: int
    excluded_files: int
    left_files: int
    overclaimed_files: int


def input_sums(workflow_id: uuid.UUID) -> InputSums:
    """Count, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL, {"workflow": workflow_id})
        (row,) = cursor.fetchall()
    return InputSums(*(int(value) for value in row))
