"""Operations on personal tokens of others; their owners have the page and ``DELETE /api/v1/account/tokens/...``."""

from __future__ import annotations

from wms2.actions import Action, ResourceType, declare
from wms2.identities.tokens import revoke_refused, token_revoke
from wms2.models import PersonalToken

declare(
    ResourceType(
        PersonalToken, "token", "token", lambda prefix: PersonalToken.objects.filter(pk=prefix.removeprefix("wms2_")),
        lambda token: (str(token.revoked_at), "revoked" if token.revoked_at else "not revoked"),
    ),
    Action(
        "revoke", "Revoke", "Refuse a personal token from now on; its owner has to make a new one.", token_revoke,
        refused=revoke_refused, dangerous=True,
    ),
)  # fmt: skip
