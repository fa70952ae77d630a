"""Who may do what: signed-in users read, an operation says by which roles it may be done, anonymous users see nothing but health.

A superuser is admin and operator, a member of the Django group ``operators`` (made after each ``migrate``; members are chosen in
the admin) operator, every other signed-in user viewer; requesters and site admins have no accounts yet. ``is_staff`` alone opens
the admin's pages and no operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from rest_framework.permissions import SAFE_METHODS, BasePermission

from wms2.actions import Action, Role

if TYPE_CHECKING:  # rest_framework.views reads the settings, which name this module
    from rest_framework.request import Request
    from rest_framework.views import APIView

#: Name of the group; renaming it takes the operations from everybody who is in it.
OPERATORS = "operators"


def roles_of(user: Any) -> frozenset[Role]:
    """Those of a user; one query for users who are not superusers, remembered on the object."""
    if not user.is_authenticated or not user.is_active:
        return frozenset()
    if user.is_superuser:
        return frozenset((Role.VIEWER, Role.OPERATOR, Role.ADMIN))
    known = getattr(user, "_wms2_operator", None)
    if known is None:
        known = user._wms2_operator = user.groups.filter(name=OPERATORS).exists()
    return frozenset((Role.VIEWER, Role.OPERATOR) if known else (Role.VIEWER,))


def may(user: Any, action: Action) -> bool:
    """Whether a user has one of the roles that an operation asks for."""
    return not roles_of(user).isdisjoint(action.roles)


def is_operator(user: Any) -> bool:
    """Whether a user may change what no operation does."""
    return Role.OPERATOR in roles_of(user)


def verb_of(view: APIView, method: str) -> Action | None:
    """The operation that a view does when it is called by this method."""
    return getattr(getattr(view, method.lower(), None), "verb", None)


class SignedInReadsOperatorsWrite(BasePermission):
    """The default of every view; a handler that does an operation has it as its ``action``."""

    message = f"only members of the group '{OPERATORS}' may do this; reading is open to every signed-in user"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Safe methods for everybody who is signed in, operations for their roles, all else for operators."""
        if not request.user.is_authenticated or request.method in SAFE_METHODS:
            return bool(request.user.is_authenticated)
        action = verb_of(view, str(request.method))
        return may(request.user, action) if action else is_operator(request.user)


def operators_group_ensure(**_: Any) -> None:
    """After each migrate: the group exists."""
    Group.objects.get_or_create(name=OPERATORS)
