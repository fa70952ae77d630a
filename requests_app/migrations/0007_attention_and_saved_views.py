"""Lists of requests begin with those that need a person or fail, and may be kept under a name."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0006_alerts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "SavedView",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("query", models.TextField(blank=True, help_text="the address behind its question mark")),
                ("shared", models.BooleanField(default=False, help_text="everybody who is signed in finds it")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "saved_views", "ordering": ("name", "id")},
        ),
        migrations.AddConstraint(
            "savedview", models.UniqueConstraint(fields=("owner", "name"), name="saved_view_once_per_owner")
        ),
        migrations.AddField(
            "request",
            "failing",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="jobs of its live DAG failed lately (requests_app.lifecycle.failing)",
            ),
        ),
        migrations.AddField(
            "request",
            "attention",
            models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(models.Q(("status", "held"), models.Q(("alert_code", ""), _negated=True), _connector="OR"), then=models.Value(0)),
                    models.When(status__in=("archived", "failed", "aborted", "cleaned", "completed"), then=models.Value(3)),
                    models.When(failing=True, then=models.Value(1)),
                    default=models.Value(2),
                ),
                help_text="0: needs a person, 1: failing, 2: goes on, 3: over; lists begin with the lowest",
                output_field=models.SmallIntegerField(),
            ),
        ),
    ]
