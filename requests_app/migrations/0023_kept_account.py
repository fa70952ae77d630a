"""The account of a workflow's work as it was counted last; the first reader counts."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0022_row_counts")]

    operations = [
        migrations.CreateModel(
            name="KeptAccount",
            fields=[
                (
                    "workflow",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="kept_account",
                        serialize=False, to="requests_app.workflow",
                    ),
                ),
                ("basis", models.CharField(help_text="a hash of what it rests on, as it was before the count", max_length=40)),
                ("numbers", models.JSONField()),
                ("summary", models.TextField(blank=True)),
                ("violation", models.TextField(blank=True)),
                ("counted_at", models.DateTimeField()),
                ("took_seconds", models.FloatField()),
            ],
            options={"db_table": "kept_accounts"},
        ),
    ]
