"""What the provider says of a user beside the usual: ``cern_roles``, the names of the user's groups."""

from __future__ import annotations

from typing import Any

from allauth.idp.oidc.adapter import DefaultOIDCAdapter


class Adapter(DefaultOIDCAdapter):
    """As CERN SSO: roles are in the ID token and at the user info endpoint."""

    def get_claims(self, purpose: Any, user: Any, *rest: Any, **more: Any) -> dict[str, Any]:
        """Of the moment at which they are asked for."""
        claims: dict[str, Any] = super().get_claims(purpose, user, *rest, **more)
        return claims | {"cern_roles": sorted(user.groups.values_list("name", flat=True))}
