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
           WHERE m.account = ? AND i.password IS NOT NULL"""


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


def _logins(url: str, account: str) -> list[tuple[str, bytes]]:
    if url.startswith("sqlite:"):
        with sqlite3.connect(f"file:{_sqlite_path(url)}?mode=ro", uri=True) as connection:
            return connection.execute(LOGIN, (account,)).fetchall()
    with psycopg.connect(url, connect_timeout=10) as connection:
        return connection.execute(LOGIN.replace("?", "%s"), (account,)).fetchall()


def check(url: str, passwords: dict[str, str]) -> int:
    for account, password in passwords.items():
        try:
            rows = _logins(url, account)
        except (psycopg.errors.UndefinedTable, sqlite3.OperationalError):
            return NOT_READY
        if not any(hashlib.sha256(bytes(salt) + password.encode()).hexdigest() == kept for kept, salt in rows):
            return NOT_READY
    return 0


def _sqlite_path(url: str) -> str:
    return unquote(url.removeprefix("sqlite:///"))


def _empty_sqlite(url: str) -> None:
    connection = sqlite3.connect(f"file:{_sqlite_path(url)}?mode=rw", uri=True, timeout=LOCK_SECONDS)
    with connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table.startswith("sqlite_") or table in KEPT:
                continue
            if table in ZEROED:
                connection.execute(f'UPDATE "{table}" SET ' + ", ".join(f"{c} = 0" for c in ZEROED[table]))  # noqa: S608
            else:
                connection.execute(f'DELETE FROM "{table}"')  # noqa: S608
    connection.close()


def _empty_postgresql(url: str) -> None:
    with psycopg.connect(url, connect_timeout=10) as connection:
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        emptied = [sql.Identifier(name) for (name,) in rows if name not in KEPT and name not in ZEROED]
        # Without CASCADE: should a kept table ever refer to an emptied one, this fails instead of emptying it too.
        connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(emptied)))
        for table, columns in ZEROED.items():
            zero = sql.SQL(", ").join(sql.SQL("{} = 0").format(sql.Identifier(c)) for c in columns)
            connection.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), zero))


def main(arguments: list[str]) -> int:
    url = os.environ["DATABASE_URL"]
    sqlite = url.startswith("sqlite:")
    match arguments:
        case ["prepare"]:
            if not sqlite:
                create(url)
            return check(url, json.load(sys.stdin))
        case ["empty"]:
            _empty_sqlite(url) if sqlite else _empty_postgresql(url)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (psycopg.Error, sqlite3.Error) as error:
        sys.exit(f"database: {type(error).__name__}: {str(error).strip()}")
