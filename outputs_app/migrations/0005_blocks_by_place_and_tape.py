"""Lists of blocks by RSE, and of those that wait for tape, cost the same however many are archived."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("outputs_app", "0004_search")]
    operations = [
        AddIndexConcurrently(
            model_name="processingblock",
            index=models.Index(fields=["origin_rse", "updated_at"], name="idx_blocks_rse"),
        ),
        AddIndexConcurrently(
            model_name="processingblock",
            index=models.Index(
                fields=["updated_at"],
                name="idx_blocks_tape_waits",
                condition=models.Q(
                    ("status", "archived"), ("tape_ok_at__isnull", True), models.Q(("tape_rule_id", ""), _negated=True)
                ),
            ),
        ),
    ]
