"""Registered files are compared with the storage itself, by jobs at its site (ADR 0019).

Owns which files a job looks at, and what its answer means for their blocks. A storage that does not answer has said nothing: it
is asked again, after longer and longer pauses. ``dags_app.services.site_jobs`` has the jobs.
"""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from dags_app.models import LIVE_SITE_JOB, SiteJob, SiteJobPurpose
from dags_app.payload.contract.site_tasks import Listed, ListedFile, Listing, ListingTask, SiteResult, WrongFile
from dags_app.services.site_jobs import SITE_JOB_RUN_SECONDS, Work, site_job_begin, site_jobs_process
from outputs_app.checks.cases import case_reminded, cases_late, cases_open, cases_remind, repaired_check
from outputs_app.checks.validation import FileFinding, validation_process
from outputs_app.checks.validation.process import blocks_mark_validated, blocks_unvalidated
from outputs_app.models import (
    OPEN_CASE,
    RULED,
    CaseState,
    EffectKind,
    FindingKind,
    IntegrityCase,
    OutputFile,
    StorageCheck,
    Validity,
)
from requests_app.alerts import alert_off, alerted, remind, report_broken
from requests_app.models import Request, RequestStatus
from wms2.conf import conf
from wms2.metrics.series import VALIDATIONS_TOTAL
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
#: Files that one job looks at: at 0.1 s a size, and one in a hundred read whole in 30 s, what ``SITE_JOB_RUN_SECONDS`` (an hour)
#: has time for; a job that is slower ends by that, and the next goes on. Its task is 2 MB, and so is what is read for it.
PORTION = 9000
CASES_WAIT = "cases_wait"
_ENDED = (RequestStatus.COMPLETED, RequestStatus.FAILED, RequestStatus.ABORTED)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=10), timedelta(days=1)


def storage_checks_run() -> None:
    """One pass; any number of them may run at the same time, and be killed anywhere."""
    work, waiting = Work(_task, _settle, _wanted), StorageCheck.objects.filter(done_at__isnull=True, job__isnull=True)
    site_jobs_process(purpose=SiteJobPurpose.LIST, work=work)
    begun = False
    for site in sorted(waiting.order_by().values_list("site", flat=True).distinct()):
        with row_by_itself("storage checks", site, partial(_not_begun, site)):
            if _wanted(site):
                begun |= _begin(site)
            else:
                _let_go(waiting.filter(site=site))
    if begun:  # what follows a job that has just ended does not wait for the next pass
        site_jobs_process(purpose=SiteJobPurpose.LIST, work=work)
    _ended_check()
    _cases_alert_over()
    with transaction.atomic():
        mark_due(blocks_mark_validated(), "block validated")


def _ended_check() -> None:
    """Requests at their end, which are not evaluated: what is to be validated again is asked for, what was repaired looked at.
    Nothing of those whose outputs are taken back."""
    behind = blocks_unvalidated(block__workflow__request__status__in=_ENDED)
    repaired = IntegrityCase.objects.filter(state=CaseState.IN_PROGRESS, request__status__in=_ENDED)
    of = {*behind.values_list("block__workflow__request__pk", flat=True), *repaired.values_list("request", flat=True)}
    for pk in of:
        with row_by_itself("storage checks", pk, partial(report_broken, pk=pk)), transaction.atomic():
            rows = Request.objects.select_for_update(no_key=True, skip_locked=True, of=("self",)).select_related("workflow")
            ended = rows.filter(pk=pk, status__in=_ENDED)
            request = ended.exclude(effects__kind=EffectKind.RUCIO_RELEASE).first()
            if request is not None:
                repaired_check(pk)
                validation_process(workflow_id=request.workflow.pk, request_id=pk, request_epoch=request.epoch)


def _not_begun(site: str, problem: str) -> None:
    StorageCheck.objects.filter(site=site, done_at__isnull=True, job__isnull=True).update(problem=problem)


def _wanted(site: str) -> bool:
    return conf().storage_checks_enabled and site not in conf().storage_check_off_sites


@transaction.atomic
def _let_go(checks: QuerySet[StorageCheck]) -> None:
    """An operator has switched them off there: nothing waits for them any more."""
    requests = set(checks.values_list("validation__block__workflow__request__pk", flat=True))
    if checks.update(problem="not looked at further: storage checks are off there", done_at=clock.now()):
        mark_due(requests, "storage not looked at")


def _begin(site: str) -> bool:
    """Whether there is a job now for what is due longest; not if there was one at the site."""
    if SiteJob.objects.filter(site=site, purpose=SiteJobPurpose.LIST, state__in=LIVE_SITE_JOB).exists():
        return False
    due = StorageCheck.objects.filter(site=site, done_at__isnull=True, job__isnull=True, next_try_at__lte=clock.now())
    try:
        with transaction.atomic():
            chosen, files = [], 0
            for check in due.order_by("next_try_at", "id").select_for_update(skip_locked=True)[:PORTION]:
                chosen.append(check.pk)
                files += check.files - check.looked_at
                if files >= PORTION:
                    break
            job = site_job_begin(site=site, purpose=SiteJobPurpose.LIST, items=min(files, PORTION)) if chosen else None
            if job is not None:
                StorageCheck.objects.filter(pk__in=chosen).update(job=job)
            return job is not None
    except IntegrityError:
        log.info("another has begun to look at this storage", site=site)
        return False


def _files(check: StorageCheck) -> QuerySet[OutputFile]:
    """Those that no job has looked at yet."""
    rows = OutputFile.objects.filter(RULED, block=check.validation_id, rse=check.rse, validity=Validity.VALID)
    return rows.filter(pk__gt=check.up_to_file).order_by("pk")


def _task(job: SiteJob) -> ListingTask | None:
    """What is left of its checks, as it is now."""
    listings: list[Listing] = []
    left = PORTION
    for check in StorageCheck.objects.filter(job=job).select_related("validation").order_by("id"):
        share = 1.0 if check.validation.every_checksum else conf().storage_checksum_fraction
        rows = _files(check).values_list("pk", "lfn", "size_bytes", "adler32")[:left]
        files = tuple(ListedFile(*row, whole=zlib.crc32(row[1].encode()) < share * 2**32) for row in rows)
        left -= len(files)
        if files:
            listings.append(Listing(check.pk, check.rse, files))
    run_seconds = float(SITE_JOB_RUN_SECONDS)
    return ListingTask(str(job.pk), job.site, run_seconds, tuple(listings)) if listings else None


def _settle(job: SiteJob, result: SiteResult | None) -> None:
    """What was looked at counts, what is wrong is a case, the rest is looked at again, later if there was no answer."""
    now = clock.now()
    listings = {each.key: each for each in result.listings} if result is not None else {}
    checks = list(StorageCheck.objects.select_for_update(of=("self",)).filter(job=job).select_related("validation__block"))
    for check in checks:
        each = listings.get(check.pk) or Listed(check.pk, 0, check.up_to_file, 0, (), job.problem)
        with row_by_itself("storage checks", check.pk, partial(_waits, check)), transaction.atomic():
            _record_listing(check, each, now)
    found = listings.values()
    totals = {"looked_at": sum(each.files for each in found), "wrong": sum(len(each.wrong) for each in found)}
    SiteJob.objects.filter(pk=job.pk).update(result={**job.result, **totals})
    requests = StorageCheck.objects.filter(pk__in=[check.pk for check in checks])
    mark_due(set(requests.values_list("validation__block__workflow__request__pk", flat=True)), "storage looked at")


def _record_listing(check: StorageCheck, each: Listed, now: datetime) -> None:
    check.job, check.problem, check.next_try_at = None, each.obstacle, now
    check.up_to_file = max(check.up_to_file, each.up_to)
    check.looked_at, check.checksums = check.looked_at + each.files, check.checksums + each.checksums
    if not _files(check).exists():
        check.done_at, check.problem = now, ""
    elif each.obstacle:
        check.tries = 0 if each.files else check.tries + 1
        check.next_try_at = now + clock.pause(FIRST_PAUSE, LONGEST_PAUSE, check.tries)
    check.save()
    if each.wrong:
        wrong = {one.key: one for one in each.wrong}
        files = OutputFile.objects.filter(RULED, pk__in=wrong, validity=Validity.VALID).order_by("pk")
        cases_open(check.validation.block, [_finding(file, wrong[file.pk], check.rse) for file in files])
    end = "findings" if each.wrong else "no answer" if each.obstacle else "fine"
    VALIDATIONS_TOTAL.labels("storage", end).inc()


def _waits(check: StorageCheck, problem: str) -> None:
    """What came of it cannot be written down: the storage is asked again."""
    again = {"job": None, "problem": problem, "tries": F("tries") + 1, "next_try_at": clock.now() + LONGEST_PAUSE}
    StorageCheck.objects.filter(pk=check.pk).update(**again)


def _finding(file: OutputFile, wrong: WrongFile, rse: str) -> FileFinding:
    if wrong.size_bytes is None:
        return FileFinding(file.lfn, FindingKind.MISSING_REPLICA, f"{file.size_bytes} bytes at {rse}", "no such file there")
    if wrong.size_bytes != file.size_bytes:
        return FileFinding(file.lfn, FindingKind.SIZE_MISMATCH, f"{file.size_bytes} bytes", f"{wrong.size_bytes} bytes at {rse}")
    found = f"adler32 {wrong.adler32} at {rse}"
    return FileFinding(file.lfn, FindingKind.CHECKSUM_MISMATCH, f"adler32 {file.adler32}", found)


def cases_alert() -> None:
    """Alert on the requests with open cases that are due for a reminder."""
    for site, words in cases_remind().items():
        late = Request.objects.filter(pk__in=cases_late().filter(site=site).values("request"))
        for request in late.defer("request_data").order_by("pk"):
            with row_by_itself("cases", request, partial(report_broken, pk=request.pk)), transaction.atomic():
                if case_reminded(site=site, request_id=request.pk):
                    remind(request, "cases_wait", f"integrity cases wait: {words}")


def _cases_alert_over() -> None:
    """However the last open case of a request has ended, and whether it is evaluated still."""
    open_cases = IntegrityCase.objects.filter(request=OuterRef("pk"), state__in=OPEN_CASE)
    over = alerted(CASES_WAIT).filter(~Exists(open_cases))
    for request in over.defer("request_data").order_by("pk"):
        with row_by_itself("cases", request, partial(report_broken, pk=request.pk)), transaction.atomic():
            alert_off(request, CASES_WAIT)
