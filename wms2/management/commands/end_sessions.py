"""``manage.py end_sessions NAME``, or ``--all``: their users have to sign in again."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.core.management.base import BaseCommand, CommandError

from wms2.audit import audit
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
            user = get_user_model().objects.filter(username=name).first()
            if user is None:
                raise CommandError(f"there is no user {name!r}")
            number = sessions_end(user)
        target = "everyone" if options["all"] else name
        audit(actor=getpass.getuser(), action="sessions_end", target_type="user", target=target, sessions=number)
        self.stdout.write(f"{number} sessions ended")
