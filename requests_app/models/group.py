"""Requests that complete together (docs/design/model.md, Request statuses; ADR 0087)."""

from __future__ import annotations

from django.db import models
from django.urls import reverse


class RequestGroup(models.Model):
    """A name for requests that complete together. Where it stands follows from its children when it is shown."""

    name = models.CharField(max_length=150, unique=True)
    note = models.TextField(blank=True, default="")
    created_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "request_groups"
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Its live page."""
        return reverse("group-page", args=[self.name])
