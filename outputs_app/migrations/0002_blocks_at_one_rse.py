"""A block lies at one RSE and takes what units that are done have brought there: they have no place in it before."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

#: Places that were planned. Blocks without any file, of which nobody outside has heard, go with them; what is left counts what
#: is done, and is sealed if it takes files of any RSE.
_PLANNED = """
DELETE FROM block_work_units WHERE NOT done;
DELETE FROM processing_blocks block WHERE status = 'open' AND NOT EXISTS (SELECT FROM output_files WHERE block_id = block.id)
  AND NOT EXISTS (SELECT FROM effects WHERE block_id = block.id)
  AND NOT EXISTS (SELECT FROM block_work_units WHERE block_id = block.id);
UPDATE processing_blocks block SET sealed_at = COALESCE(sealed_at, now()),
  total_work_units = (SELECT count(*) FROM block_work_units WHERE block_id = block.id),
  planned_bytes = (SELECT COALESCE(sum(size_bytes), 0) FROM block_work_units WHERE block_id = block.id)
WHERE status IN ('open', 'failed');
"""
_OF_BLOCK = models.UniqueConstraint(
    fields=("dataset", "origin_rse"), condition=models.Q(("sealed_at__isnull", True)), name="one_unsealed_block_per_place"
)
_MAKE_OF_BLOCK = """
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS one_unsealed_block_per_place
ON processing_blocks (dataset_id, origin_rse) WHERE sealed_at IS NULL
"""
_OF_UNIT = models.UniqueConstraint(fields=("unit", "block"), name="unit_in_block_once")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("outputs_app", "0001_base"), ("dags_app", "0001_base")]

    operations = [
        migrations.RemoveConstraint("processingblock", "one_unsealed_block_per_dataset"),
        migrations.RemoveConstraint("blockworkunit", "unit_in_one_block_per_dataset"),
        migrations.RunSQL(_PLANNED, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(_MAKE_OF_BLOCK, "DROP INDEX one_unsealed_block_per_place")],
            [migrations.AddConstraint("processingblock", _OF_BLOCK)],
        ),
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS unit_in_block_once ON block_work_units (unit_id, block_id)",
                    migrations.RunSQL.noop,
                ),
                migrations.RunSQL(
                    "ALTER TABLE block_work_units ADD CONSTRAINT unit_in_block_once UNIQUE USING INDEX unit_in_block_once",
                    "ALTER TABLE block_work_units DROP CONSTRAINT unit_in_block_once",
                ),
            ],
            [migrations.AddConstraint("blockworkunit", _OF_UNIT)],
        ),
        migrations.AlterField(
            "processingblock", "planned_bytes", models.BigIntegerField(default=0, help_text="of its files")
        ),
        migrations.AlterField(
            "processingblock",
            "origin_rse",
            models.CharField(blank=True, help_text="the RSE where its files lie", max_length=100),
        ),
        migrations.AlterField(
            "blockworkunit",
            "unit",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="block_memberships", to="dags_app.workunit"
            ),
        ),
        migrations.AlterField(
            "blockworkunit", "done", models.BooleanField(default=False, help_text="no: a former release planned it")
        ),
        migrations.AlterField(
            "blockworkunit", "size_bytes", models.BigIntegerField(default=0, help_text="of the files")
        ),
    ]
