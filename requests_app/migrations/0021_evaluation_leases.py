"""Evaluation leases move out of the requests' wide rows; every request that is not at an end is looked at once after it."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0020_words"), ("wms2", "0002_wakes")]

    operations = [
        migrations.CreateModel(
            name="EvaluationLease",
            fields=[
                (
                    "request",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="lease",
                        serialize=False,
                        to="requests_app.request",
                    ),
                ),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                (
                    "sweep",
                    models.BooleanField(
                        default=False, help_text="due only because it was not looked at for long; nothing should be found"
                    ),
                ),
                ("found", models.TextField(blank=True, default="", help_text="what a sweep did that no wake has explained yet")),
                ("owner", models.CharField(blank=True, max_length=200)),
                ("epoch", models.BigIntegerField(default=0)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("evaluated_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "evaluation_leases",
                "indexes": [models.Index(fields=["due_at"], name="idx_evaluations_due", condition=Q(due_at__isnull=False))],
            },
        ),
        migrations.RunSQL(
            "INSERT INTO evaluation_leases (request_id, due_at, sweep, found, owner, epoch, expires_at, evaluated_at)"
            " SELECT id, now(), false, '', '', lease_epoch, NULL, evaluated_at FROM requests",
            migrations.RunSQL.noop,
        ),
        *(
            migrations.RemoveField("request", name)
            for name in ("lease_owner", "lease_epoch", "lease_expires_at", "evaluated_at")
        ),
    ]
