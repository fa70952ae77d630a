"""Watching DAGs: one query per schedd and cycle for all of them (docs/design/htcondor.md, DAGMan's job ad).

Three answers are kept apart in the row: in the queue (``observed_at``), the schedd answers and it is not there
(``missing_since``), the schedd did not answer (``unanswered_since``). The third changes nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import structlog
from django.db.models import QuerySet
from structlog.contextvars import bound_contextvars

from dags_app.models import DAG, DAGStatus
from dags_app.services.orphans import Orphan, lost_settle, orphans_among
from dags_app.states import dag_transition, history
from sites_app.models import QueueChange, Schedd
from sites_app.schedds import schedd_answered, schedd_silent
from wms2 import clock
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import DagmanAd, DagStatus, JobStatus
from wms2.crash import crash_point
from wms2.errors import ServiceUnavailable, StaleState
from wms2.locks import Fenced

log = structlog.get_logger(__name__)
#: Large columns of the workflow, which only lends its request's name.
_UNREAD = ("workflow__spec", "workflow__psets", "workflow__splitting_params")
#: Statuses in which a DAGMan job is expected in the queue.
IN_QUEUE = (DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED)


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of asking a schedd: ``change`` when its queue is another one, ``orphans`` among the jobs in it."""

    answered: bool
    change: QueueChange | None = None
    orphans: tuple[Orphan, ...] = ()


def schedd_observe(*, schedd: Schedd, instance: str, fenced: Fenced) -> Observed:
    """Ask one schedd for all our DAGMan jobs and write what it says, as long as the caller leads: an answer that an observer was
    paused over is of the past.

    A job is a DAG's when its stamp says so, whatever its number: in a queue that was lost and begun anew the numbers repeat.
    """
    live = list(DAG.objects.filter(schedd=schedd, status__in=IN_QUEUE).select_related("workflow").defer(*_UNREAD))
    now = clock.now()
    condor = factory.htcondor(schedd.name, schedd.collector)
    try:
        about, ads = condor.watch(instance)
    except ServiceUnavailable as error:
        with fenced():
            DAG.objects.filter(pk__in=[d.pk for d in live], unanswered_since__isnull=True).update(unanswered_since=now)
        says = _collector_says(condor)
        with fenced():
            schedd_silent(schedd=schedd, error=str(error), collector_says=says, now=now)
        log.warning("schedd does not answer", schedd=schedd.name, dags=len(live), error=str(error))
        return Observed(answered=False)
    outer = [ad for ad in ads if ad.parent_cluster is None]
    with fenced():
        dagmans = sum(ad.job_status == JobStatus.RUNNING for ad in ads)
        change = schedd_answered(schedd=schedd, ad=about, dagmans_running=dagmans, now=now)
    crash_point("poll.called")
    units_running = Counter(ad.parent_cluster for ad in ads)
    mine = {(ad.dag_id, ad.cluster): ad for ad in outer}
    for dag in live:
        ad = mine.get((str(dag.pk), int(dag.dagman_cluster_id)))
        with bound_contextvars(request_name=dag.workflow.request_id, dag_id=str(dag.pk)), fenced():
            if ad is None:
                _miss(dag, now)
            else:
                _observe(dag, ad, units_running[ad.cluster], now)
    with fenced():
        lost_settle(schedd, {ad.dag_id for ad in outer}, now)
    crash_point("poll.recorded")
    return Observed(answered=True, change=change, orphans=orphans_among(outer))


def _collector_says(condor: HtcondorAdapter) -> str:
    """The second probe of a silent schedd: does at least the collector hear of it?"""
    try:
        ad = condor.collector_ad()
    except ServiceUnavailable:
        return "the collector does not answer either"
    if ad is None:
        return "the collector has no ad of it any more"
    if ad.heard_at_seconds is None:
        return "the collector has its ad"
    return f"the collector has its ad, heard of last at {datetime.fromtimestamp(ad.heard_at_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _miss(dag: DAG, now: datetime) -> None:
    if dag.missing_since is None:
        log.info("DAGMan job no longer in the queue; how it ended is looked for", cluster=dag.dagman_cluster_id)
    _still(dag).update(unanswered_since=None, missing_since=dag.missing_since or now)


def _still(dag: DAG) -> QuerySet[DAG]:
    """The row, unless the DAG has ended while the schedd was asked: what was seen then is of the past."""
    return DAG.objects.filter(pk=dag.pk, status__in=IN_QUEUE)


def _observe(dag: DAG, ad: DagmanAd, units_running: int, now: datetime) -> None:
    counts = asdict(ad) | {"units_running": units_running}
    seen = _still(dag).update(
        observed=counts,
        observed_at=now,
        missing_since=None,
        unanswered_since=None,
        suspected_at=None,
        lost_confirmed_at=None,
        lost_confirmation={},
        nodes_done=ad.nodes_done or 0,
        nodes_failed=ad.nodes_failed or 0,
        nodes_running=units_running,
        nodes_idle=ad.jobs_idle or 0,
        nodes_held=ad.jobs_held or 0,
    )
    if not seen:
        return
    if dag.suspected_at is not None or dag.lost_confirmed_at is not None:
        history(dag, "seen_again", detail={"suspected": str(dag.suspected_at), "confirmed": dag.lost_confirmation})
        log.warning("DAGMan job is in the queue again; nothing is lost", cluster=ad.cluster)
    wanted = DAGStatus.HALTED if ad.dag_status == DagStatus.HALTED else DAGStatus.RUNNING
    if ad.job_status == JobStatus.RUNNING and dag.status != wanted:
        try:
            dag_transition(dag, wanted, event="observed")
        except StaleState:
            log.info("dag changed while it was observed")
