"""The cleaner: files that are not needed any more are removed by jobs at their site (ADR 0010; docs/design/model.md, Leftovers).

What they are: unmerged files and journals of rounds that have ended, and merged files that no accepted manifest names: of starts
that were killed, failed, came late, left their site, or belonged to units that were given up. Every start journals what it will
write beside its files, so a unit's journals at each site that it ever had list all of them; ``orphans.jsonl`` names more.
Owns which rounds nothing can use any more, and what is protected. ``dags_app.services.site_jobs`` has the jobs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from dags_app.models import DAG, LIVE_DAG, LIVE_SITE_JOB, LIVE_UNIT, Leftover, SiteJob, SiteJobPurpose, WorkUnit, WorkUnitState
from dags_app.packs import files_of, is_readable, is_there
from dags_app.payload.contract import documents, names
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.documents import JobDocument, UnitDocument
from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.layout import ELECTED_LOG, JOB_FILE, MERGE, ORPHANS_FILE, PROCESSING
from dags_app.payload.contract.reading import json_lines
from dags_app.payload.contract.site_tasks import Removal, RemovalTask, SiteResult
from dags_app.services.site_jobs import SITE_JOB_RUN_SECONDS, SITE_JOB_TIMEOUT_SECONDS, Work, site_job_begin, site_jobs_process
from outputs_app.effects.invalidation import TAKING_BACK
from outputs_app.models import SETTLED_EFFECT, Effect, OutputFile
from requests_app.alerts import alert_off, alerted, report_broken
from requests_app.lifecycle.packing import LOST, UNSETTLED, seen_in_queues
from requests_app.models import UNMERGED_FROZEN, CleanupPolicy, Request, RequestStatus, Workflow
from wms2.adapters import factory
from wms2.conf import conf
from wms2.metrics.series import LEFTOVERS_REMOVED_TOTAL
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.passes import row_by_itself

#: Since the end of a round, until what its units left is removed. Longer than any job runs: one that comes back late is then
#: found too.
CLEANER_GRACE_DAYS = 3.0
#: Files of a request that failed or was aborted stay so long, unless it is to be cleaned up at once.
_ENDED_GRACE_DAYS = 14.0

log = structlog.get_logger(__name__)
#: Rounds are written down for so long, and so many at most; beat comes again.
RUN_SECONDS, ROUNDS = 30.0, 200
#: Units whose leftovers one job removes, and rows of one statement.
PORTION = 500
_COMPLETE = (RequestStatus.COMPLETED, RequestStatus.ARCHIVED)
#: Their outputs are validated: nothing wants the unmerged files any more.
_NOW = (RequestStatus.REMOVING_FILES, *_COMPLETE)
#: Problems kept of one unit; the others are counted.
MOST_PROBLEMS = 5
#: Everything of these requests goes, merged files too that Rucio has no replica of.
CLEANED = (RequestStatus.CLEANING, RequestStatus.CLEANED)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(hours=1), timedelta(days=1)


def leftovers_remove() -> None:
    """One pass; any number of them may run at the same time, and be killed anywhere."""
    if conf().cleaner_enabled:
        until = time.monotonic() + RUN_SECONDS
        unknown = rounds_unneeded(clock.now()).filter(leftovers_at__isnull=True)
        at_work = Leftover.objects.filter(job__state__in=LIVE_SITE_JOB)  # what they settle is what they were given
        for dag in unknown.exclude(round_id__in=at_work.values("unit__round")).order_by("round_id")[:ROUNDS]:
            with row_by_itself("leftovers", dag.pk, partial(report_broken, workflow__dags=dag.pk)):
                _write_down(dag)
            if time.monotonic() > until:
                break
        for site in sorted(_due().order_by().values_list("site", flat=True).distinct()):
            with row_by_itself("leftovers", site, partial(_not_begun, site)):
                _begin(site)
    site_jobs_process(purpose=SiteJobPurpose.REMOVE, work=Work(_task, _settle, _wanted))
    with transaction.atomic():
        left = Leftover.objects.filter(settled_at__isnull=True)
        _report(Q(request__in=alerted("leftovers_stay")) & ~Q(pk__in=left.values("unit__workflow")))  # the last was discarded


def rounds_unneeded(now: datetime) -> QuerySet[DAG]:
    """The first DAG of each round of which nothing can use the unmerged files any more, for as long as the grace.

    The round is closed, so none of its DAGs is rescued; none is live, may come back, or has jobs in a queue. Nothing of a
    request that is HELD or whose outputs are being validated; once they are validated, without the grace. Of one that failed or
    was aborted later, unless its policy wants it cleaned up at once. Of one that is cleaned at once, also if a DAG's
    end is not proved, but only when no registration or rule is left of it.
    """
    of_request = "workflow__request__"
    others, units = DAG.objects.filter(round=OuterRef("round")), WorkUnit.objects.filter(round=OuterRef("round"))
    astray = DAG.objects.filter(pk__in=seen_in_queues()).values("round_id")
    rows = DAG.objects.filter(
        ~Exists(others.filter(Q(status__in=LIVE_DAG) | LOST)),
        ~Exists(units.filter(state__in=LIVE_UNIT).exclude(state=WorkUnitState.DONE)),
        directory_id=F("pk"),
        round__closed_at__isnull=False,
    )
    owed = Effect.objects.filter(request=OuterRef(f"{of_request}pk"), epoch=OuterRef(f"{of_request}epoch"), kind__in=TAKING_BACK)
    cleaned = Q(~Exists(owed.exclude(state__in=SETTLED_EFFECT)), workflow__request__status__in=CLEANED)
    too_early = Q(
        workflow__request__status__in=(RequestStatus.FAILED, RequestStatus.ABORTED),
        workflow__request__status_since__gte=now - timedelta(days=_ENDED_GRACE_DAYS),
    ) & ~Q(workflow__request__cleanup_policy=CleanupPolicy.IMMEDIATE_CLEANUP)
    over = Q(round__closed_at__lt=now - timedelta(days=CLEANER_GRACE_DAYS)) | Q(**{f"{of_request}status__in": _NOW})
    kept = Q(workflow__request__status__in=(RequestStatus.HELD, *UNMERGED_FROZEN, *CLEANED))
    unneeded = Q(~Exists(others.filter(UNSETTLED))) & over & ~kept & ~too_early
    return rows.filter(unneeded | cleaned).exclude(round_id__in=astray)


def _wanted(site: str) -> bool:
    return conf().cleaner_enabled and site not in conf().cleaner_off_sites


def _due() -> QuerySet[Leftover]:
    """What waits for a job, at sites that are free for one."""
    rows = Leftover.objects.filter(settled_at__isnull=True, job__isnull=True, next_try_at__lte=clock.now())
    busy = SiteJob.objects.filter(purpose=SiteJobPurpose.REMOVE, state__in=LIVE_SITE_JOB)
    return rows.exclude(site__in=conf().cleaner_off_sites).exclude(site__in=busy.values("site"))


# --- writing down


def _write_down(dag: DAG) -> None:
    """What each unit of a round may have left at each site that it was ever pinned to, once."""
    if not is_there(dag.submit_dir) and not is_readable(Path(dag.submit_dir).parents[1]):
        log.warning("leftovers of a round not looked for, the submit directories are away", dag_id=str(dag.pk))
        return
    units = list(WorkUnit.objects.filter(round_id=dag.round_id).order_by("index"))
    wanted = [f"{unit.name}/{name}" for unit in units for name in (ELECTED_LOG, ORPHANS_FILE)]
    rows: list[Leftover] = []
    now, merged, cleaned = clock.now(), defaultdict[int, set[str]](set), _is_cleaned(dag)
    for key, lfn in OutputFile.objects.filter(unit__in=units).values_list("unit_id", "lfn") if cleaned else ():
        merged[key].add(lfn)
    try:
        with files_of(dag.submit_dir, JOB_FILE, *wanted) as place:
            job = documents.read_job(place)
            for unit in units:
                elected = read_text(place / unit.name / ELECTED_LOG)
                orphans = read_text(place / unit.name / ORPHANS_FILE)
                rows += _leftovers(job, unit, elected, orphans, merged[unit.pk], now)
    except (OSError, PayloadError) as error:
        # without its directory the names of its files are unknown: logged once, not tried for ever
        log.error("leftovers of a round unknown, its files stay", dag_id=str(dag.pk), path=dag.submit_dir, error=str(error))
        rows = []
    with transaction.atomic():
        # before its DAG, as operations do
        Request.objects.select_for_update(no_key=True).only("pk").get(workflow=dag.workflow_id)
        locked = DAG.objects.select_for_update(no_key=True).filter(pk=dag.pk, leftovers_at__isnull=True)
        if locked.first() is not None and _is_cleaned(dag) == cleaned:  # else it is to be cleaned just now
            fields = ["bases", "journals", "lfns", "job", "next_try_at", "settled_at"]  # again, when it is cleaned
            Leftover.objects.bulk_create(
                rows, batch_size=PORTION, update_conflicts=True, unique_fields=["unit", "site"], update_fields=fields
            )
            DAG.objects.filter(round_id=dag.round_id, directory_id=dag.directory_id).update(leftovers_at=now)
            _report(Q(pk=dag.workflow_id))


def _is_cleaned(dag: DAG) -> bool:
    return Request.objects.filter(workflow=dag.workflow_id, status__in=CLEANED).exists()


def _leftovers(job: JobDocument, unit: WorkUnit, elected: str, orphans: str, merged: set[str], now: datetime) -> list[Leftover]:
    document = UnitDocument(unit.name, unit.index, ())
    journals = [names.journals_lfn(job, document, role) for role in (PROCESSING, MERGE)]
    bases = {base for each in job.outputs for base in (each.unmerged_lfn_base, each.merged_lfn_base)}
    bases |= {each.unmerged_lfn_base for each in job.transients}
    sites: dict[str, set[str]] = {line.split()[-1]: set() for line in elected.splitlines() if line.strip()}
    if unit.site:
        sites.setdefault(unit.site, set()).update(merged)
    for orphan in json_lines(orphans):
        files = sites.setdefault(str(orphan.get("site", "")), set())
        if "lfn" in orphan:
            files.add(str(orphan["lfn"]))
    return [
        Leftover(unit=unit, site=site, bases=sorted(bases), journals=journals, lfns=sorted(files), next_try_at=now)
        for site, files in sites.items()
        if site
    ]


def _report(workflows: Q) -> None:
    """Wake requests that wait for this to complete; of those that completed with files left, say so when nothing is left."""
    statuses = (RequestStatus.REMOVING_FILES, RequestStatus.CLEANING)
    waiting = Workflow.objects.filter(workflows, request__status__in=statuses).distinct()
    mark_due(waiting.values_list("request__pk", flat=True), "leftovers")
    ended = Workflow.objects.filter(workflows, request__status__in=_COMPLETE, inputs_removed_at__isnull=True)
    requests = Request.objects.filter(pk__in=ended.values("request__pk")).only("request_name", "alert_code").order_by("pk")
    for request in list(requests.select_for_update(no_key=True)):  # of two that settle the last at two sites, one sees both
        with row_by_itself("leftovers", request, partial(report_broken, pk=request.pk)), transaction.atomic():
            rows = Leftover.objects.filter(unit__workflow__request=request, settled_at__isnull=True)
            rounds = rounds_unneeded(clock.now()).filter(workflow__request=request, leftovers_at__isnull=True)
            if not rows.exists() and not rounds.exists():
                Workflow.objects.filter(request=request).update(inputs_removed_at=clock.now())
                alert_off(request, "leftovers_stay")


# --- removing


def _not_begun(site: str, problem: str) -> None:
    _due().filter(site=site).update(problem=problem)


def _begin(site: str) -> None:
    """A job for what is due longest, unless another process has just begun one there."""
    try:
        with transaction.atomic():
            due = _due().filter(site=site).order_by("next_try_at", "id").select_for_update(skip_locked=True)
            keys = list(due.values_list("pk", flat=True)[:PORTION])
            job = site_job_begin(site=site, purpose=SiteJobPurpose.REMOVE, items=len(keys)) if keys else None
            if job is not None:
                Leftover.objects.filter(pk__in=keys).update(job=job)
    except IntegrityError:
        log.info("another cleaner has begun at this site", site=site)


def _task(job: SiteJob) -> RemovalTask | None:
    """What the job removes. Whether nothing can use it any more, and what is protected, is read again here: right before
    it is submitted, and the job goes by it only as long as its time limit."""
    now = clock.now()
    rows = Leftover.objects.filter(job=job)
    wanted = Q(unit__round__in=rounds_unneeded(now).values("round_id"))
    rows.exclude(wanted).update(job=None, next_try_at=now + FIRST_PAUSE)
    found = list(rows.filter(wanted).order_by("id"))
    if not found:
        return None
    named = Q(unit__in=[row.unit_id for row in found]) | Q(lfn__in=[lfn for row in found for lfn in row.lfns])
    return RemovalTask(
        job=str(job.pk),
        site=job.site,
        valid_until=(now + timedelta(seconds=SITE_JOB_TIMEOUT_SECONDS)).timestamp(),
        run_seconds=float(SITE_JOB_RUN_SECONDS),
        most_problems=MOST_PROBLEMS,
        bases=tuple(sorted({base for row in found for base in row.bases})),
        protected=_protected(OutputFile.objects.filter(named)),
        removals=tuple(Removal(row.pk, tuple(row.journals), tuple(row.lfns)) for row in found),
    )


def _protected(files: QuerySet[OutputFile]) -> frozenset[str]:
    """Those that have a row; of requests that are cleaned those that Rucio has, which removes them itself.

    Raises:
        ServiceUnavailable: Rucio does not say.
    """
    cleaned = Q(block__workflow__request__status__in=CLEANED)
    kept = files.exclude(cleaned).values_list("lfn", flat=True)
    ours = list(files.filter(cleaned).values_list("lfn", flat=True))
    held = factory.rucio().file_replicas(ours) if ours else {}
    return frozenset((*kept, *(lfn for lfn, rses in held.items() if rses)))


def _settle(job: SiteJob, result: SiteResult | None) -> None:
    """What is gone is settled, what could not be removed is tried again; without a result all of it is."""
    now = clock.now()
    removals = {each.key: each for each in result.removals} if result is not None else {}
    rows = list(Leftover.objects.select_for_update().filter(job=job).order_by("id"))
    for row in rows:
        with row_by_itself("leftovers", row, partial(_stays, row)):
            each = removals.get(row.pk)
            if each is not None:
                row.removed = [*row.removed, *each.removed]
                row.removed_files = len(row.removed)
            if each is not None and not each.number_of_problems:
                row.settled_at, row.problem = now, ""
            elif each is not None or result is None:
                row.problem = "; ".join(each.problems) if each is not None else job.problem
                row.next_try_at = now + clock.pause(FIRST_PAUSE, LONGEST_PAUSE, row.tries)
                row.tries += 1
            if row.settled_at is None:
                row.job = None
    broken = list[str]()
    with row_by_itself("leftovers", job.site, broken.append), transaction.atomic():
        _save(rows)
    for row in rows if broken else ():  # one that cannot be written keeps no other of the site
        with row_by_itself("leftovers", row, partial(_stays, row)), transaction.atomic():
            _save([row])
    _report(Q(work_units__in=[row.unit_id for row in rows]))
    removed = sum(len(each.removed) for each in removals.values())
    LEFTOVERS_REMOVED_TOTAL.labels(job.site).inc(removed)
    job.result = {**job.result, "removed": removed, "not_reached": len(rows) - len(removals)}
    job.save(update_fields=["result"])


def _stays(row: Leftover, problem: str) -> None:
    """What came of it cannot be written down: it is tried again."""
    row.job, row.settled_at, row.problem, row.tries = None, None, problem, row.tries + 1
    row.next_try_at = clock.now() + LONGEST_PAUSE
    row.save(update_fields=["job", "settled_at", "problem", "tries", "next_try_at"])


def _save(rows: Iterable[Leftover]) -> None:
    """A unit that had left nothing needs no evidence, unless its request is being cleaned: it is looked at again."""
    nothing = [row.pk for row in rows if row.settled_at is not None and not row.removed_files and not row.tries]
    again = Leftover.objects.filter(pk__in=nothing, unit__workflow__request__status=RequestStatus.CLEANING)
    nothing = sorted(set(nothing) - set(again.values_list("pk", flat=True)))
    Leftover.objects.filter(pk__in=nothing).delete()
    kept = [row for row in rows if row.pk not in set(nothing)]
    changed = ["removed", "removed_files", "problem", "tries", "next_try_at", "settled_at", "job"]
    Leftover.objects.bulk_update(kept, changed, batch_size=PORTION)
