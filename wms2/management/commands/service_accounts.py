"""``manage.py service_accounts``: users that are programs are made, listed and handed over. Audited."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from wms2.errors import InvalidTransition
from wms2.identities.service_accounts import ended_because, service_account_create, service_account_hand_over
from wms2.management.arguments import actor_named, user_named
from wms2.models import ServiceAccount


class Command(BaseCommand):
    """Service accounts."""

    help = "Make, list and hand over service accounts (docs/identities.md). Audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A sub-command for each."""
        does = parser.add_subparsers(dest="does", required=True)
        create = does.add_parser("create", help="a user without password and without roles")
        does.add_parser("list", help="all, with their owners")
        other = does.add_parser("hand-over", help="another owner")
        for each in (create, other):
            each.add_argument("name", metavar="NAME")
            each.add_argument("--owner", required=True, help="the user who answers for it; without them it ends")
            each.add_argument("--reason", required=True, help="what it is for, or why; kept in the audit")
            each.add_argument("--actor", help="the name in the audit (default: yours)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it. Raises CommandError: why not; nothing was done."""
        if options["does"] == "list":
            for account in ServiceAccount.objects.select_related("user", "owner"):
                ended = ended_because(account.user)
                state = f"ended: {ended}" if ended else f"owner {account.owner}"
                self.stdout.write("\t".join([account.user.get_username(), state, account.purpose]))
            return
        actor, owner = actor_named(options["actor"]), user_named(options["owner"])
        try:
            if options["does"] == "create":
                service_account_create(name=options["name"], owner=owner, actor=actor, purpose=options["reason"])
            else:
                found = ServiceAccount.objects.filter(user=user_named(options["name"])).first()
                if found is None:
                    raise CommandError(f"{options['name']} is not a service account; see 'service_accounts list'")
                service_account_hand_over(account=found, owner=owner, actor=actor, reason=options["reason"])
        except InvalidTransition as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{options['name']} has the owner {owner}.")
