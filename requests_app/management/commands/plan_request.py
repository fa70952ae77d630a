"""``manage.py plan_request``: plan a whole request from two files, without any service. Formats: docs/splitting.md."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from dags_app.planning.plan import PlanLimits
from dags_app.planning.report import plan_document
from requests_app.intake import prepare_plan_spec
from requests_app.intake.files_document import read_files
from requests_app.intake.plan import refuse_unknown_blocks
from requests_app.management.documents import read_json, refusal_reported
from wms2.conf import conf


class Command(BaseCommand):
    """Exit 0 and the plan (a request that cannot be planned has no jobs and says why under ``refused``); 2 and every problem."""

    requires_system_checks = ()  # no service and no pool is needed to plan offline
    help = "Plan a request from its document and a list of input files, without any service, and print the jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options."""
        parser.add_argument("--file", required=True, metavar="DOC.json", help="the request document")
        parser.add_argument("--files", metavar="FILES.json", help='input files, {"files": [...]}; none for generation')
        parser.add_argument("--json", action="store_true", dest="as_json", help="answer in JSON")

    def handle(self, *args: object, **options: Any) -> None:
        """Run."""
        with refusal_reported(as_json=options["as_json"], out=self.stdout, err=self.stderr):
            document = read_json("file", options["file"])
            files = read_files(read_json("files", options["files"])) if options["files"] else []
            spec = prepare_plan_spec(document, files_given=bool(files))
            refuse_unknown_blocks(spec, files)
        plan = plan_document(spec, files, PlanLimits(jobs_per_work_unit=conf().limits.jobs_per_work_unit))
        self._show(plan, as_json=options["as_json"])

    def _show(self, plan: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(plan, indent=1))
            return
        for job in plan["jobs"]:
            first, last = job["first_event"], job["last_event"]
            events = f"events {first}-{last}" if last is not None else f"{job['events']} events"
            lumis = f", lumis {job['first_lumi']}-{job['last_lumi']}" if job["first_lumi"] is not None else ""
            # as cmsRun writes lumi ranges: ``1:1-1:7 1:9``
            ranges = ((run, *each) for run, many in (job["mask"] or {}).items() for each in many)
            lumi_mask = " ".join(f"{run}:{a}-{run}:{b}" if a < b else f"{run}:{a}" for run, a, b in ranges)
            mask = f", mask {lumi_mask}" if job["mask"] is not None else ""
            files = f", {', '.join(job['files'])}" if job["files"] else ""
            self.stdout.write(f"{job['work_unit']}: {events}{lumis}{mask} at {', '.join(job['sites'])}{files}")
        for excluded in plan["excluded"]:
            self.stdout.write(f"excluded {excluded['lfn']}: {excluded['reason']}")
        for refused in plan["refused"]:
            which = f" lumi {refused['run']}:{refused['lumi']}" if refused["run"] is not None else ""
            self.stdout.write(f"refused{which}: {refused['reason']}")
        for level in plan["levels"]:
            which = f"task {level['task']} ({level['name']})" if level["name"] else "processing"
            self.stdout.write(
                f"{which}: {level['jobs']} jobs by {level['splitting']}, at most {level['most_events']} events, expected "
                f"{level['longest_wall_hours']} h at most, {level['mean_wall_hours']} h on average"
            )
        for warning in plan["warnings"]:
            self.stdout.write(f"warning: {warning}")
        lumis_refused = sum(refused["run"] is not None for refused in plan["refused"])
        refused_too = f", {lumis_refused} lumis refused" if lumis_refused else ""
        self.stdout.write(f"{len(plan['jobs'])} jobs, {len(plan['excluded'])} files excluded{refused_too}")
