"""The database of each process of a test run: a copy of one template, which is migrated once.

The template is named by the migrations it was made from and is never used by a test, so what a killed test leaves behind cannot
reach it. A template that was only half made has another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path

import psycopg
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg import sql

#: One process at a time makes the template or copies it: PostgreSQL copies no database that somebody is connected to.
_TEMPLATE_LOCK = 20_260_301
_PREFIX = "wms2_template_"


def template_name() -> str:
    """``wms2_template_`` and a hash of every migration that it contains."""
    found = hashlib.sha256()
    for app in apps.get_app_configs():
        folder = Path(app.path) / "migrations"
        for file in sorted(folder.glob("*.py")):
            found.update(f"{app.label}/{file.name}\0".encode() + file.read_bytes())
        if app.models_module is not None:
            found.update(Path(import_module(app.models_module.__name__).__file__ or "").read_bytes())
    return _PREFIX + found.hexdigest()[:12]


@contextmanager
def of_this_process() -> Iterator[None]:
    """Django's default connection is to a new copy of the template, under this process's name, until the end of the block."""
    name = connection.creation._get_test_db_name()  # type: ignore[attr-defined]
    with _server() as server:
        _copy_of_template(server, name)
    outer = connection.settings_dict["NAME"]
    _use(name)
    connection.ensure_connection()
    try:
        yield
    finally:
        _use(outer)
        with _server() as server:
            server.execute(_drop(name))


def make_template() -> None:
    """Make the template unless it is there, before any process needs it."""
    with _server() as server:
        _template(server)


@contextmanager
def _server() -> Iterator[psycopg.Connection[tuple[str]]]:
    """A session on the server itself, in autocommit. Its advisory locks end with it."""
    given = connection.get_connection_params() | {"dbname": "postgres"}
    place = {name: given[name] for name in ("host", "port", "user", "password", "dbname") if given.get(name)}
    with closing(psycopg.connect(**place, autocommit=True)) as session:
        yield session


def _copy_of_template(server: psycopg.Connection[tuple[str]], name: str) -> None:
    template = _template(server)
    server.execute(_drop(name))
    server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))


def _template(server: psycopg.Connection[tuple[str]]) -> str:
    """The template's name. It is made unless it is there; those of other migrations go. The session has the lock then."""
    server.execute("SELECT pg_advisory_lock(%s)", [_TEMPLATE_LOCK])
    wanted, begun = template_name(), f"{_PREFIX}begun"
    rows = server.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [_PREFIX]).fetchall()
    there = {name for (name,) in rows}
    for other in there - {wanted}:
        server.execute(_drop(other))
    if wanted not in there:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(begun)))
        outer = connection.settings_dict["NAME"]
        _use(begun)
        try:
            call_command("migrate", verbosity=0, interactive=False)
        finally:
            _use(outer)
        server.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(begun), sql.Identifier(wanted)))
    return wanted


def _drop(name: str) -> sql.Composed:
    return sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))


def _use(name: str) -> None:
    """Django's default connection is to this database from now on."""
    connection.close()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name


if __name__ == "__main__":
    import django

    django.setup()
    make_template()
