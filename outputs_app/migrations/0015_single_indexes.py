"""What foreign keys have an index for already."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("outputs_app", "0014_block_evidence")]

    operations = [
        migrations.RemoveIndex("effect", "effect_by_block"),
        migrations.RemoveIndex("processingblock", "idx_processing_blocks_workflow"),
        migrations.RemoveIndex("outputfile", "output_file_by_block"),
        migrations.RemoveIndex("outputfile", "output_file_by_unit"),
    ]
