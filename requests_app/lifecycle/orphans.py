"""Removing DAGMan jobs that must not run: those of DAGs that have ended, back in a queue that had been given up.

Never adopted: their work may have been planned anew, under other names. Told once each in the DAG's history, the feed, the audit
and by an alert; the removal is asked for in each cycle until the job is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from dags_app.models import DAGHistory
from dags_app.services.orphans import Orphan
from dags_app.states import history
from requests_app.alerts import alert
from requests_app.feed import tell
from requests_app.lease import ACTOR
from requests_app.models import EVALUATED
from sites_app.models import Schedd
from sites_app.schedds import adapter
from wms2.audit import audit
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.locks import Fenced

log = structlog.get_logger(__name__)
#: Event type in DAGHistory and in the feed.
RETURNED = "dag.returned"


def orphans_remove(schedd: Schedd, orphans: Iterable[Orphan], fenced: Fenced) -> None:
    """Tell each once, and ask the schedd to remove those that are not on their way out.

    Raises:
        LeaseLost: somebody else leads by now; what was seen is of the past, and nothing more is removed.
    """
    for orphan in orphans:
        with fenced():
            _tell_once(schedd, orphan)
        if orphan.being_removed:
            continue
        reason = f"DAG {orphan.dag.pk} has ended ({orphan.dag.get_status_display()}); this job of it must not run"
        try:
            adapter(schedd).remove(orphan.cluster, reason, str(orphan.dag.pk))
        except (ServiceUnavailable, ServiceRejected) as error:
            log.warning("orphan DAGMan job not removed, next cycle again", cluster=orphan.cluster, error=str(error))


def _tell_once(schedd: Schedd, orphan: Orphan) -> None:
    dag, request = orphan.dag, orphan.dag.workflow.request
    told = DAGHistory.objects.filter(dag=dag, event_type=RETURNED, detail__cluster=orphan.cluster, detail__fence=orphan.fence)
    if told.exists():
        return
    what = f"DAGMan job {orphan.cluster} of DAG {dag.pk} is in the queue of {schedd.name}, and the DAG has ended; it is removed"
    detail = {"cluster": orphan.cluster, "fence": orphan.fence, "schedd": schedd.name, "lost": dag.outcome.get("lost", False)}
    history(dag, RETURNED, detail=detail)
    tell(RETURNED, request, dag=str(dag.pk), message=what, **detail)
    audit(actor=ACTOR, action="dag_remove_returned", target=dag.pk, target_type="dag", reason=what, **detail)
    if request.status in EVALUATED:  # of a request at its end nobody takes an alert off
        alert(request, "dag_returned", what)
    log.error("a DAG that has ended is in the queue again", request_name=request.request_name, dag_id=str(dag.pk), **detail)
