"""What DBS's answers mean: rows of several shapes, and errors that are its own trouble or a refusal."""

from __future__ import annotations

import json

import pytest
from pytest_httpserver import HTTPServer

from tests.support.cases import in_one_test
from wms2.adapters.dbs import Dbs
from wms2.adapters.dbs_queries import dbs_fault
from wms2.errors import ServiceRejected, ServiceUnavailable


def test_a_server_that_does_not_stream_is_read_too(httpserver: HTTPServer) -> None:
    rows = [{"block_name": "/P/E-v1/T#1", "open_for_writing": 0, "file_count": None}]
    httpserver.expect_request("/blocks").respond_with_json(rows)
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    (info,) = dbs.blocks("/P/E-v1/TIER")
    assert (info.is_open, info.file_count) == (False, 0)


def test_all_lumis_of_a_run_in_one_row_are_taken_apart(httpserver: HTTPServer) -> None:
    rows = [{"logical_file_name": "/store/a", "run_num": 7, "lumi_section_num": [1, 3], "event_count": [5, None]}]
    httpserver.expect_request("/filelumis").respond_with_json(rows)
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    assert [(r.run, r.lumi, r.events) for r in dbs.file_lumis("/P/E-v1/TIER#1")] == [(7, 1, 5), (7, 3, None)]


def test_a_row_of_another_shape_says_nothing(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/files").respond_with_data('{"logical_file_name": 7}\n')
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    with pytest.raises(ServiceUnavailable, match=r"unexpected shape at 0\.logical_file_name"):
        list(dbs.files("/P/E-v1/TIER"))


NO_ROW = "Code: 103\n Reason: sql: no rows in result set"
LOCKED = "Code: 110\n Reason: database is locked"


@in_one_test(
    "status, code, reason, kind",
    [
        # the door's own code alone, or with the database's own words: the database is in trouble
        *((400, code, "", ServiceUnavailable) for code in (305, 308, 310, 314, 501, 502, 503)),
        (400, 310, "Code: 310\n Reason: concurrency error", ServiceUnavailable),
        (400, 305, LOCKED, ServiceUnavailable),
        (400, 400, f"Code: 110\n {LOCKED}", ServiceUnavailable),
        (400, 502, "database is locked", ServiceUnavailable),
        (400, 414, "Code: 110\n Reason: ORA-03113: end-of-file on communication channel", ServiceUnavailable),
        (400, 310, "Code: 410\n Code: 103\n Reason: ORA-03113: end-of-file on communication channel", ServiceUnavailable),
        (400, 310, f"Code: 410\n {NO_ROW} for /P/ORA-1", None),
        # a value or a row that is nested is a refusal, whatever is around it
        *((400, 310, f"Code: {cause}", None) for cause in (113, 118, 400, 401, 410, 411, 412)),
        (400, 300, "Code: 113\n Code: 118\n Message: unable to match dataset value /ORA-1/is locked", None),
        (400, 310, NO_ROW, None),
        (400, 202, NO_ROW, None),
        (400, 200, "nil", None),
        (400, 400, NO_ROW, None),
        (400, 101, "database is gone", ServiceUnavailable),
        (400, 310, "Code: 102\n Description: transaction", ServiceUnavailable),
        (400, 103, "ORA-12541", ServiceUnavailable),
        (500, 115, "unexpected end of JSON", ServiceRejected),
    ],
)
def test_trouble_inside_dbs_is_distinguished_from_a_refusal(status: int, code: int, reason: str, kind: type | None) -> None:
    error = {"reason": reason, "message": "m", "function": "f", "code": code, "stacktrace": "s"}
    fault = dbs_fault(status, {}, json.dumps([{"error": error}]).encode())
    assert (fault.code, fault.kind) == (code, kind)
    assert fault.detail.startswith("f: m")
