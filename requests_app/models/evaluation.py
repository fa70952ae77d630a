"""When a request is to be evaluated, and who does it: a narrow row beside the request's wide one (ADR 0061)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class EvaluationLease(models.Model):
    """The right to evaluate one request, and when it is due again.

    ``epoch`` rises each time the lease is taken and fences the writes of whoever had it before. While it is held, ``due_at`` is
    the moment at which it expires: the request of a process that died is due then. None: nothing but a wake makes it due.
    """

    request = models.OneToOneField("requests_app.Request", on_delete=models.CASCADE, primary_key=True, related_name="lease")
    due_at = models.DateTimeField(null=True, blank=True)
    sweep = models.BooleanField(
        default=False, help_text="due only because it was not looked at for long; nothing should be found"
    )
    found = models.TextField(blank=True, default="", help_text="what a sweep did that no wake has explained yet")
    owner = models.CharField(max_length=200, blank=True)
    epoch = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField(null=True, blank=True)
    evaluated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "evaluation_leases"
        indexes = (models.Index(fields=("due_at",), name="idx_evaluations_due", condition=Q(due_at__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.request_id}: due {self.due_at}"
