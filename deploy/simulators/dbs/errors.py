"""DBS error codes and the error body dbs2go answers with.

The body is a list of one record ``{error: {reason, message, function, code, stacktrace}, http: {...}, exception, type,
message}``; ``code`` is the outermost DBS code, ``exception`` the HTTP status.
"""

import json
import time
from typing import Any

from deploy.simulators.httpd import Request, Response

QUERY = 103
INSERT = 110
VALIDATION = 113
DECODE = 115
CONTENT_TYPE = 117
PARAMETERS = 118
NOT_IMPLEMENTED = 119
READER = 120
UNMARSHAL = 122
BLOCK_EXISTS = 200
FILE_TYPE_MISSING = 201
FILE_PARENT_MISSING = 202
DATASET_PARENT_MISSING = 203
PRIMARY_TYPE_MISSING = 205
DATASET_MISSING = 212
INSERT_DATASET = 300
INSERT_BLOCK = 305
INSERT_BULKBLOCK = 308
INSERT_FILE = 310
INSERT_OUTPUT_CONFIG = 317
INSERT_FILE_TYPE = 320
INSERT_DATA_TIER = 327
INSERT_FILE_LUMI = 311
GET_BLOCK_ID = 400
GET_FILE_ID = 401
GET_FILE_TYPE_ID = 402
GET_PROCESSING_ERA_ID = 404
GET_ACQUISITION_ERA_ID = 405
GET_PHYSICS_GROUP_ID = 407
GET_ACCESS_TYPE_ID = 408
GET_DATASET_ID = 410
GET_PRIMARY_DATASET_ID = 411
GET_DATA_TIER_ID = 412
GET_OUTPUT_CONFIG_ID = 413
GET_PRIMARY_TYPE_ID = 414
GET_PARENT_DATASET_ID = 416
UPDATE_ACQUISITION_ERA = 500
UPDATE_BLOCK = 501
UPDATE_DATASET = 502
UPDATE_FILE = 503

DESCRIPTIONS = {
    QUERY: "DBS DB query error, e.g. malformed SQL statement",
    INSERT: "DBS DB insert record error",
    VALIDATION: "DBS validation error, e.g. input parameter does not match lexicon rules",
    DECODE: "DBS decode record failure, e.g. malformed JSON",
    CONTENT_TYPE: "Wrong Content-Type HTTP header in HTTP request",
    PARAMETERS: "DBS invalid parameter for the DBS API or validation error",
    NOT_IMPLEMENTED: "DBS Not implemented API error",
    READER: "DBS reader I/O error, e.g. unable to read HTTP POST payload",
    UNMARSHAL: "DBS unable to parse JSON record",
    BLOCK_EXISTS: "block already exists",
    FILE_TYPE_MISSING: "file data type does not exist",
    FILE_PARENT_MISSING: "file parent does not exist",
    DATASET_PARENT_MISSING: "dataset parent does not exist",
    PRIMARY_TYPE_MISSING: "primary dataset type does not exist",
    DATASET_MISSING: "dataset does not exist",
    INSERT_DATASET: "insert dataset error",
    INSERT_BLOCK: "insert block error",
    INSERT_BULKBLOCK: "insert bulkblock error",
    INSERT_FILE: "insert file error",
    INSERT_OUTPUT_CONFIG: "insert output config error",
    INSERT_FILE_TYPE: "insert file data type error",
    INSERT_DATA_TIER: "insert data tier error",
    INSERT_FILE_LUMI: "insert file lumi error",
    GET_BLOCK_ID: "unable to get block id",
    GET_FILE_ID: "unable to get file id",
    GET_FILE_TYPE_ID: "unable to get file data type id",
    GET_PRIMARY_TYPE_ID: "unable to get primary dataset type id",
    GET_PARENT_DATASET_ID: "unable to get parent dataset id",
    GET_PRIMARY_DATASET_ID: "unable to get primary dataset id",
    GET_PROCESSING_ERA_ID: "unable to get processing era id",
    GET_ACQUISITION_ERA_ID: "unable to get acquisition era id",
    GET_DATA_TIER_ID: "unable to get data tier id",
    GET_PHYSICS_GROUP_ID: "unable to get physics group id",
    GET_ACCESS_TYPE_ID: "unable to get dataset access type id",
    GET_DATASET_ID: "unable to get dataset id",
    GET_OUTPUT_CONFIG_ID: "unable to get output mod config id",
    UPDATE_ACQUISITION_ERA: "update acquisition era error",
    UPDATE_BLOCK: "update block error",
    UPDATE_DATASET: "update dataset error",
    UPDATE_FILE: "update file error",
}

INVALID_PARAMETER = "invalid parameter(s)"
NO_ROWS = "sql: no rows in result set"


class DbsError(Exception):
    """A refusal of DBS: its code, its words and the HTTP status it is answered with (400 but for undecodable bodies and 415)."""

    def __init__(self, code: int, message: str, *, function: str, reason: str = INVALID_PARAMETER, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.function = function
        self.reason = reason
        self.status = status

    def text(self) -> str:
        """The error as dbs2go prints it; it is also the ``reason`` of an error that wraps this one."""
        description = DESCRIPTIONS.get(self.code, "Not defined")
        return (
            f"\nDBSError\n   Code: {self.code}\n   Description: {description}\n   Function: {self.function}\n"
            f"   Message: {self.message}\n   Reason: {self.reason}\n"
        )

    def wrapped(self, code: int, message: str, *, function: str) -> "DbsError":
        """This error as the cause of another, as the calling function of dbs2go reports it."""
        return DbsError(code, message, function=function, reason=self.text(), status=self.status)


def no_row(code: int, message: str, *, function: str) -> DbsError:
    """A look-up by name found nothing."""
    return DbsError(QUERY, "", function="dbs.GetID", reason=NO_ROWS).wrapped(code, message, function=function)


def bad_value(what: str, message: str, *, function: str) -> DbsError:
    """A name that the lexicon does not take, as the insert of ``what`` reports it."""
    cause = DbsError(PARAMETERS, message, function="dbs.validator.Check").wrapped(
        PARAMETERS, message, function="dbs.CheckPattern"
    )
    return cause.wrapped(VALIDATION, f"unable to validate {what} record", function=function)


def left_out(what: str, name: str, *, function: str) -> DbsError:
    """A value that must be there and is not, as the insert of ``what`` reports it."""
    cause = DbsError(VALIDATION, f"{name}: constraint required", function=function, reason="validation error")
    return cause.wrapped(VALIDATION, f"unable to validate {what} record", function=function)


def error_response(error: DbsError, request: Request) -> Response:
    """The HTTP answer of a refusal."""
    record: dict[str, Any] = {
        "error": {
            "reason": error.reason,
            "message": error.message,
            "function": error.function,
            "code": error.code,
            "stacktrace": "",
        },
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
