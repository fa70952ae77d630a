"""``manage.py tokens``: personal tokens of any user are made, listed and revoked, and keys of the old form ended. All audited."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from wms2.actions import Role
from wms2.errors import InvalidTransition
from wms2.identities.tokens import DAYS, MOST_DAYS, NewToken, old_key_end, token_make, token_revoke
from wms2.management.arguments import actor_named, user_named
from wms2.models import PersonalToken, TokenScope


class Command(BaseCommand):
    """Personal tokens."""

    help = "Make, list and revoke personal tokens (docs/identities.md). Audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A sub-command for each."""
        does = parser.add_subparsers(dest="does", required=True)
        create = does.add_parser("create", help="make one; standard output has the token alone, which is not shown again")
        create.add_argument("user", metavar="USER")
        create.add_argument("--name", required=True, help="what it is for")
        create.add_argument("--days", type=int, default=DAYS, help=f"until it expires: 1 to {MOST_DAYS}, default {DAYS}")
        scope = create.add_mutually_exclusive_group()
        scope.add_argument("--all-roles", action="store_true", help="it may what its owner may; default: it may only read")
        scope.add_argument(
            "--role", action="append", default=[], choices=[role.value for role in Role if role is not Role.VIEWER],
            help="it has this role of its owner; may be repeated",
        )  # fmt: skip
        shown = does.add_parser("list", help="those of a user, or all")
        shown.add_argument("user", metavar="USER", nargs="?")
        revoke = does.add_parser("revoke", help="refuse one from now on")
        revoke.add_argument("prefix", metavar="PREFIX", help="of the token, with or without wms2_")
        old = does.add_parser("end-old-key", help="end the key of Django REST framework that a user still has")
        old.add_argument("user", metavar="USER")
        for each in (revoke, old):
            each.add_argument("--reason", required=True, help="why; kept in the audit")
        for each in (create, revoke, old):
            each.add_argument("--actor", help="the name in the audit (default: yours)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it. Raises CommandError: why not; nothing was done."""
        try:
            getattr(self, "_" + options["does"].replace("-", "_"))(options)
        except InvalidTransition as error:
            raise CommandError(str(error)) from error

    def _create(self, options: dict[str, Any]) -> None:
        roles = tuple(map(Role, options["role"]))
        scope = TokenScope.OWNER if options["all_roles"] else TokenScope.ROLES if roles else TokenScope.READ
        new = NewToken(options["name"], scope, roles, options["days"])
        row, token = token_make(owner=user_named(options["user"]), new=new, actor=actor_named(options["actor"]))
        self.stderr.write(f"{row} of {row.owner} expires at {row.expires_at:%Y-%m-%d %H:%M} UTC; it is not shown again:")
        self.stdout.write(token)

    def _list(self, options: dict[str, Any]) -> None:
        rows = PersonalToken.objects.select_related("owner")
        if options["user"]:
            rows = rows.filter(owner=user_named(options["user"]))
        for row in rows:
            used = f"used {row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else "never used"
            ends = f"revoked by {row.revoked_by}" if row.revoked_at else f"expires {row.expires_at:%Y-%m-%d %H:%M}"
            self.stdout.write("\t".join([str(row), row.owner.get_username(), row.name, row.scope, *row.roles, used, ends]))

    def _revoke(self, options: dict[str, Any]) -> None:
        token = PersonalToken.objects.filter(prefix=options["prefix"].removeprefix("wms2_")).select_related("owner").first()
        if token is None:
            raise CommandError(f"there is no token with the prefix {options['prefix']}; see 'tokens list'")
        token_revoke(token=token, actor=actor_named(options["actor"]), reason=options["reason"])
        self.stdout.write(f"{token} is revoked.")

    def _end_old_key(self, options: dict[str, Any]) -> None:
        old_key_end(owner=user_named(options["user"]), actor=actor_named(options["actor"]), reason=options["reason"])
        self.stdout.write(f"The key of the old form of {options['user']} has ended.")
