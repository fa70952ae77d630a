"""When the rules that protect files at their source end (ADR 0017): who else keeps the files is asked in bulk, then it is owed.

``source_rule_cleanup`` "expire": ``source_rule_days`` after the later of a tape rule's OK, of any maker, and the block's
validation; where a rule on disk alone keeps it, ``source_rule_days_without_tape`` after its validation, or never. Never by days
alone. The effect looks again before it deletes.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from django.db.models import Exists, OuterRef, Q, QuerySet

from outputs_app.effects.handler import comment_of
from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.models import BlockStatus, Effect, EffectKind, ProcessingBlock
from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
#: Blocks for which it is asked at a time; the next look goes on.
MOST = 1000


def source_rules_check() -> int:
    """Learn which tape rules have become OK, then ask for the end of the source rules whose time has come; of how many blocks."""
    if conf().source_rule_cleanup == "keep":
        return 0
    _check_tapes()
    blocks = list(_due(_check_others()).select_related("workflow__request")[:MOST])
    effect_requests = defaultdict[tuple[uuid.UUID, int], list[EffectRequest]](list)
    replacing = Effect.objects.filter(kind=EffectKind.RUCIO_SOURCE_BLOCK, block__in=blocks)  # after that no rule is made any more
    first = dict(replacing.values_list("block_id", "key"))
    for block in blocks:
        request, after = block.workflow.request, [first[block.pk]] if block.pk in first else []
        ends = EffectRequest(EffectKind.RUCIO_UNPROTECT, block.pk, after, block.pk)
        effect_requests[request.pk, request.epoch].append(ends)
    for (request_id, epoch), wanted in effect_requests.items():
        with row_by_itself("source rules", request_id, partial(_report, {"workflow__request__pk": request_id})):
            effects_enqueue(effect_requests=wanted, request_id=request_id, request_epoch=epoch)
    return len(blocks)


def _archived() -> QuerySet[ProcessingBlock]:
    """Blocks that are validated, and whose source rules have no end asked for."""
    asked = Effect.objects.filter(block=OuterRef("pk"), kind=EffectKind.RUCIO_UNPROTECT)
    rows = ProcessingBlock.objects.filter(~Exists(asked), status=BlockStatus.ARCHIVED)
    return rows.filter(validation__validated_at__isnull=False)


def _check_tapes() -> None:
    """One call for each request that waits for tape. What a silent Rucio does not say is asked again at the next look."""
    waiting = _archived().filter(tape_ok_at__isnull=True).exclude(tape_rule_id="")
    for name in map(str, waiting.order_by().values_list("workflow__request_id", flat=True).distinct()):
        with row_by_itself("source rules", name, partial(_report, {"workflow__request_id": name})):
            try:
                ok = factory.rucio().block_rules_ok(comment_of(name))
            except ServiceUnavailable as error:
                log.warning("tape rules not looked at", request_name=name, error=str(error))
                return
            waiting.filter(workflow__request_id=name, tape_rule_id__in=ok).update(tape_ok_at=clock.now())


def _check_others() -> set[uuid.UUID]:
    """Learn of blocks without a tape rule of ours that a rule of another account has on tape; those that a rule on disk
    alone keeps are returned. One call for 500 blocks."""
    rows = _archived().filter(tape_ok_at__isnull=True, tape_rule_id="").order_by("created_at")
    blocks = {name: (pk, source) for pk, name, source in rows.values_list("pk", "dbs_block_name", "source_rule_id")}
    if not blocks:
        return set()
    try:
        rucio = factory.rucio()
        kept, tapes = rucio.blocks_kept(list(blocks)), rucio.tapes()
    except ServiceUnavailable as error:
        log.warning("rules of others not looked at", error=str(error))
        return set()
    on_tape = {blocks[name][0] for name, locks in kept.items() if any(lock.rse in tapes for lock in locks)}
    ProcessingBlock.objects.filter(pk__in=on_tape).update(tape_ok_at=clock.now())
    return {pk for name, (pk, source) in blocks.items() if any(lock.rule_id != source for lock in kept[name])} - on_tape


def _report(blocks: dict[str, Any], problem: str) -> None:
    _archived().filter(**blocks).update(rucio_last_error=problem)


def _due(on_disk: Collection[uuid.UUID]) -> QuerySet[ProcessingBlock]:
    now, settings = clock.now(), conf()
    long_ago = now - timedelta(days=settings.source_rule_days)
    due = Q(tape_ok_at__lte=long_ago, validation__validated_at__lte=long_ago)
    if settings.source_rule_days_without_tape:
        without = now - timedelta(days=settings.source_rule_days_without_tape)
        due |= Q(pk__in=on_disk, tape_rule_id="", validation__validated_at__lte=without)
    return _archived().filter(due).order_by("created_at")
