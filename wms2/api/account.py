"""One's own account over REST: who one is, which tokens one has; and revoking them.

No token is made here: what holds a token could then make one that outlives it. The page ``/account/`` and ``manage.py tokens``
make them.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from wms2.api.actions import actor_of
from wms2.api.answers import answer, rows
from wms2.api.permissions import is_whole
from wms2.api.serializers import ReasonSerializer
from wms2.api.views import ApiView, query_and_body
from wms2.identities.grants import grants_of
from wms2.identities.service_accounts import accounts_of
from wms2.identities.tokens import own_token, token_revoke, tokens_of
from wms2.models import PersonalToken

TokenSerializer = rows(
    "PersonalToken", PersonalToken, "A personal token, without its secret.",
    "prefix", "owner=owner.username", "name", "scope", "roles", "created_at", "expires_at", "last_used_at", "revoked_at",
)  # fmt: skip
GrantSerializer = answer(
    "Grant", {"role": str, "groups": list[str], "sites": list[str]}, "A role, and the CMS groups and sites that it is limited to."
)
OwnAccountSerializer = answer(
    "OwnAccount", {"user": str, "service_accounts": list[str]}, "Who asks, and what they have.",
    service_accounts="those whose tokens one makes and revokes",
    grants=GrantSerializer(many=True, help_text="of this call: a token may have fewer than its owner"),
    tokens=TokenSerializer(many=True, help_text="one's own and the service accounts'; ended ones for a month"),
)  # fmt: skip


class SessionOrWholeToken(BasePermission):
    """Tokens are seen and revoked by a session, or by a token that may do all that its owner may."""

    message = "a session, or a token with all roles of its owner, is needed for this"

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether it is one of these."""
        return bool(request.user.is_authenticated) and is_whole(request)


class AccountView(ApiView):
    """Who asks."""

    serializer_class = OwnAccountSerializer
    permission_classes = (SessionOrWholeToken,)

    @extend_schema(description="Who asks: their grants, tokens and service accounts.")
    def get(self, request: Request) -> Response:
        """All of it."""
        owners = accounts_of(request.user)
        grants = [
            {"role": grant.role, "groups": sorted(grant.groups), "sites": sorted(grant.sites)}
            for grant in grants_of(request.user)
        ]
        names = [owner.get_username() for owner in owners]
        found = {"user": names[0], "service_accounts": names[1:], "grants": grants, "tokens": tokens_of(owners)}
        return Response(OwnAccountSerializer(found).data)


class AccountTokenView(ApiView):
    """One of these tokens."""

    serializer_class = TokenSerializer
    permission_classes = (SessionOrWholeToken,)
    query_params = frozenset({"reason"})

    @extend_schema(
        parameters=[ReasonSerializer], request=None, responses={202: TokenSerializer},
        description="Revoke a token of one's own or of one's service accounts; it is refused from now on.",
    )  # fmt: skip
    def delete(self, request: Request, prefix: str) -> Response:
        """Revoke it; again is answered as if it had just been done."""
        serializer = ReasonSerializer(data=query_and_body(request))
        serializer.is_valid(raise_exception=True)
        token = own_token(accounts_of(request.user), prefix)
        if token.revoked_at is None:
            token_revoke(token=token, actor=actor_of(request), reason=serializer.validated_data["reason"])
            token.refresh_from_db()
        return Response(TokenSerializer(token).data, status=202)
