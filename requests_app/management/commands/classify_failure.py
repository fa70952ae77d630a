"""``manage.py classify_failure``: what WMS2 makes of a job report, without running anything.

Reads cmsRun's framework report (XML), WMCore's job report (JSON) and WMS2's own. The rules are those of the database; with
``--shipped`` those that this release ships, and no database is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from dags_app.failure_rules import rules_in_force, rules_shipped
from dags_app.payload.contract.files import tail_text
from dags_app.payload.contract.rules import RuleBook
from dags_app.payload.post.classify import Classification, policy
from dags_app.payload.post.evidence import evidence_of_ending, read_report

STDERR_LINES = 200


class Command(BaseCommand):
    """Classify one failure."""

    help = "Say what kind of failure a job report shows, which rule decides, and what would be done."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The report, and what is known beside it."""
        parser.add_argument("--report", type=Path, required=True, help="FrameworkJobReport.xml, WMCore's or WMS2's report")
        parser.add_argument("--exit-code", type=int, help="how the process ended; counts where the report has no code")
        # not ``stderr``: Django takes that for the stream that it tells errors on
        parser.add_argument(
            "--stderr",
            dest="stderr_file",
            metavar="STDERR",
            type=Path,
            help="the job's stderr; searched by the rules' patterns too",
        )
        parser.add_argument("--shipped", action="store_true", help="the shipped rules instead of those in the database")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the verdict; a report that is missing or damaged is judged by what else is given."""
        stderr: Path | None = options["stderr_file"]
        if stderr is not None and not stderr.is_file():
            raise CommandError(f"{stderr}: no such file")
        if stderr is None and options["exit_code"] is None and not options["report"].is_file():
            raise CommandError(f"{options['report']}: no such file, and neither --exit-code nor --stderr to judge by")
        tail = tail_text(stderr, STDERR_LINES) if stderr is not None else ""
        reading = read_report(options["report"])
        if reading.problem:  # the verdict alone would not show a path that was mistyped
            self.stderr.write(f"{options['report']}: {reading.problem}; judged by what else is known")
        evidence = evidence_of_ending(reading, options["exit_code"], tail)
        verdict = policy(evidence, self._rules(shipped=options["shipped"]))
        if options["json"]:
            self.stdout.write(json.dumps(_shown(verdict)))
            return
        self.stdout.write(f"{verdict.category}: {verdict.action} (rule {verdict.rule or 'none'})")
        for line in (verdict.reason, *verdict.bad_input_files):
            if line:
                self.stdout.write(f"  {line}")

    def _rules(self, *, shipped: bool) -> RuleBook:
        if shipped:
            return rules_shipped()
        try:
            return rules_in_force()
        except OperationalError as error:
            raise CommandError(f"the rules are in the database, which does not answer; or use --shipped: {error}") from error


def _shown(verdict: Classification) -> dict[str, Any]:
    return {
        "category": verdict.category,
        "code": verdict.code,
        "action": verdict.action,
        "bad_input_files": list(verdict.bad_input_files),
        "rule": verdict.rule,
    }
