"""Work units of which nothing has begun at their site land elsewhere (ADR 0005): which may, and an operator's operation for it.

The schedd ends the jobs that never began as it ends jobs that wait for days; scripts of the DAG do the rest. Does not own when
units leave by themselves: ``requests_app.lifecycle.unbegun``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from dags_app.models import DAG
from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.layout import AVOID_INCLUDE, IDLE_ATTRIBUTE, IDLE_TOO_LONG, PROCESSING_SUBMIT
from dags_app.payload.contract.scripts import avoided_sites, elected_site, listed_sites
from dags_app.payload.post.resources import landing_sites
from dags_app.services import dag_files
from dags_app.services.stop import condor_of, steer_refused
from dags_app.states import history
from wms2.adapters.types import JOB_IDLE, JOB_RUNNING, UnbegunUnit
from wms2.audit import audit, refusals_audited
from wms2.errors import InvalidTransition, ServiceError
from wms2.runtime import clock
from wms2.runtime.due import mark_due_now
from wms2.web.formatting import counted

#: Event type in DAGHistory.
UNITS_LEAVE = "units_leave"
STAY = "they have no other site, have ended a job there, or their retry is used or not known"


def may_leave(dag: DAG, stuck: Mapping[str, UnbegunUnit], without: Collection[str] = ()) -> list[str]:
    """Those that have another site, none of ``without``, have ended nothing at this one, and whose one retry, which it takes, is
    not used: as DAGMan has written since their jobs are in the queue."""
    status = dag_files.status(Path(dag.dag_file_path), [])
    if status is None:
        return []
    fresh = {node.name for node in status.nodes if node.retries == 0}
    return [
        name
        for name, unit in stuck.items()
        if name in fresh and unit.since_seconds <= status.written_at
        if (landing_sites(place := Path(dag.submit_dir, name)) - avoided_sites(place) - {unit.site, *without})
        and all(f"WMS2: {IDLE_TOO_LONG} " in read_text(post) for post in place.glob("*.post.json"))
    ]


def units_leaving(dag: DAG) -> set[str]:
    """Units made to leave in this submission that avoid their site and are still pinned to it: DAGMan still submits jobs there
    that were throttled meanwhile."""
    recorded = dag.history.filter(event_type=UNITS_LEAVE).values_list("detail__units", flat=True)
    places = {name: Path(dag.submit_dir) / name for units in recorded for name in units}
    return {name for name, place in places.items() if elected_site(place) in listed_sites(place / AVOID_INCLUDE)}


def of_former_release(dag: DAG) -> bool:
    """Whether its jobs were rendered without the attribute by which they leave."""
    return IDLE_ATTRIBUTE not in read_text(Path(dag.submit_dir) / PROCESSING_SUBMIT)


def units_at(stuck: Iterable[UnbegunUnit]) -> str:
    """How many at which sites, in words."""
    sites = Counter(unit.site for unit in stuck)
    return ", ".join(f"{counted(number, 'work unit')} at {site}" for site, number in sorted(sites.items()))


def leave_refused(dag: DAG) -> str:
    """Why no unit of it can leave its site, as far as its row says; empty if one may."""
    if why := steer_refused(dag):
        return why
    return "" if _sites_waiting(dag, quiet=False) else "None of its jobs waits for a slot."


def leave_preview(dag: DAG) -> list[str]:
    """What leaving does, as its schedd and its files say now."""
    if leave_refused(dag):
        return []
    try:
        stuck, leave = _units(dag, _sites_waiting(dag))
    except (ServiceError, InvalidTransition) as error:
        return [f"Which units those are is not known: {error}"]
    stay = f"{counted(len(stuck) - len(leave), 'unit')} like that stay: {STAY}."
    return [
        f"{units_at(stuck[name] for name in leave) or 'No work unit'}: nothing has begun, so they land at another site.",
        *([stay] if len(stuck) > len(leave) else []),
        "Their jobs are put on hold within a minute and removed; it takes the one retry that a unit has in a submission.",
    ]


def dag_leave_sites(*, dag: DAG, actor: str, reason: str, sites: Collection[str] = (), units: Collection[str] = ()) -> None:
    """Have units of which nothing has begun land elsewhere, without waiting for ``unit_unbegun_seconds``: those at these sites,
    or with these names, else those at all sites at which jobs of the DAG wait and none runs. Done twice it is done once.

    Raises:
        InvalidTransition: it is not in a queue, or there is no such unit.
        ServiceUnavailable, ServiceRejected: the schedd did not do it.
    """
    record = partial(audit, actor=actor, action="dag_leave_sites", target=dag.pk, target_type="dag", reason=reason)
    with refusals_audited(record, InvalidTransition, ServiceError):
        stuck, leave = _units(dag, sites or _sites_waiting(dag, quiet=not units))
        leave = [name for name in leave if not units or name in units]
        if not leave:
            where = f"; {units_at(stuck.values())} stay: {STAY}" if stuck else ""
            raise InvalidTransition(f"DAG {dag.pk}: no unit of which nothing has begun can land elsewhere{where}")
        changed = condor_of(dag).leave_site(str(dag.directory_id), dag.fence, leave)
    if changed:
        what = f"{actor}: {reason}; {units_at(stuck[name] for name in leave)}"
        history(dag, UNITS_LEAVE, detail={"units": sorted(leave)[:100], "jobs": changed, "why": what})
        mark_due_now(dag.workflow.request.pk, "dag_leave_sites")
    record(units=len(leave), jobs=changed, request=dag.workflow.request_id)


def _sites_waiting(dag: DAG, *, quiet: bool = True) -> set[str]:
    """Where jobs of the DAG wait; ``quiet``: and none runs."""
    states = dag.jobs.get("sites", {})
    return {site for site, jobs in states.items() if jobs.get(JOB_IDLE) and not (quiet and jobs.get(JOB_RUNNING))}


def _units(dag: DAG, sites: Collection[str]) -> tuple[Mapping[str, UnbegunUnit], list[str]]:
    """Units of which nothing has begun at these sites, and those of them that may leave."""
    if of_former_release(dag):
        raise InvalidTransition(f"DAG {dag.pk} was rendered by a former release; its jobs wait until they are removed")
    stuck = condor_of(dag).unbegun_units(str(dag.directory_id), dag.fence, sites, int(clock.now().timestamp()))
    return stuck, may_leave(dag, stuck)
