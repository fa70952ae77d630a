"""Who may do what: signed-in users read, an operation says by which roles it may be done, anonymous users see nothing but health.

Who has which role: ``wms2.identities.grants``. ``is_staff`` alone opens the admin's pages and no operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission

from wms2.actions import Action
from wms2.identities.grants import OPERATORS, is_operator, may

if TYPE_CHECKING:  # rest_framework.views reads the settings, which name this module
    from rest_framework.request import Request
    from rest_framework.views import APIView


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
