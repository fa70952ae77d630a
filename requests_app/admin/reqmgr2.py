"""Requests as ReqMgr2 has them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin

from requests_app.models import ReqMgr2Request
from wms2.admin import ReadOnlyAdmin, link_column, since_column


@admin.register(ReqMgr2Request)
class ReqMgr2RequestAdmin(ReadOnlyAdmin):
    """What was last seen there, newest first; refused ones have no request here."""

    list_display = ("name", link_column("request"), "status", since_column("compared_at", "compared"), "elements", "problem")
    list_filter = ("over", "elements")
    exact_search: ClassVar = {"name": "a request's whole name in ReqMgr2"}
