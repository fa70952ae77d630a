"""Operator verbs and intake, as functions ``<noun>_<verb>``. They record intent; the life cycle does all outside work."""

from requests_app.services.intake import request_check, request_fetch, request_import
from requests_app.services.verbs import request_abort, request_hold, request_release, request_set_priority, request_submit

__all__ = [
    "request_abort",
    "request_check",
    "request_fetch",
    "request_hold",
    "request_import",
    "request_release",
    "request_set_priority",
    "request_submit",
]
