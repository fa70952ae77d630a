"""Where and when input files could not be read: evidence that outlives rescues and rounds."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0006_recorded_actions"), ("requests_app", "0008_search_trigrams")]

    operations = [
        migrations.CreateModel(
            name="UnreadableInput",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("lfn", models.CharField(max_length=700)),
                ("site", models.CharField(max_length=100)),
                ("fence", models.BigIntegerField()),
                ("code", models.IntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                (
                    "workflow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="unreadable_input", to="requests_app.workflow"
                    ),
                ),
            ],
            options={
                "db_table": "unreadable_input",
                "verbose_name_plural": "unreadable input",
                "ordering": ("id",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workflow", "lfn", "site", "fence"), name="unreadable_input_once_a_submission"
                    )
                ],
            },
        )
    ]
