"""Failures as rows: what POST scripts add to a DAG's failure log is read on from where it was read to, and counted by group.

A log is read in bounded portions, so one sweep never takes long; reading, counting and remembering the place are one
transaction. Groups and their samples are bounded as well: what goes beyond is counted in the group's row all the same.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Count, Sum
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dags_app.failure_rules import NEVER_RAN, NOT_SURE
from dags_app.models import (
    DAG,
    FailedInputFile,
    FailureGroup,
    FailureLog,
    FailureSample,
    UnreadableInput,
    WorkUnit,
    WorkUnitState,
)
from dags_app.models.failure import LONGEST_LFN
from dags_app.payload.contract.codes import NOT_SUBMITTED
from dags_app.payload.contract.failure_log import did_well, read_failures
from dags_app.payload.contract.layout import FAILURE_SCHEMA, FAILURES_FILE, post_name
from dags_app.payload.contract.rules import DATA, INFRASTRUCTURE, MORE_MEMORY, RETRY
from dags_app.services.dag_files import lines_from
from dags_app.services.samples import failures_sample
from sites_app.bans import SiteFailures
from wms2.metrics.series import JOBS_ENDED_TOTAL
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.web.formatting import counted

#: By unit: LFN -> reason of the files that its nodes gave up over.
BadInput = Mapping[str, Mapping[str, str]]
log = structlog.get_logger(__name__)

#: The most of a log that one sweep reads; what is left is the next one's.
PORTION_BYTES = 4 * 1024 * 1024
#: Samples kept of a group: its newest.
SAMPLES = 3
#: Groups of a workflow; further kinds of failures are counted under their category and code alone.
MOST_GROUPS = 1000
MOST_INPUT_FILES = 10_000
#: So many unreadable input files, and so large a share of all that was read in the same hours, are a wave.
WAVE_FILES, WAVE_SHARE = 5, 0.2
#: What failures of a group have in common; what a sample keeps of a line.
_ALIKE = ("category", "code", "site", "step", "rule")
_SAMPLED = {"unit", "node", "attempt", "job_id", "final", "at", "message", "log_tail"}
#: Among a group's actions: the rules wanted a retry, and none was left.
USED_UP = "used_up"


class FailureLine(BaseModel):
    """One line of ``failures.jsonl``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_: str = Field(alias="schema", pattern=rf"^{FAILURE_SCHEMA}(\.\d+)?$")
    at: datetime
    unit: str = Field(max_length=20)
    node: str = Field(max_length=100)
    attempt: int = Field(ge=0)
    job_id: str = Field(max_length=50)
    fence: int | None
    final: bool
    site: str
    code: int = Field(ge=-(2**31), lt=2**31)
    step: str
    category: str = Field(pattern="^(transient|permanent|data|infrastructure)$")
    action: str = Field(max_length=50)
    rule: str | None
    reason: str
    message: str
    bad_input_files: list[str]
    log_tail: str

    @field_validator("site", "step", "rule", "reason", "message", "log_tail", "bad_input_files")
    @classmethod
    def _storable(cls, value: str | list[str] | None) -> str | list[str] | None:
        """What jobs report may be anything; a name that no input file can have names none."""
        if isinstance(value, list):
            return [_text(name) for name in value if len(name) <= LONGEST_LFN]
        return value and _text(value)


def failures_sweep(dag: DAG) -> int:
    """Count what was added to the failure log of the DAG's directory since the last sweep; how many failed attempts.

    A log that is not there has nothing in it; one that is shorter than before, or has an invalid line, is reported in the
    ``FailureLog`` row and in the log, and what follows the line is read.
    """
    path = Path(dag.submit_dir) / FAILURES_FILE
    try:
        size = path.stat().st_size
    except OSError:
        return 0  # no failure yet, or the directory is out of reach, which its status file shows
    known = FailureLog.objects.filter(pk=dag.directory_id).values_list("offset_bytes", flat=True).first() or 0
    if size == known:
        return 0
    # before the transaction: a file system that hangs must not keep rows locked
    whole = lines_from(path, known, PORTION_BYTES) if size > known else b""
    FailureLog.objects.get_or_create(directory_id=dag.directory_id)
    with transaction.atomic():
        place = FailureLog.objects.select_for_update().get(pk=dag.directory_id)
        if place.offset_bytes != known:
            return 0  # another sweep has counted these lines meanwhile
        if size < known:
            _report(place, f"{path} has {size} bytes, {known} were read: it was replaced or cut")
            return 0
        lines = list(_lines(whole, place))
        _count(dag, lines)
        place.offset_bytes += len(whole)
        place.attempts = None if place.attempts is None else place.attempts + len(lines)
        place.save()
    JOBS_ENDED_TOTAL.labels("failed").inc(len(lines))
    return len(lines)


def failures_sweep_all(dag: DAG) -> None:
    """To the end of the log of a DAG that has ended: no other sweep follows."""
    while failures_sweep(dag):
        pass


def _lines(data: bytes, place: FailureLog) -> Iterable[FailureLine]:
    for raw in data.splitlines():
        try:
            yield FailureLine.model_validate(json.loads(raw))
        except (ValueError, ValidationError) as error:
            _report(place, f"a line of {FAILURES_FILE} cannot be read: {str(error)[:500]}")


def _report(place: FailureLog, problem: str) -> None:
    log.error("failure log not readable", directory_id=str(place.directory_id), problem=problem)
    place.problem = problem
    place.save(update_fields=["problem"])


def _count(dag: DAG, lines: Sequence[FailureLine]) -> None:
    dags = {row.fence: row for row in DAG.objects.filter(directory_id=dag.directory_id)}
    known = FailureGroup.objects.select_for_update().filter(workflow_id=dag.workflow_id)
    groups = {tuple(getattr(group, name) for name in _ALIKE): group for group in known}
    samples = defaultdict[tuple[object, ...], list[FailureSample]](list)
    round_ = str(dag.round.index)
    for line in lines:
        key: tuple[object, ...] = (line.category, line.code, line.site[:100], line.step[:200], (line.rule or "")[:100])
        if key not in groups and len(groups) >= MOST_GROUPS:
            key = (line.category, line.code, "", "", "")
        if key not in groups:
            alike: dict[str, Any] = dict(zip(_ALIKE, key, strict=True))
            groups[key] = FailureGroup(workflow_id=dag.workflow_id, first_at=line.at, last_at=line.at, **alike)
        group = groups[key]
        group.attempts += 1
        group.given_up += line.final
        done = USED_UP if line.final and line.action in (RETRY, MORE_MEMORY) else line.action
        group.actions[done] = group.actions.get(done, 0) + 1
        group.rounds[round_] = group.rounds.get(round_, 0) + 1
        group.last_at, group.reason = line.at, line.reason
        sample = line.model_dump(include=_SAMPLED)
        samples[key].append(FailureSample(dag=dags.get(line.fence or 0, dag), bad_files=line.bad_input_files, **sample))
    for key, found in samples.items():
        groups[key].save()
        _keep_newest(groups[key], found)
    _count_files(dag.workflow_id, lines)
    # a unit that gives up has its cause in its row; DAGMan knows only which script ended with what
    for unit, reason in {line.unit: line.reason for line in lines if line.final}.items():
        WorkUnit.objects.filter(round_id=dag.round_id, name=unit, state=WorkUnitState.PLANNED).update(problem=reason)
    failures_sample(dag=dag, failed=((line.at, line.site, line.step, line.code) for line in lines))


def _text(text: str) -> str:
    """PostgreSQL keeps neither NUL nor half a character."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def _keep_newest(group: FailureGroup, found: list[FailureSample]) -> None:
    for sample in found[-SAMPLES:]:
        sample.group = group
        sample.save()
    newest = list(group.samples.order_by("-id").values_list("pk", flat=True)[:SAMPLES])
    group.samples.exclude(pk__in=newest).delete()


def _count_files(workflow_id: uuid.UUID, lines: Sequence[FailureLine]) -> None:
    named = [(lfn, line) for line in lines for lfn in line.bad_input_files]
    if not named:
        return
    rows = {row.lfn: row for row in FailedInputFile.objects.filter(workflow_id=workflow_id, lfn__in={lfn for lfn, _ in named})}
    room = MOST_INPUT_FILES - FailedInputFile.objects.filter(workflow_id=workflow_id).count()
    for lfn, line in named:
        if lfn not in rows:
            if room < 1:
                continue
            room -= 1
            rows[lfn] = FailedInputFile(workflow_id=workflow_id, lfn=lfn, code=line.code, last_at=line.at)
        row = rows[lfn]
        row.attempts += 1
        row.site, row.code, row.last_at = line.site[:100], line.code, line.at
    for row in rows.values():
        row.save()
    _note_unreadable(workflow_id, [(lfn, line) for lfn, line in named if lfn in rows])


def _note_unreadable(workflow_id: uuid.UUID, named: Iterable[tuple[str, FailureLine]]) -> None:
    """Where files could not be read; a failure at an unknown site says nothing of it."""
    found: dict[tuple[str, str, int], UnreadableInput] = {}
    for lfn, line in named:
        if line.category != DATA or not line.site:
            continue
        key = (lfn, line.site[:100], line.fence or 0)
        if key not in found:
            found[key] = UnreadableInput(
                workflow_id=workflow_id, lfn=lfn, site=key[1], fence=key[2], first_at=line.at, last_at=line.at, not_sure=True
            )
        found[key].code, found[key].last_at = line.code, max(found[key].last_at, line.at)
        found[key].not_sure = found[key].not_sure and line.rule in NOT_SURE
    UnreadableInput.objects.bulk_create(
        found.values(),
        update_conflicts=True,
        unique_fields=["workflow", "lfn", "site", "fence"],
        update_fields=["code", "last_at", "not_sure"],
    )


@dataclass(frozen=True, slots=True)
class UnreadWaves:
    """Where input files fail to be read in such number that the cause is hardly theirs (docs/adr/0011): in all, by request and by
    site. ``words`` is empty when there is none."""

    all: bool = False
    workflows: frozenset[uuid.UUID] = frozenset()
    sites: frozenset[str] = frozenset()
    words: str = ""

    def carries(self, workflow_id: uuid.UUID, sites: Collection[str]) -> bool:
        """Whether what these sites say of a request's file says nothing of the file itself."""
        return self.all or workflow_id in self.workflows or not self.sites.isdisjoint(sites)


def unread_waves() -> UnreadWaves:
    """Of the last hours (``unreadable_apart_seconds``). Two queries, the second only when there are so many files."""
    since = clock.now() - timedelta(seconds=in_force().unreadable_apart_seconds)
    unread = defaultdict[object, set[tuple[uuid.UUID, str]]](set)
    rows = list(UnreadableInput.objects.filter(last_at__gte=since).values_list("workflow_id", "lfn", "site"))
    for workflow_id, lfn, site in rows:
        for group in (None, workflow_id, site):
            unread[group].add((workflow_id, lfn))
    if len(unread[None]) < WAVE_FILES:
        return UnreadWaves()
    well = defaultdict[object, int](int)
    done = WorkUnit.objects.filter(workflow__in={row[0] for row in rows}, state=WorkUnitState.DONE, done_at__gte=since)
    for workflow_id, site, units in done.order_by().values_list("workflow_id", "site").annotate(units=Count("id")):
        for group in (None, workflow_id, site):
            well[group] += units
    waves = {group for group, files in unread.items() if len(files) >= max(WAVE_FILES, (len(files) + well[group]) * WAVE_SHARE)}
    if not waves:
        return UnreadWaves()
    workflows = frozenset(group for group in waves if isinstance(group, uuid.UUID))
    sites = frozenset(group for group in waves if isinstance(group, str))
    carried = [row for row in rows if None in waves or row[0] in workflows or row[2] in sites]
    files, places = {row[:2] for row in carried}, sorted({row[2] for row in carried})
    where = ", ".join(places[:5]) + (" and elsewhere" if places[5:] else "")
    return UnreadWaves(
        None in waves,
        workflows,
        sites,
        f"{counted(len(files), 'input file')} could not be read at {where},"
        " and little else was read meanwhile: none of them is excluded; look for a common cause",
    )


def failures_without_success(dag: DAG) -> int:
    """Attempts of this submission that began and failed; 0 when a node has done well in it. Reads files, the failure log only
    until then."""
    directory = Path(dag.submit_dir)
    if did_well(directory, dag.fence):
        return 0
    lines = read_failures(directory / FAILURES_FILE)
    return sum(line.get("fence") == dag.fence and line.get("rule") != NEVER_RAN for line in lines)


def site_failures(dag: DAG) -> dict[str, SiteFailures]:
    """Attempts by site in one submission, and those that speak against the site (error-handling 6.1).

    Failed attempts are the failure log's; those that did well are the jobs of the units that were done in this submission. A job
    that could not be submitted was at no site, one that waited too long for its site has not failed there; a data failure that
    names no input file is the request's own.
    """
    failed: dict[str, list[bool]] = {}
    for line in read_failures(Path(dag.submit_dir) / FAILURES_FILE):
        ran = line.get("code") != NOT_SUBMITTED and line.get("rule") != NEVER_RAN
        if line.get("fence") == dag.fence and line.get("site") and ran:
            names_file = line.get("category") == DATA and bool(line.get("bad_input_files"))
            failed.setdefault(str(line["site"]), []).append(names_file or line.get("category") == INFRASTRUCTURE)
    done = WorkUnit.objects.filter(round_id=dag.round_id, fence=dag.fence, state=WorkUnitState.DONE, site__in=failed)
    well = dict(done.order_by().values_list("site").annotate(jobs=Sum("jobs") + Count("id")))
    return {
        site: SiteFailures(attempts=len(each) + int(well.get(site, 0)), against_site=sum(each)) for site, each in failed.items()
    }


def bad_input_of(submit_dir: str, units: Collection[str]) -> BadInput:
    """The input files that the nodes of these units gave up over by unit (error-handling 5.2). Reads files.

    The failure log says which nodes to look at; what counts is each node's last ``post.json``, for it may have done well since.
    """
    directory = Path(submit_dir)
    suspects = {
        (str(line.get("unit")), str(line.get("node")))
        for line in read_failures(directory / FAILURES_FILE)
        if line.get("category") == DATA and line.get("final") and line.get("unit") in units
    }
    found: dict[str, dict[str, str]] = {}
    for unit, node in sorted(suspects):
        try:
            verdict = json.loads((directory / unit / post_name(node)).read_text(encoding="utf-8"))["classification"]
            if verdict["category"] == DATA:
                reason = f"{unit}/{node}: {verdict['reason']}"[:2000]
                for lfn in verdict["bad_input_files"]:
                    found.setdefault(unit, {}).setdefault(str(lfn), reason)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("post.json not readable, its input files stay", unit=unit, node=node, error=repr(error))
    return found


def failure_summary(workflow_id: uuid.UUID) -> str:
    """The most frequent kind of failure in words; empty when none is known."""
    group = FailureGroup.objects.filter(workflow_id=workflow_id).order_by("-given_up", "-attempts", "id").first()
    if group is None:
        return ""
    where = f" at {group.site}" if group.site else ""
    step = f" in {group.step}" if group.step else ""
    return f"most often {group.code} ({group.category}){step}{where}, {counted(group.attempts, 'time')}: {group.reason}"[:1000]
