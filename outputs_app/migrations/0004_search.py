"""Output datasets and blocks are found by the beginnings of their names."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Collate


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("outputs_app", "0003_invalid_files")]

    operations = [
        AddIndexConcurrently("outputdataset", models.Index(Collate("name", "C"), name="output_dataset_by_beginning")),
        AddIndexConcurrently("processingblock", models.Index(Collate("dbs_block_name", "C"), name="idx_blocks_by_name")),
    ]
