"""Pileup that moves while a DAG runs for weeks: its units land where it lies by now (ADR 0005).

MSPileup moves pileup between sites. Where it is gone, jobs would fail, or read it over the network. Owns the look, and what
follows for units that have not begun; what has begun goes on. Not here: a DAG that is submitted again
(``dags_app.services.submit``), which avoids such sites anew.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import structlog

from dags_app.models import DAG
from dags_app.payload.contract.layout import AVOID_INCLUDE
from dags_app.payload.contract.scripts import listed_sites
from dags_app.planning.pileup import pileup_sites
from dags_app.services.leave_site import STAY, UNITS_LEAVE, may_leave, of_former_release, units_at
from dags_app.services.submit import dag_avoid, units_open
from dags_app.states import history
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.lifecycle.unbegun import check_is_due
from requests_app.work.pileup import pileup_resolve
from requests_app.work.spec import spec_of
from sites_app.models import Schedd
from sites_app.schedds import adapter
from wms2.adapters.types import UnbegunUnit
from wms2.errors import PlanningRefused, ServiceRejected, ServiceUnavailable, StaleState
from wms2.runtime import clock
from wms2.web.formatting import counted

#: Where the pileup of a DAG that runs lies is looked at so often; what is known of it is ``PILEUP_CACHE_SECONDS`` old at most.
CHECK_SECONDS = 3600.0
CODE = "pileup_elsewhere"
#: Event type in DAGHistory: what is still to land avoids sites that have lost the pileup.
PILEUP_LEFT = "pileup_left"

log = structlog.get_logger(__name__)


class _Open(NamedTuple):
    """Units that are not done, as far as the pileup matters: their landing sites by name. ``lost``: sites of theirs without it.
    ``none``: those of them that have no site with it; ``barred``: some have one that the DAG avoids."""

    to_land: dict[str, frozenset[str]]
    landed: dict[str, frozenset[str]]
    lost: frozenset[str]
    none: set[str]
    barred: bool


def pileup_watch(evaluation: Evaluation, dag: DAG, schedd: Schedd) -> None:
    """Have units land where their pileup is by now, and alert on those that cannot. While the DAG's schedd answers."""
    workflow = evaluation.request.workflow
    mixes = any(step.get("pileup") for step in workflow.spec.get("steps", ()))  # without reading all of it
    if not mixes or not check_is_due(evaluation, dag, timedelta(seconds=CHECK_SECONDS)):
        return
    try:
        spec, why = spec_of(workflow), ""
        places = pileup_sites(spec, pileup_resolve(spec))
    except PlanningRefused as error:  # no site has it, or it is not to be mixed any more
        places, why = frozenset[str](), f": {error}"
    except ServiceUnavailable as error:
        log.warning("where the pileup is by now is not known", dag_id=str(dag.pk), error=str(error))
        return
    if places is None:
        alert_over(evaluation, CODE)
        return
    units = _open(dag, places)
    short = [name for name in units.to_land if name in units.none]
    try:
        _avoid(evaluation, dag, units)
        stay = _leave(evaluation, dag, schedd, units)
    except (ServiceUnavailable, ServiceRejected, StaleState, OSError) as error:
        log.warning("units not moved to where the pileup is", dag_id=str(dag.pk), error=str(error))
        return
    what = [f"{counted(len(short), 'work unit')} without a site that has the pileup"] if short else []
    what += [f"{units_at(stay.values())}, of which nothing has begun, stay: {STAY}"] if stay else []
    if what:
        lost = f"; short of it by now: {', '.join(sorted(units.lost))}"
        alert(evaluation.request, CODE, f"{'; '.join(what)}{lost}{why}"[:4000])
    elif not units.barred:
        alert_over(evaluation, CODE)


def _open(dag: DAG, places: frozenset[str]) -> _Open:
    avoided = listed_sites(Path(dag.submit_dir) / AVOID_INCLUDE)
    to_land, landed, lost = {}, {}, set[str]()
    for name, (site, lands) in units_open(dag).items():
        if site is None:
            to_land[name] = lands
        elif site not in places:
            landed[name] = lands
            lost.add(site)
    lands_of = to_land | landed
    without = {name for name, lands in lands_of.items() if not (lands - avoided) & places}
    barred = {name for name in without if not lands_of[name] - avoided and lands_of[name] & places}
    lost |= frozenset().union(*lands_of.values()) - places
    return _Open(to_land, landed, frozenset(lost), without - barred, bool(barred))


def _avoid(evaluation: Evaluation, dag: DAG, units: _Open) -> None:
    """Sites without the pileup, as long as every unit keeps one that has it: for those that have none, none is better."""
    lands = units.to_land | units.landed
    avoid = units.lost.difference(*(lands[name] for name in units.none))
    if not avoid:
        return
    new = avoid - listed_sites(Path(dag.submit_dir) / AVOID_INCLUDE)
    changed = dag_avoid(dag, avoid)
    if new:
        with evaluation.fenced():
            history(dag, PILEUP_LEFT, detail={"sites": sorted(new), "landings": changed})
        log.warning("pileup has left sites of a DAG", dag_id=str(dag.pk), sites=sorted(new))


def _leave(evaluation: Evaluation, dag: DAG, schedd: Schedd, units: _Open) -> dict[str, UnbegunUnit]:
    """Have units that have landed without the pileup, and of which nothing has begun, land elsewhere; those that cannot."""
    if not units.landed:
        return {}
    condor = adapter(schedd)
    asked = condor.unbegun_units(str(dag.directory_id), dag.fence, units.lost, int(clock.now().timestamp()))
    stuck = {name: unit for name, unit in asked.items() if name in units.landed}
    movable = {name: unit for name, unit in stuck.items() if name not in units.none}
    leave = [] if of_former_release(dag) else may_leave(dag, movable, without=units.lost)
    if leave and (changed := condor.leave_site(str(dag.directory_id), dag.fence, leave)):
        why = f"{units_at(stuck[name] for name in leave)} to land elsewhere: the pileup is no more where they have landed"
        with evaluation.fenced():
            history(dag, UNITS_LEAVE, detail={"units": sorted(leave)[:100], "jobs": changed, "why": why})
        log.warning("units leave a site without their pileup", dag_id=str(dag.pk), units=len(leave), jobs=changed)
    return {name: unit for name, unit in stuck.items() if name not in leave}
