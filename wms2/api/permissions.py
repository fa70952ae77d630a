"""Who may do what: signed-in users read, an operation says by which roles it may be done, anonymous users see nothing but health.

Who has which role: ``wms2.identities.grants``. Whether a role holds for the row that is meant is asked once that is read
(``wms2.api.actions``). ``is_staff`` alone opens the admin's pages and no operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.authtoken.models import Token as OldKey
from rest_framework.permissions import SAFE_METHODS, BasePermission

from wms2.actions import Action, Role
from wms2.identities.grants import denial, is_operator, missing, roles_of
from wms2.models import TokenScope

if TYPE_CHECKING:  # rest_framework.views reads the settings, which name this module
    from rest_framework.request import Request
    from rest_framework.views import APIView

_READS = "the token only reads"


def performed_action(view: APIView, method: str) -> Action | None:
    """The operation that a view does when it is called by this method."""
    return getattr(getattr(view, method.lower(), None), "performs", None)


class SignedInReadsOperatorsWrite(BasePermission):
    """The default of every view; a handler that does an operation has it as its ``action``."""

    #: Of a denial; the framework reads it from this object, which is made for each call.
    message = ""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Safe methods for everybody who is signed in, operations for their roles, all else for operators."""
        if not request.user.is_authenticated or request.method in SAFE_METHODS:
            return bool(request.user.is_authenticated)
        action = performed_action(view, str(request.method))
        self.message = denial(request.user, action) if action else operators_alone(request.user)
        # A token that gives no role may not do what every reader may do for themselves.
        if not self.message and not is_whole(request) and roles_of(request.user) <= {Role.VIEWER}:
            self.message = _READS
        return not self.message


def is_whole(request: Request) -> bool:
    """Whether it comes with a session, or with a token that may do all that its owner may."""
    found = request.auth
    return found is None or isinstance(found, OldKey) or getattr(found, "scope", None) == TokenScope.OWNER


def operators_alone(user: Any) -> str:
    """Why a user may not do what no operation does; empty: they may."""
    return "" if is_operator(user) else missing(user, (Role.OPERATOR,))
