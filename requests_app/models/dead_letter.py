"""Everything that no retry brings on any more, in one list: a view of the database over the rows of their owners (ADR 0093)."""

from __future__ import annotations

from django.db import models


class LetterKind(models.TextChoices):
    """What it is; by this the list says what to do, and its verbs call those of the owner."""

    EFFECT = "effect", "Registration"
    HARVEST = "harvest", "DQM harvesting"
    LEFTOVER = "leftover", "Removal of files"
    STORAGE = "storage", "Look at a storage"
    COMPARISON = "comparison", "Comparison with DBS and Rucio"
    PACK = "pack", "Packing of a DAG's directory"
    REQMGR2 = "reqmgr2", "Request in ReqMgr2"
    TASK = "task", "Task of the schedule"


class DeadLetter(models.Model):
    """One of them. ``row`` is the key of the owner's row; of a request, save tasks of the schedule, the census and strangers."""

    id = models.CharField(max_length=300, primary_key=True)
    kind = models.CharField(max_length=20, choices=LetterKind.choices)
    row = models.CharField(max_length=250)
    request = models.ForeignKey(
        "requests_app.Request", to_field="request_name", db_column="request_name", on_delete=models.DO_NOTHING, null=True,
        related_name="+",
    )  # fmt: skip
    what = models.TextField()
    attempts = models.IntegerField()
    since = models.DateTimeField()
    last_error = models.TextField()

    class Meta:
        db_table = "dead_letters"
        managed = False
        ordering = ("since",)

    def __str__(self) -> str:
        return self.what
