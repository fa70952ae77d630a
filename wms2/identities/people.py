"""Users and their roles, given and taken away: each change is audited. The command ``identities`` and the admin call this.

Not here: what a role allows (``grants``), how a user proves who they are (the doors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from wms2.actions import Role, resource_types
from wms2.audit import audited
from wms2.errors import FieldRefused, InvalidTransition
from wms2.identities.grants import name_refused
from wms2.models import RoleAssignment


def constraint_problems(role: str, cms_groups: Sequence[str], sites: Sequence[str]) -> dict[str, str]:
    """What is wrong with the rows that a role is to hold for: field -> sentence."""
    problems = {}
    kinds = [each for each in resource_types() if each.name == "site"]  # sites are rows of an app above
    if cms_groups and role != Role.REQUESTER:
        problems["cms_groups"] = f"only a {Role.REQUESTER} is limited to CMS groups; leave them out"
    if sites and role != Role.SITE_ADMIN:
        problems["sites"] = f"only a {Role.SITE_ADMIN} is limited to sites; leave them out"
    elif role == Role.SITE_ADMIN and not sites:
        problems["sites"] = f"name the sites that the {Role.SITE_ADMIN} is to act on"
    elif unknown := [name for name in sites if not any(kind.find(name) for kind in kinds)]:
        problems["sites"] = f"there is no site {', '.join(unknown)}; the list of sites has their names"
    return problems


def user_create(*, name: str, password: str | None, actor: str, reason: str, administrator: bool = False) -> Any:
    """A user; without a password one who signs in by another door. Raises FieldRefused: the name or password is not usable;
    InvalidTransition: there is one of this name."""
    user = get_user_model()(username=name, is_staff=administrator, is_superuser=administrator)
    user.set_unusable_password()
    with audited(actor=actor, action="user_create", target=name, target_type="user", reason=reason, administrator=administrator):
        if get_user_model().objects.filter(username=name).exists():
            raise InvalidTransition(f"there is a user {name}")
        _set_password(user, password)
        try:
            user.full_clean()
        except ValidationError as error:
            raise FieldRefused("name", " ".join(error.messages)) from error
        if why := name_refused(name):
            raise FieldRefused("name", why)
        user.save()
    return user


def administrator_ensure(*, name: str, password: str | None, actor: str, reason: str) -> Any:
    """The user of this name is a superuser, who may do everything; made where there is none. Repeatable. Raises FieldRefused: the
    name or password is not usable."""
    user = get_user_model().objects.filter(username=name).first()
    if user is None:
        return user_create(name=name, password=password, actor=actor, reason=reason, administrator=True)
    same_password = password is None or user.check_password(password)
    if user.is_superuser and user.is_active and same_password:
        return user
    with audited(actor=actor, action="user_administrator", target=name, target_type="user", reason=reason):
        user.is_superuser = user.is_staff = user.is_active = True
        if not same_password:
            _set_password(user, password)
        user.save()
    return user


def role_give(
    *, role: Role, holder: Any, cms_groups: Sequence[str] = (), sites: Sequence[str] = (), actor: str, reason: str
) -> RoleAssignment:
    """A user or Django group has a role from now on, with these limits in place of former ones. Raises FieldRefused: they do not
    fit the role."""
    limits = {"cms_groups": sorted(set(cms_groups)), "sites": sorted(set(sites))}
    with audited(
        actor=actor, action="role_give", target=holder, target_type=_kind(holder), reason=reason, role=role.value, **limits
    ):
        for field, problem in constraint_problems(role, cms_groups, sites).items():
            raise FieldRefused(field, problem)
        given = {**limits, "actor": actor, "reason": reason}
        return RoleAssignment.objects.update_or_create(role=role.value, **{_kind(holder): holder}, defaults=given)[0]


def role_take(*, role: Role, holder: Any, actor: str, reason: str) -> None:
    """A user or Django group has a role no longer. Raises InvalidTransition: they were not given it."""
    with audited(actor=actor, action="role_take", target=holder, target_type=_kind(holder), reason=reason, role=role.value):
        if not RoleAssignment.objects.filter(role=role.value, **{_kind(holder): holder}).delete()[0]:
            raise InvalidTransition(f"{_kind(holder)} {holder} was not given the role {role}; see `identities list`")


def user_deactivate(*, user: Any, actor: str, reason: str) -> None:
    """A user can sign in no more, by any door; sessions and tokens end with the next call. Raises InvalidTransition: no other
    administrator would be left."""
    with audited(actor=actor, action="user_deactivate", target=user, target_type="user", reason=reason):
        others = get_user_model().objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
        if user.is_superuser and not others.exists():
            raise InvalidTransition(f"{user} is the last administrator; make another one first")
        user.is_active = False
        user.save(update_fields=["is_active"])


def user_activate(*, user: Any, actor: str, reason: str) -> None:
    """A user can sign in again."""
    with audited(actor=actor, action="user_activate", target=user, target_type="user", reason=reason):
        user.is_active = True
        user.save(update_fields=["is_active"])


def _set_password(user: Any, password: str | None) -> None:
    if password is None:
        return
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise FieldRefused("password", " ".join(error.messages)) from error
    user.set_password(password)


def _kind(holder: Any) -> str:
    return "group" if isinstance(holder, Group) else "user"
