"""Servers the user brought (WMS2_DATABASE_URL, WMS2_BROKER_URL): asked once before anything starts, never stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.stack.errors import StackError

DATABASE = "import sys, psycopg; psycopg.connect(sys.argv[1], connect_timeout=10).execute('select 1')"
BROKER = "import sys, kombu; kombu.Connection(sys.argv[1], connect_timeout=10).ensure_connection(max_retries=1, timeout=15)"


def _ask(python: Path, program: str, url: str, variable: str, environment: Mapping[str, str]) -> None:
    argv = [str(python), "-c", program, url]
    result = subprocess.run(argv, env=dict(environment), capture_output=True, text=True, check=False, timeout=60)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StackError(f"the server that {variable} names does not answer: {reason}")


def check_database(python: Path, url: str, environment: Mapping[str, str]) -> None:
    """Raise StackError unless the database accepts a connection and a query."""
    _ask(python, DATABASE, url, "WMS2_DATABASE_URL", environment)


def check_broker(python: Path, url: str, environment: Mapping[str, str]) -> None:
    """Raise StackError unless the broker accepts a connection."""
    _ask(python, BROKER, url, "WMS2_BROKER_URL", environment)
