"""DBS error codes and the error body dbs2go answers with.

The body is a list of one record ``{error: {reason, message, function, code, stacktrace}, http: {...}, exception, type,
message}``; ``code`` is the outermost DBS code, ``exception`` the HTTP status.
"""

import json
import time
from enum import IntEnum
from typing import Any

from deploy.simulators.httpd import Request, Response


class Code(IntEnum):
    """DBS's numbers for what went wrong, each with the description it is printed with."""

    description: str

    def __new__(cls, number: int, description: str) -> "Code":
        code = int.__new__(cls, number)
        code._value_, code.description = number, description
        return code

    QUERY = 103, "DBS DB query error, e.g. malformed SQL statement"
    INSERT = 110, "DBS DB insert record error"
    VALIDATION = 113, "DBS validation error, e.g. input parameter does not match lexicon rules"
    DECODE = 115, "DBS decode record failure, e.g. malformed JSON"
    CONTENT_TYPE = 117, "Wrong Content-Type HTTP header in HTTP request"
    PARAMETERS = 118, "DBS invalid parameter for the DBS API or validation error"
    READER = 120, "DBS reader I/O error, e.g. unable to read HTTP POST payload"
    UNMARSHAL = 122, "DBS unable to parse JSON record"
    BLOCK_EXISTS = 200, "block already exists"
    FILE_TYPE_MISSING = 201, "file data type does not exist"
    FILE_PARENT_MISSING = 202, "file parent does not exist"
    DATASET_PARENT_MISSING = 203, "dataset parent does not exist"
    PRIMARY_TYPE_MISSING = 205, "primary dataset type does not exist"
    DATASET_MISSING = 212, "dataset does not exist"
    INSERT_DATASET = 300, "insert dataset error"
    INSERT_BLOCK = 305, "insert block error"
    INSERT_BULKBLOCK = 308, "insert bulkblock error"
    INSERT_FILE = 310, "insert file error"
    INSERT_OUTPUT_CONFIG = 317, "insert output config error"
    INSERT_FILE_TYPE = 320, "insert file data type error"
    INSERT_DATA_TIER = 327, "insert data tier error"
    GET_BLOCK_ID = 400, "unable to get block id"
    GET_FILE_ID = 401, "unable to get file id"
    GET_FILE_TYPE_ID = 402, "unable to get file data type id"
    GET_PROCESSING_ERA_ID = 404, "unable to get processing era id"
    GET_ACQUISITION_ERA_ID = 405, "unable to get acquisition era id"
    GET_PHYSICS_GROUP_ID = 407, "unable to get physics group id"
    GET_ACCESS_TYPE_ID = 408, "unable to get dataset access type id"
    GET_DATASET_ID = 410, "unable to get dataset id"
    GET_PRIMARY_DATASET_ID = 411, "unable to get primary dataset id"
    GET_DATA_TIER_ID = 412, "unable to get data tier id"
    GET_OUTPUT_CONFIG_ID = 413, "unable to get output mod config id"
    GET_PRIMARY_TYPE_ID = 414, "unable to get primary dataset type id"
    GET_PARENT_DATASET_ID = 416, "unable to get parent dataset id"
    UPDATE_BLOCK = 501, "update block error"
    UPDATE_DATASET = 502, "update dataset error"
    UPDATE_FILE = 503, "update file error"


INVALID_PARAMETER = "invalid parameter(s)"
NO_ROWS = "sql: no rows in result set"


class DbsError(Exception):
    """A refusal of DBS: its code, its words and the HTTP status it is answered with (400 but for undecodable bodies and 415)."""

    def __init__(self, code: Code, message: str, *, function: str, reason: str = INVALID_PARAMETER, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.function = function
        self.reason = reason
        self.status = status

    def text(self) -> str:
        """The error as dbs2go prints it; it is also the ``reason`` of an error that wraps this one."""
        return (
            f"\nDBSError\n   Code: {self.code}\n   Description: {self.code.description}\n   Function: {self.function}\n"
            f"   Message: {self.message}\n   Reason: {self.reason}\n"
        )

    def wrapped(self, code: Code, message: str, *, function: str) -> "DbsError":
        """This error as the cause of another, as the calling function of dbs2go reports it."""
        return DbsError(code, message, function=function, reason=self.text(), status=self.status)


def bad_parameter(message: str, *, function: str, reason: str = INVALID_PARAMETER) -> DbsError:
    """A parameter that is missing, unknown or without sense."""
    return DbsError(Code.PARAMETERS, message, function=function, reason=reason)


def no_row(code: Code, message: str, *, function: str) -> DbsError:
    """A look-up by name found nothing."""
    return DbsError(Code.QUERY, "", function="dbs.GetID", reason=NO_ROWS).wrapped(code, message, function=function)


def bad_value(what: str, message: str, *, function: str) -> DbsError:
    """A name that the lexicon does not take, as the insert of ``what`` reports it."""
    cause = DbsError(Code.PARAMETERS, message, function="dbs.validator.Check").wrapped(
        Code.PARAMETERS, message, function="dbs.CheckPattern"
    )
    return cause.wrapped(Code.VALIDATION, f"unable to validate {what} record", function=function)


def left_out(what: str, name: str, *, function: str) -> DbsError:
    """A value that must be there and is not, as the insert of ``what`` reports it."""
    cause = DbsError(Code.VALIDATION, f"{name}: constraint required", function=function, reason="validation error")
    return cause.wrapped(Code.VALIDATION, f"unable to validate {what} record", function=function)


def error_response(error: DbsError, request: Request) -> Response:
    """The HTTP answer of a refusal."""
    record: dict[str, Any] = {
        "error": {name: getattr(error, name) for name in ("reason", "message", "function", "code")} | {"stacktrace": ""},
        "http": {
            "method": request.method,
            "code": error.status,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC", time.gmtime()),
            "path": request.raw_target,
            "user_agent": request.header("User-Agent"),
            "x_forwarded_host": request.header("X-Forwarded-Host"),
            "x_forwarded_for": request.header("X-Forwarded-For"),
            "remote_addr": request.remote_addr,
        },
        "exception": error.status,
        "type": "HTTPError",
        "message": error.text(),
    }
    return Response(status=error.status, body=json.dumps([record]).encode(), headers={"Content-Type": "application/json"})
