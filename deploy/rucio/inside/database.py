"""Looks at and empties Rucio's database without loading Rucio. Runs in the server's environment; the URL comes in $DATABASE_URL.

database.py prepare    make the PostgreSQL database if it is missing; exit 0 when it is bootstrapped and each account
                       (JSON on stdin: {account: password}) can log in, else 3
database.py empty      remove everything registered; accounts, scopes and RSEs stay
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

NOT_READY = 3
# What a server is, as opposed to what clients registered in it. Tokens stay, so that clients need not notice.
KEPT = frozenset({
    "account_attr_map", "account_glob_limits", "account_limits", "account_map", "accounts", "alembic_version", "configs",
    "configs_history", "did_key_map", "did_keys", "distances", "heartbeats", "identities", "lifetime_except",
    "naming_conventions", "rse_attr_map", "rse_limits", "rse_protocols", "rse_qos_map", "rse_transfer_limits", "rses",
    "scopes", "tokens", "transfer_limits", "vos",
})  # fmt: skip
# Counters that Rucio makes with the account or the RSE and expects to find.
ZEROED = {"rse_usage": ("used", "files"), "account_usage": ("bytes", "files")}
LOCK_SECONDS = 30

LOGIN = """SELECT i.password, i.salt FROM identities i
           JOIN account_map m ON m.identity = i.identity AND m.identity_type = i.identity_type
           WHERE m.account = :account AND i.password IS NOT NULL"""


def create(url: str) -> None:
    parts = urlsplit(url)
    name = unquote(parts.path.lstrip("/"))
    try:
        psycopg.connect(url, connect_timeout=10).close()
        return
    except psycopg.OperationalError as error:
        # The client library gives no code for a failed connection: ask the server whether the database is what is missing.
        maintenance = urlunsplit(parts._replace(path="/postgres"))
        with psycopg.connect(maintenance, autocommit=True, connect_timeout=10) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                raise error
            connection.execute(sql.SQL("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0").format(sql.Identifier(name)))


def check(engine: Engine, passwords: dict[str, str]) -> int:
    for account, password in passwords.items():
        try:
            with engine.connect() as connection:
                rows = connection.execute(text(LOGIN), {"account": account}).fetchall()
        except DBAPIError as error:
            if isinstance(error.orig, (psycopg.errors.UndefinedTable, sqlite3.OperationalError)):
                return NOT_READY
            raise
        if not any(hashlib.sha256(bytes(salt) + password.encode()).hexdigest() == kept for kept, salt in rows):
            return NOT_READY
    return 0


def empty(connection: Connection) -> None:
    emptied = [f'"{name}"' for name in inspect(connection).get_table_names() if name not in KEPT and name not in ZEROED]
    if connection.dialect.name == "sqlite":
        statements = [f"DELETE FROM {table}" for table in emptied]  # noqa: S608  (names of tables)
    else:
        # Without CASCADE: should a kept table ever refer to an emptied one, this fails instead of emptying it too.
        statements = [f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", f"TRUNCATE {', '.join(emptied)}"]
    zeroed = {table: ", ".join(f"{column} = 0" for column in columns) for table, columns in ZEROED.items()}
    for statement in (*statements, *(f"UPDATE {table} SET {zero}" for table, zero in zeroed.items())):  # noqa: S608
        connection.execute(text(statement))


def main(arguments: list[str]) -> int:
    url = os.environ["DATABASE_URL"]
    limit = {"timeout": LOCK_SECONDS} if url.startswith("sqlite:") else {"connect_timeout": 10}
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), connect_args=limit)
    match arguments:
        case ["prepare"]:
            if engine.dialect.name == "postgresql":
                create(url)
            return check(engine, json.load(sys.stdin))
        case ["empty"]:
            with engine.begin() as connection:
                empty(connection)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (psycopg.Error, DBAPIError) as error:
        sys.exit(f"database: {type(error).__name__}: {str(error).strip()}")
