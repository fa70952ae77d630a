"""Work units whose site starts none of their jobs, while others of their DAG begin: they land elsewhere (ADR 0005).

Only units of which nothing has begun leave, once in each submission, since it takes their retry, by what ends jobs that wait for
days: the schedd puts those that never began on hold, and scripts of the DAG do the rest. Owns the decision, not how it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import structlog

from dags_app.models import DAG
from dags_app.services.leave_site import STAY, UNITS_LEAVE, may_leave, of_former_release, units_at, units_leaving
from dags_app.services.watch import sites_quiet
from dags_app.states import history
from requests_app.alert_rows import AlertSubject
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from sites_app.models import Schedd
from sites_app.schedds import adapter
from wms2.adapters.types import UnbegunUnit
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.runtime.periodic import POLL_SECONDS
from wms2.web.formatting import counted

log = structlog.get_logger(__name__)
CODE = "site_starts_nothing"


def unbegun_watch(evaluation: Evaluation, dag: DAG, schedd: Schedd) -> None:
    """Alert on sites that start nothing of this DAG while others do, and have its units leave them. While its schedd answers:
    otherwise nothing is known that would end an alert."""
    seconds, quiet = in_force().unit_unbegun_seconds, sites_quiet(dag.jobs)
    if not seconds or not quiet:
        alert_over(evaluation, CODE)
        return
    leaving, now = units_leaving(dag), clock.now()
    pause = timedelta(seconds=POLL_SECONDS if leaving else max(seconds / 4, POLL_SECONDS))
    if not check_is_due(evaluation, dag, pause):
        return
    condor, since = adapter(schedd), int(now.timestamp() - seconds)
    try:
        asked = condor.unbegun_units(str(dag.directory_id), dag.fence, quiet, int(now.timestamp()) if leaving else since)
        stuck = {name: unit for name, unit in asked.items() if unit.since_seconds <= since or name in leaving}
        if not stuck:
            alert_over(evaluation, CODE)
            return
        former = of_former_release(dag)
        leave = [] if former else may_leave(dag, stuck)
        changed = condor.leave_site(str(dag.directory_id), dag.fence, leave) if leave else 0
    except (ServiceUnavailable, ServiceRejected, OSError) as error:
        log.warning("units that never began not looked at", dag_id=str(dag.pk), error=str(error))
        return
    what = _words(stuck, leave, seconds, former=former)
    if changed:
        with evaluation.fenced():
            history(dag, UNITS_LEAVE, detail={"units": sorted(leave)[:100], "jobs": changed, "why": what})
        log.warning("units leave a site that starts nothing", dag_id=str(dag.pk), units=len(leave), jobs=changed)
    alert(evaluation.request, "site_starts_nothing", what, AlertSubject(site=min(quiet)) if len(quiet) == 1 else AlertSubject())


def check_is_due(evaluation: Evaluation, dag: DAG, pause: timedelta) -> bool:
    """Whether something that is looked at so often at most is to be looked at now; the request is due again for the next time."""
    evaluation.again_at(next_check := _check_after(clock.now(), pause, dag))
    return evaluation.evaluated_at is None or _check_after(evaluation.evaluated_at, pause, dag) != next_check


def _check_after(moment: datetime, pause: timedelta, dag: DAG) -> datetime:
    """The next of the moments, a pause apart, at which the schedd is asked about this DAG, however often its request is evaluated
    in between, and by which process. Those of different DAGs are spread."""
    step = pause.total_seconds()
    own = dag.pk.int % step
    return datetime.fromtimestamp(((moment.timestamp() - own) // step + 1) * step + own, UTC)


def _words(stuck: Mapping[str, UnbegunUnit], leave: list[str], seconds: int, *, former: bool) -> str:
    where, hours = units_at(stuck.values()), f"{seconds / 3600:.3g} h"
    why = f"no job of {where} has begun in {hours}, while others of the DAG began elsewhere"
    if former:
        return f"{why}; they stay, since the DAG was rendered by a former release: its jobs wait until they are removed"
    stay = len(stuck) - len(leave)
    leaving = f"{why}; {counted(len(leave), 'unit')} to land elsewhere"
    return f"{leaving}; {stay} stay: {STAY}" if stay else leaving
