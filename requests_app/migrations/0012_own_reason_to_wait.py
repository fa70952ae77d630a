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
                fields=["urgent"],
                name="idx_requests_own_reason",
            ),
        ),
    ]
