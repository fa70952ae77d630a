"""``manage.py lost_files LIST``: what lost files concern, and, confirmed, having them made again (ADR 0021)."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from requests_app.services.lost_files import MOST_FILES, LostPlan, lost_files_make_again, lost_files_plan
from wms2.errors import InvalidTransition, StaleState
from wms2.runtime.locks import BEING_CHANGED, lock_refused
from wms2.web.formatting import counted


class Command(BaseCommand):
    """Without ``--confirm`` it only looks. Exit 1 and the reason when nothing could be done; then nothing was."""

    help = "Say what is concerned when files were lost, and have them made again. Audited like every other way."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The list, and what is needed to have it done."""
        parser.add_argument("list", metavar="LIST", help="a file with one LFN a line, or - for the standard input")
        parser.add_argument("--confirm", default="", metavar="WORD", help="the word of the preview: do it")
        parser.add_argument("--reason", default="", help="why; kept in the audit. Needed with --confirm")
        parser.add_argument("--actor", default="", help="the name in the audit (default: yours)")
        parser.add_argument("--names", action="store_true", help="name every file, not only numbers")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, or do."""
        lfns, reason = _read(options["list"]), options["reason"].strip()
        if not options["confirm"]:
            plan = lost_files_plan(lfns)
            self._show(plan, names=options["names"])
            last = f"To have it done: --confirm {plan.confirm} --reason ..." if plan.confirm else "Nothing would be done."
            self.stdout.write(last)
            return
        if not reason:
            raise CommandError("--reason: say why")
        actor = (options["actor"] or getpass.getuser()).strip()[:100]
        try:
            plan = lost_files_make_again(lfns=lfns, confirm=options["confirm"], actor=actor, reason=reason)
        except (InvalidTransition, StaleState) as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            if not lock_refused(error):
                raise
            raise CommandError(BEING_CHANGED) from error
        self._show(plan, names=options["names"])
        self.stdout.write("Done: asked for." if plan.requests else "Done before: nothing more to do.")

    def _show(self, plan: LostPlan, *, names: bool) -> None:
        for each in plan.requests:
            made = counted(each.lumis, "lumi") + (f", {each.events:,} events" if each.events else "")
            self.stdout.write(f"{each.request.request_name}: {each.then}; {made} in {counted(each.units, 'work unit')}")
            for dataset in each.datasets:
                self.stdout.write(
                    f"  {dataset.name} ({dataset.tier}): {dataset.lost} lost, {dataset.made_from_lost} made from files that go,"
                    f" {dataset.drawn_in} with pieces of the same work"
                )
            for lfn, why in sorted(each.files.items()) if names else ():
                self.stdout.write(f"    {lfn}: {why or 'lost'}")
        for lfn in plan.unknown:
            self.stdout.write(f"not made by WMS2: {lfn}")
        for what, some in (("nothing to do", plan.already), ("cannot be made again", plan.refused), ("gets a case", plan.left)):
            for lfn, why in sorted(some.items()):
                self.stdout.write(f"{what}: {lfn}: {why}")


def _read(name: str) -> list[str]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name}: cannot be read: {error}") from error
    lfns = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    for number, lfn in enumerate(lfns, 1):
        if not lfn.startswith("/store/") or len(lfn) > 700 or "\x00" in lfn:
            raise CommandError(f"{name}: name {number} is no LFN: {lfn[:100]!r}; give one LFN a line")
    if not 0 < len(lfns) <= MOST_FILES:
        raise CommandError(f"{name}: {len(lfns)} names; give 1 to {MOST_FILES} at a time")
    return lfns
