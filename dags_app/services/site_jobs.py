"""Jobs at a site that are no nodes of a DAG: submitted at most once, found again after a crash, their results read (ADR 0010).

The protocol is that of DAGs (ADR 0002), simpler because a row is submitted once or never: the intent is committed, the job is
submitted, the outcome recorded. An open intent is settled by looking in queue and history; a schedd that does not answer
changes nothing. Who has work of a purpose begins jobs, and calls ``site_jobs_process`` now and then, from any process.
Does not own what a job is to do, nor what becomes of its result: that is ``Work``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum

from dags_app.models import LIVE_SITE_JOB, SiteJob, SiteJobPurpose, SiteJobState
from dags_app.payload.build import build_payload
from dags_app.payload.contract import layout
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.files import tail_text, write_json
from dags_app.payload.contract.site_tasks import HarvestTask, SiteResult, read_result
from dags_app.planning.dagfiles import credential_inc
from dags_app.planning.submitfiles import SiteSlot, site_job_submit
from dags_app.services.submit import accounting, credential_obstacle
from sites_app.models import Onboarding, Schedd, ScheddState
from sites_app.schedds import adapter
from sites_app.submit_roots import SITE_JOBS
from wms2.adapters import caller, factory
from wms2.adapters.caller import HeldLease, working_under
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import HistoryAd
from wms2.conf import conf
from wms2.errors import LeaseLost, ServiceRejected, ServiceUnavailable
from wms2.metrics.series import SITE_JOBS_TOTAL
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.passes import row_by_itself

#: A job at a site that has begun ends after so long; what it did not get to is another's.
SITE_JOB_RUN_SECONDS = 3600
#: A job at a site that has not ended so long after its submission is removed and tried again.
SITE_JOB_TIMEOUT_SECONDS = 86_400

log = structlog.get_logger(__name__)
S = SiteJobState
_STDERR_LINES = 5
#: From the end of a job's own time to that of its slot: it writes its result.
_LAST_MINUTES = 10


@dataclass(frozen=True, slots=True)
class Work:
    """What is done by site jobs of one purpose.

    Args:
        task: what a job is to do as things are right before it is submitted; None: nothing any more.
        settle: writes down what came of it, in the transaction that ends the job; without a result nothing is known.
        wanted: whether anything may be done at a site now; jobs that are there already are removed if not.
        slot: what a job asks of its slot, where that is more than the removing of files takes; its minutes are its own time.
    """

    task: Callable[[SiteJob], Any]
    settle: Callable[[SiteJob, SiteResult | None], None]
    wanted: Callable[[str], bool]
    slot: Callable[[SiteJob], SiteSlot] = lambda job: SiteSlot(SITE_JOB_RUN_SECONDS // 60)


def site_job_begin(*, site: str, purpose: SiteJobPurpose, items: int) -> SiteJob | None:
    """A new job, to be submitted by ``site_jobs_process``, where the site has most slots; None while no schedd takes any.

    In the caller's transaction.

    Raises:
        django.db.IntegrityError: one of this purpose is at the site already, but of harvesting.
    """
    slots = Sum("pool__sites__total_slots", filter=Q(pool__sites__site=site))
    enabled = Schedd.objects.filter(state=ScheddState.ENABLED).annotate(slots=slots)
    by_slots = enabled.order_by(F("slots").desc(nulls_last=True), "pk")
    schedd = next((schedd for schedd in by_slots if not schedd.unusable), None)
    if schedd is None:
        return None
    job = SiteJob(site=site, purpose=purpose, schedd=schedd, items=items)
    job.directory = str(Path(schedd.submit_root) / SITE_JOBS / str(job.pk))
    job.save(force_insert=True)
    return job


def site_jobs_process(*, purpose: SiteJobPurpose, work: Work) -> None:
    """Submit what is prepared, look for what was submitted, take the results of what has ended. What fails of one job is written
    on it, and keeps no other waiting."""
    live = SiteJob.objects.filter(purpose=purpose, state__in=LIVE_SITE_JOB)
    for job in live.select_related("schedd__pool").order_by("created_at"):
        with row_by_itself("site jobs", f"{job.site} {job.pk}", partial(_say, job)):
            try:
                _process(job, work)
            except (LeaseLost, OSError) as error:
                raise ServiceUnavailable("submit_root", "site_job", str(error)) from error
            if job.problem:
                _say(job, "")


def _say(job: SiteJob, problem: str) -> None:
    """Why it could not be processed; it is tried again, and its end says what came of it."""
    SiteJob.objects.filter(pk=job.pk, state__in=LIVE_SITE_JOB).update(problem=problem)


def _process(job: SiteJob, work: Work) -> None:
    condor = adapter(job.schedd)
    if job.intent_at is None:
        _submit(condor, job, work)
        return
    try:
        found = condor.find_job(str(job.pk), job.created_at)
    except ServiceUnavailable as error:
        if job.schedd.state != ScheddState.DISABLED or not _over(job, work):
            raise  # that proves nothing; one that operators have taken out of service may never answer again
        _end(job, work, S.FAILED, None, f"its time is over, and its schedd, which is disabled, is silent: {error}")
        return
    if found is None:
        if proved_absent(job):
            _end(job, work, S.FAILED, None, f"neither queue nor history of {job.schedd.name} know it")
    elif found.history is not None:
        _read(job, work, found.history)
    else:
        adopted = {"state": S.SUBMITTED, "cluster": str(found.cluster), "missing_since": None, "problem": ""}
        SiteJob.objects.filter(pk=job.pk, state__in=LIVE_SITE_JOB).update(**adopted)
        if (over := _over(job, work)) or not work.wanted(job.site):
            why = "it has had its time" if over else "nothing is to be done at this site now"
            condor.remove_job(found.cluster, str(job.pk), why)


def _over(job: SiteJob, work: Work) -> bool:
    longer = work.slot(job).minutes * 60 - SITE_JOB_RUN_SECONDS
    return clock.now() > (job.intent_at or clock.now()) + timedelta(seconds=SITE_JOB_TIMEOUT_SECONDS + max(0, longer))


def _submit(condor: HtcondorAdapter, job: SiteJob, work: Work) -> None:
    if not work.wanted(job.site):
        _end(job, work, S.FAILED, None, "not submitted: nothing is to be done at this site now")
        return
    task = work.task(job)
    if task is None:
        _end(job, work, S.DONE, None, "not submitted: nothing was left to do")
        return
    settings, place = conf(), Path(job.directory)
    slot = work.slot(job)
    slot = replace(slot, minutes=slot.minutes + _LAST_MINUTES)
    if why := credential_obstacle(slot.minutes * 60 if isinstance(task, HarvestTask) else 0):  # others need it but now
        raise ServiceUnavailable("htcondor", "submit", f"waits for {why}", "credential")
    text = credential_inc(factory.job_credential()) + site_job_submit(job.site, slot, accounting=accounting())
    begun, now = caller.since_boot(), clock.now()  # before the intent: who is paused in between has no time left to submit
    prepared = SiteJob.objects.filter(pk=job.pk, state=S.PREPARED, intent_at__isnull=True)
    if prepared.update(intent_at=now) != 1:
        return  # another process submits it
    crash_point("site_job.claimed")
    ours = SiteJob.objects.filter(pk=job.pk, state=S.PREPARED, intent_at=now)
    with intent_closed_after(OSError, ours):  # not before: another process may have submitted it, and its job reads this
        place.mkdir(parents=True, exist_ok=True)
        build_payload(place / layout.PAYLOAD.rpartition("/")[2])
        write_json(place / layout.SITE_TASK_FILE, to_json(task))
    stamps = {"WMS2_Instance": settings.instance, "WMS2_DagID": str(job.pk), "WMS2_SiteJob": job.purpose}
    try:
        with working_under(HeldLease(begun + settings.submit_timeout_seconds)), intent_closed_after(LeaseLost, ours):
            cluster = condor.submit_job(place, text, stamps, begun)
    except ServiceRejected as error:
        _end(job, work, S.FAILED, None, str(error))
        return
    crash_point("site_job.called")
    SiteJob.objects.filter(pk=job.pk, state=S.PREPARED).update(state=S.SUBMITTED, cluster=str(cluster))
    log.info("site job submitted", site=job.site, job=str(job.pk), purpose=job.purpose, cluster=cluster, items=job.items)


@contextmanager
def intent_closed_after(error: type[Exception], intent: QuerySet[Any]) -> Iterator[None]:
    """After an error that says that nothing was sent, what this intent is for is submitted anew the next time."""
    try:
        yield
    except error:
        intent.update(intent_at=None)
        raise


def proved_absent(row: SiteJob | Onboarding) -> bool:
    """Whether what queue and history do not know will not turn up: a submission may, and the history may be late, for a while."""
    now, settings = clock.now(), conf()
    if row.missing_since is None:
        type(row).objects.filter(pk=row.pk).update(missing_since=now)
        row.missing_since = now
    arrives_by = (row.intent_at or now) + timedelta(seconds=settings.submit_timeout_seconds)
    return now > max(arrives_by, row.missing_since) + timedelta(seconds=settings.submit_unknown_grace_seconds)


def _read(job: SiteJob, work: Work, history: HistoryAd) -> None:
    """The job has left the queue: its result counts if it is this job's, however the job ended."""
    place = Path(job.directory)
    try:
        result = read_result(place)
        if result.job != str(job.pk):
            raise PayloadError(0, f"the result is of job {result.job}")
    except PayloadError as error:
        why = tail_text(place / layout.SITE_STDERR, _STDERR_LINES) or history.remove_reason or error.message
        _end(job, work, S.FAILED, None, f"it ended with {history.exit_code}: {why}")
    else:
        _end(job, work, S.DONE, result, "")


def _end(job: SiteJob, work: Work, state: SiteJobState, result: SiteResult | None, problem: str) -> None:
    facts = {} if result is None else {"host": result.host, "started_at": result.started_at, "ended_at": result.ended_at}
    with transaction.atomic():
        row = SiteJob.objects.select_for_update().get(pk=job.pk)
        if row.state not in LIVE_SITE_JOB:
            return
        row.state, row.result, row.problem, row.ended_at = state, facts, problem, clock.now()
        row.save()
        work.settle(row, result)
    crash_point("site_job.recorded")
    shutil.rmtree(job.directory, ignore_errors=True)
    SITE_JOBS_TOTAL.labels(job.purpose, state.value).inc()
    emit = log.error if state is S.FAILED else log.info
    emit("site job ended", site=job.site, job=str(job.pk), purpose=job.purpose, state=state.value, problem=problem)
