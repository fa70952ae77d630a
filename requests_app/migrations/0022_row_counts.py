"""Requests and workflows are counted by the database."""

from django.db import migrations, models
from django.db.models import Q

from wms2.row_counts import counted_by


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0021_evaluation_leases"), ("wms2", "0003_row_counts")]

    operations = [
        counted_by("requests", "{row}.status || ':' || {row}.hold_code || ':' || ({row}.alert_code <> '')"),
        counted_by("workflows", "{row}.status"),
        migrations.AddIndex(
            "request",
            models.Index(
                fields=["next_attempt_at"],
                name="idx_requests_pausing",
                condition=Q(status="queued", next_attempt_at__isnull=False),
            ),
        ),
    ]
