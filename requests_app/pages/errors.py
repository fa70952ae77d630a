"""The errors of a request for its page: each kind with what it means, what WMS2 did about it, and what a person can do."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from dags_app.attempts import logs_size
from dags_app.errors import MOST_FILES, Count, RequestErrors, errors_of
from dags_app.models import (
    DAG,
    FailedInputFile,
    FailureAction,
    FailureCategory,
    FailureGroup,
    FailureLog,
    FailureRule,
    FailureSample,
)
from dags_app.services.failures import USED_UP
from requests_app.models import InputFile, Request, RequestStatus, Workflow
from requests_app.pages.cached import cached
from requests_app.selectors.request_rows import Rows, give_related
from wms2.runtime.combined_query import CombinedQuery, composed_once
from wms2.runtime.grouping import grouped
from wms2.web.formatting import counted, size

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

    ``logs``: links to those of example jobs, with their size; ``samples``: the jobs, each to be opened. Drawn without a template:
    there may be a hundred on a page that is fetched every few seconds.
    """

    group: FailureGroup
    logs: SafeString
    samples: SafeString
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


def errors_on_page(request: Request, workflow: Workflow, rows: Rows) -> ErrorsOnPage | None:
    """None when nothing has failed. Read once in a while for all readers, and anew with each failure, status and operation. One
    query, or none."""
    failures = rows["failures"]
    if not failures:
        return None
    numbers = tuple((row["attempts"], row["given_up"]) for row in failures)
    newest = [row.pk for row in rows["audit"][:1]] + [row.problem for row in rows["failure_logs"]]
    key = (workflow.pk, request.status, numbers, *newest)
    return cached(key, lambda: _errors(request, workflow, failures), is_large=True)


def _errors(request: Request, workflow: Workflow, failures: Sequence[Mapping[str, Any]]) -> ErrorsOnPage:
    found, rules, excluded = _read(request, workflow, failures)
    by = (("category", found.by_category), ("code", found.by_code), ("step", found.by_step), ("site", found.by_site))
    return ErrorsOnPage(
        found=found,
        counts=tuple((name, counts[:MOST_COUNTS]) for name, counts in by),
        kinds=tuple(_kinds(found.groups, rules, bool(workflow.input_dataset))),
        bad_files=tuple((row, excluded.get(row.lfn, "")) for row in found.bad_files),
        can_release=request.status == RequestStatus.HELD,
    )


def _read(
    request: Request, workflow: Workflow, failures: Sequence[Mapping[str, Any]]
) -> tuple[RequestErrors, Mapping[str, FailureRule], Mapping[str, str]]:
    """The errors, their rules by name, and by whom files were excluded."""
    rows = _parts().rows({_WORKFLOW: workflow.pk})
    give_related(rows["samples"], "dag", rows["dags"])
    of_group = grouped(rows["samples"], lambda sample: sample.group_id)
    for group in rows["groups"]:
        group.samples_read = of_group[group.pk]
    files = FailedInputFile.objects.filter(workflow=workflow)
    more = files.count() - MOST_FILES if len(rows["files"]) == MOST_FILES else 0
    problems = [row["problem"] for row in rows["problems"]]
    found = errors_of(request.request_name, failures, rows["groups"], (rows["files"], more), problems)
    by_whom = {row["lfn"]: f"excluded by {row['excluded_by'] or 'wms2'}" for row in rows["excluded"]}
    return found, {rule.name: rule for rule in rows["rules"]}, by_whom


#: In place of a workflow's id.
_WORKFLOW = uuid.UUID(int=1)


@composed_once
def _parts() -> CombinedQuery:
    shown = FailureGroup.objects.filter(workflow=_WORKFLOW).order_by("-given_up", "-attempts", "id")[:GROUPS_ON_PAGE]
    samples = FailureSample.objects.filter(group__in=shown.values("pk"))
    files = FailedInputFile.objects.filter(workflow=_WORKFLOW)
    excluded = InputFile.objects.filter(workflow=_WORKFLOW, excluded_at__isnull=False, lfn__in=files.values("lfn"))
    directories = DAG.objects.filter(workflow=_WORKFLOW).order_by().values("directory_id")
    return CombinedQuery(
        groups=shown,
        samples=samples,
        dags=DAG.objects.filter(pk__in=samples.order_by().values("dag")).defer("observed", "outcome"),
        rules=FailureRule.objects.filter(name__in=shown.values("rule")),
        files=files.order_by("-attempts", "id")[:MOST_FILES],
        excluded=excluded.order_by().values("lfn", "excluded_by"),
        problems=FailureLog.objects.filter(directory_id__in=directories).exclude(problem="").values("problem"),
    )


def _kinds(rows: Iterable[Any], rules: Mapping[str, FailureRule], has_input: bool) -> Iterable[Kind]:
    for group in rows:
        rule = rules.get(group.rule)
        links, samples = _drawn(group.samples_read)
        yield Kind(
            group=group,
            logs=links,
            samples=samples,
            meaning=rule.note if rule else "",
            done="; ".join(_done(group)),
            todo=_todo(group, has_input) if group.given_up else "",
        )
        del group.samples_read  # they are drawn


#: Of jobs, which do not change.
_address = lru_cache(maxsize=10_000)(reverse)
_LINK = '<a href="{}">{}, attempt {}</a> <span class="quiet">{}</span>'
_SAMPLE = """<details id="sample-{}"><summary>{}, attempt {}, job {}{}</summary>
<p class="quiet"><a href="{}">Logs</a> · <a href="{}">Report</a> · <a href="{}">Job ad and events</a> · \
<a href="{}">All attempts</a></p>
<pre class="log" tabindex="0" aria-label="The end of the log of {}">{}</pre></details>"""


def _drawn(samples: Iterable[FailureSample]) -> tuple[SafeString, SafeString]:
    links, details = [], []
    for each in samples:
        node, job = (each.dag_id, each.unit, each.node), (each.dag_id, each.unit, each.node, each.attempt, each.job_id)
        name, logs, stored = f"{each.unit}/{each.node}", _address("logs-page", args=job), logs_size(each.dag, *job[1:])
        links.append((logs, name, each.attempt, "not there" if stored is None else size(stored)))
        addresses = [_address(f"attempt-{what}", args=job) for what in ("report", "job-ad")]
        text = f"{each.message}\n\n{each.log_tail}" if each.message else each.log_tail
        given_up = ", given up" if each.final else ""
        addresses.append(_address("node-attempts", args=node))
        details.append((each.pk, name, each.attempt, each.job_id, given_up, logs, *addresses, name, text))
    return format_html_join(" · ", _LINK, links), format_html_join("", _SAMPLE, details)


def _done(group: FailureGroup) -> Iterable[str]:
    actions = sorted((action, number) for action, number in group.actions.items() if isinstance(number, int))
    return (f"{counted(number, 'time')} {_DONE.get(action, action)}" for action, number in actions)


def _todo(group: Any, has_input: bool) -> str:
    if group.category == FailureCategory.DATA and not has_input:
        return _NO_INPUT
    named = group.category != FailureCategory.DATA or any(sample.bad_files for sample in group.samples_read)
    return _ADVICE.get(group.category, "") if named else _NO_FILE
