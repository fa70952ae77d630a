"""Servers the user brought (WMS2_DATABASE_URL, WMS2_BROKER_URL): asked once before anything starts, never stopped."""

from __future__ import annotations

import subprocess

from deploy.stack.errors import StackError
from deploy.stack.services.base import Place

#: Programs that fail unless the server at a URL answers: the database a query, the broker a connection.
QUESTIONS = {
    "WMS2_DATABASE_URL": "import sys, psycopg; psycopg.connect(sys.argv[1], connect_timeout=10).execute('select 1')",
    "WMS2_BROKER_URL": "import sys, kombu; "
    "kombu.Connection(sys.argv[1], connect_timeout=10).ensure_connection(max_retries=1, timeout=15)",
}


def check(place: Place, variable: str, url: str) -> None:
    """Raise StackError unless the server that this variable names answers."""
    argv = [str(place.layout.python), "-c", QUESTIONS[variable], url]
    result = subprocess.run(argv, env=dict(place.environment), capture_output=True, text=True, check=False, timeout=60)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StackError(f"the server that {variable} names does not answer: {reason}")
