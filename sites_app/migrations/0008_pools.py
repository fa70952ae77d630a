"""Pools become rows. ``schedds.pool`` keeps its column and values; ``schedds.collector`` stays for processes of the version
before, which read it, and is dropped by a later version."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def from_schedds(apps: Any, editor: Any) -> None:
    """One for each that schedds name. Those of one pool shared their directories so far, and go on doing so."""
    pool = apps.get_model("sites_app", "Pool")
    for name, collector in apps.get_model("sites_app", "Schedd").objects.values_list("pool", "collector"):
        pool.objects.get_or_create(name=name, defaults={"collector": collector, "file_system": name})


class Migration(migrations.Migration):
    dependencies = [("sites_app", "0007_counted")]

    operations = [
        migrations.CreateModel(
            "Pool",
            [
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("collector", models.CharField(help_text="host:port", max_length=255)),
                ("token_dir", models.TextField(blank=True, help_text="directory of its IDTOKENs; empty: the configured one")),
                (
                    "file_system",
                    models.CharField(
                        help_text="the shared file system of its schedds: those of one name see the same DAG directories",
                        max_length=100,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("enabled", "Enabled"), ("disabled", "Disabled")], default="enabled", max_length=20
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "pools",
                "ordering": ("name",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["enabled", "disabled"])), name="pool_state_known"
                    )
                ],
            },
        ),
        migrations.RunPython(from_schedds, migrations.RunPython.noop),
        migrations.AlterModelOptions("schedd", {"base_manager_name": "objects", "ordering": ("pool_id", "name")}),
        migrations.AlterField(
            "schedd",
            "pool",
            models.ForeignKey(
                db_column="pool",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="schedds",
                to="sites_app.pool",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.AlterField("schedd", "collector", models.CharField(blank=True, db_default="", max_length=255))
            ],
            state_operations=[migrations.RemoveField("schedd", "collector")],
        ),
    ]
