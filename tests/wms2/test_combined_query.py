"""Lists that are read by one statement: asked again, it is prepared, and answers as the first time."""

from __future__ import annotations

import uuid

import pytest
from django.db import DataError, connection, transaction
from django.db.models import Value
from django.test.utils import CaptureQueriesContext

from requests_app.models import Request, RequestStatus
from tests.support.rows import request_row
from tests.support.statements import statements
from wms2.runtime.combined_query import CombinedQuery

pytestmark = pytest.mark.django_db(transaction=True)
NAME, KEY = "a name", uuid.UUID(int=7)


def query() -> CombinedQuery:
    return CombinedQuery(
        named=Request.objects.filter(request_name=NAME).values("request_name"),
        same=Request.objects.filter(pk=KEY).annotate(share=Value("100 % of %s")).values("request_name", "share"),
        none=Request.objects.none(),
        active=Request.objects.filter(status=RequestStatus.ACTIVE)
        .exclude(pk=KEY)
        .order_by("request_name")
        .values("request_name"),
    )


def test_each_execution_has_the_rows_of_what_it_is_given_in_every_session() -> None:
    rows, asked = [request_row(RequestStatus.ACTIVE) for _ in range(3)], query()
    for number in range(8):
        row = rows[number % 3]
        if number == 6:
            connection.close()
        with CaptureQueriesContext(connection) as captured:
            found = asked.rows({NAME: row.request_name, KEY: row.pk})
        assert found == {
            "named": [{"request_name": row.request_name}],
            "same": [{"request_name": row.request_name, "share": "100 % of %s"}],
            "none": [],
            "active": [{"request_name": each.request_name} for each in sorted(rows, key=lambda r: r.request_name) if each != row],
        }, number
        assert len(statements(captured)) == 1
        assert ("PREPARE" in statements(captured)[0]) == (number in (1, 6)), number


def test_after_an_execution_that_failed_it_answers_again() -> None:
    row, asked = request_row(RequestStatus.ACTIVE), query()
    asked.rows({NAME: "", KEY: row.pk})
    for _ in range(2):
        with pytest.raises(DataError), transaction.atomic():
            asked.rows({NAME: "", KEY: "no key"})
        assert asked.rows({NAME: row.request_name, KEY: row.pk})["named"] == [{"request_name": row.request_name}]


def test_without_marks_it_is_prepared_too() -> None:
    row = request_row(RequestStatus.ACTIVE)
    asked = CombinedQuery(active=Request.objects.filter(status=RequestStatus.ACTIVE).values("request_name"))
    assert [asked.rows() for _ in range(3)] == [{"active": [{"request_name": row.request_name}]}] * 3
