"""What ReqMgr2 has of requests that are ours, as it was last seen there (ADR 0080)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class ReqMgr2Request(models.Model):
    """A request in ReqMgr2. Without ``request`` it was not imported: it is about to be, or ``problem`` says why not.

    ``status``, ``priority`` and the site lists are ReqMgr2's at ``compared_at``; only what changes there afterwards is followed,
    so that what an operator changes here later stands.
    """

    name = models.CharField(max_length=255, unique=True, null=True, blank=True, help_text="there; none until its clone is made")
    request = models.OneToOneField(
        "requests_app.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="reqmgr2"
    )
    status = models.CharField(max_length=30, blank=True)
    priority = models.IntegerField(null=True, blank=True)
    site_whitelist = models.JSONField(default=list, blank=True)
    site_blacklist = models.JSONField(default=list, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="when this installation began to acquire it")
    compared_at = models.DateTimeField(null=True, blank=True)
    elements = models.BooleanField(default=False, help_text="the work queue of WMCore has it, too")
    over = models.BooleanField(default=False, help_text="at an end here and there: not compared any more")
    problem = models.TextField(blank=True, help_text="why it is not taken, or what of ReqMgr2 cannot be followed")

    class Meta:
        db_table = "reqmgr2_requests"
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("id",), name="idx_reqmgr2_followed", condition=Q(over=False, request__isnull=False)),
            models.Index(fields=("id",), name="idx_reqmgr2_problem", condition=~Q(problem="")),
        )

    def __str__(self) -> str:
        return f"{self.name or 'a clone to be made'}: {self.status or 'not seen yet'}"
