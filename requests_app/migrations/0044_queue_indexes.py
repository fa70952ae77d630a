"""A place in the queue is counted from an index alone, and so is how many a limit keeps; by priority as it was given nobody sorts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0043_admission_wakes")]

    operations = [
        migrations.RemoveIndex("request", "idx_requests_admission"),
        migrations.AddIndex(
            "request",
            models.Index(
                fields=["urgent"],
                name="idx_requests_eligible",
                condition=models.Q(status="queued", next_attempt_at__isnull=True),
                include=("id", "priority", "queued_at", "campaign", "requestor"),
            ),
        ),
        migrations.AddIndex(
            "request",
            models.Index(
                fields=["id"], name="idx_requests_kept", condition=models.Q(status="queued", waiting_for__startswith="limit of")
            ),
        ),
    ]
