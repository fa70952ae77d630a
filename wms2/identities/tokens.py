"""Personal tokens: ``wms2_<prefix>_<secret>``. The secret is shown once; its hash, the prefix, scope and times are stored.

A token never gives more than its owner has at the moment of its use: its grants are those of its owner (``grants_of``), with the
CMS groups and sites that they hold for, as far as its scope has their roles. Roles that a door brings along with each request are
not among them. Not here: the header and its answers (``wms2.api.tokens``), the page (``wms2.identities.account``).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.shortcuts import get_object_or_404
from django.utils import timezone
from rest_framework.authtoken.models import Token as OldKey

from wms2.actions import AlreadyDone, Role
from wms2.audit import audited
from wms2.errors import FieldRefused, InvalidTransition
from wms2.identities.grants import Grant, grants_of, includes, roles_of, use_grants
from wms2.identities.service_accounts import ended_because
from wms2.models import PersonalToken, TokenScope

#: All tokens begin so; scanners for leaked secrets search for it.
BEGINS = "wms2_"
#: A token lives so long at most, and by default; who needs one for longer makes a new one.
MOST_DAYS, DAYS = 365, 90
#: Live tokens of one user.
MOST_TOKENS = 50
#: The last use is written at most so often, so that reading costs no write each.
_USE_SECONDS = 60
_LETTERS = string.ascii_letters + string.digits
_PREFIX_LENGTH, _SECRET_LENGTH = 8, 43  # 43 of 62 letters: 256 bits, so that a plain SHA-256 cannot be searched
_FORM = re.compile(rf"{BEGINS}([A-Za-z0-9]{{{_PREFIX_LENGTH}}})_[A-Za-z0-9]{{{_SECRET_LENGTH}}}")
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class NewToken:
    """What is asked for: a name, a scope with its roles, days until it expires."""

    name: str
    scope: TokenScope = TokenScope.READ
    roles: tuple[Role, ...] = ()
    days: int = DAYS


def token_make(
    *, owner: Any, new: NewToken, actor: str, within: Sequence[Grant] | None = None
) -> tuple[PersonalToken, str]:  # fmt: skip
    """The row, and the token itself, which exists nowhere else. Raises FieldRefused: naming what cannot be.

    Args:
        within: what the door by which the owner came gives them now; the token gives nothing beyond. None: no door is in it.
    """
    owner = get_user_model().objects.get(pk=owner.pk)  # its stored roles, not those that a door brought with this request
    prefix, secret = _random(_PREFIX_LENGTH), _random(_SECRET_LENGTH)
    token, now = f"{BEGINS}{prefix}_{secret}", timezone.now()
    with audited(
        actor=actor, action="token_made", target=owner.get_username(), target_type="user", reason=new.name,
        prefix=prefix, scope=new.scope, roles=list(new.roles), days=new.days,
    ):  # fmt: skip
        _check(owner, new)
        _check_within(owner, new, within)
        values = {"scope": new.scope, "roles": list(new.roles), "expires_at": now + timedelta(days=new.days)}
        try:
            with transaction.atomic():
                row = PersonalToken.objects.create(
                    owner=owner, name=new.name, prefix=prefix, digest=_digest(token), created_at=now, created_by=actor, **values
                )
        except IntegrityError as error:
            taken = f"{owner.get_username()} has a token '{new.name}' already; revoke that, or take another name"
            raise FieldRefused("name", taken) from error
    return row, token


def _check(owner: Any, new: NewToken) -> None:
    if why := ended_because(owner):
        raise FieldRefused("owner", f"{why}; it gets no token")
    if not new.name.strip():
        raise FieldRefused("name", "say in a few words what the token is for")
    if not 1 <= new.days <= MOST_DAYS:
        raise FieldRefused("days", f"a token lives for 1 to {MOST_DAYS} days, not {new.days}")
    if bool(new.roles) != (new.scope is TokenScope.ROLES):
        raise FieldRefused("roles", "name roles with the scope 'some roles', and only with it")
    if strange := sorted(set(new.roles) - roles_of(owner)):
        has = ", ".join(sorted(roles_of(owner)))
        raise FieldRefused("roles", f"{owner.get_username()} has not the role {', '.join(strange)}; it has {has}")
    if PersonalToken.objects.filter(owner=owner, revoked_at=None, expires_at__gt=timezone.now()).count() >= MOST_TOKENS:
        raise FieldRefused("owner", f"{owner.get_username()} has {MOST_TOKENS} live tokens already; revoke those not in use")


def _check_within(owner: Any, new: NewToken, within: Sequence[Grant] | None) -> None:
    """Roles that are stored for a name are not had through a door that does not give them."""
    if within is None or new.scope is TokenScope.READ:
        return
    given = [grant for grant in grants_of(owner) if new.scope is TokenScope.OWNER or grant.role in new.roles]
    if beyond := sorted({grant.role for grant in given if not any(includes(held, grant) for held in within)}):
        why = f"you came in without the role {', '.join(beyond)}, as far as it is stored for {owner.get_username()}"
        raise FieldRefused("scope", f"{why}; sign in by the door that gives it, or make a token without it")


def token_revoke(*, token: PersonalToken, actor: str, reason: str) -> None:
    """From now on it is refused. Raises InvalidTransition: it was revoked before."""
    with audited(
        actor=actor, action="token_revoked", target=token.owner.get_username(), target_type="user", reason=reason,
        prefix=token.prefix, name=token.name,
    ):  # fmt: skip
        now = timezone.now()
        if not PersonalToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now, revoked_by=actor):
            raise InvalidTransition(revoke_refused(token) or f"{token} was revoked meanwhile")


def revoke_refused(token: PersonalToken) -> str:
    """Why it cannot be revoked; empty when it can."""
    return AlreadyDone(f"It was revoked by {token.revoked_by}.") if token.revoked_at is not None else ""


def old_key_end(*, owner: Any, actor: str, reason: str) -> None:
    """The key of Django REST framework that a user still has ends. Raises InvalidTransition: there is none."""
    with audited(actor=actor, action="old_key_ended", target=owner.get_username(), target_type="user", reason=reason):
        if not OldKey.objects.filter(user=owner.pk).delete()[0]:
            raise InvalidTransition(f"{owner.get_username()} has no key of the old form")


def tokens_of(owners: Sequence[Any]) -> list[PersonalToken]:
    """Those that can still be used or revoked, and those that ended within a month."""
    recent = timezone.now() - timedelta(days=30)
    shown = PersonalToken.objects.filter(Q(revoked_at=None) | Q(revoked_at__gt=recent), owner__in=owners, expires_at__gt=recent)
    return list(shown.select_related("owner").order_by("owner", "-created_at"))


def own_token(owners: Sequence[Any], prefix: str) -> PersonalToken:
    """One of these users' tokens. Raises Http404: none of them has it."""
    return get_object_or_404(PersonalToken.objects.select_related("owner"), owner__in=owners, pk=prefix)


def old_key_found(key: str) -> OldKey | None:
    """The row of a key of the old form, with all that ``ended_because`` reads."""
    return OldKey.objects.select_related("user__service_account__owner").filter(key=key).first()


def token_found(text: str) -> PersonalToken | None:
    """The row of a token; None where no row has this secret, whatever prefix it names."""
    match = _FORM.fullmatch(text)
    rows = PersonalToken.objects.select_related("owner__service_account__owner")
    row = rows.filter(pk=match[1]).first() if match else None
    right = secrets.compare_digest(_digest(text), row.digest if row else _NO_DIGEST)
    return row if right else None


def token_ended(token: PersonalToken) -> tuple[str, str]:
    """(code, why) of a token that cannot be used any more; empty texts when it can."""
    if token.revoked_at is not None:
        return "token_revoked", f"the token {token} was revoked at {_at(token.revoked_at)}"
    if token.expires_at <= timezone.now():
        return "token_expired", f"the token {token} expired at {_at(token.expires_at)}"
    why = ended_because(token.owner)
    return ("token_owner_ended", f"the token {token} has ended: {why}") if why else ("", "")


def token_use(token: PersonalToken) -> Any:
    """Its owner, with the grants that its scope leaves for as long as this object lives."""
    user = token.owner
    if token.scope == TokenScope.READ:
        use_grants(user, ())
    elif token.scope == TokenScope.ROLES:
        use_grants(user, [grant for grant in grants_of(user) if grant.role in token.roles])
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - timedelta(seconds=_USE_SECONDS):
        PersonalToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return user


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
