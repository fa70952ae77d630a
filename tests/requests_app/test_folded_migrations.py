"""A database that was migrated one change at a time is one of today's migrations, which are folded."""

from __future__ import annotations

from itertools import chain

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from requests_app.installation import TablesOlder, tables_verify

pytestmark = pytest.mark.django_db


def recorded_as(replaced: set[tuple[str, str]]) -> None:
    """The database says that these were applied, instead of those which they were folded into."""
    rows = MigrationRecorder(connection).migration_qs
    rows.filter(app__in={app for app, _ in replaced}).delete()
    rows.bulk_create([rows.model(app=app, name=name) for app, name in sorted(replaced)])


def replaced_migrations() -> set[tuple[str, str]]:
    return set(chain.from_iterable(migration.replaces for migration in MigrationLoader(connection).disk_migrations.values()))


def test_nothing_is_left_to_do_in_a_database_with_all_former_migrations() -> None:
    recorded_as(replaced_migrations())
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    executor.migrate(executor.loader.graph.leaf_nodes())
    tables_verify()


def test_one_with_a_part_of_them_is_refused_by_name() -> None:
    recorded_as(replaced_migrations() - {("requests_app", "0049_failed_elsewhere")})
    with pytest.raises(TablesOlder, match="begins after requests_app 0049_failed_elsewhere: run"):
        tables_verify()
