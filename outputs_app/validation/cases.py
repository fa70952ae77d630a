"""Cases of files with which something is wrong: opened, added to, opened again. What is done about them is not owned here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from outputs_app.models import (
    OPEN_CASE,
    BlockValidation,
    CaseAction,
    CaseState,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    Prognosis,
)
from outputs_app.validation.rules import FileFinding
from sites_app.selectors import sites_by_rse
from wms2 import clock

#: The worst first.
_WORST = {prognosis: place for place, prognosis in enumerate(Prognosis)}


def cases_open(block: ProcessingBlock, findings: Iterable[FileFinding]) -> int:
    """A case for each file that something was found of, in the caller's transaction; returns of how many.

    One that waits for a person gets what was found now; one that is being removed stays as it is. One that was said to be
    repaired is not, if this was asked for afterwards, and waits for a person again. What was accepted with the same findings is
    not opened again.
    """
    by_name: dict[str, list[FileFinding]] = defaultdict(list)
    for finding in findings:
        by_name[finding.name].append(finding)
    rows = IntegrityCase.objects.filter(block=block, name__in=by_name)
    for case in rows.filter(state=CaseState.RESOLVED, action=CaseAction.ACCEPTED).order_by("id"):
        if _known(by_name.get(case.name, ()), case.evidence):
            by_name.pop(case.name, None)
    if not by_name:
        return 0
    sites, looks = sites_by_rse(), BlockValidation.objects.values_list("generation", "asked_at")
    generation, asked_at = looks.get(block=block)
    seen_now = {"generation": generation, "at": clock.now().isoformat()}
    standing = {
        case.name: case for case in IntegrityCase.objects.filter(name__in=by_name, state__in=OPEN_CASE).select_for_update()
    }
    files = {file.lfn: file for file in OutputFile.objects.filter(block=block, lfn__in=by_name).only("lfn", "rse")}
    for name, found in by_name.items():
        file = files.get(name)
        case = standing.get(name) or IntegrityCase(
            request=block.workflow.request, block=block, file=file, name=name, rse=file.rse if file is not None else ""
        )
        case.site = case.site or next(iter(sites.get(case.rse, ())), "")
        if case.action == CaseAction.REMOVED or (case.acted_at is not None and asked_at <= case.acted_at):
            continue
        case.state, case.action = CaseState.NEW, ""
        kept = [each for each in case.evidence if each.get("generation") == generation]
        told = {finding.prognosis for finding in found}
        kept = [each for each in kept if each["prognosis"] not in told]
        case.evidence = [*kept, *(_words(each) | seen_now for each in found)]
        case.prognosis = min((Prognosis(each["prognosis"]) for each in case.evidence), key=_WORST.__getitem__)
        case.save()
    BlockValidation.objects.filter(block=block).update(validated_at=None)
    return len(by_name)


def _words(finding: FileFinding) -> dict[str, Any]:
    return {"prognosis": finding.prognosis.value, "expected": finding.expected, "found": finding.found}


def _known(found: Collection[FileFinding], evidence: Collection[dict[str, Any]]) -> bool:
    """Whether all of it was seen before."""
    return all(any(_words(each).items() <= one.items() for one in evidence) for each in found)
