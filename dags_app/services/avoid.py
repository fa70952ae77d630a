"""Keeping new work of a DAG away from banned, draining and closed sites (error-handling 6.5; ``avoid.inc``).

Written before each submission; what is in the queue already goes on. A DAG none of whose open units has a site left is not
submitted: it would only stand in the queue, with nobody knowing why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dags_app.models import DAG, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.planning import writer
from dags_app.states import history
from sites_app.statuses import sites_avoided
from wms2.errors import NoSite

_SITES = re.compile(rf'^VARS {layout.LANDING} sites="([^"]*)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Avoided:
    """Sites that a submission avoids, with the reasons, and the open units that have no site left."""

    reasons: dict[str, str]
    stranded: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(f"{site} is {why}" for site, why in sorted(self.reasons.items()))


def dag_avoid(dag: DAG) -> Avoided:
    """Write what the DAG must avoid from now on.

    Raises:
        NoSite: no open unit has a site left; nothing was written.
    """
    avoided = sites_avoided(dag.workflow_id)
    open_units = WorkUnit.objects.filter(round_id=dag.round_id).exclude(state=WorkUnitState.DONE)
    names = sorted(open_units.values_list("name", flat=True)) if avoided else []
    stranded = tuple(name for name in names if not landing_sites(Path(dag.submit_dir), name) - avoided.keys())
    found = Avoided(avoided, stranded)
    if stranded and len(stranded) == len(names):
        raise NoSite(f"a site: {found}")
    writer.write_avoid(Path(dag.submit_dir), avoided)
    if avoided:
        history(
            dag, "avoids", detail={"sites": avoided, "without_site": list(stranded[:20]), "units_without_site": len(stranded)}
        )
    return found


def landing_sites(directory: Path, unit: str) -> frozenset[str]:
    """Sites where a unit may land, as rendered."""
    found = _SITES.search((directory / unit / layout.INNER_DAG).read_text())
    return frozenset(found[1].split(",")) if found and found[1] else frozenset()
