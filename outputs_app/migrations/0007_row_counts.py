"""Blocks are counted by the database."""

from django.db import migrations

from wms2.row_counts import counted_by


class Migration(migrations.Migration):
    dependencies = [("outputs_app", "0006_valid_datasets"), ("wms2", "0003_row_counts")]
    operations = [counted_by("processing_blocks", "{row}.status")]
