"""How PostgreSQL reads lists of 100,000 requests: milliseconds, and whether it goes over an index or through the whole table.

The rows are those of ``bench.api_load``. A search goes through a whole index where the extension ``pg_trgm`` is missing.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from bench.api_load import REQUESTS, prepare

LISTS = (
    ("", "-created_at"), ("", "status_since"), ("", "-status_since"), ("", "-updated_at"), ("", "-priority"),
    ("", "request_name"), ("", "status"), ("", "-campaign"), ("status=held", "status_since"), ("status=queued", "-priority"),
    ("alerted=true", "-created_at"), ("urgent=true", "-created_at"), ("hold_code=threshold", "-created_at"),
    ("campaign=Campaign7", "-created_at"), ("requestor=nobody", "-created_at"),
)  # fmt: skip
PAGE = 51


def main() -> None:
    """One line a list; the best of three."""
    import django

    django.setup()
    from django.http import QueryDict

    from requests_app.api.filters import RequestFilters
    from requests_app.models import Request
    from requests_app.selectors.requests import requests_listed
    from requests_app.selectors.workflows import workflows_stored
    from wms2.api.filters import UpperSearchFilter

    prepare(int(os.environ.get("BENCH_REQUESTS", REQUESTS)))
    whole = []
    for query, ordering in LISTS:
        name = f"requests {query or 'all'} by {ordering}"
        if _show(name, RequestFilters(QueryDict(query), queryset=requests_listed()).qs.order_by(ordering, "pk")[:PAGE]):
            whole.append(name)
    found = Request.objects.filter(search_text__contains="PREP-777").order_by().values("pk")
    _show("requests that a search finds", found[: UpperSearchFilter.few + 1])
    for ordering in ("-created_at", "-updated_at"):
        _show(f"workflows by {ordering}", workflows_stored().defer("spec", "psets").order_by(ordering, "pk")[:PAGE])
    print(f"through the whole table: {', '.join(whole) or 'none'}")


def _show(name: str, rows: Any) -> bool:
    from django.db import connection

    statement, parameters = rows.query.sql_with_params()
    taken = []
    with connection.cursor() as cursor:
        for _ in range(3):
            begun = time.perf_counter()
            cursor.execute(statement, parameters)
            cursor.fetchall()
            taken.append(time.perf_counter() - begun)
        cursor.execute(f"EXPLAIN {statement}", parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    scans = re.findall(r"((?:Seq|Index|Index Only|Bitmap Index) Scan(?: Backward)?(?: using| on) \w+)", plan)
    print(f"{name:48} {min(taken) * 1000:7.1f} ms   {scans[0] if scans else ''}")
    return "Seq Scan on requests" in plan
