"""The one table that belongs to no app: who did what, to anything."""

from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    """Every write, refusal, takeover and automatic decision: who, what, why, on what evidence."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=100)
    action = models.CharField(max_length=100)
    target_type = models.CharField(max_length=50, blank=True)
    target = models.CharField(max_length=300, blank=True)
    outcome = models.CharField(max_length=20, default="done", help_text="done or refused")
    reason = models.TextField(blank=True)
    evidence = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "audit_entries"
        ordering = ("-id",)
        verbose_name_plural = "audit entries"
        indexes = (models.Index(fields=("target_type", "target", "id"), name="audit_by_target"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
