"""Requests as ReqMgr2 has them."""

from __future__ import annotations

from requests_app.models import ReqMgr2Request
from wms2.admin import rows_admin

# What was last seen there, newest first; refused ones have no request here.
rows_admin(
    ReqMgr2Request, "name", "request", "status", "compared_at", "elements", "problem", filters=("over", "elements"),
    search={"name": "a request's whole name in ReqMgr2"},
)  # fmt: skip
