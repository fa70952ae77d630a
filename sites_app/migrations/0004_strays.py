"""Jobs of ours in a schedd's queue that no live DAG knows."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sites_app", "0003_lost_queues")]

    operations = [
        migrations.AddField(
            "schedd",
            "strays",
            models.JSONField(
                blank=True,
                default=list,
                help_text="jobs of ours in its queue that no live DAG knows, by the DAG they name",
            ),
        ),
        migrations.AddField("schedd", "strays_asked_at", models.DateTimeField(blank=True, null=True)),
    ]
