"""A database that was migrated one change at a time is one of today's migrations, which are folded."""

from __future__ import annotations

from itertools import chain

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from requests_app.installation import TablesOlder, tables_verify
from tests.support.scripted.snapshot import OURS

pytestmark = pytest.mark.django_db


def recorded_as(replaced: set[tuple[str, str]]) -> None:
    """The database says that these were applied, instead of those which they were folded into."""
    rows = MigrationRecorder(connection).migration_qs
    rows.filter(app__in=OURS).delete()
    rows.bulk_create([rows.model(app=app, name=name) for app, name in sorted(replaced)])


def replaced_migrations() -> set[tuple[str, str]]:
    return set(chain.from_iterable(migration.replaces for migration in MigrationLoader(connection).disk_migrations.values()))


def left_to_do() -> set[tuple[str, str]]:
    executor = MigrationExecutor(connection)
    return {(each.app_label, each.name) for each, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())}


def folded() -> set[tuple[str, str]]:
    return {name for name, migration in MigrationLoader(connection).disk_migrations.items() if migration.replaces}


def test_a_database_with_all_former_migrations_stays_as_it_is() -> None:
    later = {name for name in MigrationLoader(connection).disk_migrations if name[0] in OURS} - folded()
    recorded_as(replaced_migrations())
    assert left_to_do() == later


def test_one_with_a_part_of_them_is_refused_by_name() -> None:
    recorded_as(replaced_migrations() - {("requests_app", "0040_progress")})
    with pytest.raises(TablesOlder, match="begins after requests_app 0040_progress: run"):
        tables_verify()


def test_one_that_was_migrated_to_the_middle_of_the_folded_ones_goes_on_there() -> None:
    recorder = MigrationRecorder(connection)
    recorder.migration_qs.filter(app__in=OURS).delete()
    for app, name in (("wms2", "0001_base"), ("sites_app", "0001_base"), ("requests_app", "0001_base")):  # then it was killed
        for replaced in MigrationLoader(None).disk_migrations[app, name].replaces:  # as Django records it, until all are there
            recorder.record_applied(*replaced)
    left = left_to_do()
    assert {("sites_app", "0002_base_bans"), ("dags_app", "0001_base"), ("outputs_app", "0001_base")} < left
    assert {("requests_app", "0002_base_of_dags"), ("requests_app", "0003_base_triggers")} < left
    with pytest.raises(TablesOlder, match=r"; run: manage.py migrate$"):
        tables_verify()
