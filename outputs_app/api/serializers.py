"""Blocks, effects, datasets, differences and integrity cases as JSON. Spec 3.1.4; docs/design/model.md, Blocks."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

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
from outputs_app.placements import FIELDS
from outputs_app.selectors import block_source_rules, block_units_completed, blocks_done_units


class BlockListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    computed_from: ClassVar = {"work_units": "id"}
    workflow_id = serializers.UUIDField()
    request_name = serializers.CharField(source="workflow.request_id")
    work_units = serializers.SerializerMethodField(help_text="done/all, e.g. 12/25")

    class Meta:
        model = ProcessingBlock
        fields: tuple[str, ...] = (
            "id", "workflow_id", "request_name", "dataset_name", "block_index", "status", "work_units", "total_work_units",
            "planned_bytes", "sealed_at", "dbs_block_name", "dbs_block_open", "dbs_block_closed", "origin_rse", "tape_rule_id",
            "tape_ok_at", "no_tape", "source_rule_id",
            "last_rucio_attempt", "rucio_attempt_count", "rucio_last_error", "created_at", "updated_at",
        )  # fmt: skip

    def get_work_units(self, block: ProcessingBlock) -> str:
        """As spec 7.2 writes it."""
        return f"{blocks_done_units([block.pk]).get(block.pk, 0)}/{block.total_work_units}"


class StorageCheckSerializer(serializers.ModelSerializer):
    """The block's files at one RSE, compared with the storage itself."""

    class Meta:
        model = StorageCheck
        fields: tuple[str, ...] = ("rse", "site", "files", "looked_at", "checksums", "tries", "problem", "next_try_at", "done_at")


class ValidationSerializer(serializers.ModelSerializer):
    """Whether a block is what it should be, and what says so."""

    storage_checks: Any = StorageCheckSerializer(many=True, read_only=True)

    class Meta:
        model = BlockValidation
        fields: tuple[str, ...] = (
            "generation", "asked_at", "catalogues_at", "validated_at", "files", "events", "every_checksum", "evidence",
            "storage_checks",
        )  # fmt: skip


class BlockUnitSerializer(serializers.Serializer):
    """A work unit; names repeat from round to round."""

    round = serializers.IntegerField()
    name = serializers.CharField()


class BlockSerializer(BlockListSerializer):
    """One block with its members and rules."""

    completed_work_units = serializers.SerializerMethodField()
    source_rule_ids = serializers.SerializerMethodField(help_text="LFN -> Rucio rule that protects it at its RSE")

    validation: Any = ValidationSerializer(read_only=True, default=None, allow_null=True, help_text="null: not asked for yet")

    class Meta(BlockListSerializer.Meta):
        fields: tuple[str, ...] = (
            *BlockListSerializer.Meta.fields,
            "completed_work_units",
            "source_rule_ids",
            "failure_context",
            "warnings",
            "validation",
        )

    @extend_schema_field(BlockUnitSerializer(many=True))
    def get_completed_work_units(self, block: ProcessingBlock) -> list[dict[str, Any]]:
        """From the members' rows."""
        return [{"round": index, "name": name} for index, name in block_units_completed(block)]

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_source_rule_ids(self, block: ProcessingBlock) -> dict[str, str]:
        """From the files' rows."""
        return block_source_rules(block)


class EffectListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    request_name = serializers.CharField(source="request.request_name")
    block_id = serializers.UUIDField(allow_null=True)

    class Meta:
        model = Effect
        fields: tuple[str, ...] = (
            "id", "request_name", "block_id", "kind", "key", "state", "attempts", "next_attempt_at", "first_failed_at",
            "last_error", "claimed_by", "claim_expires_at", "created_at", "done_at",
        )  # fmt: skip


class EffectSerializer(EffectListSerializer):
    """One effect with what it was given, what it brought, and what it waits for."""

    depends_on: Any = serializers.PrimaryKeyRelatedField(many=True, read_only=True, help_text="ids of effects that come first")

    class Meta(EffectListSerializer.Meta):
        fields: tuple[str, ...] = (
            *EffectListSerializer.Meta.fields, "unit_id", "payload", "result", "depends_on", "epoch", "claim_epoch",
        )  # fmt: skip


#: Of what need not be there.
_OR_NULL: dict[str, Any] = {"default": None, "allow_null": True}


class DatasetSerializer(serializers.ModelSerializer):
    """One output dataset, and how far its comparison with DBS and Rucio is."""

    request_name = serializers.CharField(source="workflow.request_id")
    compared_at = serializers.DateTimeField(source="comparison.ended_at", **_OR_NULL, help_text="end of the last comparison")
    comparison_due_at = serializers.DateTimeField(source="comparison.due_at", **_OR_NULL)
    comparison_begun_at = serializers.DateTimeField(source="comparison.begun_at", **_OR_NULL, help_text="of the one under way")
    compared = serializers.JSONField(source="comparison.result", **_OR_NULL, help_text="numbers of blocks and files so far")
    comparison_error = serializers.CharField(source="comparison.last_error", **_OR_NULL)

    class Meta:
        model = OutputDataset
        fields: tuple[str, ...] = (
            "id", "name", "request_name", "step", "module", "tier", "state", "tape_rse", "disk_rule_id", "created_at",
            "compared_at", "comparison_due_at", "comparison_begun_at", "compared", "comparison_error",
        )  # fmt: skip


class PlacementSerializer(serializers.ModelSerializer):
    """Where outputs of a campaign and tier go; an empty one means any, the campaign's own counts before the tier's."""

    class Meta:
        model = Placement
        fields: tuple[str, ...] = ("id", "campaign", "tier", *FIELDS, "updated_at")


class DriftSerializer(serializers.ModelSerializer):
    """One difference between what WMS2 believes and what DBS or Rucio hold."""

    request_name = serializers.CharField(source="request.request_name", **_OR_NULL)
    dataset_name = serializers.CharField(source="dataset.name", **_OR_NULL)
    block_id = serializers.UUIDField(allow_null=True)

    class Meta:
        model = Drift
        fields: tuple[str, ...] = (
            "id", "kind", "state", "name", "rule_id", "request_name", "dataset_name", "block_id", "expected", "found", "since",
            "last_seen", "ended_at", "actor", "reason",
        )  # fmt: skip


class CaseSerializer(serializers.ModelSerializer):
    """One file, or block, that is not what it should be, and what was decided of it."""

    request_name = serializers.CharField(source="request.request_name")
    block_name = serializers.CharField(source="block.dbs_block_name")

    class Meta:
        model = IntegrityCase
        fields: tuple[str, ...] = (
            "id", "name", "prognosis", "state", "action", "request_name", "block_id", "block_name", "rse", "site", "evidence",
            "actor", "reason", "cut", "created_at", "acted_at", "ended_at",
        )  # fmt: skip
