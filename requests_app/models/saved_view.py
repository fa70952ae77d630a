"""Lists of requests that people keep under a name."""

from __future__ import annotations

from urllib.parse import parse_qs

from django.conf import settings
from django.db import models
from django.urls import reverse


class SavedView(models.Model):
    """Filters and order of the list of requests, as its address has them. Its owner's alone, unless it is shared."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=100)
    query = models.TextField(blank=True, help_text="the address behind its question mark")
    shared = models.BooleanField(default=False, help_text="everybody who is signed in finds it")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "saved_views"
        ordering = ("name", "id")
        constraints = (models.UniqueConstraint(fields=("owner", "name"), name="saved_view_once_per_owner"),)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """The list that it is."""
        return reverse("board", query={name: values[0] for name, values in parse_qs(self.query).items()})
