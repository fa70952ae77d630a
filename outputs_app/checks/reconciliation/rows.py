"""What our rows say of blocks, for which of them nothing is under way, and the rows of differences."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet

from outputs_app.checks.reconciliation.compare import ExpectedBlock, Finding
from outputs_app.effects.handler import rule_there
from outputs_app.models import (
    AFTERWARDS,
    OPEN_DRIFT,
    REPORTS,
    SETTLED_EFFECT,
    Drift,
    DriftState,
    Effect,
    EffectKind,
    EffectState,
    OutputFile,
    ProcessingBlock,
)
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

#: What of the request's own effects changes blocks.
_OF_ALL = (EffectKind.RUCIO_RELEASE, EffectKind.DBS_INVALIDATE)
#: What an effect changes, and every effect that was made, claimed, done or done again. What comes after the registration may
#: wait for weeks, and has changed nothing before it has recorded a result.
_AT_REST = """
SELECT block.id, concat_ws(' ', block.status, block.tape_rule_id, block.source_rule_id, block.dbs_block_closed, dataset.state,
  request.epoch, count(effect), sum(effect.claim_epoch), max(effect.done_at)),
  dataset.state = 'invalidated' OR block.status = 'invalidated',
  block.status <> 'given_up' AND bool_or(effect.block_id = block.id AND effect.kind = %(begun)s)
    AND NOT bool_or(effect.epoch = request.epoch AND effect.state <> ALL(%(settled)s)
      AND (effect.kind <> ALL(%(after)s) OR effect.state = %(claimed)s OR effect.result <> '{}'))
FROM processing_blocks block JOIN output_datasets dataset ON dataset.id = block.dataset_id
JOIN workflows workflow ON workflow.id = block.workflow_id JOIN requests request ON request.request_name = workflow.request_name
JOIN effects effect ON effect.request_id = request.id AND effect.kind <> %(looks)s
  AND (effect.block_id = block.id OR effect.kind = ANY(%(of_all)s))
WHERE block.id = ANY(%(blocks)s) GROUP BY block.id, dataset.id, request.id
"""


class AtRest(NamedTuple):
    """A block for which nothing is under way. ``stamp`` changes as soon as an effect does something for it."""

    stamp: str
    taken_back: bool


def blocks_status(block_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Those of the blocks at rest that are wanted, each with its stamp. One statement."""
    return {pk: block.stamp for pk, block in blocks_at_rest(block_ids).items() if not block.taken_back}


def blocks_at_rest(block_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, AtRest]:
    """Those of the blocks for which nothing is under way, and that DBS or Rucio were ever called for. One statement."""
    values: dict[str, Any] = {
        "blocks": list(block_ids), "begun": EffectKind.RUCIO_BLOCK, "settled": list(SETTLED_EFFECT), "after": list(AFTERWARDS),
        "claimed": EffectState.CLAIMED, "of_all": list(_OF_ALL), "looks": EffectKind.BLOCK_VALIDATE,
    }  # fmt: skip
    return {pk: AtRest(stamp, taken_back) for pk, stamp, taken_back, rests in sql_rows(_AT_REST, values) if rests}


def requests_busy() -> set[uuid.UUID]:
    """Requests for which a registration is under way, or waits for a person. What is of a former epoch is run no more, unless it
    was begun before; else its request would be busy for ever."""
    runs = Q(state=EffectState.CLAIMED, claim_expires_at__gte=clock.in_sql())
    rows = Effect.objects.filter(runs | Q(epoch=F("request__epoch"))).exclude(state__in=SETTLED_EFFECT).exclude(kind__in=REPORTS)
    rows = rows.exclude(Q(kind__in=AFTERWARDS) & ~Q(state=EffectState.CLAIMED))
    return set(rows.values_list("request_id", flat=True).distinct())


def blocks_expected(blocks: Sequence[ProcessingBlock], *unread: str) -> list[ExpectedBlock]:
    """With their files, by one statement, but for columns that are not needed."""
    files: dict[uuid.UUID, dict[str, OutputFile]] = defaultdict(dict)
    for file in OutputFile.objects.filter(block__in=blocks).defer(*unread):
        files[file.block_id][file.lfn] = file
    return [ExpectedBlock(block, files[block.pk]) for block in blocks]


def rules_by_id(comment: str) -> Callable[[str], RuleInfo | None]:
    """A function from id to rule; it asks once: at once for all rules of the comment, one by one for others. A rule that a
    repeated call found may have another comment."""
    known = {rule.rule_id: rule for rule in factory.rucio().rules_with_comment(comment)}
    return cache(lambda rule_id: known[rule_id] if rule_id in known else rule_there(rule_id))


def drift_record(seen: QuerySet[Drift], findings: Collection[Finding]) -> tuple[int, int]:
    """Make the rows of what was compared (``seen``) say what was found, and nothing else; returns how many began and ended.

    In the caller's transaction. What was accepted with another finding, and what a repair has not helped, is open again.
    """
    now = clock.now()
    unsettled = {(row.kind, row.name, row.rule_id): row for row in seen.filter(state__in=OPEN_DRIFT).select_for_update()}
    wanted = {finding.key: finding for finding in findings}
    changed: list[Drift] = []
    for key in wanted.keys() & unsettled.keys():
        row, finding = unsettled[key], wanted[key]
        if row.state == DriftState.ASKED or row.found != finding.found:
            row.state, row.found, row.expected = DriftState.UNSETTLED, finding.found, finding.expected
            changed.append(row)
    Drift.objects.bulk_update(changed, ("state", "found", "expected"), batch_size=1000)
    Drift.objects.filter(pk__in=[unsettled[key].pk for key in wanted.keys() & unsettled.keys()]).update(last_seen=now)
    ended = [row for key, row in unsettled.items() if key not in wanted]
    for asked, state in ((True, DriftState.REPAIRED), (False, DriftState.GONE)):
        pks = [row.pk for row in ended if (row.state == DriftState.ASKED) is asked]
        Drift.objects.filter(pk__in=pks).update(state=state, ended_at=now)
    new = [Drift(**asdict(finding), since=now, last_seen=now) for key, finding in wanted.items() if key not in unsettled]
    Drift.objects.bulk_create(new, batch_size=1000, ignore_conflicts=True)
    return len(new), len(ended)
