"""Requests that wait for something of their own are found among those that wait for their turn, without reading these."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("requests_app", "0011_request_watch_heard"),
        ("sites_app", "0004_pool_spreads"),
    ]

    operations = [
        AddIndexConcurrently(
            "request",
            models.Index(
                fields=["urgent"],
                condition=Q(status="queued", next_attempt_at__isnull=True) & ~Q(waiting_for="its turn for a DAG slot"),
                name="idx_requests_own_reason",
            ),
        ),
    ]
