"""Who may do what: signed-in users read, operators act, anonymous users see nothing but health.

An operator is a superuser or a member of the Django group ``operators`` (made after each ``migrate``; members are chosen in the
admin). ``is_staff`` alone opens the admin's pages and no verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from rest_framework.permissions import SAFE_METHODS, BasePermission

if TYPE_CHECKING:  # rest_framework.views reads the settings, which name this module
    from rest_framework.request import Request
    from rest_framework.views import APIView

#: Name of the group; renaming it takes the verbs from everybody who is in it.
OPERATORS = "operators"


def is_operator(user: Any) -> bool:
    """Whether a user may change anything; one query for users who are not superusers, remembered on the object."""
    if not user.is_authenticated or not user.is_active:
        return False
    if user.is_superuser:
        return True
    known = getattr(user, "_wms2_operator", None)
    if known is None:
        known = user._wms2_operator = user.groups.filter(name=OPERATORS).exists()
    return bool(known)


class SignedInReadsOperatorsWrite(BasePermission):
    """The default of every view."""

    message = f"only members of the group '{OPERATORS}' may do this; reading is open to every signed-in user"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Safe methods for everybody who is signed in, others for operators."""
        if not request.user.is_authenticated:
            return False
        return request.method in SAFE_METHODS or is_operator(request.user)


def operators_group_ensure(**_: Any) -> None:
    """After each migrate: the group exists."""
    Group.objects.get_or_create(name=OPERATORS)
