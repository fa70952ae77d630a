"""Requests are found by the beginnings of their names, prep ids, campaigns and inputs, by the files of their input, and those first
that need a person."""

from django.contrib.postgres.indexes import HashIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Collate


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("requests_app", "0007_attention_and_saved_views")]

    operations = [
        AddIndexConcurrently("inputfile", HashIndex(fields=["lfn"], name="input_files_by_lfn")),
        *(
            AddIndexConcurrently("request", models.Index(Collate(column, "C"), name=f"idx_requests_by_{column}"))
            for column in ("request_name", "prep_id", "campaign", "input_dataset")
        ),
        AddIndexConcurrently(
            "request", models.Index(fields=["attention", "status_since", "id"], name="idx_requests_attention")
        ),
        AddIndexConcurrently(
            "request", models.Index(condition=models.Q(("failing", True)), fields=["id"], name="idx_requests_failing")
        ),
    ]
