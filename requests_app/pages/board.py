"""The requests' page: what needs an operator, counts by status, and a page of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dags_app.counts import unit_counts
from requests_app.admission.placement import slots_used
from requests_app.limits import limits_now
from requests_app.models import RequestStatus
from requests_app.pages.attention import Attention, Line, attention
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_state
from requests_app.selectors.summary import kept_counts


class Installation(NamedTuple):
    """The installation at a glance. Slots are live DAGs and requests being planned."""

    counts: tuple[tuple[RequestStatus, int], ...]
    total: int
    slots_used: int
    slots_limit: int
    lifecycle: LifecycleState
    attention: Attention


def installation() -> Installation:
    """A fixed number of queries."""
    numbers = kept_counts().requests
    return Installation(
        counts=tuple((status, numbers[status]) for status in RequestStatus if numbers[status]),
        total=sum(numbers.values()),
        slots_used=slots_used(),
        slots_limit=limits_now().max_active_dags,
        lifecycle=lifecycle_state(),
        attention=attention(),
    )


def lines(rows: Sequence[Any]) -> list[Line]:
    """A page of rows with their work units, one query."""
    units = unit_counts(row.workflow_key for row in rows if row.workflow_key)
    return [Line(row, units[row.workflow_key]) for row in rows]
