"""A claim of a file's events names the file: compared with NULL, ``claim_scope_fits_kind`` is neither true nor false, and passes."""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0006_samples_of_four_hours")]

    operations = [
        AddConstraintNotValid(
            "workunitclaim",
            models.CheckConstraint(condition=~Q(kind=1) | Q(input_file__isnull=False), name="claim_of_a_file_names_it"),
        ),
    ]
