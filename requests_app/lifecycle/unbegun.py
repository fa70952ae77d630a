"""Work units whose site starts none of their jobs, while others of their DAG begin: they land elsewhere (ADR 0099).

Only units of which nothing has begun leave, once in each submission, since it takes their retry, by what ends jobs that wait for
days: the schedd puts those that never began on hold, and scripts of the DAG do the rest. Owns the decision, not how it leaves.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from dags_app.models import DAG
from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.layout import IDLE_ATTRIBUTE, IDLE_TOO_LONG, PROCESSING_SUBMIT
from dags_app.payload.contract.scripts import avoided_sites
from dags_app.payload.post.resources import landing_sites
from dags_app.services import dag_files
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
#: When this process last asked for the units of a DAG: whatever its request is evaluated for, it asks no sooner.
_LOOKED: dict[uuid.UUID, datetime] = {}


def unbegun_watch(evaluation: Evaluation, dag: DAG) -> None:
    """Alert on sites that start nothing of this DAG while others do, and have its units leave them."""
    if dag.schedd is None or dag.unanswered_since is not None:
        return  # nothing is known that an alert could be over by
    seconds, quiet = conf().unit_unbegun_seconds, sites_quiet(dag.jobs)
    if not seconds or not quiet:
        alert_over(evaluation, CODE)
        return
    pause, now = timedelta(seconds=max(seconds / 4, conf().poll_seconds)), clock.now()
    if (looked := _LOOKED.get(dag.pk)) is not None and looked <= now < looked + pause:
        evaluation.again_at(looked + pause)
        return
    evaluation.again_at(now + pause)
    condor = adapter(dag.schedd)
    try:
        stuck = condor.unbegun_units(str(dag.directory_id), dag.fence, quiet, int(now.timestamp() - seconds))
        for pk in [pk for pk, at in _LOOKED.items() if at < now - pause]:
            del _LOOKED[pk]
        _LOOKED[dag.pk] = now
        if not stuck:
            alert_over(evaluation, CODE)
            return
        former = IDLE_ATTRIBUTE not in read_text(Path(dag.submit_dir) / PROCESSING_SUBMIT)
        leave = [] if former else _may_leave(dag, stuck)
        changed = condor.leave_site(str(dag.directory_id), dag.fence, leave) if leave else 0
    except (ServiceUnavailable, ServiceRejected, OSError) as error:
        log.warning("units that never began not looked at", dag_id=str(dag.pk), error=str(error))
        return
    what = _words(stuck, leave, seconds, former=former)
    if changed:
        with evaluation.fenced():
            history(dag, UNITS_LEAVE, detail={"units": sorted(leave)[:100], "jobs": changed, "why": what})
        log.warning("units leave a site that starts nothing", dag_id=str(dag.pk), units=len(leave), jobs=changed)
    alert(evaluation.request, "site_starts_nothing", what)


def _may_leave(dag: DAG, stuck: Mapping[str, UnbegunUnit]) -> list[str]:
    """Those that have another site, have ended nothing at this one, and whose one retry, which it takes, is not used: as DAGMan
    has written since their jobs are in the queue."""
    status = dag_files.status(Path(dag.dag_file_path), [])
    if status is None:
        return []
    fresh = {node.name for node in status.nodes if node.retries == 0}
    return [
        name
        for name, unit in stuck.items()
        if name in fresh and unit.since_seconds <= status.written_at and _elsewhere(Path(dag.submit_dir) / name, unit.site)
    ]


def _elsewhere(place: Path, site: str) -> bool:
    begun = any(f"WMS2: {IDLE_TOO_LONG} " not in read_text(post) for post in place.glob("*.post.json"))
    return not begun and bool(landing_sites(place) - avoided_sites(place) - {site})


def _words(stuck: Mapping[str, UnbegunUnit], leave: list[str], seconds: int, *, former: bool) -> str:
    sites = Counter(unit.site for unit in stuck.values())
    where = ", ".join(f"{counted(number, 'work unit')} at {site}" for site, number in sorted(sites.items()))
    told = f"no job of {where} has begun in {seconds / 3600:.3g} h, while others of the DAG began elsewhere"
    if former:
        return f"{told}; they stay, since the DAG was rendered by a former release: its jobs wait for job_idle_seconds"
    stay = len(stuck) - len(leave)
    why = f"; {stay} stay: they have no other site, have ended a job there, or their retry is used or not known" if stay else ""
    return f"{told}; {counted(len(leave), 'unit')} to land elsewhere{why}"
