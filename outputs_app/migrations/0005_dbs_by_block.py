"""DBS is told of whole blocks (ADR 0036): one kind of effect instead of four, and blocks that were begun file by file end that way.

A block that DBS knows already keeps the units whose files are registered, is sealed, and is compared and closed as any other.
Its other units go to a new block: DBS adds nothing to a block in one of its modes, and counts it wrongly in the other.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db import migrations, models
from django.db.models import Max, Q, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone

OLD = ("dbs_dataset", "dbs_block_open", "dbs_files", "dbs_block_close")
ENDED = ("archived", "failed", "aborted", "cleaned")
KINDS = [
    ("rucio_block", "Create container and block in Rucio"),
    ("rucio_files", "Register replicas and attach to the block"),
    ("rucio_protect", "Protect files at their RSE"),
    ("rucio_block_close", "Close block in Rucio"),
    ("dbs_block", "Register block in DBS"),
    ("rucio_tape", "Tape rule for the block"),
    ("invalidation_manifest", "Write the list of what is to be invalidated"),
    ("rucio_release", "Delete the rules of a dataset"),
    ("dbs_invalidate", "Invalidate a dataset in DBS"),
]


def end_progressive_blocks(apps: Any, schema_editor: Any) -> None:
    """Blocks that are whole but not registered are whole once more, the new way; those open in DBS are split; what is registered
    stands as such, for the blocks that wait for it; the old effects are forgotten.
    """
    blocks = apps.get_model("outputs_app", "ProcessingBlock")
    effects = apps.get_model("outputs_app", "Effect")
    done = effects.objects.filter(kind="dbs_block_close", state="done", block__dbs_block_closed=True)
    done.update(kind="dbs_block", key=Concat(Value("dbs_block:"), Cast("block_id", models.CharField())))
    for block in blocks.objects.filter(dbs_block_closed=False, status__in=("open", "complete", "archived", "failed")):
        if block.workflow.request.status in ENDED:  # nobody would ever go on with an open one
            if block.status in ("complete", "archived"):
                _ask(effects, block, "dbs_block", str(block.pk))
            continue
        if block.status == "complete":  # asked for anew, with what its registration and its tape rule wait for
            block.status = "open"
            effects.objects.filter(block=block, kind="rucio_tape").exclude(state="done").delete()
        if block.dbs_block_open:
            _split(apps, block)
        dead = effects.objects.filter(block=block, state="dead").exclude(kind__in=OLD)
        if block.status == "failed" and not dead.exists():  # over an effect that there is no more
            block.status, block.failure_context = "archived" if block.tape_rule_id else "open", {}
        blocks.objects.filter(pk=block.pk).update(status=block.status, failure_context=block.failure_context)
        if block.status == "archived":
            _ask(effects, block, "dbs_block", str(block.pk))
    effects.objects.filter(kind__in=OLD).delete()
    # what is checked at the commit is checked now: PostgreSQL changes no table that has checks open
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    schema_editor.execute("SET CONSTRAINTS ALL DEFERRED")


def _split(apps: Any, block: Any) -> None:
    effects = apps.get_model("outputs_app", "Effect")
    members = apps.get_model("outputs_app", "BlockWorkUnit").objects.filter(block=block)
    files = apps.get_model("outputs_app", "OutputFile").objects.filter(block=block)
    told = set(effects.objects.filter(block=block, kind="dbs_files", state="done").values_list("unit_id", flat=True))
    if not told and block.tape_rule_id:
        return  # on tape it is this block; a person looks at what DBS says to it
    rest = members.exclude(unit_id__in=told)
    type(block).objects.filter(pk=block.pk).update(
        sealed_at=block.sealed_at or timezone.now(), total_work_units=members.filter(unit_id__in=told).count()
    )
    units = set(rest.values_list("unit_id", flat=True))
    if units:
        target = _taking(apps, block)
        rest.update(block=target)
        files.filter(unit_id__in=units).update(block=target)
        moving = members.model.objects.filter(block=target)
        sizes = moving.aggregate(total=models.Sum("size_bytes"))["total"] or 0
        type(target).objects.filter(pk=target.pk).update(total_work_units=moving.count(), planned_bytes=sizes)
        for unit_id in sorted(units & set(target.files.values_list("unit_id", flat=True))):
            there = _ask(effects, target, "rucio_block", str(target.pk))
            # protected files stay so, whichever block holds them; what is still to be done is done in the new one
            again = effects.objects.filter(block=block, unit_id=unit_id, kind__in=("rucio_files", "rucio_protect"))
            again.filter(Q(kind="rucio_files") | ~Q(state="done")).delete()
            attached = _ask(effects, target, "rucio_files", f"{target.pk}:{unit_id}", unit_id=unit_id)
            attached.depends_on.set([there])
            if files.model.objects.filter(block=target, unit_id=unit_id, rule_id="").exists():
                _ask(effects, target, "rucio_protect", f"{target.pk}:{unit_id}", unit_id=unit_id).depends_on.set([attached])
    if not told:  # an empty block stays in DBS, which has no way to delete it
        effects.objects.filter(block=block).delete()
        type(block).objects.filter(pk=block.pk).delete()


def _taking(apps: Any, block: Any) -> Any:
    """The dataset's block that takes units, unless DBS knows that one too; then a new one."""
    model = apps.get_model("outputs_app", "ProcessingBlock")
    same = model.objects.filter(dataset_id=block.dataset_id)
    open_ = same.filter(sealed_at__isnull=True).first()
    if open_ is not None and not open_.dbs_block_open:
        return open_
    same.filter(sealed_at__isnull=True).update(sealed_at=timezone.now())
    return model.objects.create(
        dataset_id=block.dataset_id,
        workflow_id=block.workflow_id,
        block_index=same.aggregate(last=Max("block_index"))["last"] + 1,
        dataset_name=block.dataset_name,
        dbs_block_name=f"{block.dataset_name}#{uuid.uuid4()}",
    )


def _ask(effects: Any, block: Any, kind: str, key: str, unit_id: int | None = None) -> Any:
    request = block.workflow.request
    effect, _ = effects.objects.get_or_create(
        key=f"{kind}:{key}",
        defaults={"kind": kind, "request": request, "block": block, "unit_id": unit_id, "epoch": request.epoch},
    )
    return effect


class Migration(migrations.Migration):
    """New kinds after the old rows are gone."""

    dependencies = [
        ("outputs_app", "0004_dataset_owners"),
        ("requests_app", "0001_initial"),
        ("dags_app", "0001_initial"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="effect", name="effect_kind_known"),
        migrations.AlterField(model_name="effect", name="kind", field=models.CharField(choices=KINDS, max_length=40)),
        migrations.AlterField(
            model_name="processingblock",
            name="dbs_block_open",
            field=models.BooleanField(default=False, help_text="known to DBS"),
        ),
        migrations.AlterField(
            model_name="processingblock",
            name="dbs_block_closed",
            field=models.BooleanField(default=False, help_text="registered in DBS with all its files"),
        ),
        migrations.RunPython(end_progressive_blocks, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(condition=Q(kind__in=[kind for kind, _ in KINDS]), name="effect_kind_known"),
        ),
    ]
