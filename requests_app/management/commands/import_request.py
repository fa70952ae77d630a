"""``manage.py import_request``: bring a ReqMgr2 document into WMS2, or only check it. Services decide and store."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dags_app.planning.specs import WorkflowSpec
from requests_app import services
from requests_app.intake import with_priority
from requests_app.management.documents import read_json, refusal_told
from requests_app.management.typed_request import as_lines
from requests_app.workflow_spec import spec_to_json
from wms2.errors import ServiceError


class Command(BaseCommand):
    """Exit 0 and the typed request; 2 and every problem; 1 when a service did not answer."""

    help = "Import a ReqMgr2 document (whole, or a createRequest and assignRequest pair), or refuse it with every problem."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options."""
        parser.add_argument("--file", required=True, metavar="DOC.json", help="the request document")
        parser.add_argument("--name", help="name to import it under (default: RequestName, else RequestString)")
        parser.add_argument("--check", action="store_true", help="check only, store nothing")
        parser.add_argument("--json", action="store_true", dest="as_json", help="answer in JSON")
        parser.add_argument("--urgent", action="store_true", help="put it before all that is not urgent in the admission queue")
        parser.add_argument("--priority", type=int, metavar="N", help="priority instead of the document's (0..999999)")
        parser.add_argument("--family-of", default="", metavar="NAME", help="a request into whose output datasets it may write")
        parser.add_argument("--family-reason", default="", metavar="TEXT", help="why it may; kept in the audit")

    def handle(self, *args: object, **options: Any) -> None:
        """Run."""
        with refusal_told(as_json=options["as_json"], out=self.stdout, err=self.stderr):
            document = read_json("file", options["file"])
            if options["priority"] is not None:
                document = with_priority(document, options["priority"])
            try:
                self._import(document, options)
            except ServiceError as error:
                raise CommandError(f"nothing was stored: {error}") from error

    def _import(self, document: dict[str, object], options: dict[str, Any]) -> None:
        name = options["name"]
        belonging = services.Belonging(family_of=options["family_of"], reason=options["family_reason"])
        spec = services.request_check(document=document, request_name=name, belonging=belonging)
        status = None
        if not options["check"]:
            actor = f"{getpass.getuser()} (command line)"
            request = services.request_import(
                document=document, request_name=name, actor=actor, urgent=options["urgent"], belonging=belonging.writing(spec)
            )
            status = str(request.status)
        self._show(spec, status, as_json_text=options["as_json"])

    def _show(self, spec: WorkflowSpec, status: str | None, *, as_json_text: bool) -> None:
        if as_json_text:
            self.stdout.write(json.dumps({**spec_to_json(spec), **({"status": status} if status else {})}, indent=2))
            return
        for line in as_lines(spec):
            self.stdout.write(line)
        self.stdout.write(f"Imported, {status}" if status else "Accepted; nothing was stored (--check)")
