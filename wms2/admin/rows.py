"""Rows of WMS2 that belong to no app: the audit, workers, resources, runs over many rows. Internal tables are not registered."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from rest_framework.authtoken.models import TokenProxy

from wms2.admin.filters import recent_values
from wms2.admin.readonly import rows_admin
from wms2.models import (
    AuditEntry,
    BulkItem,
    BulkRun,
    FailingTask,
    PersonalToken,
    Resource,
    ResourceLease,
    ServiceAccount,
    SsoSession,
    Worker,
    WorkerPool,
)

rows_admin(
    AuditEntry, "=at", "actor", "action", "target", "outcome", "reason",
    filters=(recent_values("action"), recent_values("outcome"), recent_values("actor")),
    search={"target": "a target's whole name (a request's, a limit's, a schedd's)", "actor": "an actor's"},
)  # fmt: skip

rows_admin(
    WorkerPool, "queue", "state", "since", "short_since", "reason", order=("queue",),
)  # fmt: skip

# A worker that is silent for long is dead.
rows_admin(Worker, "name", "heartbeat_at", "queues", "takes", "busy", "started_at", order=("name",))

rows_admin(Resource, "name", "units", "unit", "reason", order=("name",))

rows_admin(
    ResourceLease, "resource", "units", "holder", "process", "taken_at", "=expires_at", search={"resource": "a resource's name"}
)

rows_admin(FailingTask, "name", "failures", "since", "last_at", "=next_at", "last_error", "discarded", order=("name",))

rows_admin(BulkRun, "=created_at", "resource", "operation", "total", "actor", "reason", "ended_at", "cancelled", "problem")

rows_admin(
    BulkItem, "run", "position", "name", "result", "message", "at",
    filters=(recent_values("result"),), order=("-run", "position"),
    search={"name": "a row's name"},
)  # fmt: skip

rows_admin(
    PersonalToken, "prefix", "owner", "name", "scope", "=expires_at", "last_used_at", "revoked_at",
    search={"prefix": "a token's prefix", "owner__username": "a user's name"},
    order=("-created_at",), in_words={"digest": lambda token: "stored; it says nothing about the token"},
)  # fmt: skip

rows_admin(ServiceAccount, "user", "owner", "purpose", "created_at", "created_by", search={"user__username": "an account's name"})

# Keys of Django REST framework: they go on until their owners end them, and none is made any more.
admin.site.unregister(TokenProxy)
rows_admin(
    TokenProxy, "user", "=created", search={"user__username": "a user's name"}, order=("user",),
    above=lambda: "Keys of the old form. Personal tokens, made at /account/, replace them; no key is made here any more.",
    in_words={"key": lambda key: "not shown"},
)  # fmt: skip
# Sessions by single sign-on; users are bound to the issuer's subjects by ``manage.py sso_connect``, the client is a setting.
rows_admin(
    SsoSession, "user", "names", "=read_at", "tried_at", "problem",
    in_words={"refresh_token": lambda row: "encrypted" if row.refresh_token else "none"},
)  # fmt: skip
admin.site.unregister((EmailAddress, SocialAccount, SocialApp, SocialToken))
