"""What happened and how things stood, over time, in bounded tables (docs/design/samples.md).

A row is of a bucket of ``seconds`` that begins at ``at``, and of a group: ``by`` names the column by which the bucket is divided,
empty for its total, ``all`` for all columns together. So a chart by site reads one row of a bucket for each site.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Q

#: In ``seconds``: what was just accounted, a row of each transaction, of the bucket of the shortest length.
FRESH = 0
#: In ``by``: by all columns together.
ALL = "all"
#: The shortest bucket, and the one that stays for ever.
SHORTEST_SECONDS, DAY_SECONDS = 300, 86_400
#: Length of buckets in seconds -> how long they stay (None: for ever), and how many groups by all columns one has at most beside
#: one a site, which takes what is beyond them.
BUCKETS: dict[int, tuple[timedelta | None, int]] = {
    SHORTEST_SECONDS: (timedelta(hours=25), 80),
    600: (timedelta(days=31), 80),
    3600: (timedelta(days=31), 200),
    14_400: (timedelta(days=31), 300),
    DAY_SECONDS: (None, 500),
}


class Sample(models.Model):
    """What was accounted. ``step`` is given for core seconds and failures, ``code`` for failures alone (else 0)."""

    id = models.BigAutoField(primary_key=True)
    seconds = models.IntegerField(help_text="length of the bucket; 0: not yet added to the others")
    at = models.DateTimeField(help_text="begin of the bucket")
    by = models.CharField(max_length=10, blank=True)
    site = models.CharField(max_length=100, blank=True)
    step = models.CharField(max_length=200, blank=True)
    code = models.IntegerField(default=0)
    release = models.CharField(max_length=100, blank=True)
    campaign = models.CharField(max_length=255, blank=True)
    units = models.BigIntegerField(default=0, help_text="work units done")
    events = models.BigIntegerField(default=0, help_text="that their jobs processed")
    files = models.BigIntegerField(default=0, help_text="merged files")
    failures = models.BigIntegerField(default=0, help_text="failed attempts")
    core_seconds = models.FloatField(default=0, help_text="of jobs that did well")

    class Meta:
        db_table = "samples"
        constraints = (
            models.UniqueConstraint(
                fields=("seconds", "by", "at", "site", "step", "code", "release", "campaign"),
                condition=Q(seconds__gt=FRESH),
                name="sample_once",
            ),
        )
        indexes = (
            models.Index(fields=("seconds", "at"), name="idx_samples_at"),
            models.Index(fields=("seconds", "by", "site", "at"), name="idx_samples_site", condition=Q(by__in=(ALL, "site"))),
            models.Index(
                fields=("seconds", "by", "campaign", "at"), name="idx_samples_campaign", condition=Q(by__in=(ALL, "campaign"))
            ),
        )

    def __str__(self) -> str:
        return f"{self.units} units, {self.failures} failures"


class StateSample(models.Model):
    """How something stood at each look in a bucket, added up; the number of looks is the row ``looks``."""

    id = models.BigAutoField(primary_key=True)
    seconds = models.IntegerField(help_text="length of the bucket")
    at = models.DateTimeField(help_text="begin of the bucket")
    what = models.CharField(max_length=20, help_text="looks, running, idle, queued, requests, effects")
    by = models.CharField(max_length=10, blank=True)
    label = models.CharField(max_length=255, blank=True)
    total = models.FloatField(default=0, help_text="over all looks")

    class Meta:
        db_table = "state_samples"
        constraints = (models.UniqueConstraint(fields=("seconds", "what", "by", "at", "label"), name="state_sample_once"),)
        indexes = (models.Index(fields=("seconds", "at"), name="idx_state_samples_at"),)

    def __str__(self) -> str:
        return f"{self.what} {self.label}: {self.total:g}"
