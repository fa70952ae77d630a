"""``manage.py end_sessions NAME``, or ``--all``: their users have to sign in again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.sessions.models import Session
from django.core.management.base import BaseCommand

from wms2.audit import audit
from wms2.management.arguments import actor_named, user_named
from wms2.web.sessions import sessions_end


class Command(BaseCommand):
    """End sessions in browsers; tokens go on."""

    help = "End a user's sessions in browsers, or everyone's; tokens go on. Audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("name", nargs="?", help="user name")
        which.add_argument("--all", action="store_true", help="everyone's")

    def handle(self, *_: Any, **options: Any) -> None:
        """End them and say how many. Raises CommandError: there is no such user."""
        name = options["name"]
        if options["all"]:
            number, _rows = Session.objects.all().delete()
        else:
            number = sessions_end(user_named(name))
        target = "everyone" if options["all"] else name
        audit(actor=actor_named(None), action="sessions_end", target_type="user", target=target, sessions=number)
        self.stdout.write(f"{number} sessions ended")
