"""The roles of a user, with the rows that each is limited to.

A grant is a role plus the CMS groups and sites that it holds for. Doors that bring the roles along with each request (the front
end's headers, bearer tokens) put them on the user object by ``use_grants``, for that request alone; other users have what is
stored. Not here: which roles an operation asks for (``wms2.actions``), the answer 403 (``wms2.api.permissions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, Group

from wms2.actions import Action, Role

#: Name of the group whose members are operators; renaming it takes the operations from all who are in it.
OPERATORS = "operators"
_GRANTS = "_wms2_grants"


class Grant(NamedTuple):
    """A role and what it is limited to: CMS groups for requesters, sites for site admins; other roles hold for all rows."""

    role: Role
    groups: frozenset[str] = frozenset()
    sites: frozenset[str] = frozenset()


def use_grants(user: Any, grants: Iterable[Grant]) -> None:
    """Let a user have these and no other for as long as this object lives; every user who is signed in reads."""
    setattr(user, _GRANTS, (Grant(Role.VIEWER), *grants))


def grants_of(user: Any) -> tuple[Grant, ...]:
    """Those of a user, remembered on the object; none for users who are not signed in or not active."""
    if not user.is_authenticated or not user.is_active:
        return ()
    if not hasattr(user, _GRANTS):
        use_grants(user, _stored(user))
    found: tuple[Grant, ...] = getattr(user, _GRANTS)
    return found


def roles_of(user: Any) -> frozenset[Role]:
    """The roles alone."""
    return frozenset(grant.role for grant in grants_of(user))


def may(user: Any, action: Action) -> bool:
    """Whether a user has one of the roles that an operation asks for."""
    return not roles_of(user).isdisjoint(action.roles)


def is_operator(user: Any) -> bool:
    """Whether a user may change what no operation does."""
    return Role.OPERATOR in roles_of(user)


def grants_named(names: Mapping[str, tuple[Iterable[str], Iterable[str]]], role_names: Mapping[str, str]) -> tuple[Grant, ...]:
    """Grants of what a door calls roles or groups.

    Args:
        names: its name -> (CMS groups, sites) that it holds for.
        role_names: its name -> our role, the setting ``role_names``; names that are not in it give nothing.
    """
    return tuple(
        Grant(Role(role_names[name]), frozenset(groups), frozenset(sites))
        for name, (groups, sites) in names.items()
        if name in role_names
    )


def person_ensure(name: str) -> AbstractBaseUser:
    """The user of this name, made without a password where there is none; whether they are active is for the door to refuse."""
    users = get_user_model().objects
    user, made = users.get_or_create(username=name)
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user


def operators_group_ensure(**_: Any) -> None:
    """After each migrate: the group exists."""
    Group.objects.get_or_create(name=OPERATORS)


def _stored(user: Any) -> tuple[Grant, ...]:
    if user.is_superuser:
        return (Grant(Role.OPERATOR), Grant(Role.ADMIN))
    return (Grant(Role.OPERATOR),) if user.groups.filter(name=OPERATORS).exists() else ()
