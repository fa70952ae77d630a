"""Blocks of a request are compared with DBS and Rucio, one effect each; what differs becomes integrity cases."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import Count, Sum

from outputs_app.asking import Wish, effects_ask
from outputs_app.models import OPEN_CASE, BlockStatus, BlockValidation, EffectKind, IntegrityCase, ProcessingBlock
from wms2 import clock


@dataclass(frozen=True, slots=True)
class ValidationProgress:
    """Of one request. ``waiting_for``: what is still to be looked at, in words."""

    blocks: int
    validated: int
    files: int
    files_done: int
    open_cases: int
    waiting_for: str


def validation_tend(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> ValidationProgress:
    """Ask that blocks be compared that are not validated; how far that is. In the caller's transaction, as often as one likes."""
    blocks = ProcessingBlock.objects.filter(workflow_id=workflow_id, status=BlockStatus.ARCHIVED)
    new = [BlockValidation(block=block, asked_at=clock.now()) for block in blocks.filter(validation=None)]
    BlockValidation.objects.bulk_create(new, ignore_conflicts=True)
    rows = BlockValidation.objects.filter(block__in=blocks)
    open_cases = IntegrityCase.objects.filter(request_id=request_id, state__in=OPEN_CASE).count()
    waiting = rows.filter(validated_at__isnull=True).select_related("block")
    wishes = [Wish(EffectKind.BLOCK_VALIDATE, f"{row.block_id}:{row.generation}", block=row.block) for row in waiting]
    effects_ask(wishes=wishes, request_id=request_id, request_epoch=request_epoch)
    sums = blocks.aggregate(blocks=Count("pk", distinct=True), files=Count("files"))
    done = blocks.filter(validation__validated_at__isnull=False).aggregate(
        validated=Count("pk", distinct=True), files_done=Count("files")
    )
    return ValidationProgress(**sums, **done, open_cases=open_cases, waiting_for="")


def events_in_catalogue(workflow_id: uuid.UUID) -> dict[str, tuple[int, int]]:
    """Dataset -> valid files and events in DBS, of validated blocks."""
    rows = BlockValidation.objects.filter(block__workflow_id=workflow_id, validated_at__isnull=False).order_by()
    totals = rows.values_list("block__dataset_name").annotate(number=Sum("files"), total=Sum("events"))
    return {dataset: (number, events) for dataset, number, events in totals}
