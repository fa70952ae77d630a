"""How many units a DAG runs at the same time, as it was rendered: DAGMan slots are counted by it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0007_unreadable_input")]

    operations = [
        migrations.AddField(
            "dag",
            "merge_groups",
            models.PositiveIntegerField(default=10, help_text="units that it runs at the same time at most, as rendered"),
        ),
    ]
