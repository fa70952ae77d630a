"""What happened to a request, in one list: statuses, rounds, submissions, stops and ends of DAGs, operations by whom.

Pure functions over rows that the page has read anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dags_app.models import DAG, DAGKind
from requests_app.models import RequestStatus, RequestTransition
from wms2.models import AuditEntry
from wms2.web.formatting import counted, duration, word

#: Lines of one page, the newest.
MOST_LINES = 250
#: An operation and the change of status that it made lie no further apart.
_TOGETHER = timedelta(seconds=5)


class TimelineEntry(NamedTuple):
    """One line. ``status``: it is a change of status, which lasted for ``lasted``; else ``what`` says it.

    ``dag``: whose page has more of it; ``refused``: an operation that was not done.
    """

    at: datetime
    what: str
    who: str
    why: str
    status: RequestStatus | None = None
    lasted: str = ""
    dag: DAG | None = None
    refused: bool = False


def timeline(
    transitions: Iterable[RequestTransition], dags: Sequence[DAG], audit: Iterable[AuditEntry]
) -> tuple[TimelineEntry, ...]:
    """Newest first. An operation that changed the status is named with that, and has no line of its own."""
    acted = list(audit)
    lines = [*_changes(transitions, acted), *_of_dags(dags), *map(_operation, acted)]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:MOST_LINES])


def _changes(transitions: Iterable[RequestTransition], acted: list[AuditEntry]) -> Iterator[TimelineEntry]:
    """Newest first; takes the operations that belong to them out of ``acted``."""
    later: datetime | None = None
    for row in transitions:
        alike = (entry for entry in acted if (entry.actor, entry.reason) == (row.actor, row.reason))
        operation = next((entry for entry in alike if entry.outcome != "refused" and abs(entry.at - row.at) < _TOGETHER), None)
        if operation is not None:
            acted.remove(operation)
        lasted = duration((later - row.at).total_seconds()) if later else ""
        said = _spoken(operation) if operation else ""
        yield TimelineEntry(row.at, said, row.actor, row.reason, word(RequestStatus, row.to_status), lasted)
        later = row.at


def _of_dags(dags: Sequence[DAG]) -> Iterator[TimelineEntry]:
    for dag in dags:
        units = counted(dag.total_work_units, "work unit")
        if dag.submitted_at:
            fresh = dag.kind == DAGKind.FRESH
            what = (
                f"Round {dag.round.index} submitted: {units}" if fresh else f"{dag.get_kind_display()}, round {dag.round.index}"
            )
            yield TimelineEntry(dag.submitted_at, what, "", f"to {dag.schedd_name}" if dag.schedd_name else "", dag=dag)
        if dag.stop_requested_at:
            yield TimelineEntry(dag.stop_requested_at, "Stop of the DAG", "", dag.stop_reason, dag=dag)
        if dag.completed_at:
            why = f"{dag.units_done} of {units} done"
            yield TimelineEntry(dag.completed_at, f"DAG ended: {dag.get_status_display()}", "", why, dag=dag)


def _operation(entry: AuditEntry) -> TimelineEntry:
    return TimelineEntry(entry.at, _spoken(entry), entry.actor, entry.reason, refused=entry.outcome == "refused")


def _spoken(entry: AuditEntry) -> str:
    text = entry.action.removeprefix("request_").replace("_", " ")
    return text[:1].upper() + text[1:]
