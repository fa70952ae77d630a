"""The packed logs of a failed job for a browser: what is in them, and one file a page at a time, its end first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dags_app.attempts import AttemptLogs, attempt_logs
from dags_app.models import DAG
from dags_app.payload.contract.packed import LogFile, reporting

PAGE_CHARACTERS = 64 * 1024
#: Of a job: unit, node, attempt, job id.
Job = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class LogsOnPage:
    """``chosen``: the file that is shown, the ``number``-th (from 0) of the archive; ``page`` of ``pages``, from 1."""

    dag: DAG
    job: Job
    found: AttemptLogs
    number: int
    chosen: LogFile | None
    page: int
    pages: int
    text: str


def logs_on_page(dag: DAG, job: Job, given: Mapping[str, str]) -> LogsOnPage:
    """Without ``file`` the one that says most of the failure, without ``page`` its end.

    Raises:
        ValueError: a name is not one that WMS2 gives, or there is no such file or page.
    """
    found = attempt_logs(dag, *job)
    most = reporting(found.files) or next(iter(found.files), None)
    number = int(given.get("file") or (found.files.index(most) if most else 0))
    if not 0 <= number < max(len(found.files), 1):
        raise ValueError("there is no such file in the archive")
    chosen = found.files[number] if found.files else None
    text = chosen.text if chosen else ""
    pages = max(-(-len(text) // PAGE_CHARACTERS), 1)
    page = int(given.get("page") or pages)
    if not 1 <= page <= pages:
        raise ValueError("the file has no such page")
    shown = text[(page - 1) * PAGE_CHARACTERS : page * PAGE_CHARACTERS]
    return LogsOnPage(dag, job, found, number, chosen, page, pages, shown)
