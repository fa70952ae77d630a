"""What holds for every list of the REST interface. The lists come from the router: a new one is checked as it is added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, reverse
from rest_framework.test import APIClient

from tests.support.list_rows import ROWS, make_rows
from tests.support.statements import statements
from wms2.api.filters import ChoicesFilter, TrueFalseFilter
from wms2.api.pagination import ordering_choices
from wms2.api.shown import columns_of
from wms2.api.views import RowsViewSet
from wms2.urls import api_v1

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("rows")]
#: The token's user, the page, and what its view computes for all rows together.
MOST_STATEMENTS = 6
#: Lists of a few rows, which ask for each.
ROW_BY_ROW = {"worker-pool-list"}
#: Whose rows have addresses by another column, or none.
ADDRESSED_BY = {"schedd-list": "name"}
ONLY_LISTED = {"lease-list"}
#: Lists that differ from user to user (``tests/requests_app/pages/test_board.py``).
OF_ONE_USER = {"saved-view-list"}


class List(NamedTuple):
    """A list: the name of its route, its address and its view."""

    name: str
    address: str
    view: Any


def _lists(patterns: Any) -> Iterator[List]:
    for entry in patterns:
        if not isinstance(entry, URLPattern):
            yield from _lists(entry.url_patterns)
            continue
        view = getattr(entry.callback, "cls", None)
        if entry.name in OF_ONE_USER:
            continue
        if view is not None and issubclass(view, RowsViewSet) and "list" in entry.callback.actions.values():
            yield List(str(entry.name), reverse(str(entry.name)), view)


LISTS = tuple(_lists(api_v1))


@pytest.fixture(scope="module")
def rows(module_rows: None) -> None:
    make_rows()


def check(problem: Callable[[List], Iterator[str]]) -> None:
    """Ask each list, and report everything that is wrong."""
    found = [f"{each.name}: {words}" for each in LISTS for words in problem(each)]
    assert not found, "\n".join(found)


def results(client: APIClient, address: str, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(address, {"page_size": 500, **query})
    assert answer.status_code == 200, (address, query, answer.content)
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def key_of(each: List) -> tuple[str, str]:
    """The field that identifies a row, and its column."""
    columns = columns_of(each.view.list_serializer_class or each.view.serializer_class)
    name = next(name for name in ("id", "request_name", "name", "queue") if name in columns)
    return name, columns[name]


def queryset_of(each: List) -> Any:
    view = each.view(action="list")
    return view.get_queryset()


def test_there_are_lists_and_rows_in_each(reader: APIClient) -> None:
    assert len(LISTS) >= 22
    check(lambda each: iter(["too few rows"] if len(results(reader, each.address)) < ROWS else []))


def test_a_reader_reads_and_nobody_else_without_a_sign_in(reader: APIClient, nobody: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        if nobody.get(each.address).status_code != 401:
            yield "is open to anonymous clients"
        if reader.get(each.address).status_code != 200:
            yield "is closed to readers"

    check(problem)


def test_a_wrong_query_is_refused_and_named(reader: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        filters = each.view.filterset_class.base_filters if each.view.filterset_class else {}
        wrong = [("staus", "held"), ("ordering", "nothing"), ("page_size", "0"), ("page_size", "501"), ("cursor", "made-up")]
        wrong += [(name, value) for name in (*filters, "ordering", "cursor") for value in ("", ["a", "a"])]
        wrong += [(name, "no-such-word") for name, one in filters.items() if isinstance(one, ChoicesFilter | TrueFalseFilter)]
        for name, value in wrong:
            answer = reader.get(each.address, {name: value})
            body = answer.json()
            if (answer.status_code, body.get("field")) != (400, name):
                yield f"{name}={value}: {answer.status_code} {body}"
            if name == "staus" and (body["code"] != "unknown_parameter" or not all(one in body["detail"] for one in filters)):
                yield f"does not name the known parameters: {body}"

    check(problem)


def test_pages_of_every_ordering_have_each_row_once_in_the_order_of_the_database(reader: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        key, column = key_of(each)
        for ordering in ("", *ordering_choices(each.view)):
            query: dict[str, Any] = {"ordering": ordering} if ordering else {}
            names = (ordering,) if ordering else each.view.ordering
            expected = [str(value) for value in queryset_of(each).order_by(*names, "pk").values_list(column, flat=True)]
            found, url = [], each.address
            while url:
                page = (reader.get(url, {**query, "page_size": 2}) if url == each.address else reader.get(url)).json()
                found += [str(row[key]) for row in page["results"]]
                url = page["next"]
            if found != expected:
                yield f"ordering={ordering}: {found} in place of {expected}"

    check(problem)


def test_every_filter_has_exactly_the_rows_that_fit(reader: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        key, column = key_of(each)
        queryset = queryset_of(each)
        for name, one in (each.view.filterset_class.base_filters if each.view.filterset_class else {}).items():
            if one.method is not None or one.field_name is None or name == "search":
                continue  # each has a test of its own
            lookup = "exact" if isinstance(one, ChoicesFilter) else one.lookup_expr
            value = queryset.exclude(**{one.field_name: None}).values_list(one.field_name, flat=True).first()
            if value is None:
                continue
            expected = queryset.filter(**{f"{one.field_name}__{lookup}": value}).values_list(column, flat=True)
            asked = value.isoformat() if isinstance(value, datetime) else str(value).lower() if value in (True, False) else value
            found = {str(row[key]) for row in results(reader, each.address, **{name: asked})} if asked != "" else set()
            if asked != "" and found != {str(one) for one in expected}:
                yield f"{name}={asked}: {found} in place of {list(expected)}"

    check(problem)


def test_a_row_says_the_same_in_the_list_and_by_itself(reader: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        if each.name in ONLY_LISTED:
            return
        lookup = ADDRESSED_BY.get(each.name, each.view.lookup_field)
        column = columns_of(each.view.list_serializer_class or each.view.serializer_class)
        keys = {str(values[0]): str(values[1]) for values in queryset_of(each).values_list(key_of(each)[1], lookup)}
        for row in results(reader, each.address)[:3]:
            address = f"{each.address}/{keys[str(row[key_of(each)[0]])]}"
            answer = reader.get(address)
            if answer.status_code != 200:
                yield f"{address}: {answer.status_code}"
                continue
            body = answer.json()
            differ = [name for name in column if name in body and body[name] != row[name]]
            if differ:
                yield f"{address}: {[(name, row[name], body[name]) for name in differ]}"

    check(problem)


def test_a_page_costs_the_same_for_any_number_of_rows(reader: APIClient) -> None:
    def problem(each: List) -> Iterator[str]:
        costs = []
        for size in (1, 500):
            with CaptureQueriesContext(connection) as captured:
                results(reader, each.address, page_size=size)
            costs.append(len(statements(captured)))
        if costs[0] > MOST_STATEMENTS or (costs[0] != costs[1] and each.name not in ROW_BY_ROW):
            yield f"{costs[0]} statements for one row, {costs[1]} for all"

    check(problem)
