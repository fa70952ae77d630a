"""``manage.py events``: the event feed as lines of JSON (ADR 0029)."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder

from requests_app.feed import CHECK_SECONDS, Wanted, listening, newest, read, shown
from requests_app.models import Request
from wms2.errors import EventsGone


class Command(BaseCommand):
    """Ends with what there is, or with ``--follow`` when it is interrupted."""

    help = "Print what has happened, in order, a line of JSON each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options."""
        parser.add_argument(
            "--after", type=int, metavar="ID", help="events behind this id (default: all that are kept; with --follow none)"
        )
        parser.add_argument("--kind", action="append", default=[], help="only of this kind; may be given several times")
        parser.add_argument("--request", metavar="NAME", help="only of this request")
        parser.add_argument("--follow", action="store_true", help="go on with what comes")

    def handle(self, *args: object, **options: Any) -> None:
        """Print them.

        Raises:
            CommandError: there is no such request, or events behind that id are not kept any more.
        """
        request, after, follow = None, options["after"], options["follow"]
        if options["request"] and (request := Request.objects.filter(request_name=options["request"]).first()) is None:
            raise CommandError(f"there is no request {options['request']}")
        wanted = Wanted(tuple(options["kind"]), request)
        with suppress(KeyboardInterrupt, BrokenPipeError), listening() as wait:
            after = newest() if follow and after is None else after
            while True:
                try:
                    page = read(wanted, after)
                except EventsGone as error:
                    raise CommandError(str(error)) from error
                after = page.last_id
                for event in page.events:
                    self.stdout.write(json.dumps(shown(event), cls=DjangoJSONEncoder))
                self.stdout.flush()
                if len(page.events) == wanted.limit:
                    continue
                if not follow:
                    return
                wait(CHECK_SECONDS)
