"""Watching DAGs: one query per schedd and cycle for all of them (``model.md``; ``htcondor.md`` section 2).

Three answers are kept apart in the row: in the queue (``observed_at``), the schedd answers and it is not there
(``missing_since``), the schedd did not answer (``unanswered_since``). The third changes nothing else.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import structlog
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from dags_app.models import DAG, DAGStatus
from dags_app.states import dag_transition
from sites_app.models import Schedd
from wms2.adapters import factory
from wms2.adapters.types import DagmanAd
from wms2.crash import crash_point
from wms2.errors import ServiceUnavailable, StaleState

log = structlog.get_logger(__name__)
#: Large columns of the workflow, which only lends its request's name.
_UNREAD = ("workflow__spec", "workflow__psets", "workflow__step_metrics", "workflow__splitting_params")
#: Statuses in which a DAGMan job is expected in the queue.
IN_QUEUE = (DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED)
#: DAG_Status of a job ad: halted (htcondor.md section 2).
DAG_STATUS_HALTED = 6


def schedd_observe(*, schedd: Schedd, instance: str) -> bool:
    """Ask one schedd for all our DAGMan jobs and write what it says; False when it did not answer."""
    live = list(DAG.objects.filter(schedd=schedd, status__in=IN_QUEUE).select_related("workflow").defer(*_UNREAD))
    now = timezone.now()
    try:
        ads = {ad.cluster: ad for ad in factory.htcondor(schedd.name, schedd.collector).dagmans(instance)}
    except ServiceUnavailable as error:
        DAG.objects.filter(pk__in=[d.pk for d in live], unanswered_since__isnull=True).update(unanswered_since=now)
        Schedd.objects.filter(pk=schedd.pk).update(last_error=str(error), unreachable_since=schedd.unreachable_since or now)
        log.warning("schedd does not answer", schedd=schedd.name, dags=len(live), error=str(error))
        return False
    Schedd.objects.filter(pk=schedd.pk).update(
        last_answer_at=now,
        unreachable_since=None,
        last_error="",
        dagmans_running=sum(1 for ad in ads.values() if ad.job_status == 2),
    )
    crash_point("poll.called")
    running = _inner_running(list(ads.values()))
    for dag in live:
        ad = ads.get(int(dag.dagman_cluster_id))
        with bound_contextvars(request_name=dag.workflow.request_id, dag_id=str(dag.pk)):
            if ad is None:
                _miss(dag, now)
            else:
                _observe(dag, ad, running.get(ad.cluster, 0))
    crash_point("poll.recorded")
    return True


def _miss(dag: DAG, now: datetime) -> None:
    if dag.missing_since is None:
        log.info("DAGMan job no longer in the queue; how it ended is looked for", cluster=dag.dagman_cluster_id)
    DAG.objects.filter(pk=dag.pk).update(unanswered_since=None, missing_since=dag.missing_since or now)


def _inner_running(ads: list[DagmanAd]) -> dict[int, int]:
    """Outer cluster -> number of inner DAGMans in the queue."""
    count: dict[int, int] = {}
    for ad in ads:
        if ad.parent_cluster is not None:
            count[ad.parent_cluster] = count.get(ad.parent_cluster, 0) + 1
    return count


def _observe(dag: DAG, ad: DagmanAd, units_running: int) -> None:
    counts = asdict(ad) | {"units_running": units_running}
    DAG.objects.filter(pk=dag.pk).update(
        observed=counts,
        observed_at=timezone.now(),
        missing_since=None,
        unanswered_since=None,
        nodes_done=ad.nodes_done or 0,
        nodes_failed=ad.nodes_failed or 0,
        nodes_running=units_running,
        nodes_idle=ad.jobs_idle or 0,
        nodes_held=ad.jobs_held or 0,
    )
    halted = ad.dag_status == DAG_STATUS_HALTED
    wanted = DAGStatus.HALTED if halted else DAGStatus.RUNNING
    if ad.job_status == 2 and dag.status != wanted:
        try:
            dag_transition(dag, wanted, event="observed")
        except StaleState:
            log.info("dag changed while it was observed")
