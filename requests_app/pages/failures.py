"""The page of failures: what fails across requests by code and site, and of a code, a site or both, whom it concerns.

A fixed number of queries over kinds of failures, which are as many as requests that fail, not as failed jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dags_app.models import FailureCategory, FailureRule
from requests_app.api.failures import FailureQuerySerializer
from requests_app.models import Request
from requests_app.pages.cached import cached, chart_drawn
from requests_app.pages.tables import Table
from requests_app.selectors.failures import (
    NO_SITE,
    Asked,
    Concerned,
    Place,
    Shown,
    places,
    requests_concerned,
    samples_of,
    sums_by,
)
from wms2.actions import Action, buttons_of
from wms2.runtime.grouping import grouped
from wms2.web.formatting import word
from wms2.web.time_range import TimeRange

#: Codes and sites of the table, those with most failed attempts first; the others are added up.
MOST_CODES, MOST_SITES = 30, 10
#: Operations on the requests concerned that a common cause may ask for.
_ACTIONS = ("release", "hold", "sites", "abort")


class Cell(NamedTuple):
    """Failed attempts, and where the requests concerned are listed. ``colour``: how large a share of all it is."""

    attempts: int
    given_up: int
    address: str
    colour: str
    label: str


class Row(NamedTuple):
    """One code. ``meaning``: by its rules, as they are today; ``cells``: of each site of the table, drawn."""

    code: int
    categories: Sequence[FailureCategory]
    rules: Sequence[str]
    meaning: str
    total: Cell
    cells: SafeString
    others: int


class Matrix(NamedTuple):
    """Code by site. ``sites``: (name, address, failed attempts)."""

    rows: Sequence[Row]
    sites: Sequence[tuple[str, str, int]]
    other_sites: int
    other_codes: int
    attempts: int
    given_up: int


@dataclass(frozen=True, slots=True)
class FailuresPage:
    """What the address asks for. ``chosen``: the code and site in words; empty: none is chosen, and samples are of all."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    range: TimeRange
    matrix: str = ""
    chosen: str = ""
    requests: Sequence[Concerned] = ()
    more: bool = False
    samples: Sequence[Shown] = ()
    list_query: str = ""
    actions: Sequence[Action] = ()
    rest_query: str = ""
    chart: str = ""
    categories = FailureCategory


def failures_page(given: QueryDict) -> FailuresPage:
    """Two queries: whom it concerns; once in a while for all readers: the table, its rules, samples, the chart."""
    names = map(str, FailureQuerySerializer().fields)
    values = {name: given.get(name, "") for name in names if name != "format"}
    query = FailureQuerySerializer(data={name: value for name, value in values.items() if value})
    if not query.is_valid():
        errors = {name: [str(one) for one in why] for name, why in query.errors.items()}
        return FailuresPage(values=values, errors=errors, range=TimeRange.of({}))
    asked, range_ = query.validated_data, TimeRange.of(query.validated_data)
    code, site = asked["code"], asked.get("site", "")
    all_ = Asked(range_.begins, category=asked.get("category", ""), campaign=asked.get("campaign", ""))
    place = all_._replace(code=code, site=site)
    chosen = code is not None or bool(site)
    concerned, more = requests_concerned(place.kinds) if chosen else ([], False)
    common = {name: values[name] for name in ("range", "category", "campaign") if values[name]}
    # the same requests in the list of requests (``RequestFilters``)
    wanted = {"failed_code": values["code"], "failed_site": values["site"], "campaign": values["campaign"]}
    wanted["failed_since"] = f"{range_.begins:%Y-%m-%dT%H:%M:%SZ}"
    return FailuresPage(
        values=values,
        errors={},
        range=range_,
        matrix=_drawn(all_, range_, common),
        chosen=" ".join([*([str(code)] if code is not None else ["all codes"]), *([f"at {site}"] if site else [])])
        if chosen
        else "",
        requests=concerned,
        more=more,
        samples=cached(("samples", range_.name, *place[1:]), lambda: samples_of(place)),
        list_query=urlencode({name: value for name, value in wanted.items() if value}),
        actions=[action for action in buttons_of(Request) if action.name in _ACTIONS],
        rest_query=urlencode({name: value for name, value in values.items() if value}),
        chart=chart_drawn(
            "failures", range_, by="code", campaign=asked.get("campaign", ""), site="" if site == NO_SITE else site
        ),
    )


def concerned_table(seen: FailuresPage) -> Table:
    """Requests of the code and site that are chosen, as many as the page has."""
    return Table(Concerned._fields[1:], [row[1:] for row in seen.requests])


def samples_table(seen: FailuresPage) -> Table:
    """The samples of the page."""
    of_group, of_sample = ("code", "category", "step", "site"), ("unit", "node", "attempt", "job_id", "at", "message")
    rows = (
        [row.request_name, *attrgetter(*of_group)(row.sample.group), *attrgetter(*of_sample)(row.sample), row.alike]
        for row in seen.samples
    )
    return Table(("request_name", *of_group, *of_sample, "alike"), rows)


def _drawn(asked: Asked, range_: TimeRange, common: Mapping[str, str]) -> SafeString:
    def draw() -> SafeString:
        context = {"matrix": _matrix(places(asked.kinds), common), "range": range_.name}
        return render_to_string("failures/matrix.html", context | {"narrowed": bool(asked.category or asked.campaign)})

    return cached(("failures", range_.name, asked.category, asked.campaign, *sorted(common)), draw)


def _matrix(found: Sequence[Place], common: Mapping[str, str]) -> Matrix:
    total = sum(place.attempts for place in found)
    by_site = sorted(sums_by(found, "site").items(), key=lambda each: (-each[1], each[0]))
    by_code = sorted(sums_by(found, "code").items(), key=lambda each: (-each[1], each[0]))
    sites = [site for site, _ in by_site[:MOST_SITES]]
    of_code = grouped(found, lambda place: place.code)
    codes = [code for code, _ in by_code[:MOST_CODES]]
    notes = dict(
        FailureRule.objects.filter(name__in={p.rule for code in codes for p in of_code[code]}).values_list("name", "note")
    )
    return Matrix(
        rows=[_row(code, of_code[code], sites, common, notes, total) for code in codes],
        sites=[(site, _address(common, site=site), number) for site, number in by_site[:MOST_SITES]],
        other_sites=len(by_site) - len(sites),
        other_codes=len(by_code) - len(codes),
        attempts=total,
        given_up=sum(place.given_up for place in found),
    )


def _row(
    code: int, found: Sequence[Place], sites: Sequence[str], common: Mapping[str, str], notes: Mapping[str, str], total: int
) -> Row:
    of_site = grouped(found, lambda place: place.site)
    rules = sorted(sums_by(found, "rule").items(), key=lambda each: -each[1])
    return Row(
        code=code,
        categories=[word(FailureCategory, category) for category in sorted({place.category for place in found})],
        rules=[rule for rule, _ in rules if rule],
        meaning=next((notes[rule] for rule, _ in rules if notes.get(rule)), ""),
        total=_cell(found, common, total, code=code),
        cells=format_html_join(
            "", "{}", ((_cell_drawn(_cell(of_site[site], common, total, code=code, site=site)),) for site in sites)
        ),
        others=sum(place.attempts for place in found if place.site not in sites),
    )


def _cell_drawn(cell: Cell) -> SafeString:
    """Here, since hundreds of them in a template would cost ten times as much."""
    if not cell.attempts:
        return SafeString('<td class="number"></td>')
    shown = '<td class="number"><a class="badge colour-{}" href="{}" aria-label="{}">{}</a></td>'
    return format_html(shown, cell.colour, cell.address, cell.label, f"{cell.attempts:,}")


def _cell(found: Iterable[Place], common: Mapping[str, str], total: int, *, code: int, site: str | None = None) -> Cell:
    rows = list(found)
    attempts, given_up = sum(row.attempts for row in rows), sum(row.given_up for row in rows)
    share = attempts / total if total else 0
    colour = "bad" if share >= 0.2 else "waiting" if share >= 0.05 else "idle"
    where = "" if site is None else f" at {site or 'no known site'}"
    return Cell(
        attempts, given_up, _address(common, code=code, site=site), colour,
        f"{code}{where}: {attempts:,} failed attempts, {given_up:,} given up",
    )  # fmt: skip


def _address(common: Mapping[str, str], *, code: int | None = None, site: str | None = None) -> str:
    more: dict[str, Any] = {} if code is None else {"code": code}
    if site is not None:
        more["site"] = site or NO_SITE
    return f"?{urlencode({**common, **more})}#found"
