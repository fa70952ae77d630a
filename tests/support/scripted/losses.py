"""What must hold of DAGs that an operator gave up as lost (ADR 0006), and which jobs of theirs may still run.

A lost DAG is never followed again: what it had done for certain counts, once; what it does later never does.
"""

from __future__ import annotations

import re

from dags_app.models import DAG, LIVE_DAG, DAGHistory, DAGStatus, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from tests.support.scripted.schedd import Job
from tests.support.scripted.world import World
from wms2.models import AuditEntry

#: Seconds, longer than the window in which nothing is suspected.
WINDOW = 1000


def dagmans_write(world: World) -> None:
    """Each DAGMan that lives writes its status file."""
    world.touch(*(job.directory / layout.OUTER_STATUS for job in world.schedd.live))


def jobs_by_key(world: World) -> dict[tuple[str, str], Job]:
    """By cluster and DAG: numbers begin again in a queue that was lost."""
    return {(str(job.cluster), job.dag_id): job for job in world.schedd.jobs}


def followed(world: World) -> list[Job]:
    """Jobs in the queue, but for those of lost DAGs, which run until the schedd has been asked to remove them."""
    live = world.schedd.live
    ended = DAG.objects.filter(pk__in=[job.dag_id for job in live]).exclude(status__in=LIVE_DAG)
    lost = {str(dag.pk) for dag in ended if dag.outcome.get("lost") and dag.lost_settled_at is None}
    gone = {str(dag.pk) for dag in ended}
    return [job for job in live if job.dag_id not in lost and not (job.put_back and job.dag_id in gone)]


def check(world: World) -> None:
    """Everything at once.

    Raises:
        AssertionError: says which DAG and what.
    """
    for dag in DAG.objects.filter(outcome__lost=True).select_related("schedd", "workflow"):
        name = f"{dag} of {dag.workflow.request_id}, lost"
        assert dag.status == DAGStatus.REMOVED, f"{name}, is {dag.status}"
        assert dag.lost_confirmed_at is not None, f"{name}, and nobody has said so"
        word = AuditEntry.objects.filter(action="schedd_confirm_lost", outcome="done", target=dag.schedd_name)
        assert word.exists(), f"{name}, and nobody has said so"
        reported = list(DAGHistory.objects.filter(dag=dag).values_list("event_type", flat=True))
        assert reported.count("lost") == 1, f"{name}: {reported}"
        _fenced_off(world, dag, name)
        _frozen(world, dag, name)
    _rescued_by_wish()


def _fenced_off(world: World, dag: DAG, name: str) -> None:
    """POST scripts in its directory refuse what it merges."""
    places = [job.directory for job in world.schedd.jobs if job.dag_id == str(dag.pk)]
    for place in places:
        text = (place / layout.FENCE_INCLUDE).read_text()
        fences = [int(number) for number in re.findall(r'WMS2_Fence="(\d+)"', text)]
        assert fences, f"{name}: {text}"
        assert min(fences) > dag.fence, f"{name}, fence {dag.fence}, may go on by {text}"


def _frozen(world: World, dag: DAG, name: str) -> None:
    """Nothing becomes done, in its round, by what it leaves later; only a rescue of it, which somebody wished, goes on there."""
    if DAG.objects.filter(round_id=dag.round_id, fence__gt=dag.fence).exists():
        return
    units = WorkUnit.objects.filter(round_id=dag.round_id)
    done = set(units.filter(state=WorkUnitState.DONE).values_list("pk", flat=True))
    # what was certainly done then may be accounted later, once somebody has mended its manifest
    owed = done | set(units.filter(state=WorkUnitState.DONE_UNACCOUNTED).values_list("pk", flat=True))
    then_done, then_owed = world.checked.setdefault(("lost", dag.pk), (done, owed))
    assert then_done <= done <= then_owed, f"{name}: units were done {then_done}, owed {then_owed}, and are now done {done}"


def _rescued_by_wish() -> None:
    """Jobs of a lost DAG may still write under the names of its round, so a release chooses other ones by itself."""
    for dag in DAG.objects.filter(parent_dag__outcome__lost=True, fence__gt=0).select_related("workflow"):
        effect_request = AuditEntry.objects.filter(target=dag.workflow.request_id, action="request_release", outcome="done")
        assert effect_request.filter(evidence__mode="rescue").exists(), (
            f"{dag} is a rescue of a lost DAG, and nobody asked for it"
        )


def check_at_rest(world: World) -> None:
    """The schedd has said of each lost DAG that it is gone, and nothing runs.

    Raises:
        AssertionError: says what is left.
    """
    unsettled = DAG.objects.filter(lost_confirmed_at__isnull=False, lost_settled_at__isnull=True).exclude(status__in=LIVE_DAG)
    assert not unsettled.exists(), f"lost, and nobody knows whether they are gone: {list(unsettled)}"
    assert not world.schedd.live, f"at rest, and these run: {[(j.request_name, j.fence) for j in world.schedd.live]}"
