"""The tables that belong to no app: who did what, which requests have to be looked at, how many rows there are of which kind;
workers, what they share, which of their tasks fail; answers that are stored for clients that ask twice; who has which role,
personal tokens, service accounts, sessions by single sign-on."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.urls import reverse

from wms2.actions import Role
from wms2.runtime.json_columns import texts


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
        indexes = (
            models.Index(fields=("target_type", "target", "id"), name="audit_by_target"),
            models.Index(fields=("at",), name="idx_audit_at"),
        )

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class Wake(models.Model):
    """Something has changed that a request's life cycle has to look at (``wms2.runtime.due``); gone once that has begun."""

    id = models.BigAutoField(primary_key=True)
    request_id = models.UUIDField()
    why = models.CharField(max_length=60)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "wakes"
        ordering = ("id",)
        indexes = (models.Index(fields=("request_id",), name="idx_wakes_request"),)

    def __str__(self) -> str:
        return f"{self.why}: {self.request_id}"


class RowCount(models.Model):
    """A change of the number of rows of a kind, or the sum of such changes; written by triggers (``wms2.metrics.row_counts``)."""

    counted = models.CharField(max_length=50, help_text="the table")
    kind = models.CharField(max_length=100)
    number = models.BigIntegerField()

    class Meta:
        db_table = "row_counts"

    def __str__(self) -> str:
        return f"{self.counted} {self.kind}: {self.number:+}"


class WorkerPoolState(models.TextChoices):
    """STARTING -> RUNNING -> DRAINING -> STOPPED; an operator resumes. EVICTED: as STOPPED, of a former release."""

    STARTING = "starting", "Starting"
    RUNNING = "running", "Running"
    DRAINING = "draining", "Draining"
    STOPPED = "stopped", "Stopped"
    EVICTED = "evicted", "Evicted"


class WorkerPool(models.Model):
    """The workers of one Celery queue, as they are wanted (ADR 0028). They read it with each heartbeat, also at their start."""

    queue = models.CharField(max_length=50, primary_key=True)
    state = models.CharField(max_length=10, choices=WorkerPoolState.choices, default=WorkerPoolState.STARTING)
    since = models.DateTimeField(auto_now_add=True, help_text="in this state")
    reason = models.TextField(blank=True)
    short_since = models.DateTimeField(null=True, blank=True, help_text="no worker is alive")
    alerted = models.BooleanField(default=False, help_text="that they are missing was reported")

    class Meta:
        db_table = "worker_pools"
        ordering = ("queue",)
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=WorkerPoolState.values), name="worker_pool_state_known"),
        )

    def __str__(self) -> str:
        return self.queue


class Worker(models.Model):
    """One Celery worker, by its last report."""

    name = models.CharField(max_length=200, primary_key=True)
    queues = models.JSONField(default=list, help_text="it was started for")
    takes = models.JSONField(default=list, help_text="queues that it takes tasks from now")
    busy = models.JSONField(default=dict, help_text="queue -> tasks that it has taken and not ended")
    processes = models.JSONField(default=list, help_text="as leases and claims name them")
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()

    class Meta:
        db_table = "workers"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def serves(self, queue: str) -> bool:
        """Whether it was started for a queue."""
        return queue in texts(self.queues)


class Resource(models.Model):
    """Something that must not be oversubscribed, and how much of it there is (``wms2.work.resources``)."""

    name = models.CharField(max_length=100, primary_key=True)
    units = models.PositiveIntegerField()
    unit = models.CharField(max_length=50, blank=True, help_text="what is counted")
    reason = models.TextField(blank=True)

    class Meta:
        db_table = "resources"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class ResourceLease(models.Model):
    """Units of a resource that are taken until ``expires_at``, unless the holder reports before."""

    token = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="leases")
    units = models.PositiveIntegerField()
    holder = models.CharField(max_length=300, help_text="what it is for")
    process = models.CharField(max_length=200, help_text="who has it: a process of WMS2")
    ttl_seconds = models.FloatField()
    taken_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "resource_leases"
        ordering = ("id",)
        indexes = (models.Index(fields=("expires_at",), name="idx_resource_lease_ends"),)

    def __str__(self) -> str:
        return f"{self.units} of {self.resource_id} for {self.holder}"


class FailingTask(models.Model):
    """A task of the schedule that has failed since it last worked; gone when it works again."""

    name = models.CharField(max_length=200, primary_key=True)
    failures = models.PositiveIntegerField(default=1, help_text="in a row")
    since = models.DateTimeField()
    last_at = models.DateTimeField()
    next_at = models.DateTimeField(help_text="when the schedule has it again")
    last_error = models.TextField()
    discarded = models.TextField(blank=True, help_text="why an operator does not want to hear of it until it has worked")

    class Meta:
        db_table = "failing_tasks"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class BulkResult(models.TextChoices):
    """What became of one row of a bulk run. BROKEN: an error of WMS2's own, which the log has."""

    WAITING = "waiting", "Waiting"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    BROKEN = "broken", "Broken"


class BulkRun(models.Model):
    """One operation asked of many rows at once; workers do it in portions (``wms2.work.bulk``)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    resource = models.CharField(max_length=50, help_text="whose rows, as on the command line")
    operation = models.CharField(max_length=50)
    data = models.JSONField(help_text="the operation's input as it came")
    actor = models.CharField(max_length=100)
    reason = models.TextField()
    total = models.PositiveIntegerField(help_text="rows")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    cancelled = models.TextField(blank=True, help_text="who cancelled it, and why")
    problem = models.TextField(blank=True, help_text="why it did not go on when it was last tried")

    class Meta:
        db_table = "bulk_runs"
        ordering = ("-created_at",)
        indexes = (
            models.Index(fields=("created_at",), name="idx_bulk_runs_open", condition=models.Q(ended_at=None)),
            models.Index(fields=("created_at", "id"), name="idx_bulk_runs_at"),
        )

    def __str__(self) -> str:
        return f"{self.operation} of {self.total} ({self.resource}) by {self.actor}"

    def get_absolute_url(self) -> str:
        """Its live page."""
        return reverse("bulk-run-page", args=[self.pk])


class BulkItem(models.Model):
    """One row of a bulk run."""

    run = models.ForeignKey(BulkRun, on_delete=models.CASCADE, related_name="items")
    position = models.PositiveIntegerField()
    key = models.CharField(max_length=200, help_text="the row's primary key")
    name = models.CharField(max_length=300)
    seen = models.CharField(max_length=300, help_text="where the row stood when the run was asked for")
    result = models.CharField(max_length=10, choices=BulkResult.choices, default=BulkResult.WAITING)
    message = models.TextField(blank=True, help_text="why not")
    at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "bulk_items"
        ordering = ("run", "position")
        constraints = (
            models.UniqueConstraint(fields=("run", "position"), name="bulk_item_once"),
            models.CheckConstraint(condition=models.Q(result__in=BulkResult.values), name="bulk_result_known"),
        )
        indexes = (models.Index(fields=("run", "position"), name="idx_bulk_items_waiting", condition=models.Q(result="waiting")),)

    def __str__(self) -> str:
        return f"{self.name}: {self.result}"


class KeptAnswer(models.Model):
    """What a call with an ``Idempotency-Key`` was answered; without a ``status`` it is still under way, or was broken off."""

    identity = models.CharField(max_length=150)
    key = models.CharField(max_length=200)
    method = models.CharField(max_length=10)
    path = models.CharField(max_length=500)
    digest = models.CharField(max_length=64, help_text="of query and body")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    body = models.JSONField(null=True, blank=True)
    headers = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "kept_answers"
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("identity", "key"), name="answer_once_per_key"),)
        indexes = (models.Index(fields=("at",), name="idx_kept_answers_at"),)

    def __str__(self) -> str:
        return f"{self.method} {self.path} by {self.identity}"


class RoleAssignment(models.Model):
    """A role that a user has, or all members of a Django group, and the rows that it holds for (``wms2.identities.grants``)."""

    role = models.CharField(max_length=20, choices=[(role.value, role.value) for role in Role])
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="role_assignments"
    )
    group = models.ForeignKey("auth.Group", on_delete=models.CASCADE, null=True, blank=True, related_name="role_assignments")
    cms_groups = models.JSONField(
        default=list, blank=True, help_text="of requesters: CMS groups whose requests they may act on beside their own"
    )
    sites = models.JSONField(default=list, blank=True, help_text="of site admins: the sites that they may act on")
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=100, help_text="who gave it last")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "role_assignments"
        ordering = ("role", "id")
        constraints = (
            models.CheckConstraint(condition=models.Q(role__in=[role.value for role in Role]), name="role_known"),
            models.CheckConstraint(
                condition=models.Q(user=None, group__isnull=False) | models.Q(user__isnull=False, group=None),
                name="role_of_user_or_group",
            ),
            models.CheckConstraint(
                condition=models.Q(cms_groups=[]) | models.Q(role=Role.REQUESTER.value), name="role_groups_fit"
            ),
            models.CheckConstraint(condition=models.Q(sites=[]) ^ models.Q(role=Role.SITE_ADMIN.value), name="role_sites_fit"),
            models.UniqueConstraint(fields=("user", "role"), name="role_once_per_user"),
            models.UniqueConstraint(fields=("group", "role"), name="role_once_per_group"),
        )

    def __str__(self) -> str:
        return f"{self.role}: {self.user or f'group {self.group}'}"


class TokenScope(models.TextChoices):
    """What a personal token may do of what its owner may do at the moment of its use."""

    READ = "read", "Read only"
    OWNER = "owner", "All roles of its owner"
    ROLES = "roles", "Some roles of its owner"


class PersonalToken(models.Model):
    """``wms2_<prefix>_<secret>``, of which only a hash is stored (``wms2.identities.tokens``)."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="personal_tokens")
    name = models.CharField(max_length=100, help_text="what it is for")
    prefix = models.CharField(max_length=8, primary_key=True, help_text="the part of the token that may be shown")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the whole token")
    scope = models.CharField(max_length=10, choices=TokenScope.choices, default=TokenScope.READ)
    roles = models.JSONField(default=list, blank=True, help_text="of the scope roles: which")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="to the minute")
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    class Meta:
        db_table = "personal_tokens"
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), condition=models.Q(revoked_at=None), name="token_name_once"),
            models.CheckConstraint(condition=models.Q(scope__in=TokenScope.values), name="token_scope_known"),
            models.CheckConstraint(condition=models.Q(roles=[]) ^ models.Q(scope="roles"), name="token_roles_by_scope"),
        )

    def __str__(self) -> str:
        return f"wms2_{self.prefix}"


class ServiceAccount(models.Model):
    """A user that is a program: it has no password, and ends with its owner (``wms2.identities.service_accounts``)."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="service_account"
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="service_accounts",
        help_text="empty: the user was deleted, and the account has ended",
    )  # fmt: skip
    purpose = models.TextField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        db_table = "service_accounts"
        ordering = ("user",)

    def __str__(self) -> str:
        return str(self.user_id)


class SsoSession(models.Model):
    """A session that began by single sign-on: what the issuer called the user's roles, and when it was asked. Its removal ends
    the session."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=191, help_text="the user's `sub` at the issuer")
    names = models.JSONField(help_text="roles or groups, as the issuer names them")
    refresh_token = models.TextField(blank=True, help_text="encrypted; empty: the issuer gave none")
    read_at = models.DateTimeField(help_text="when the issuer said so")
    tried_at = models.DateTimeField(help_text="when it was last asked, with or without an answer")
    problem = models.TextField(blank=True, help_text="why it did not answer when it was last asked")

    class Meta:
        db_table = "sso_sessions"
        ordering = ("-read_at",)
        indexes = (models.Index(fields=("read_at",), name="idx_sso_sessions_read_at"),)

    def __str__(self) -> str:
        return f"{self.user} since {self.read_at:%Y-%m-%d %H:%M}"
