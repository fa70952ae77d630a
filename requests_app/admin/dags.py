"""Buttons on DAGs: hold, release, remove, rescue; the services that the REST interface calls."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dags_app.models import DAG
from requests_app.pages import preview
from requests_app.services import dags as services
from requests_app.services.release import ReleaseMode, release_plan
from wms2.adapters.types import JobStatus
from wms2.admin import Verb, register_verbs
from wms2.words import counted

Data = Mapping[str, Any]


def _seen(dag: DAG) -> tuple[str, str]:
    held = dag.observed.get("job_status") == JobStatus.HELD and not services.why_not_steered(dag)
    return (f"{dag.status} held", f"{dag.get_status_display()}, on hold") if held else (dag.status, dag.get_status_display())


def _steered(dag: DAG) -> str:
    why = services.why_not_steered(dag)
    return f"It is {dag.get_status_display()}; it is not in the queue of a schedd." if why else ""


def _not_rescued(dag: DAG) -> str:
    why = services.why_not_rescued(dag)
    return f"{why[0].upper()}{why[1:]}." if why else ""


def _hold(dags: Sequence[DAG]) -> dict[uuid.UUID, list[str]]:
    return {
        dag.pk: [
            f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name}, its {counted(_inner(dag), 'inner one')} and their jobs"
            " that wait for a slot are put on hold. Jobs that run go on.",
            f"{dag.workflow.request_id} stays Active and alerts until the DAG is released. Nothing is lost.",
        ]
        for dag in dags
    }


def _release(dags: Sequence[DAG]) -> dict[uuid.UUID, list[str]]:
    return {
        dag.pk: [
            f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name}, its inner ones and the jobs that people hold are released;"
            " those that HTCondor itself holds are not.",
            "Each DAGMan reads its log again and goes on; HTCondor may let it wait some minutes before.",
        ]
        for dag in dags
    }


def _remove(dags: Sequence[DAG]) -> dict[uuid.UUID, list[str]]:
    told = preview.hold([dag.workflow.request for dag in dags])
    return {dag.pk: [f"{dag.workflow.request_id} is held:", *told[dag.workflow.request.pk]] for dag in dags}


def _rescue(dags: Sequence[DAG]) -> dict[uuid.UUID, list[str]]:
    found = {}
    for dag in dags:
        if services.why_not_rescued(dag):
            continue
        plan = release_plan(dag.workflow.request, ReleaseMode.RESCUE)
        found[dag.pk] = [
            f"{dag.workflow.request_id} is released: it is queued and goes on when its turn has come.",
            f"The same DAG goes on from its rescue file: {counted(plan.units_again, 'work unit')} run again,"
            f" {plan.units_done} are done and stay registered.",
        ]
    return found


def _inner(dag: DAG) -> int:
    return int(dag.observed.get("units_running") or 0)


def _perform(service: Callable[..., object]) -> Callable[[DAG, str, Data], object]:
    return lambda dag, actor, data: service(dag=dag, actor=actor, reason=data["reason"])


register_verbs(
    DAG,
    Verb("hold", "Hold", _hold, _steered, _perform(services.dag_hold), _seen),
    Verb("release", "Release", _release, _steered, _perform(services.dag_release), _seen),
    Verb("remove", "Remove, and hold the request", _remove, _steered, _perform(services.dag_remove), _seen),
    Verb("rescue", "Rescue", _rescue, _not_rescued, _perform(services.dag_rescue), _seen),
)
