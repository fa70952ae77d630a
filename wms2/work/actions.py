"""Operations on worker pools and workers, on shared resources and their leases, on bulk runs."""

from __future__ import annotations

from functools import partial

from wms2.actions import Action, Field, Kind, Owned, ResourceType, Role, declare, preview_each
from wms2.models import BulkRun, Resource, ResourceLease, Worker, WorkerPool, WorkerPoolState
from wms2.work.bulk import bulk_cancel, bulk_end_refused
from wms2.work.resources import lease_release, resource_set
from wms2.work.workers import pool_change, pool_change_refused, worker_shutdown


def _pool_action(name: str, label: str, state: WorkerPoolState, does: str, inverse: str) -> Action:
    return Action(
        name, label, does, partial(pool_change, state=state), refused=partial(pool_change_refused, state=state), path=name,
        inverse=inverse,
    )  # fmt: skip


declare(
    ResourceType(
        WorkerPool, "worker-pool", "pool", lambda queue: WorkerPool.objects.filter(pk=queue),
        lambda pool: (pool.state, pool.get_state_display()), "worker-pools/<schedd:pk>",
    ),
    _pool_action(
        "drain", "Drain", WorkerPoolState.DRAINING,
        "Its workers take no more tasks and finish those they have; then it is stopped, also for workers that start.", "resume",
    ),
    _pool_action("resume", "Resume", WorkerPoolState.STARTING, "Its workers take tasks again.", "drain"),
)  # fmt: skip

declare(
    ResourceType(
        Worker, "worker", "worker", lambda name: Worker.objects.filter(pk=name),
        lambda worker: (", ".join(worker.takes), ", ".join(worker.takes) or "takes nothing"), "workers/<schedd:pk>",
    ),
    Action(
        "shutdown", "Shut down",
        "Have a worker take no more tasks, and end once those that it has have. A supervisor may start it again.",
        worker_shutdown, path="shutdown",
    ),
)  # fmt: skip

declare(
    ResourceType(
        Resource, "resource", "row", lambda name: Resource.objects.filter(pk=name), lambda row: (str(row.units), str(row.units)),
        "resources/<schedd:pk>",
    ),
    Action(
        "units", "Change",
        "Say how many units of a resource there are. Leases that are out stay; with fewer units than they have, none is given"
        " until it fits.",
        resource_set, None,
        (Field("units", Kind.WHOLE, "how many there are in all", required=True, least=0, most=10**9),),
        initial=lambda row: {"units": row.units}, path="units", single=True, inverse="units",
    ),
)  # fmt: skip

declare(
    ResourceType(
        ResourceLease, "resource-lease", "lease", lambda key: ResourceLease.objects.filter(pk=key),
        lambda lease: (str(lease.pk), lease.holder),
    ),
    Action(
        "release", "Take back", "Take a lease away from the process that has it.", lease_release,
        preview_each(lambda lease: [f"{lease.process} has it for {lease.holder}, and goes on without."]), dangerous=True,
    ),
)  # fmt: skip

declare(
    ResourceType(
        BulkRun, "bulk-run", "run", lambda key: BulkRun.objects.filter(pk=key),
        lambda run: (str(run.ended_at), "ended" if run.ended_at else "running"), "bulk-runs/<uuid:pk>",
        owner=lambda run: Owned(users=frozenset({run.actor})),
    ),
    Action(
        "cancel", "Cancel",
        "Do nothing more of a bulk run. What was done stays; rows that are still waiting are left as they are.",
        bulk_cancel, refused=bulk_end_refused, path="cancel", stops=True,
        roles=(Role.REQUESTER, Role.SITE_ADMIN, Role.OPERATOR),
    ),
)  # fmt: skip
