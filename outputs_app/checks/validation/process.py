"""Blocks of a request are validated: asked for, again where something has changed, and counted (ADR 0019).

A block is validated when the catalogues were compared whole, every storage check of this generation has ended, and no case of it
is open. Only rows are written: ``outputs_app.effects.validate`` asks DBS and Rucio, jobs at the sites look at the storage.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, QuerySet, Sum

from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    RULED,
    BlockStatus,
    BlockValidation,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    StorageCheck,
    Validity,
)
from sites_app.selectors import sites_by_rse
from wms2.conf import conf
from wms2.metrics.series import VALIDATIONS_TOTAL
from wms2.runtime import clock
from wms2.runtime.notify import RUN_EFFECTS, notify
from wms2.web.formatting import counted

#: Blocks of which nothing is wanted, or nothing more is done.
NOT_WANTED = (BlockStatus.GIVEN_UP, BlockStatus.INVALIDATED)


class ValidationProgress(NamedTuple):
    """How far the validation of a request is. ``files_done``: those of validated blocks; ``waiting_for``: what keeps the others,
    in words; empty when there is nothing."""

    blocks: int
    validated: int
    files: int
    files_done: int
    open_cases: int
    waiting_for: str

    @property
    def done(self) -> bool:
        """Whether every block is validated."""
        return self.validated >= self.blocks


def validation_process(*, workflow_id: uuid.UUID, request_id: uuid.UUID, request_epoch: int) -> ValidationProgress:
    """Ask for what is not asked for yet, write down which blocks are validated by now; in the caller's transaction."""
    new = list(_wanted(workflow_id).filter(status=BlockStatus.ARCHIVED, validation=None))
    now = clock.now()
    rows = [BlockValidation(block=block, asked_at=now) for block in new]
    BlockValidation.objects.bulk_create(rows, ignore_conflicts=True)
    _checks_begin(rows)
    unknown = BlockValidation.objects.filter(block__workflow_id=workflow_id, catalogues_at__isnull=True)
    effect_requests = [
        EffectRequest(
            EffectKind.BLOCK_VALIDATE, f"{each.pk}:{each.generation}", block_id=each.pk, payload={"generation": each.generation}
        )
        for each in unknown.filter(block__in=_wanted(workflow_id))
    ]
    if effect_requests:
        effects_enqueue(effect_requests=effect_requests, request_id=request_id, request_epoch=request_epoch)
        notify(RUN_EFFECTS)
    blocks_mark_validated(block__workflow_id=workflow_id)
    return validation_progress(workflow_id)


def validation_again(block_ids: Collection[uuid.UUID], *, every_checksum: bool = False) -> None:
    """What was found of these blocks so far does not count any more; in the caller's transaction.

    Args:
        every_checksum: read their files whole at the sites, not a sample of them.
    """
    rows = BlockValidation.objects.filter(pk__in=list(block_ids))
    rows.update(
        generation=F("generation") + 1, asked_at=clock.now(), catalogues_at=None, validated_at=None, evidence={},
        every_checksum=every_checksum,
    )  # fmt: skip
    StorageCheck.objects.filter(validation__in=rows).delete()
    _checks_begin(list(rows.select_related("block")))


def _checks_begin(validations: Iterable[BlockValidation]) -> None:
    """A check for each RSE at which files of a block are kept; files that are not checked are named in the evidence."""
    rows = {each.pk: each for each in validations}
    valid = OutputFile.objects.filter(block__in=rows.keys(), validity=Validity.VALID).order_by()
    counts = valid.values_list("block_id", "rse").annotate(number=Count("pk", filter=RULED), ended=Count("pk", filter=~RULED))
    sites, settings, now = sites_by_rse(), conf(), clock.now()
    checks: list[StorageCheck] = []
    unseen: dict[uuid.UUID, dict[str, str]] = defaultdict(dict)
    for pk, rse, files, ended in counts:
        usable = [site for site in sites.get(rse, ()) if site not in settings.storage_check_off_sites]
        if ended:
            unseen[pk][rse] = f"no source rule keeps {counted(ended, 'file')} there any more"
        if not files:
            continue
        if not settings.storage_checks_enabled:
            unseen[pk][rse] = "storage_checks_enabled is off"
        elif not usable:
            unseen[pk][rse] = f"no site of it may be used: {', '.join(sites.get(rse, ())) or 'none is known'}"
        else:
            site = next((site for site in usable if rse.startswith(site)), usable[0])
            place = {"rse": rse, "site": site, "files": files, "next_try_at": now}
            checks.append(StorageCheck(validation=rows[pk], generation=rows[pk].generation, **place))
    StorageCheck.objects.bulk_create(checks, ignore_conflicts=True)
    for pk, each in unseen.items():
        BlockValidation.objects.filter(pk=pk).update(evidence={"not_looked_at": each})


@transaction.atomic
def blocks_mark_validated(**of: Any) -> set[uuid.UUID]:
    """Those of which everything is known by now, and nothing is wrong; returns their requests. Locked rows are left out."""
    checks = StorageCheck.objects.filter(validation=OuterRef("pk"), done_at__isnull=True)
    cases = IntegrityCase.objects.filter(block=OuterRef("block"), state__in=OPEN_CASE)
    rows = BlockValidation.objects.filter(~Exists(checks), ~Exists(cases), validated_at__isnull=True, **of)
    rows = rows.filter(catalogues_at__isnull=False).select_for_update(skip_locked=True, of=("self",))
    marked = dict(rows.values_list("pk", "block__workflow__request__pk"))
    BlockValidation.objects.filter(pk__in=marked).update(validated_at=clock.now())
    VALIDATIONS_TOTAL.labels("block", "validated").inc(len(marked))
    return set(marked.values())


def validation_progress(workflow_id: uuid.UUID) -> ValidationProgress:
    """As it stands; a few statements."""
    blocks = _wanted(workflow_id)
    valid = OutputFile.objects.filter(block__in=blocks, validity=Validity.VALID)
    done = blocks.filter(validation__validated_at__isnull=False)
    cases = IntegrityCase.objects.filter(block__workflow_id=workflow_id, state__in=OPEN_CASE).count()
    numbers = (blocks.count(), done.count(), valid.count(), valid.filter(block__in=done).count(), cases)
    waiting = "" if numbers[0] == numbers[1] else _waiting_for(blocks.filter(validation__validated_at__isnull=True), cases)
    return ValidationProgress(*numbers, waiting)


def _waiting_for(blocks: QuerySet[ProcessingBlock], cases: int) -> str:
    """What keeps blocks from being validated, what needs a person first."""
    waits = [f"{counted(cases, 'integrity case')} to be decided"] if cases else []
    early = blocks.exclude(status=BlockStatus.ARCHIVED).count()
    if early:
        waits.append(f"{counted(early, 'block')} to be archived")
    effects = Effect.objects.filter(block__in=blocks.filter(validation__catalogues_at=None), kind=EffectKind.BLOCK_VALIDATE)
    owed = effects.filter(state__in=OPEN_EFFECT).order_by("id")
    if number := owed.count():
        failing = owed.exclude(last_error="").first()
        waits.append(f"DBS and Rucio of {counted(number, 'block')}" + (f": {failing.last_error}" if failing else ""))
    given_up = effects.filter(state=EffectState.DISCARDED).exclude(block__in=owed.values("block")).count()
    if given_up:
        waits.append(f"an operator: the comparison of {counted(given_up, 'block')} was discarded; validate again")
    checks = StorageCheck.objects.filter(validation__block__in=blocks, done_at__isnull=True).order_by("next_try_at")
    sites = checks.values("site").annotate(left=Sum(F("files") - F("looked_at"))).values_list("site", "left")
    problem = checks.exclude(problem="").first()
    for site, left in sites.order_by("site"):
        why = f": {problem.problem}" if problem is not None and problem.site == site else ""
        waits.append(f"the storage of {site} to be compared with {counted(left, 'file')}{why}")
    return "; ".join(waits)[:4000]


def _wanted(workflow_id: uuid.UUID) -> QuerySet[ProcessingBlock]:
    rows = ProcessingBlock.objects.filter(workflow_id=workflow_id).exclude(status__in=NOT_WANTED)
    return rows.exclude(dataset__state=DatasetState.INVALIDATED)


def blocks_unvalidated(**of: Any) -> QuerySet[BlockValidation]:
    """Those that are asked for, still wanted, and not validated."""
    rows = BlockValidation.objects.filter(validated_at__isnull=True, **of).exclude(block__status__in=NOT_WANTED)
    return rows.exclude(block__dataset__state=DatasetState.INVALIDATED)


def events_in_catalogue(workflow_id: uuid.UUID) -> dict[str, tuple[int, int]]:
    """Dataset -> files and events of its validated blocks, as DBS counts them."""
    rows = BlockValidation.objects.filter(block__in=_wanted(workflow_id), validated_at__isnull=False).order_by()
    found = rows.values_list("block__dataset_name").annotate(number=Sum("files"), events=Sum("events"))
    return {name: (files, events) for name, files, events in found}
