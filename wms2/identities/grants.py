"""The roles of a user, with the rows that each is limited to.

A grant is a role plus the CMS groups and sites that it holds for. Requesters act on rows of their own name and of their groups,
site admins on their sites, both on what they have begun themselves; admins may what operators may. Doors that bring the roles
along with each request (the front end's headers, bearer tokens) put them on the user object by ``use_grants``, for that request
alone; other users have what is stored. ``denial`` and ``require`` are the one place that judges, for all doors. Not here: which
roles an operation asks for and whose a row is (``wms2.actions``), the answer 403 (``wms2.api.permissions``,
``wms2.admin.actions``), its record (``wms2.identities.denials``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, Group
from django.core.exceptions import PermissionDenied
from django.db.models import JSONField, Q, Value

from wms2.actions import Action, Owned, Role, resource_type_of
from wms2.models import RoleAssignment

#: Name of the group whose members are operators; renaming it takes the operations from all who are in it.
OPERATORS = "operators"
#: By which WMS2 itself acts: in the audit and on rows they say that no person did. No user comes in by one.
OWN_NAMES = frozenset({"archiver", "credentials", "lifecycle", "planner", "reqmgr2", "ssb", "unknown", "wms2"})
#: The audit's column of actors.
_MOST_CHARACTERS = 100
_GRANTS = "_wms2_grants"
#: Roles that hold on rows of one's own alone.
LIMITED = (Role.REQUESTER, Role.SITE_ADMIN)
_APART = re.compile(r"[^a-z0-9]+")
#: Names that a sentence lists.
_NAMED = 5


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
    """Whether a user has one of the roles that an operation asks for, on some rows at least."""
    return not denial(user, action)


def is_operator(user: Any) -> bool:
    """Whether a user may change what no operation does, and see the Celery workers as Flower shows them."""
    return not roles_of(user).isdisjoint((Role.OPERATOR, Role.ADMIN))


def is_admin(user: Any) -> bool:
    """Whether a user may give roles."""
    return Role.ADMIN in roles_of(user)


def enters_admin(user: Any) -> bool:
    """Whether a user may open the admin's pages: who was given a role, of whichever kind, and Django's staff."""
    return bool(user.is_active and (user.is_staff or len(grants_of(user)) > 1))


def denial(user: Any, action: Action, row: Any = None, data: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Why a user may not do an operation: which role is missing, and which they have; empty: they may.

    Args:
        row: to which; None: to any row at all.
        data: with this input.
    """
    grants = [grant for grant in grants_of(user) if grant.role in (*action.roles, Role.ADMIN)]
    if row is not None:
        owned = resource_type_of(type(row)).owner(row)
        grants = [grant for grant in grants if _covers(grant, user, owned)]
    roles = {grant.role for grant in grants}
    if not roles:
        return missing(user, action.roles)
    for one in action.fields:
        value = data.get(one.name)
        given = value is not None and value is not False and value not in ("", [], one.default)
        if given and one.roles and roles.isdisjoint((*one.roles, Role.ADMIN)):
            return missing(user, one.roles, f"{one.name}: ")
    return ""


def require(user: Any, action: Action, row: Any = None, data: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raises PermissionDenied: ``denial``'s sentence, after the row's name."""
    if why := denial(user, action, row, data):
        raise PermissionDenied(why if row is None else f"{row}: {why}")


def missing(user: Any, roles: Sequence[Role], about: str = "") -> str:
    """That one of these roles is asked for, and which the user has."""
    held = roles_of(user)
    wanted = [role for role in roles if role not in held] or roles
    own = [grant for grant in grants_of(user) if grant.role is not Role.VIEWER] or [Grant(Role.VIEWER)]
    return f"{about}this needs the role {' or '.join(wanted)}; you have {'; '.join(map(described, own))}"


def described(grant: Grant) -> str:
    """A role, and what it holds for."""
    if grant.role is Role.REQUESTER:
        groups = _listed(grant.groups)
        of_groups = f" and of the group{'s' if len(grant.groups) > 1 else ''} {groups}" if groups else ""
        return f"{grant.role}, for requests of your own{of_groups}"
    if grant.role is Role.SITE_ADMIN:
        return f"{grant.role}, for {_listed(grant.sites) or 'no site'}"
    return str(grant.role)


def includes(held: Grant, grant: Grant) -> bool:
    """Whether who has ``held`` may all that ``grant`` allows."""
    if held.role is Role.ADMIN:
        return True
    limits = ((held.groups, grant.groups), (held.sites, grant.sites))
    return held.role is grant.role and all(set(map(canonical, some)) <= set(map(canonical, most)) for most, some in limits)


def canonical(name: str) -> str:
    """A group's or site's name as it is compared: CMS's front end writes ``T2_CH_CERN`` as ``t2-ch-cern``."""
    return _APART.sub("-", name.lower())


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


def name_refused(name: str) -> str:
    """Why no new user may be called so; empty: they may."""
    if name.lower() in OWN_NAMES:
        return f"{name[:_MOST_CHARACTERS]} is a name by which WMS2 itself acts; take another one"
    if len(name) > _MOST_CHARACTERS:
        return f"give at most {_MOST_CHARACTERS} characters, which the audit has room for"
    return ""


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
    """One query, whatever the number of roles and groups."""
    if user.is_superuser:
        return (Grant(Role.OPERATOR), Grant(Role.ADMIN))
    given = RoleAssignment.objects.filter(Q(user=user.pk) | Q(group__user=user.pk)).order_by()
    operators = user.groups.filter(name=OPERATORS).order_by()
    nothing = Value([], JSONField())
    found = given.values_list("role", "cms_groups", "sites").union(
        operators.values_list(Value(Role.OPERATOR.value), nothing, nothing), all=True
    )
    return tuple(Grant(Role(role), frozenset(groups), frozenset(sites)) for role, groups, sites in found)


def _covers(grant: Grant, user: Any, owned: Owned) -> bool:
    if grant.role not in LIMITED or user.get_username() in owned.users:
        return True
    if grant.role is Role.REQUESTER:
        return _meet(grant.groups, owned.groups)
    return _meet(grant.sites, owned.sites)


def _meet(held: Iterable[str], owned: Iterable[str]) -> bool:
    """Whether they have a name in common; a row without one is not of all who have none."""
    return not {canonical(name) for name in held if name}.isdisjoint(canonical(name) for name in owned if name)


def _listed(names: Iterable[str]) -> str:
    first, more = sorted(names)[:_NAMED], max(0, len(list(names)) - _NAMED)
    return ", ".join(first) + (f" and {more} more" if more else "")
