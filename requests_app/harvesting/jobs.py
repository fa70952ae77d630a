"""DQM harvesting: what of a completed request is to be harvested, and the jobs that do it at sites (ADR 0020).

A row for each run of each DQMIO output, or for all its runs, is made when the request completes, which waits for none of them.
``dags_app.services.site_jobs`` has the jobs; the payload's ``harvest`` runs cmsRun and uploads. A job whose end was not
recorded is done again: servers keep what comes twice as versions.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Func, QuerySet, TextField

from dags_app.models import SiteJob, SiteJobPurpose, SiteJobState
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.site_tasks import HarvestTask, SiteResult
from dags_app.planning.cms_ads import NodeRole
from dags_app.planning.specs import HarvestSpec, StepSpec
from dags_app.planning.submitfiles import SiteSlot
from dags_app.services.site_jobs import Work, site_job_begin, site_jobs_process
from outputs_app.models import OutputFile, Validity
from requests_app.harvesting.intake import PSET, harvested
from requests_app.models import Harvest, HarvestState, Request, RequestStatus
from requests_app.work.cmssw_levels import steps_with_levels
from requests_app.work.spec import spec_of
from sites_app.selectors import sites_by_rse
from sites_app.services import sites_avoided
from wms2.adapters import factory
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import CircuitOpen, InvalidTransition, ServiceRejected, ServiceUnavailable
from wms2.runtime import clock, json_columns
from wms2.runtime.in_force import in_force
from wms2.runtime.passes import row_by_itself
from wms2.web.formatting import counted

#: Memory of a harvesting job whose request does not say (HarvestingMemory).
_MEMORY_MB = 3000
#: A harvesting job that has begun ends after so long, and is tried again.
_RUN_SECONDS = 43_200
#: Harvesting jobs in the queues at once.
_MOST_JOBS = 50

log = structlog.get_logger(__name__)
S = HarvestState
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=10), timedelta(hours=6)
#: Of what CMSSW saves and keeps while it does, even if the input is read over the network.
_DISK_KB = 10 * 1024**2


class _Runs(Func):
    """The runs of a file's lumis."""

    function, set_returning, output_field = "jsonb_object_keys", True, TextField()


def harvest_ask(request: Request) -> None:
    """Write down what is to be harvested of a request that completes, once; in the transaction in which it does."""
    spec = spec_of(request.workflow)
    if spec.harvest is None:
        return
    now = clock.now()
    for output in harvested(spec.outputs):
        keys = _files(request, output.dataset).order_by().values_list(_Runs("lumis"), flat=True).distinct()
        runs = {run for run, _ in json_columns.numbered(dict.fromkeys(keys))}
        wanted = sorted(runs) if not spec.harvest.together else [0] if runs else []
        rows = [Harvest(request=request, dataset=output.dataset, run=run, next_try_at=now) for run in wanted]
        Harvest.objects.bulk_create(rows, ignore_conflicts=True)


def harvests_run() -> None:
    """One pass: begin jobs for what is due, go on with those there are. Any number of them may run, and be killed anywhere."""
    if conf().harvest_enabled:
        room = max(0, _MOST_JOBS - Harvest.objects.filter(state=S.RUNNING).count())
        for row in Harvest.objects.filter(state=S.WAITING, next_try_at__lte=clock.now()).order_by("next_try_at", "id")[:room]:
            with row_by_itself("harvests", row, partial(_not_begun, row)):
                try:
                    _begin(row)
                except ServiceUnavailable as error:
                    log.warning("where to harvest is not known, asked again", request_name=row.request_id, error=str(error))
                    if isinstance(error, CircuitOpen):  # it answers about no other either
                        break
                    Harvest.objects.filter(pk=row.pk, state=S.WAITING).update(next_try_at=clock.now() + FIRST_PAUSE)
                except ServiceRejected as error:
                    _not_begun(row, str(error))
    site_jobs_process(purpose=SiteJobPurpose.HARVEST, work=Work(_task, _settle, lambda site: conf().harvest_enabled, _slot))


def _not_begun(row: Harvest, problem: str) -> None:
    Harvest.objects.filter(pk=row.pk, state=S.WAITING).update(**_failed(row, problem))


def harvest_decide(*, harvest: Harvest, actor: str, reason: str, state: HarvestState) -> None:
    """An operator has one harvested again as if it had never been tried, also one that is done; or gives it up.

    Raises:
        InvalidTransition: its job runs.
    """
    now, action = clock.now(), "harvest_retry" if state == S.WAITING else "harvest_discard"
    with audited(actor=actor, action=action, target=str(harvest), target_type="harvest", reason=reason, old=harvest.state):
        idle = Harvest.objects.filter(pk=harvest.pk).exclude(state=S.RUNNING)
        if not idle.update(state=state, attempts=0, next_try_at=now, ended_at=None if state == S.WAITING else now):
            raise InvalidTransition(f"{harvest}: {harvest_refused(Harvest(state=S.RUNNING))}")


def harvest_refused(harvest: Harvest) -> str:
    """Why an operator cannot decide on it now; empty if that is possible."""
    return "Its job runs; wait until it has ended." if harvest.state == S.RUNNING else ""


def _files(request: Request, dataset: str) -> QuerySet[OutputFile]:
    rows = OutputFile.objects.filter(dataset__workflow=request.workflow, dataset__name=dataset, validity=Validity.VALID)
    return rows.exclude(dataset__workflow__request__status__in=(RequestStatus.CLEANING, RequestStatus.CLEANED)).order_by("id")


def _files_of(row: Harvest) -> QuerySet[OutputFile]:
    files = _files(row.request, row.dataset)
    return files.filter(lumis__has_key=str(row.run)) if row.run else files


def _site_for(row: Harvest, lfns: list[str]) -> str:
    """The site that can read most of the files where Rucio has them now; the others are read from afar.

    Raises:
        ServiceRejected: no site that may be used has any.
        ServiceUnavailable: Rucio does not answer.
    """
    sites, avoided = sites_by_rse(), sites_avoided(row.request.workflow.pk)
    places = factory.rucio().file_replicas(lfns)
    found = Counter(
        site for rses in places.values() for site in {site for rse in rses for site in sites.get(rse, ())} - {*avoided}
    )
    if not found:
        raise ServiceRejected(
            "rucio", "file_replicas", f"no site that jobs may go to has any of {counted(len(lfns), 'file')} on disk"
        )
    return min(found, key=lambda site: (-found[site], site))


def _begin(row: Harvest) -> None:
    lfns = list(_files_of(row).values_list("lfn", flat=True))
    if not lfns:
        Harvest.objects.filter(pk=row.pk, state=S.WAITING).update(**_given_up())
        return
    site = _site_for(row, lfns)
    with transaction.atomic():
        mine = Harvest.objects.select_for_update(skip_locked=True).filter(pk=row.pk, state=S.WAITING).first()
        job = site_job_begin(site=site, purpose=SiteJobPurpose.HARVEST, items=len(lfns)) if mine is not None else None
        if job is not None:
            Harvest.objects.filter(pk=row.pk).update(state=S.RUNNING, job=job)


def _wanted(row: Harvest) -> tuple[HarvestSpec, StepSpec]:
    """What was asked for, and the step whose release made the files, in which they are harvested."""
    spec = spec_of(row.request.workflow)
    output = next(output for output in spec.outputs if output.dataset == row.dataset)
    if spec.harvest is None:
        raise ValueError(f"{row} was never asked for")
    return spec.harvest, next(step for step in spec.steps if step.name == output.step)


def _slot(job: SiteJob) -> SiteSlot:
    harvest, step = _wanted(Harvest.objects.select_related("request__workflow").get(job=job))
    memory = harvest.memory_mb or _MEMORY_MB
    return SiteSlot(_RUN_SECONDS // 60, memory, _DISK_KB, NodeRole.HARVESTING, steps_with_levels((step,)))


def _task(job: SiteJob) -> HarvestTask | None:
    row = Harvest.objects.select_related("request__workflow").get(job=job)
    harvest, step = _wanted(row)
    files = list(_files_of(row).values_list("lfn", "lumis"))
    if not files:
        return None
    runs = [row.run] if row.run else sorted({run for _, lumis in files for run, _ in json_columns.numbered(lumis)})
    return HarvestTask(
        job=str(job.pk),
        site=job.site,
        dataset=row.dataset,
        together=not row.run,
        runs=(runs[0], runs[-1]) if not row.run else (row.run,),
        files=tuple(lfn for lfn, _ in files),
        pset=row.request.workflow.psets[PSET],
        release=step.cmssw_version,
        scram_arch=step.scram_arch,
        global_tag=step.global_tag,
        upload_urls=(conf().dqm_upload_url,) if conf().dqm_upload_url else harvest.upload_urls,
        upload_pauses_seconds=conf().stage_out_pauses,
    )


def _settle(job: SiteJob, result: SiteResult | None) -> None:
    """Done, or tried again; given up if there was nothing left to harvest."""
    row = Harvest.objects.select_for_update().get(job=job)
    if result is not None:
        uploads = [to_json(each) for each in result.uploads]
        changes = {"state": S.DONE, "problem": "", "uploads": uploads, "ended_at": clock.now()}
    elif job.state == SiteJobState.DONE:
        changes = _given_up()
    else:
        changes = _failed(row, job.problem) if conf().harvest_enabled else {"state": S.WAITING}
    Harvest.objects.filter(pk=row.pk).update(**changes)


def _given_up() -> dict[str, Any]:
    return {"state": S.DISCARDED, "problem": "none of its files is valid any more", "ended_at": clock.now()}


def _failed(row: Harvest, problem: str) -> dict[str, Any]:
    log.warning("not harvested", request_name=row.request_id, harvest=str(row), attempts=row.attempts + 1, problem=problem)
    return {
        "state": S.FAILED if row.attempts + 1 >= in_force().harvest_max_attempts else S.WAITING,
        "problem": problem,
        "attempts": row.attempts + 1,
        "next_try_at": clock.now() + clock.pause(FIRST_PAUSE, LONGEST_PAUSE, row.attempts),
    }
