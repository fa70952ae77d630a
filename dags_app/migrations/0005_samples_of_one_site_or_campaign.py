"""Samples of one site or campaign are read alone, and kinds of failures of a month without their reasons."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("dags_app", "0004_failures_by_place")]

    operations = [
        *(
            AddIndexConcurrently(
                "sample",
                models.Index(
                    fields=["seconds", "by", column, "at"], name=f"idx_samples_{column}", condition=Q(by__in=["all", column])
                ),
            )
            for column in ("site", "campaign")
        ),
        AddIndexConcurrently(
            "failuregroup",
            models.Index(
                fields=["last_at"],
                include=["code", "site", "category", "rule", "attempts", "given_up"],
                name="idx_failure_groups_recent",
            ),
        ),
        RemoveIndexConcurrently("failuregroup", "idx_failure_groups_last"),
    ]
