"""Requests that wait for something of their own are found among those that wait for their turn, without reading these."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0011_request_watch_heard"),
        ("sites_app", "0004_pool_spreads"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="request",
            index=models.Index(
                condition=models.Q(
                    ("next_attempt_at__isnull", True),
                    ("status", "queued"),
                    models.Q(("waiting_for", "its turn for a DAG slot"), _negated=True),
                ),
                fields=["id"],
                name="idx_requests_own_reason",
            ),
        ),
        # by itself, each column says that nearly all requests wait for something else: those that are not queued do
        migrations.RunSQL(
            "CREATE STATISTICS stat_requests_reason (mcv) ON status, waiting_for FROM requests",
            "DROP STATISTICS stat_requests_reason",
        ),
    ]
