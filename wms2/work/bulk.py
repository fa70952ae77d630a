"""One operation over many rows: asked once, done by workers in portions, with a result for each row (ADR 0027).

A run and its items are rows, so a run goes on after any crash, can be left and come back to, and is cancelled by its row. Each
item is done in one transaction with its result: at most once, by as many workers as are free. A row that has changed since the
run was asked for is left alone, as on the admin's page of confirmation.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import structlog
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import Count, JSONField, QuerySet

from wms2.actions import REFUSALS, Action, ResourceType, arguments, decision_basis, perform, resource_types
from wms2.api.actions import input_serializer
from wms2.api.problems import flattened, several
from wms2.audit import audit, audited
from wms2.errors import InvalidTransition
from wms2.identities.grants import denial, may, require
from wms2.identities.service_accounts import ended_because
from wms2.models import BulkItem, BulkResult, BulkRun
from wms2.runtime import clock
from wms2.runtime.notify import RUN_BULK, notify
from wms2.runtime.passes import row_by_itself
from wms2.work.workers import may_take

log = structlog.get_logger(__name__)
QUEUE = "effects"
#: Rows of one run.
MOST_ROWS = 10_000
_PORTION = 500
_ENDED = "It has ended."
#: Reasons that a preview lists.
_MOST_REASONS = 20


class BulkPreview(NamedTuple):
    """What a run would do, as far as can be said before. ``meant`` stands for the rows: others have another one."""

    rows: int
    acting: int
    refused: Mapping[str, int]
    meant: str


def bulk_preview(action: Action, rows: QuerySet[Any], user: Any) -> BulkPreview:
    """How many rows there are, to how many the operation applies now, and why not to the others (reason -> rows)."""
    judged = may(user, action)  # to others is said what it would do, not that they may not
    reasons, keys = Counter[str](), list[str]()
    for row in _light(rows).iterator(_PORTION):
        reasons[(judged and denial(user, action, row)) or str(action.refused(row))] += 1
        keys.append(str(row.pk))
    total, acting = reasons.total(), reasons.pop("", 0)
    return BulkPreview(total, acting, dict(reasons.most_common(_MOST_REASONS)), _meant(keys))


def bulk_begin(
    *,
    resource_type: ResourceType,
    action: Action,
    rows: QuerySet[Any],
    data: Mapping[str, Any],
    expected: int | None,
    actor: str,
    user: Any,
    meant: str = "",
    key: uuid.UUID | None = None,
) -> BulkRun:
    """Write a run down, and have workers begin. Who may do it is judged now, for all rows or none.

    Args:
        data: the operation's input as it came, already validated.
        expected: rows that the caller has seen; None: any number.
        user: whose roles hold for every row.
        meant: which rows the caller has seen, as the preview says it; empty: any.
        key: of the new run.

    Raises:
        PermissionDenied: they do not, for this row.
        InvalidTransition: there are no rows, too many, or others than were expected.
        IntegrityError: there is a run of this key.
    """
    reason = str(data["reason"])
    with audited(
        actor=actor, action=f"bulk_{action.name}", target=resource_type.name, target_type="bulk", reason=reason, expected=expected
    ):  # fmt: skip
        found = []
        for row in islice(_light(rows).iterator(_PORTION), MOST_ROWS + 1):
            require(user, action, row, data)
            found.append((str(row.pk), str(row), decision_basis(action, row)[0]))
        if not found:
            raise InvalidTransition("no row is meant")
        if len(found) > MOST_ROWS:
            raise InvalidTransition(f"more than {MOST_ROWS:,} rows are meant; narrow the filter")
        if expected is not None and len(found) != expected:
            raise InvalidTransition(f"{len(found):,} rows are meant by now, not {expected:,}; look again")
        if meant and meant != _meant(key for key, _, _ in found):
            raise InvalidTransition("other rows are meant by now; look again")
        run = BulkRun.objects.create(
            id=key or uuid.uuid4(), resource=resource_type.name, operation=action.name, data=dict(data), actor=actor,
            reason=reason, created_at=clock.now(), total=len(found),
        )  # fmt: skip
        BulkItem.objects.bulk_create(
            (
                BulkItem(run=run, position=position, key=key, name=name[:300], seen=seen[:300])
                for position, (key, name, seen) in enumerate(found)
            ),
            batch_size=1000,
        )
        notify(RUN_BULK)
    return run


def bulk_cancel(*, run: BulkRun, actor: str, reason: str) -> None:
    """Do nothing more of a run; what was done stays. Raises InvalidTransition: it has ended."""
    with audited(actor=actor, action="bulk_cancel", target=run.pk, target_type="bulk", reason=reason):
        if BulkRun.objects.filter(pk=run.pk, ended_at=None).update(ended_at=clock.now(), cancelled=f"{actor}: {reason}") != 1:
            raise InvalidTransition(_ENDED)


def bulk_end_refused(run: BulkRun) -> str:
    """Why a run cannot be cancelled; empty if it can."""
    return _ENDED if run.ended_at else ""


def bulk_counts(runs: list[Any]) -> dict[Any, dict[str, int]]:
    """Run -> result -> items, of all results. One query."""
    found = {run: dict.fromkeys(BulkResult.values, 0) for run in runs}
    rows = BulkItem.objects.filter(run__in=runs).order_by().values_list("run", "result").annotate(n=Count("pk"))
    for run, result, number in rows:
        found[run][result] = number
    return found


def bulk_go_on(seconds: float) -> None:
    """Do what waits, the oldest run first, for some time."""
    ends = time.monotonic() + seconds
    for run in BulkRun.objects.filter(ended_at=None).order_by("created_at"):
        with row_by_itself("bulk runs", run, partial(_report, run)):
            _go_on(run, ends)


def _report(run: BulkRun, problem: str) -> None:
    BulkRun.objects.filter(pk=run.pk).update(problem=problem)


def _go_on(run: BulkRun, ends: float) -> None:
    user = get_user_model().objects.select_related("service_account__owner").filter(username=run.actor).first()
    if why := ended_because(user) if user else f"there is no user {run.actor} any more":
        bulk_cancel(run=run, actor="wms2", reason=why)
        return
    try:
        resource_type, action = _declared(run)
        given = _given(action, run)
    except REFUSALS as error:
        run.items.filter(result=BulkResult.WAITING).update(result=BulkResult.REFUSED, message=str(error), at=clock.now())
    else:
        while time.monotonic() < ends and may_take(QUEUE) and _next(run, resource_type, action, given):
            pass
    if not run.items.filter(result=BulkResult.WAITING).exists():
        _end(run)


def _declared(run: BulkRun) -> tuple[ResourceType, Action]:
    for resource_type in resource_types():
        for action in resource_type.actions:
            if action.many and (resource_type.name, action.name) == (run.resource, run.operation):
                return resource_type, action
    raise InvalidTransition(f"this release has no {run.operation} of many ({run.resource})")


def _given(action: Action, run: BulkRun) -> dict[str, Any]:
    serializer = input_serializer(action)(data=run.data)
    if not serializer.is_valid():
        raise InvalidTransition(several(tuple(flattened(serializer.errors))))
    return arguments(action, serializer.validated_data)


def _next(run: BulkRun, resource_type: ResourceType, action: Action, given: Mapping[str, Any]) -> bool:
    """One item, with its result; False: none is left, others are at all of them, or the run was cancelled."""
    with transaction.atomic():
        # asked for each item, so that a run which is cancelled meanwhile begins no further one
        waiting = run.items.select_for_update(skip_locked=True, of=("self",)).filter(result="waiting", run__ended_at=None)
        item = waiting.order_by("position").first()
        if item is None:
            return False
        with row_by_itself("items of bulk runs", item, partial(_broke, item)), transaction.atomic():
            item.result, item.message = _do(item, resource_type, action, run, given)
        if item.result == BulkResult.WAITING:  # its row is locked: tried again with the next portion
            return False
        item.at = clock.now()
        item.save(update_fields=("result", "message", "at"))
    return True


def _broke(item: BulkItem, problem: str) -> None:
    item.result, item.message = BulkResult.BROKEN, problem


def _do(
    item: BulkItem, resource_type: ResourceType, action: Action, run: BulkRun, given: Mapping[str, Any]
) -> tuple[BulkResult, str]:
    try:
        row = resource_type.model._default_manager.get(pk=item.key)
    except ObjectDoesNotExist:
        return BulkResult.REFUSED, "It is gone."
    value, label = decision_basis(action, row)
    if value[:300] != item.seen:
        return BulkResult.REFUSED, f"It has changed since it was selected: it is {label} now."
    if action.repeated(row, run.actor, given):
        return BulkResult.DONE, ""
    try:
        perform(action, row, run.actor, given)
    except REFUSALS as error:
        return BulkResult.REFUSED, str(error)
    return BulkResult.DONE, ""


def _end(run: BulkRun) -> None:
    if BulkRun.objects.filter(pk=run.pk, ended_at=None).update(ended_at=clock.now()):
        counts = bulk_counts([run.pk])[run.pk]
        audit(actor=run.actor, action="bulk_ended", target=run.pk, target_type="bulk", reason=run.reason, rows=counts)
        log.info("bulk run ended", run=str(run.pk), resource=run.resource, operation=run.operation, **counts)


def _meant(keys: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:32]


def _light(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Without documents, which are large and seldom what an operation looks at."""
    return rows.defer(*(field.name for field in rows.model._meta.fields if isinstance(field, JSONField)))
