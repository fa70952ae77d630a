"""Adopting: DAGMan jobs of ours whose rows a restored database lacks. Their requests are planned now, which takes them up.

A job's DAG id says which round, or which rescue, it runs. Planned again, that has the same id, and adopts the job if its
directory does the same work (``work.planner``, ``dags_app.services.submit``). Owns which request a job leads to, and having it
planned at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dags_app.planning.writer import written_fence
from dags_app.services.orphans import strays_preview
from dags_app.services.plan import rescue_id
from requests_app.admission.placement import dag_to_rescue
from requests_app.models import TERMINAL, Request, RequestStatus
from requests_app.services.common import recorded_operation
from requests_app.services.release import ReleaseMode, request_release
from requests_app.states import transition
from requests_app.work.planner import dag_id, submitted_before
from sites_app.models import Schedd
from wms2.audit import audit, refusals_audited
from wms2.errors import InvalidTransition

S = RequestStatus


@dataclass(frozen=True, slots=True)
class Stray:
    """A DAGMan job that no live DAG knows. ``request``: takes it up when it is planned now; ``words``: what becomes of it."""

    dag_id: str
    request: Request | None
    mode: ReleaseMode | None
    words: str


def strays_judged(schedd: Schedd) -> list[Stray]:
    """Of the jobs that two looks have found; reads rows and directories, asks no schedd."""
    return [_judged(each) for each in schedd.orphans_reported]


def adopt_preview(schedd: Schedd) -> list[str]:
    """The preview, a line each."""
    return [f"{line}. {each.words}" for line, each in zip(strays_preview(schedd), strays_judged(schedd), strict=True)]


def adopt_refused(schedd: Schedd) -> str:
    """Why nothing can be adopted; empty if something can."""
    if not schedd.orphans_reported:
        return "Two looks in a row have found no job there that no live DAG knows."
    judged = strays_judged(schedd)
    return "" if any(each.request for each in judged) else " ".join(dict.fromkeys(each.words for each in judged))


def schedd_adopt_strays(*, schedd: Schedd, actor: str, reason: str) -> None:
    """Have the requests of these jobs planned now, at this schedd, before the queue; the others stay.

    Raises:
        InvalidTransition: none can be adopted, or a request was changed meanwhile.
    """
    entry = partial(audit, actor=actor, action="schedd_adopt_strays", target=schedd.name, target_type="schedd", reason=reason)
    with refusals_audited(entry, InvalidTransition):
        if why := adopt_refused(schedd):
            raise InvalidTransition(why)
    for each in strays_judged(schedd):
        if (request := each.request) is None:
            continue
        if request.status == S.HELD:
            request_release(request=request, actor=actor, reason=reason, mode=each.mode)
        which = {"dag_id": each.dag_id, "schedd": schedd.name}
        with recorded_operation(request, actor, "request_adopt", reason, **which):
            if request.status == S.QUEUED:  # else it was admitted just now
                transition(
                    request, S.PLANNING, actor=actor, reason=reason, evidence=which, reserved_schedd=schedd, reserved_slots=1
                )
        entry(dag_id=each.dag_id, request=request.request_name)


def _judged(orphan: dict[str, object]) -> Stray:
    key, name = str(orphan["dag_id"]), str(orphan["request_name"])
    request = Request.objects.filter(request_name=name, workflow__isnull=False).select_related("workflow").first()
    if request is None:
        return Stray(key, None, None, f"Not adopted: no request {name or 'that it names'} with a workflow is known. Remove it.")
    workflow, last = request.workflow, dag_to_rescue(request)
    next_round, rescue = dag_id(workflow, workflow.rounds.count()), str(rescue_id(last)) if last is not None else ""
    if key == rescue and last is not None:
        seen, mode = written_fence(Path(last.submit_dir)) > workflow.fence_counter, ReleaseMode.RESCUE
    elif key == next_round:
        seen, mode = submitted_before(request, key) is not None, None
    elif last is not None and key == str(last.directory_id):
        return Stray(key, None, None, f"Jobs in the directory of {name}'s last DAG: of its rescue, if that is listed.")
    else:
        return Stray(key, None, None, f"Not adopted: neither the next round of {name} nor a rescue of its last DAG. Remove it.")
    if not seen:
        return Stray(key, None, None, f"Not adopted: the directory of this DAG of {name} is not seen from here. Remove it.")
    if request.status in (S.QUEUED, S.HELD):
        words = f"Adopted: {name} is planned now and takes it up if it does the work that is planned then; else {name} is held."
        return Stray(key, request, mode, words)
    ended = request.status in TERMINAL
    words = "Remove it" if ended else "It takes the job up when it comes to this DAG"
    return Stray(key, None, None, f"Not adopted: {name} is {request.get_status_display()}. {words}.")
