"""What a page asks the database for, without who is signed in and what a process reads once in some seconds."""

from __future__ import annotations

import re

from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from requests_app.models import Limit, ServiceLevel
from wms2.models import RoleAssignment

_TABLES = [model._meta.db_table for model in (Session, User, Group, RoleAssignment, ServiceLevel, Limit)]
_BESIDE = re.compile(rf"\b({'|'.join(_TABLES)})\b|^(SAVEPOINT|RELEASE|SET)\b|^SELECT 1$")


def statements_of(client: Client, path: str) -> list[str]:
    """Of an answer that is a success."""
    client.get(path)  # what a process reads once
    with CaptureQueriesContext(connection) as found:
        response = client.get(path)
    assert response.status_code == 200, (path, response.content[:300])
    said = [str(query["sql"]).strip() for query in found.captured_queries]
    return [sql for sql in said if not _BESIDE.search(sql)]
