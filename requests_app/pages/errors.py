"""The errors of a request for its page: each kind with what it means, what WMS2 did about it, and what a person can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dags_app.attempts import logs_size
from dags_app.errors import Count, RequestErrors, request_errors
from dags_app.models import FailedInputFile, FailureAction, FailureCategory, FailureGroup, FailureRule, FailureSample
from dags_app.services.failures import USED_UP
from requests_app.models import InputFile, Request, RequestStatus, Workflow
from wms2.web.formatting import counted

#: Kinds on the page; the others are counted there, and listed over REST and in the admin.
GROUPS_ON_PAGE = 15
#: Values of one count, those with most failures first.
MOST_COUNTS = 8

#: What was done after an attempt, as its POST script recorded it.
_DONE: dict[str, str] = {
    FailureAction.RETRY: "tried again after a pause",
    FailureAction.MORE_MEMORY: "tried again with more memory",
    FailureAction.OTHER_SITE: "not tried again at this site, so that the work unit lands at another one",
    FailureAction.STOP: "not tried again, since the same would happen",
    FailureAction.ABORT_DAG: "the whole DAG stopped, since the same would happen everywhere",
    USED_UP: "given up, as no retry was left",
}
_ADVICE: dict[str, str] = {
    FailureCategory.TRANSIENT: "It went wrong each time it was tried. Read the log; then a release tries again, with more memory"
    " if it says so.",
    FailureCategory.PERMANENT: "A repetition alone does not help. Correct the configuration in ReqMgr2 and restart the request,"
    " or release it when the cause lay elsewhere and is gone.",
    FailureCategory.DATA: "Have the bad input files below repaired, or release with them as excluded files; the rest is then done"
    " without them.",
    FailureCategory.INFRASTRUCTURE: "Report it to the site; release with it under site bans, or after it is repaired.",
}
_NO_INPUT = "It has no input dataset whose files could be left out: read the log, have what it names repaired, then release."
_NO_FILE = "No report names the input file: read the logs, find the file, then release with it as excluded file."


class Kind(NamedTuple):
    """Failures that are alike. ``meaning`` by today's rule, ``done`` as recorded, ``todo`` only if jobs were given up.

    ``samples``: example jobs, each with the bytes of its packed logs, None without any.
    """

    group: FailureGroup
    samples: tuple[tuple[FailureSample, int | None], ...]
    meaning: str
    done: str
    todo: str


class ErrorsOnPage(NamedTuple):
    """``counts``: (by what, its values). ``bad_files``: that failures name, and why no job reads one any more; empty while it is
    still tried."""

    found: RequestErrors
    counts: tuple[tuple[str, tuple[Count, ...]], ...]
    kinds: tuple[Kind, ...]
    bad_files: tuple[tuple[FailedInputFile, str], ...]
    can_release: bool


def errors_on_page(request: Request, workflow: Workflow) -> ErrorsOnPage | None:
    """None when nothing has failed, which takes one query."""
    if not FailureGroup.objects.filter(workflow=workflow).exists():
        return None
    found = request_errors(request.request_name, most_groups=GROUPS_ON_PAGE)
    by = (("category", found.by_category), ("code", found.by_code), ("step", found.by_step), ("site", found.by_site))
    return ErrorsOnPage(
        found=found,
        counts=tuple((name, counts[:MOST_COUNTS]) for name, counts in by),
        kinds=tuple(_kinds(found.groups, bool(workflow.input_dataset))),
        bad_files=tuple(_files(workflow, found.bad_files)),
        can_release=request.status == RequestStatus.HELD,
    )


def _kinds(groups: Iterable[FailureGroup], has_input: bool) -> Iterable[Kind]:
    rows = list(groups)
    rules = {rule.name: rule for rule in FailureRule.objects.filter(name__in={group.rule for group in rows})}
    for group in rows:
        rule = rules.get(group.rule)
        yield Kind(
            group=group,
            samples=tuple((s, logs_size(s.dag, s.unit, s.node, s.attempt, s.job_id)) for s in group.samples.all()),
            meaning=rule.note if rule else "",
            done="; ".join(_done(group)),
            todo=_todo(group, has_input) if group.given_up else "",
        )


def _done(group: FailureGroup) -> Iterable[str]:
    actions = sorted((action, number) for action, number in group.actions.items() if isinstance(number, int))
    return (f"{counted(number, 'time')} {_DONE.get(action, action)}" for action, number in actions)


def _todo(group: FailureGroup, has_input: bool) -> str:
    if group.category == FailureCategory.DATA and not has_input:
        return _NO_INPUT
    named = group.category != FailureCategory.DATA or any(sample.bad_files for sample in group.samples.all())
    return _ADVICE.get(group.category, "") if named else _NO_FILE


def _files(workflow: Workflow, rows: Sequence[FailedInputFile]) -> Iterable[tuple[FailedInputFile, str]]:
    known = InputFile.objects.filter(workflow=workflow, lfn__in=[row.lfn for row in rows], excluded_at__isnull=False)
    excluded = {file.lfn: f"excluded by {file.excluded_by or 'wms2'}" for file in known.only("lfn", "excluded_by")}
    return ((row, excluded.get(row.lfn, "")) for row in rows)
