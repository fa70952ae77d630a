"""Statements that a piece of code has put to the database."""

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


def statements(captured: CaptureQueriesContext) -> list[str]:
    """Without the questions for the time: the clock is asked once a second at most, whoever asks first."""
    return [query["sql"] for query in captured if "clock_timestamp" not in query["sql"]]


def statements_of(client: Client, path: str) -> list[str]:
    """Of a page that is there, without who is signed in and what a process reads once in some seconds."""
    client.get(path)  # what a process reads once
    with CaptureQueriesContext(connection) as found:
        response = client.get(path)
    assert response.status_code == 200, (path, response.content[:300])
    return [sql for sql in map(str.strip, statements(found)) if not _BESIDE.search(sql)]
