"""Invalid files of a dataset are found without a look at its valid ones."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("outputs_app", "0002_blocks_at_one_rse")]
    operations = [
        AddIndexConcurrently(
            "outputfile",
            models.Index(fields=["dataset"], name="idx_output_files_invalid", condition=models.Q(("validity", "invalid"))),
        ),
    ]
