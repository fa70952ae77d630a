"""DAGMan jobs of DAGs that have ended: a queue that was given up has come back, or a submission turned up after its grace.

Owns recognizing them, and noticing that a lost DAG's job is proved gone. Removing them is the cycle's. Also: jobs of ours that
name a DAG that does not run (no row knows it, or its outer DAGMan has died and left the others): those are shown, and removed
only when an operator says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from dags_app.models import DAG, LIVE_DAG, LIVE_SITE_JOB, SiteJob
from sites_app.models import Schedd, strays_of
from sites_app.schedds import adapter
from wms2.adapters.types import DagmanAd, JobStatus, OrphanJobs
from wms2.audit import audit
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceError, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted

log = structlog.get_logger(__name__)
#: Why jobs are orphans.
UNKNOWN, ENDED = "no DAG has this id", "its DAG has ended, or its outer DAGMan has gone"


class Orphan(NamedTuple):
    """A DAGMan job in a queue that must not run: its DAG's row has ended, or has been submitted again since."""

    dag: DAG
    cluster: int
    fence: int | None
    being_removed: bool


def orphans_among(outer: Iterable[DagmanAd]) -> tuple[Orphan, ...]:
    """Those among the outer DAGMan jobs of a queue. A DAG ends only after its job was seen missing, so none ends ordinarily."""
    jobs = [ad for ad in outer if _is_uuid(ad.dag_id)]
    rows = DAG.objects.filter(pk__in={ad.dag_id for ad in jobs}).only("status", "fence", "dagman_cluster_id")
    by_id = {str(dag.pk): dag for dag in rows}
    astray = [ad for ad in jobs if ad.dag_id in by_id and _is_stray(ad, by_id[ad.dag_id])]
    if not astray:
        return ()
    full = DAG.objects.filter(pk__in=[ad.dag_id for ad in astray]).select_related("schedd__pool", "workflow__request")
    dags = {str(dag.pk): dag for dag in full.defer("workflow__psets", "workflow__spec", "workflow__request__request_data")}
    return tuple(Orphan(dags[ad.dag_id], ad.cluster, ad.fence, ad.job_status == JobStatus.REMOVED) for ad in astray)


def _is_stray(ad: DagmanAd, dag: DAG) -> bool:
    if dag.status not in LIVE_DAG:
        return True
    # a READY one has no number yet and may adopt whichever attempt it finds; the number that is recorded is the DAG's own
    another = dag.dagman_cluster_id not in ("", str(ad.cluster))
    return another and ad.fence is not None and ad.fence < dag.fence


def lost_settle(schedd: Schedd, in_queue: Iterable[str], now: datetime) -> None:
    """The schedd has answered: lost DAGs that are not in its queue are proved gone there."""
    waiting = DAG.objects.filter(schedd=schedd, lost_confirmed_at__isnull=False, lost_settled_at__isnull=True)
    rows, there = waiting.exclude(status__in=LIVE_DAG).values_list("pk", "workflow__request__id"), set(in_queue)
    gone = {pk: request_id for pk, request_id in rows if str(pk) not in there}
    if gone:
        DAG.objects.filter(pk__in=gone).update(lost_settled_at=now)
        mark_due(set(gone.values()), "lost DAG settled")


def orphans_known(schedd: Schedd, now: datetime) -> set[str]:
    """The ids that jobs of live DAGs, at sites, and of canaries name, read before the schedd is asked."""
    suspicious = now - timedelta(seconds=conf().schedd_suspicion_seconds)
    live = DAG.objects.filter(schedd=schedd, status__in=LIVE_DAG).exclude(missing_since__lt=suspicious)
    # the outer job's ad has the row's own id, all others that of the first submission of the directory
    at_sites = SiteJob.objects.filter(schedd=schedd, state__in=LIVE_SITE_JOB).values_list("pk")
    canaries = schedd.onboardings.filter(ended_at=None).values_list("pk")
    return {str(key) for keys in (*live.values_list("pk", "directory_id"), *at_sites, *canaries) for key in keys}


def orphans_ask(schedd: Schedd, known: Collection[str]) -> list[OrphanJobs] | None:
    """Ask the schedd for jobs of ours that none of these DAGs has; None: silent. May run in any thread: it touches no row."""
    try:
        return adapter(schedd).orphans(known)
    except ServiceUnavailable as error:
        log.warning("strays not looked for, next time again", schedd=schedd.name, error=str(error))
        return None


def orphans_report(*, schedd: Schedd, found: Sequence[OrphanJobs], now: datetime, fenced: Fenced) -> None:
    """Write down what a schedd has answered."""
    unplaced = _unplaced(each.dag_id for each in found)
    found = [each for each in found if each.dag_id not in unplaced]
    rows = _of(DAG.objects.all(), (each.dag_id for each in found))
    ended = {str(key) for keys in rows.values_list("pk", "directory_id") for key in keys}
    before = {each["dag_id"]: each for each in strays_of(schedd.orphans)}
    seen = []
    for each in found:
        last = before.get(each.dag_id, {"since": now.isoformat(), "looks": 0})
        why = ENDED if each.dag_id in ended else UNKNOWN
        seen.append(each._asdict() | {"why": why, "since": last["since"], "looks": last["looks"] + 1})
        log.error("jobs that no live DAG knows", schedd=schedd.name, **seen[-1])
    with fenced():
        Schedd.objects.filter(pk=schedd.pk).update(orphans=seen, orphans_asked_at=now)
    schedd.orphans, schedd.orphans_asked_at = seen, now


def strays_preview(schedd: Schedd) -> list[str]:
    """What would be removed, a line each."""
    return [
        f"DAG {each['dag_id'] or 'without an id'} of {each['request_name'] or 'an unknown request'}:"
        f" {counted(each['dagmans'], 'DAGMan')}, {counted(each['jobs'], 'job')}, since {each['since'][:16]} UTC: {each['why']}"
        for each in schedd.orphans_reported
    ]


def strays_refused(schedd: Schedd) -> str:
    """Why there is nothing to remove; empty if there is."""
    return "" if schedd.orphans_reported else "Two looks in a row have found no job there that no live DAG knows."


def schedd_remove_strays(*, schedd: Schedd, actor: str, reason: str) -> None:
    """Remove the jobs of ours there that no live DAG knows, as two looks have found them, and look again.

    Raises:
        InvalidTransition: there are none.
        ServiceUnavailable, ServiceRejected: some may have been removed; the next look says which are left.
    """
    record = partial(audit, actor=actor, action="schedd_remove_strays", target=schedd.name, target_type="schedd", reason=reason)
    if why := strays_refused(schedd):
        record(refused=True, why=why)
        raise InvalidTransition(why)
    condor = adapter(schedd)
    for dag_id in [each["dag_id"] for each in schedd.orphans_reported]:
        # read before it is asked who knows the id: what is submitted in the directory from now on has a higher one
        fence = _of(DAG.objects.all(), [dag_id]).aggregate(Max("fence"))["fence__max"]
        if dag_id in orphans_known(schedd, clock.now()) or _unplaced([dag_id]):
            continue  # adopted or submitted again since the last look
        try:
            jobs = condor.remove_orphans(dag_id, f"removed by {actor}: {reason}", fence)
        except ServiceError as error:
            record(refused=True, dag_id=dag_id, why=str(error))
            raise
        record(dag_id=dag_id, jobs=jobs)
        log.warning("jobs that no live DAG knows are removed", schedd=schedd.name, dag_id=dag_id, jobs=jobs)
    found = orphans_ask(schedd, orphans_known(schedd, clock.now()))
    if found is not None:
        orphans_report(schedd=schedd, found=found, now=clock.now(), fenced=transaction.atomic)


def _of(dags: QuerySet[DAG], ids: Iterable[str]) -> QuerySet[DAG]:
    """Those whose jobs, at either level, name one of these ids."""
    keys = [each for each in ids if _is_uuid(each)]
    return dags.filter(Q(pk__in=keys) | Q(directory_id__in=keys))


def _unplaced(ids: Iterable[str]) -> set[str]:
    """What jobs of live DAGs name, of these ids, where the row does not say at which schedd: they may be adopted at any."""
    rows = _of(DAG.objects.filter(schedd=None, status__in=LIVE_DAG), ids)
    return {str(key) for keys in rows.values_list("pk", "directory_id") for key in keys}


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
