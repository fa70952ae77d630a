"""Ends at once if each account can log in already, else goes on as ``bootstrap.py``.

Most starts end here, without loading Rucio, which takes seconds. Runs in the server's environment; $DATABASE_URL is the
database, $PASSWORDS_FILE holds the accounts' passwords as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from pathlib import Path

import psycopg
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

LOCK_SECONDS = 30
LOGIN = """SELECT i.password, i.salt FROM identities i
           JOIN account_map m ON m.identity = i.identity AND m.identity_type = i.identity_type
           WHERE m.account = :account AND i.password IS NOT NULL"""


def is_ready(engine: Engine, passwords: dict[str, str]) -> bool:
    for account, password in passwords.items():
        try:
            with engine.connect() as connection:
                rows = connection.execute(text(LOGIN), {"account": account}).fetchall()
        except DBAPIError as error:
            if isinstance(error.orig, (psycopg.errors.UndefinedTable, sqlite3.OperationalError)):
                return False
            raise
        if not any(hashlib.sha256(bytes(salt) + password.encode()).hexdigest() == kept for kept, salt in rows):
            return False
    return True


def main() -> None:
    url = os.environ["DATABASE_URL"]
    limit = {"timeout": LOCK_SECONDS} if url.startswith("sqlite:") else {"connect_timeout": 10}
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), connect_args=limit)
    if not is_ready(engine, json.loads(Path(os.environ["PASSWORDS_FILE"]).read_text())):
        os.execv(sys.executable, [sys.executable, str(Path(__file__).with_name("bootstrap.py"))])  # noqa: S606  (in its place)


if __name__ == "__main__":
    try:
        main()
    except (psycopg.Error, DBAPIError) as error:
        sys.exit(f"database: {type(error).__name__}: {str(error).strip()}")
