"""How many units a DAG runs at the same time, as it was rendered: DAGMan slots are counted by it.

Of DAGs that are there nobody has noted it: they keep the limit in force, by which their slots have been counted until now.
"""

from __future__ import annotations

import os

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "dag_max_merge_groups"


def as_counted_so_far(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    limit = apps.get_model("requests_app", "Limit").objects.filter(name=NAME).first()
    groups = limit.value if limit is not None else os.environ.get(f"WMS2_{NAME.upper()}") or 10
    apps.get_model("dags_app", "DAG").objects.update(merge_groups=int(groups))


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0007_unreadable_input"), ("requests_app", "0001_initial")]

    operations = [
        migrations.AddField(
            "dag",
            "merge_groups",
            models.PositiveIntegerField(default=10, help_text="units that it runs at the same time at most, as rendered"),
        ),
        migrations.RunPython(as_counted_so_far, migrations.RunPython.noop),
    ]
