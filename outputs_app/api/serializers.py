"""Blocks, effects, datasets, differences and integrity cases as JSON. Spec 3.1.4; docs/design/model.md, Blocks."""

from __future__ import annotations

from rest_framework import serializers

from outputs_app.blocks.placements import FIELDS
from outputs_app.models import (
    BlockValidation,
    Drift,
    Effect,
    IntegrityCase,
    OutputDataset,
    Placement,
    ProcessingBlock,
    StorageCheck,
)
from outputs_app.selectors import block_source_rules, block_units_completed, blocks_done_units
from wms2.api.answers import Computed, answer, rows

_BLOCK = (
    "id", "workflow_id=workflow_id", "request_name=workflow.request_id", "dataset_name", "block_index", "status", "work_units",
    "total_work_units", "planned_bytes", "sealed_at", "dbs_block_name", "dbs_block_open", "dbs_block_closed", "origin_rse",
    "tape_rule_id", "tape_ok_at", "no_tape", "source_rule_id", "last_rucio_attempt", "rucio_attempt_count", "rucio_last_error",
    "created_at", "updated_at",
)  # fmt: skip


def _work_units(block: ProcessingBlock) -> str:
    return f"{blocks_done_units([block.pk]).get(block.pk, 0)}/{block.total_work_units}"


_WORK_UNITS = Computed(_work_units, column="id", help_text="done/all, e.g. 12/25")
BlockListSerializer = rows("BlockList", ProcessingBlock, "One line of the list.", *_BLOCK, work_units=_WORK_UNITS)
StorageCheckSerializer = rows(
    "StorageCheck", StorageCheck, "The block's files at one RSE, compared with the storage itself.",
    "rse", "site", "files", "looked_at", "checksums", "tries", "problem", "next_try_at", "done_at",
)  # fmt: skip
ValidationSerializer = rows(
    "Validation", BlockValidation, "Whether a block is what it should be, and what says so.",
    "generation", "asked_at", "catalogues_at", "validated_at", "files", "events", "every_checksum", "evidence",
    storage_checks=StorageCheckSerializer(many=True, read_only=True),
)  # fmt: skip
BlockUnitSerializer = answer("BlockUnit", {"round": int, "name": str}, "A work unit; names repeat from round to round.")
BlockSerializer = rows(
    "Block", ProcessingBlock, "One block with its members and rules.",
    *_BLOCK, "completed_work_units", "source_rule_ids", "failure_context", "warnings",
    work_units=_WORK_UNITS,
    completed_work_units=Computed(block_units_completed, BlockUnitSerializer(many=True)),
    source_rule_ids=Computed(
        block_source_rules, serializers.DictField(child=serializers.CharField()),
        help_text="LFN -> Rucio rule that protects it at its RSE",
    ),
    validation=ValidationSerializer(read_only=True, default=None, allow_null=True, help_text="null: not asked for yet"),
)  # fmt: skip
_EFFECT = (
    "id", "request_name=request.request_name", "block_id=block_id", "kind", "key", "state", "attempts", "next_attempt_at",
    "first_failed_at", "last_error", "claimed_by", "claim_expires_at", "created_at", "done_at",
)  # fmt: skip
EffectListSerializer = rows("EffectList", Effect, "One line of the list.", *_EFFECT)
EffectSerializer = rows(
    "Effect", Effect, "One effect with what it was given, what it brought, and what it waits for.",
    *_EFFECT, "unit_id", "payload", "result", "depends_on", "epoch", "claim_epoch",
    depends_on=serializers.PrimaryKeyRelatedField(many=True, read_only=True, help_text="ids of effects that come first"),
)  # fmt: skip
DatasetSerializer = rows(
    "Dataset", OutputDataset, "One output dataset, and how far its comparison with DBS and Rucio is.",
    "id", "name", "request_name=workflow.request_id", "step", "module", "tier", "state", "tape_rse", "disk_rule_id", "created_at",
    "compared_at=comparison.ended_at?", "comparison_due_at=comparison.due_at?", "comparison_begun_at=comparison.begun_at?",
    "compared", "comparison_error=comparison.last_error?",
    compared_at="end of the last comparison",
    comparison_begun_at="of the one under way",
    compared=serializers.JSONField(
        source="comparison.result", default=None, allow_null=True, help_text="numbers of blocks and files so far"
    ),
)  # fmt: skip
PlacementSerializer = rows(
    "Placement", Placement,
    "Where outputs of a campaign and tier go; an empty one means any, the campaign's own counts before the tier's.",
    "id", "campaign", "tier", *FIELDS, "updated_at",
)  # fmt: skip
DriftSerializer = rows(
    "Drift", Drift, "One difference between what WMS2 believes and what DBS or Rucio hold.",
    "id", "kind", "state", "name", "rule_id", "request_name=request.request_name?", "dataset_name=dataset.name?",
    "block_id=block_id", "expected", "found", "since", "last_seen", "ended_at", "actor", "reason",
)  # fmt: skip
CaseSerializer = rows(
    "Case", IntegrityCase, "One file, or block, that is not what it should be, and what was decided of it.",
    "id", "name", "prognosis", "state", "action", "request_name=request.request_name", "block_id",
    "block_name=block.dbs_block_name", "rse", "site", "evidence", "actor", "reason", "cut", "created_at", "acted_at", "ended_at",
)  # fmt: skip
