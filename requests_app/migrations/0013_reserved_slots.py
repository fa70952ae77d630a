"""What a request was admitted to: its slots count before its DAG is there."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0012_wanted_events"), ("sites_app", "0004_strays")]

    operations = [
        migrations.AddField(
            "request",
            "reserved_schedd",
            models.ForeignKey(
                blank=True,
                help_text="where it was admitted to; counts while it plans and its DAG has no schedd yet",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="sites_app.schedd",
            ),
        ),
        migrations.AddField(
            "request",
            "reserved_slots",
            models.PositiveIntegerField(default=0, help_text="DAGMan slots that its DAG will take there"),
        ),
    ]
