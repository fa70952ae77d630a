"""Whose the names of output datasets are (ADR 0017): one request's, or those of one family of requests."""

from __future__ import annotations

from django.db import models


class OwnedDataset(models.Model):
    """The name of a dataset that WMS2 writes, and the family whose requests may write into it.

    The row stays when the name has no owner any more; the next family takes it over. ``next_lumi`` is where generation goes on,
    whichever request of the family does it: no (run, lumi) is valid twice in one dataset.
    """

    name = models.CharField(max_length=500)
    family = models.UUIDField(help_text="Request.family of all its owners")
    next_lumi = models.BigIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "owned_datasets"
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("name",), name="owned_dataset_once"),
            # what the foreign key of ``dataset_owners`` over both columns, made in the migration, points to
            models.UniqueConstraint(fields=("id", "family"), name="owned_dataset_family"),
            models.CheckConstraint(condition=models.Q(next_lumi__gte=1), name="owned_dataset_lumi_positive"),
        )

    def __str__(self) -> str:
        return self.name


class DatasetOwner(models.Model):
    """A request that writes, or has valid files, in a dataset. A foreign key over (dataset, family) refuses other families."""

    dataset = models.ForeignKey(OwnedDataset, on_delete=models.PROTECT, related_name="owners")
    family = models.UUIDField()
    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, related_name="owned_datasets")
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "dataset_owners"
        ordering = ("dataset", "id")
        constraints = (models.UniqueConstraint(fields=("dataset", "request"), name="dataset_owner_once"),)

    def __str__(self) -> str:
        return f"{self.dataset_id} of {self.request_id}"
