"""What a page says, at no more statements than it may put to the database."""

from __future__ import annotations

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.support.html import text

#: Beside session, user and roles.
MOST_QUERIES = 8 + 3


def shown(client: Client, path: str, part: str | None = None) -> str:
    """The text of the page, or of one of its parts."""
    with CaptureQueriesContext(connection) as asked:
        response = client.get(path)
    assert response.status_code == 200, response.content[:500]
    assert len(asked) <= MOST_QUERIES, "\n".join(query["sql"][:150] for query in asked.captured_queries)
    return text(response.content.decode(), part)
