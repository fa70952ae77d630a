"""Pileup datasets as they were last read from DBS and Rucio."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0004_input_growth")]

    operations = [
        migrations.CreateModel(
            "PileupDataset",
            [
                ("name", models.CharField(max_length=700, primary_key=True, serialize=False)),
                ("reading", models.UUIDField(blank=True, null=True)),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={"db_table": "pileup_datasets"},
        ),
        migrations.CreateModel(
            "PileupBlock",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("reading", models.UUIDField()),
                ("name", models.CharField(max_length=700)),
                ("events", models.BigIntegerField()),
                ("files", models.JSONField(default=list)),
                ("rses", models.JSONField(default=list)),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="blocks", to="requests_app.pileupdataset"
                    ),
                ),
            ],
            options={"db_table": "pileup_blocks"},
        ),
        migrations.AddConstraint(
            "pileupdataset",
            models.CheckConstraint(
                condition=models.Q(
                    models.Q(("reading__isnull", True), ("resolved_at__isnull", True)),
                    models.Q(("reading__isnull", False), ("resolved_at__isnull", False)),
                    _connector="OR",
                ),
                name="pileup_resolved_has_reading",
            ),
        ),
        migrations.AddConstraint(
            "pileupblock", models.UniqueConstraint(fields=("dataset", "reading", "name"), name="pileup_block_once")
        ),
        migrations.AddConstraint(
            "pileupblock", models.CheckConstraint(condition=models.Q(("events__gte", 0)), name="pileup_events_positive")
        ),
    ]
