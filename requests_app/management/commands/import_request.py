"""``manage.py import_request``: bring a ReqMgr2 document into WMS2, or only check it. Services decide and store."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from pydantic import TypeAdapter

from dags_app.planning.specs import StepSpec, WorkflowSpec
from requests_app import services
from requests_app.intake import Draft, parse, with_fields
from requests_app.management.documents import read_json, refusal_reported
from requests_app.work.spec import spec_to_json
from wms2.conf import conf
from wms2.errors import ServiceError

_DRAFT = TypeAdapter(Draft)
#: Options that the service takes as they are.
_ASKED = ("urgent", "adaptive", "family_of", "family_reason", "in_group", "depends_on")


class Command(BaseCommand):
    """Exit 0 and the typed request; 2 and every problem; 1 when a service did not answer."""

    help = "Import a ReqMgr2 document (whole, or a createRequest and assignRequest pair), or refuse it with every problem."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options."""
        parser.add_argument("--file", required=True, metavar="DOC.json", help="the request document")
        parser.add_argument("--name", help="name to import it under (default: RequestName, else RequestString)")
        parser.add_argument("--check", action="store_true", help="check only, store nothing")
        parser.add_argument(
            "--offline", action="store_true", help="with --check: by the document alone, without any service or setting"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="answer in JSON")
        parser.add_argument("--urgent", action="store_true", help="put it before all that is not urgent in the admission queue")
        parser.add_argument(
            "--adaptive", action="store_true", default=None, help="in rounds, each sized by what those before measured"
        )
        parser.add_argument("--priority", type=int, metavar="N", help="priority instead of the document's (0..999999)")
        parser.add_argument("--family-of", default="", metavar="NAME", help="a request into whose output datasets it may write")
        parser.add_argument("--family-reason", default="", metavar="TEXT", help="why it may; kept in the audit")
        parser.add_argument("--in-group", default="", metavar="NAME", help="a group that it completes together with")
        parser.add_argument("--pool", action="append", default=[], metavar="NAME", help="an HTCondor pool that it may go to")
        parser.add_argument("--depends-on", action="append", default=[], metavar="NAME", help="a request to wait for")

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, without Django's checks of settings and services where none is used."""
        return super().execute(*args, **{**options, "skip_checks": options["skip_checks"] or options["offline"]})

    def handle(self, *args: object, **options: Any) -> None:
        """Run."""
        with refusal_reported(as_json=options["as_json"], out=self.stdout, err=self.stderr):
            document = read_json("file", options["file"])
            if options["priority"] is not None:
                document = with_fields(document, RequestPriority=options["priority"])
            if options["offline"]:
                if not options["check"]:
                    raise CommandError("--offline only checks: give --check, too")
                self._check_offline(document, options)
                return
            try:
                self._import(document, options)
            except ServiceError as error:
                raise CommandError(f"nothing was stored: {error}") from error

    def _check_offline(self, document: dict[str, object], options: dict[str, Any]) -> None:
        """Without ConfigCache the outputs are unknown, and without CRIC not whether a site exists: the rest is judged."""
        draft = parse(document, request_name=options["name"], limits=conf().limits, known_sites=None)
        if options["as_json"]:
            self.stdout.write(json.dumps(_DRAFT.dump_python(draft, mode="json"), indent=2))
            return
        self.stdout.write(f"Request    {draft.spec.request_name}  (campaign {draft.spec.campaign})")
        for warning in draft.spec.warnings:
            self.stdout.write(f"Warning    {warning}")
        self.stdout.write(
            "Accepted as far as the document goes; configurations, sites and datasets were not looked up (--offline)"
        )

    def _import(self, document: dict[str, object], options: dict[str, Any]) -> None:
        asked = services.Received(**{name: options[name] for name in _ASKED}, pools=options["pool"])
        named: dict[str, Any] = {"document": document, "request_name": options["name"], "asked": asked}
        checked, status = services.request_check(**named), None
        if not options["check"]:
            actor = f"{getpass.getuser()} (command line)"
            status = str(services.request_import(**named, actor=actor, checked=checked).status)
        self._show(checked.prepared.spec, status, as_json_text=options["as_json"])

    def _show(self, spec: WorkflowSpec, status: str | None, *, as_json_text: bool) -> None:
        if as_json_text:
            self.stdout.write(json.dumps({**spec_to_json(spec), **({"status": status} if status else {})}, indent=2))
            return
        for line in as_lines(spec):
            self.stdout.write(line)
        self.stdout.write(f"Imported, {status}" if status else "Accepted; nothing was stored (--check)")


def as_lines(spec: WorkflowSpec) -> Iterator[str]:
    """What an operator wants to see first: work, steps, outputs, resources, sites, warnings."""
    yield f"Request    {spec.request_name}  (campaign {spec.campaign})"
    yield f"Work       {_work(spec)}"
    for step in spec.steps:
        yield f"Step {step.number}     {_step(step)}"
    for output in spec.outputs:
        yield f"Output     {output.dataset}  ({output.step}, {output.module}; merged below {output.merged_lfn_base})"
    resources = spec.resources
    yield (
        f"Resources  {resources.cores} core(s), {resources.memory_mb} MB, {resources.time_per_event_seconds:g} s and "
        f"{resources.size_per_event_kb:g} KB per event"
    )
    yield f"Sites      {', '.join(spec.site_whitelist)}" + (
        f"; not {', '.join(spec.site_blacklist)}" if spec.site_blacklist else ""
    )
    for warning in spec.warnings:
        yield f"Warning    {warning}"


def _work(spec: WorkflowSpec) -> str:
    made, cut = spec.generation, spec.splitting
    if made is not None:
        return (
            f"generate {made.events} events from event {made.first_event} and lumi {made.first_lumi} on: "
            f"{made.events_per_job} events per job, {made.events_per_lumi} per lumi"
        )
    dataset = spec.input.dataset if spec.input is not None else "nothing"
    return f"read {dataset}: {cut.algorithm}, {cut.files_per_job} file(s) or {cut.events_per_job} events per job"


def _step(step: StepSpec) -> str:
    reads = f" reads {step.input_step}/{step.input_module}" if step.input_step else ""
    kept = "kept" if step.keep_output else "transient"
    return f"{step.name}: {step.cmssw_version} {'|'.join(step.scram_arch)}, {step.threads} thread(s), output {kept}{reads}"
