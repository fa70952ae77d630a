"""Alerts: what waits for a person, who has it, and what was sent about it (docs/alerts.md)."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class Severity(models.TextChoices):
    """How soon a person is wanted."""

    CRITICAL = "critical", "Critical"
    WARNING = "warning", "Warning"
    INFO = "info", "For information"


class Alert(models.Model):
    """One thing that waits for a person, from when it was raised until its cause is gone.

    ``code`` and ``subject`` are its identity while it is open; ``cause`` is what several of one code have in common: people see
    and hear of those together. A ``condition`` is looked at by the leader's cycle and ends when it is found no more; others are
    raised by an evaluation of their request, and end with its status or when their cause is gone.
    """

    id = models.BigAutoField(primary_key=True)
    code = models.CharField(max_length=60)
    subject = models.CharField(max_length=300, help_text="whom it concerns: the name of a request, site, schedd, channel, ...")
    cause = models.CharField(max_length=200, blank=True, default="", help_text="what several of one code have in common")
    severity = models.CharField(max_length=10, choices=Severity.choices, default=Severity.WARNING)
    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, null=True, blank=True, related_name="alerts")
    site = models.CharField(max_length=100, blank=True, default="")
    schedd = models.CharField(max_length=255, blank=True, default="")
    pool = models.CharField(max_length=100, blank=True, default="")
    text = models.TextField(blank=True)
    condition = models.BooleanField(default=False, help_text="found by the leader's cycle, and over when it finds it no more")
    since = models.DateTimeField()
    last_seen = models.DateTimeField(help_text="when it was raised or found last")
    ended_at = models.DateTimeField(null=True, blank=True)
    count = models.PositiveIntegerField(default=1, help_text="how often it was raised since then")
    owner = models.CharField(max_length=150, blank=True, default="", help_text="who cares for it; empty: it is free")
    acknowledged_by = models.CharField(max_length=150, blank=True, default="")
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    silenced_until = models.DateTimeField(null=True, blank=True, help_text="nothing is sent about it until then")
    silenced_by = models.CharField(max_length=150, blank=True, default="")
    silence_reason = models.TextField(blank=True, default="")

    class Meta:
        db_table = "alerts"
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("code", "subject"), condition=Q(ended_at=None), name="one_open_alert_a_subject"),
            models.CheckConstraint(condition=Q(severity__in=Severity.values), name="alert_severity_known"),
        )
        indexes = (
            models.Index(fields=("code", "cause"), name="idx_alerts_open", condition=Q(ended_at=None)),
            models.Index(fields=("ended_at",), name="idx_alerts_ended", condition=Q(ended_at__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.code}: {self.subject}"

    @property
    def state(self) -> str:
        """open, acknowledged or over; whether it is silenced is ``silenced_until``."""
        return "over" if self.ended_at else "acknowledged" if self.owner else "open"


class ChannelKind(models.TextChoices):
    """How a channel is spoken to."""

    MAIL = "mail", "E-mail"
    WEBHOOK = "webhook", "Webhook"
    MATTERMOST = "mattermost", "Mattermost"
    ALERTMANAGER = "alertmanager", "Alertmanager"


#: Kinds that get a message for each change; Alertmanager is sent the whole state again and again.
BY_MESSAGE = (ChannelKind.MAIL, ChannelKind.WEBHOOK, ChannelKind.MATTERMOST)


class AlertChannel(models.Model):
    """Where alerts are sent. Secrets are files that a setting names (``WMS2_ALERT_SECRETS``), never in the row."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=ChannelKind.choices)
    address = models.CharField(max_length=1000, help_text="mail addresses with commas between them, or a URL")
    secret = models.CharField(
        max_length=100,
        blank=True,
        default="",
        help_text="name in WMS2_ALERT_SECRETS of the file with the key, or the rest of a URL",
    )
    digest = models.BooleanField(default=False, help_text="once a day it gets a list of all that waits for people")
    heartbeat = models.BooleanField(default=False, help_text="gets a message each minute that all is being looked after")
    enabled = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0, help_text="in a row")
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")
    sent_at = models.DateTimeField(null=True, blank=True, help_text="with success, last")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        db_table = "alert_channels"
        ordering = ("name",)
        constraints = (models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="alert_channel_kind_known"),)

    def __str__(self) -> str:
        return self.name


class AlertRoute(models.Model):
    """Which alerts go to a channel: all that is given must fit. ``code`` and ``campaign`` are patterns with ``*`` and ``?``."""

    id = models.BigAutoField(primary_key=True)
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="routes")
    code = models.CharField(max_length=60, default="*")
    severity = models.CharField(max_length=10, blank=True, default="", choices=Severity.choices, help_text="empty: any")
    campaign = models.CharField(max_length=100, blank=True, default="")
    site = models.CharField(max_length=100, blank=True, default="")
    request_name = models.CharField(max_length=255, blank=True, default="")
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "alert_routes"
        ordering = ("channel_id", "id")
        constraints = (
            models.CheckConstraint(condition=Q(severity="") | Q(severity__in=Severity.values), name="alert_route_severity_known"),
        )

    def __str__(self) -> str:
        further = (self.severity, self.campaign, self.site, self.request_name)
        return " ".join([self.code, *(each for each in further if each), "to", str(self.channel)])


class RequestWatch(models.Model):
    """A user hears by mail of the alerts of a request, and when it is held or has ended."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("requests_app.Request", on_delete=models.CASCADE, related_name="watches")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    heard_at = models.DateTimeField(null=True, blank=True, help_text="begin of the end that the user has heard of")

    class Meta:
        db_table = "request_watches"
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("request", "user"), name="request_watched_once"),)

    def __str__(self) -> str:
        return f"{self.user_id} watches {self.request_id}"


class MessageKind(models.TextChoices):
    """Why a message is sent."""

    ALERTS = "alerts", "Alerts"
    DIGEST = "digest", "Daily digest"
    TEST = "test", "Test"


class AlertMessage(models.Model):
    """One message to a channel, or to a watcher, and how its sending went: at least once, by its ``id`` the same one.

    What it says was written when it was made and does not change; it is due at ``next_attempt_at``, and belongs to the process
    that claimed it until ``claimed_until``.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, null=True, blank=True, related_name="messages")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    kind = models.CharField(max_length=20, choices=MessageKind.choices, default=MessageKind.ALERTS)
    content = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    next_attempt_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")

    class Meta:
        db_table = "alert_messages"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(
                condition=Q(channel=None, user__isnull=False) | Q(channel__isnull=False, user=None), name="alert_message_to_one"
            ),
            models.CheckConstraint(condition=Q(kind__in=MessageKind.values), name="alert_message_kind_known"),
        )
        indexes = (
            models.Index(fields=("next_attempt_at",), name="idx_alert_messages_due", condition=Q(sent_at=None, given_up_at=None)),
            models.Index(fields=("created_at",), name="idx_alert_messages_age"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def state(self) -> str:
        """sent, given up or waiting."""
        return "sent" if self.sent_at else "given up" if self.given_up_at else "waiting"


class AlertNotice(models.Model):
    """That a channel or watcher was sent word of an alert: when last, and whether of its end. Written with the message."""

    id = models.BigAutoField(primary_key=True)
    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    last_at = models.DateTimeField()
    over = models.BooleanField(default=False, help_text="its end was said, too")

    class Meta:
        db_table = "alert_notices"
        constraints = (
            models.UniqueConstraint(fields=("alert", "channel", "user"), nulls_distinct=False, name="alert_notice_once"),
        )
        indexes = (models.Index(fields=("alert",), name="idx_alert_notices_open", condition=Q(over=False)),)

    def __str__(self) -> str:
        return f"{self.alert_id} to {self.channel_id or self.user_id}"
