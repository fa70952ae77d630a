"""How the service stands: one row. Its history is the audit's (target ``level``)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from wms2.levels import Level

SERVICE_LEVEL = "level"
#: What is measured.
SIGNALS = ("cycle", "evaluations", "effects", "database", "broker", "schedds")


class ServiceLevel(models.Model):
    """The level as the leader's last cycle judged it, the operators' switch, and the trouble of the leader's own host."""

    name = models.CharField(max_length=40, primary_key=True, default=SERVICE_LEVEL)
    level = models.CharField(max_length=10, choices=Level, default=Level.NORMAL)
    reason = models.TextField(blank=True, help_text="what was too slow when the level changed")
    since = models.DateTimeField(null=True, blank=True)
    looks = models.SmallIntegerField(
        default=0, help_text="cycles in a row that spoke for more (or, negative, for less) than this"
    )
    signals = models.JSONField(default=dict, blank=True, help_text="share of its limit, by signal, at the last cycle")
    stopped_by = models.CharField(max_length=100, blank=True, help_text="who has switched new work off; empty: it may start")
    stopped_reason = models.TextField(blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    trouble = models.SmallIntegerField(default=0, help_text="of the leader's own host, 0 to 8; each is a quarter more patience")
    trouble_reason = models.TextField(blank=True)
    updated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "service_levels"
        constraints = (
            models.CheckConstraint(condition=Q(name=SERVICE_LEVEL), name="service_level_is_one_row"),
            models.CheckConstraint(condition=Q(level__in=Level.values), name="service_level_known"),
            models.CheckConstraint(condition=Q(trouble__gte=0, trouble__lte=8), name="service_level_trouble_bounds"),
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.level}{', new work switched off' if self.stopped_by else ''}"

    @property
    def known(self) -> Level:
        """Its level; of one that only a later release knows, the middle one."""
        return Level(self.level) if self.level in Level.values else Level.STRAINED

    @property
    def pressures(self) -> dict[str, float]:
        """Each signal, 0 before it was measured."""
        return {name: self.signals.get(name, 0.0) for name in SIGNALS}

    @property
    def no_new_work(self) -> str:
        """Why nothing new starts; empty when it may."""
        if self.stopped_by:
            return f"new work is switched off by {self.stopped_by}: {self.stopped_reason}"
        return f"the service is overloaded and closed for new work: {self.reason}" if self.level == Level.CLOSED else ""
