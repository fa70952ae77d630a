"""Some rows for every list of the REST interface, each unlike the others where the list can be ordered or filtered."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from outputs_app.models import EffectState, FindingKind, IntegrityCase, Placement
from requests_app.alert_rows import AlertSubject
from requests_app.alerts import alert
from requests_app.models import (
    AdmissionLimit,
    Alert,
    AlertChannel,
    ChannelKind,
    Harvest,
    HarvestState,
    RequestGroup,
    RequestStatus,
    Severity,
)
from sites_app.models import Site, SystemicAlert
from tests.support.rows import drift_row, new_block, new_effect, pool_row, request_row, schedd_row, unit_row
from wms2.models import BulkItem, BulkRun, Resource, ResourceLease, Worker, WorkerPool

ROWS = 5
_STATUSES = (RequestStatus.COMPLETED, RequestStatus.QUEUED, RequestStatus.HELD, RequestStatus.ACTIVE, RequestStatus.NEW)


def make_rows() -> None:
    """``ROWS`` rows in each list at least."""
    for index, status in enumerate(_STATUSES):
        _make(index, status)


def _make(index: int, status: RequestStatus) -> None:
    now, name = timezone.now() - timedelta(minutes=index), f"row-{index}"
    group = RequestGroup.objects.create(name=name, created_by="olga")
    request = request_row(status, campaign=name, requestor=name, group=name, priority=100 * index, in_group=group)
    block = new_block(units=2, done=1)  # with workflow, DAG and dataset
    unit_row(block.workflow.dags.get(), 7)
    new_effect(EffectState.DEAD, request=request, block=block, last_error="503")
    drift_row(block, name=name)
    IntegrityCase.objects.create(
        request=block.workflow.request, block=block, name=name, site=name, prognosis=FindingKind.ZERO_EVENTS, evidence=[]
    )
    Placement.objects.create(campaign=name, tier=name)
    Site.objects.create(name=f"T2_XX_{index}", total_slots=index)
    SystemicAlert.objects.create(pool=name, holds=True, reason=name, began_at=now, ended_at=now)
    schedd_row(f"{name}@host", pool=name)
    pool_row(name)
    Harvest.objects.create(request=request, dataset=f"/A/{name}/DQMIO", state=HarvestState.FAILED, next_try_at=now)
    alert(request, f"slow_{index}", name, AlertSubject(site=name, schedd=name))
    Alert.objects.filter(subject=request.request_name).update(
        owner=name if index else "", severity=list(Severity)[index % 3], since=now, silenced_until=now + timedelta(hours=index),
        ended_at=now if index > 3 else None,
    )  # fmt: skip
    kind = list(ChannelKind)[index % 4]
    channel = AlertChannel.objects.create(
        name=name, kind=kind, address="a@b.ch", enabled=index > 0, created_at=now, created_by="olga"
    )
    channel.routes.create(actor=name, created_at=now)
    AdmissionLimit.objects.create(kind="campaign", name=name, max_dags=index)
    run = BulkRun.objects.create(
        resource="request", operation="hold", data={}, actor="olga", reason=name, total=1, created_at=now
    )
    BulkItem.objects.create(run=run, position=index, key=str(request.pk), name=name, seen="queued")
    WorkerPool.objects.update_or_create(queue=name)
    Worker.objects.create(name=name, started_at=now, heartbeat_at=now)
    resource = Resource.objects.create(name=name, units=3)
    ResourceLease.objects.create(
        resource=resource, units=1, holder=name, process=name, ttl_seconds=60, taken_at=now, heartbeat_at=now,
        expires_at=now + timedelta(hours=1),
    )  # fmt: skip
