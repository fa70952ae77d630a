"""Service accounts: users that are programs. Each has an owner, a person; without an active owner it may do nothing.

Whether it has ended is judged at each use, so that no step that was missed when its owner left keeps it alive. It has no
password, and the sign-in by password refuses its name even if one is set. Not here: tokens (``wms2.identities.tokens``).
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils import timezone

from wms2.actions import Role
from wms2.audit import audited
from wms2.errors import FieldRefused
from wms2.identities.grants import name_refused, roles_of
from wms2.models import ServiceAccount


def ended_because(user: Any) -> str:
    """Why a user may not come in by any token; empty when they may. Reads the service account and its owner."""
    if not user.is_active:
        return f"the user {user.get_username()} is not active"
    account = getattr(user, "service_account", None)
    if account is None:
        return ""
    if account.owner is None:
        return f"the owner of the service account {user.get_username()} has left"
    if not account.owner.is_active:
        return f"the owner of the service account {user.get_username()}, {account.owner.get_username()}, is not active"
    return ""


def service_account_create(*, name: str, owner: Any, actor: str, purpose: str) -> ServiceAccount:
    """A user without password and without roles, and its owner. Raises FieldRefused: the name is taken, the owner cannot be."""
    users = get_user_model().objects
    with audited(
        actor=actor, action="service_account_created", target=name, target_type="user", reason=purpose, owner=owner.get_username()
    ):
        _check_owner(owner)
        if why := name_refused(name):
            raise FieldRefused("name", why)
        user, made = users.get_or_create(username=name)
        if not made:
            raise FieldRefused("name", f"there is a user {name} already; a person's account cannot become a service account")
        user.set_unusable_password()
        user.save(update_fields=["password"])
        return ServiceAccount.objects.create(
            user=user, owner=owner, purpose=purpose, created_at=timezone.now(), created_by=actor
        )  # fmt: skip


def service_account_hand_over(*, account: ServiceAccount, owner: Any, actor: str, reason: str) -> None:
    """Another owner, from now on; its tokens stay, and work again if they had ended with the former one. Raises FieldRefused."""
    evidence = {"owner": owner.get_username(), "former": account.owner.get_username() if account.owner else ""}
    name = account.user.get_username()
    with audited(
        actor=actor, action="service_account_handed_over", target=name, target_type="user", reason=reason, **evidence
    ):  # fmt: skip
        _check_owner(owner)
        account.owner = owner
        account.save(update_fields=["owner"])


def _check_owner(owner: Any) -> None:
    if hasattr(owner, "service_account"):
        raise FieldRefused("owner", f"{owner.get_username()} is a service account itself; name a person")
    if not owner.is_active:
        raise FieldRefused("owner", f"{owner.get_username()} is not active; name another person")


def accounts_of(user: Any) -> list[Any]:
    """The users whose tokens a user makes and revokes: first their own, then the service accounts that they own; for admins
    all service accounts."""
    found = ServiceAccount.objects.select_related("user", "owner").order_by("user__username")
    if Role.ADMIN not in roles_of(user):
        found = found.filter(owner=user.pk)
    return [user, *(account.user for account in found)]


class NoPasswordBackend:
    """An authentication backend that authenticates no user: it refuses service accounts before any password is judged."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, password: str | None = None) -> None:
        """None; the next backend decides. Raises PermissionDenied: Django asks no other backend then."""
        if username is not None and ServiceAccount.objects.filter(user__username=username).exists():
            raise PermissionDenied
