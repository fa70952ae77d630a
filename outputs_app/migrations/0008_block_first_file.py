"""Since when a block has files, kept with it: what time does to blocks is seen without looking at their files (ADR 0064)."""

from django.db import migrations, models
from django.db.models import Q

FILLED = """
UPDATE processing_blocks b SET first_file_at = f.first
FROM (SELECT block_id, min(created_at) AS first FROM output_files GROUP BY block_id) f WHERE f.block_id = b.id
"""


class Migration(migrations.Migration):
    dependencies = [("outputs_app", "0007_row_counts")]

    operations = [
        migrations.AddField(
            model_name="processingblock",
            name="first_file_at",
            field=models.DateTimeField(
                blank=True, help_text="of its members the first was accounted that has files", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="processingblock",
            index=models.Index(condition=Q(status="open"), fields=["workflow"], name="idx_blocks_open"),
        ),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
    ]
