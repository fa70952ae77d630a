"""Work units whose site starts none of their jobs, while others of their DAG begin: they land elsewhere (ADR 0099).

Only units of which nothing has begun leave, once in each submission, by what ends jobs that wait for days: the schedd puts those
that never began on hold, and scripts of the DAG do the rest. Owns the decision; not how a unit leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from dags_app.models import DAG
from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.layout import ELECTED_LOG, IDLE_TOO_LONG
from dags_app.payload.contract.scripts import avoided_sites
from dags_app.payload.post.resources import landing_sites
from dags_app.services.watch import sites_quiet
from dags_app.states import history
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from sites_app.schedds import adapter
from wms2 import clock
from wms2.adapters.types import UnbegunUnit
from wms2.conf import conf
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.words import counted

log = structlog.get_logger(__name__)
CODE = "site_starts_nothing"
#: Event type in DAGHistory.
UNITS_LEAVE = "units_leave"


def unbegun_watch(evaluation: Evaluation, dag: DAG) -> None:
    """Alert on sites that start nothing of this DAG while others do, and have its units leave them."""
    seconds, quiet = conf().unit_unbegun_seconds, sites_quiet(dag.jobs)
    if not seconds or not quiet or dag.schedd is None or dag.unanswered_since is not None:
        alert_over(evaluation, CODE)
        return
    evaluation.again_in(max(seconds / 4, conf().poll_seconds))
    condor = adapter(dag.schedd)
    try:
        waiting = condor.unbegun_units(str(dag.directory_id), dag.fence)
        long_ago = (clock.now() - timedelta(seconds=seconds)).timestamp()
        stuck = {name: unit for name, unit in waiting.items() if unit.site in quiet and unit.since_seconds <= long_ago}
        if not stuck:
            alert_over(evaluation, CODE)
            return
        leave = [name for name, unit in stuck.items() if _may_leave(dag, name, unit)]
        changed = condor.leave_site(str(dag.directory_id), dag.fence, leave) if leave else 0
    except (ServiceUnavailable, ServiceRejected, OSError) as error:
        log.warning("units that never began not looked at", dag_id=str(dag.pk), error=str(error))
        return
    what = _words(stuck, leave, seconds)
    if changed:
        with evaluation.fenced():
            history(dag, UNITS_LEAVE, detail={"units": sorted(leave)[:100], "jobs": changed, "why": what})
        log.warning("units leave a site that starts nothing", dag_id=str(dag.pk), units=len(leave), jobs=changed)
    alert(evaluation.request, "site_starts_nothing", what)


def _may_leave(dag: DAG, name: str, unit: UnbegunUnit) -> bool:
    """Whether nothing of it has ended at the site, it has not left one in this submission, and it has another."""
    place = Path(dag.submit_dir) / name
    begun = any(f"WMS2: {IDLE_TOO_LONG} " not in read_text(post) for post in place.glob("*.post.json"))
    if begun or not landing_sites(place) - avoided_sites(place) - {unit.site}:
        return False
    since = dag.submitted_at or dag.created_at
    return sum(moment >= since.replace(microsecond=0) for moment in _elections(read_text(place / ELECTED_LOG))) <= 1


def _elections(log_text: str) -> Iterable[datetime]:
    return [datetime.fromisoformat(line.split()[0]) for line in log_text.splitlines() if line.strip()]


def _words(stuck: Mapping[str, UnbegunUnit], leave: list[str], seconds: int) -> str:
    sites = Counter(unit.site for unit in stuck.values())
    where = ", ".join(f"{counted(number, 'work unit')} at {site}" for site, number in sorted(sites.items()))
    told = f"no job of {where} has begun in {seconds / 3600:.3g} h, while others of the DAG began elsewhere"
    stay = len(stuck) - len(leave)
    why = f"; {stay} stay: they have no other site, or have left one already" if stay else ""
    return f"{told}; {counted(len(leave), 'unit')} to land elsewhere{why}"
