"""The page of integrity cases: how many are open, by site and by request, and those that the address's filters want."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.http import QueryDict

from outputs_app.api.filters import CaseFilters
from outputs_app.checks.cases import cases_open_counts, cases_shown
from outputs_app.models import CaseState, FindingKind, IntegrityCase
from requests_app.pages.tables import Table
from wms2.actions import Action, buttons_of
from wms2.admin.actions import MOST_ROWS

#: Cases on one page: as many as one confirmation may concern.
MOST = MOST_ROWS


class Group(NamedTuple):
    """Open cases of one site or request. ``summary``: in words by prognosis, the worst first."""

    name: str
    number: int
    since: datetime
    summary: str


@dataclass(frozen=True, slots=True)
class CasesPage:
    """What the address asks for; without a state, what is open. ``more``: there are others behind those shown."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    sites: Sequence[Group]
    requests: Sequence[Group]
    cases: Sequence[IntegrityCase]
    more: bool
    actions: Sequence[Action]
    prognoses = FindingKind
    states = CaseState


def cases_page(given: QueryDict) -> CasesPage:
    """Three queries."""
    asked = given.copy()
    if not {"state", "open"} & asked.keys():
        asked["open"] = "true"
    filters = CaseFilters(asked, queryset=cases_shown().order_by("site", "request__request_name", "id"))
    rows = list(filters.qs[: MOST + 1]) if filters.is_valid() else []
    return CasesPage(
        values={name: given.get(name, "") for name in filters.filters},
        errors={name: [str(one) for one in found] for name, found in filters.form.errors.items()},
        sites=_groups("site"),
        requests=_groups("request__request_name"),
        cases=rows[:MOST],
        more=len(rows) > MOST,
        actions=buttons_of(IntegrityCase),
    )


def groups_table(groups: Sequence[Group]) -> Table:
    """As a file."""
    return Table(Group._fields, groups)


def _groups(by: str) -> list[Group]:
    """The oldest first."""
    found: dict[str, dict[str, tuple[int, datetime]]] = defaultdict(dict)
    for name, prognosis, number, since in cases_open_counts(by, "prognosis"):
        found[name][prognosis] = number, since
    groups = [
        Group(
            name,
            sum(number for number, _ in each.values()),
            min(since for _, since in each.values()),
            ", ".join(f"{each[one][0]} {one.label}" for one in FindingKind if one in each),
        )
        for name, each in found.items()
    ]
    return sorted(groups, key=lambda group: group.since)
