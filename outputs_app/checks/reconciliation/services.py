"""What operators do: compare now, have a difference repaired, accept it. Only rows are written, with their audit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from outputs_app.checks.reconciliation.compare import INVALID
from outputs_app.checks.reconciliation.remedies import OF_A_FILE, REMEDIES
from outputs_app.models import (
    BlockStatus,
    Comparison,
    DatasetState,
    Drift,
    DriftKind,
    DriftState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    Validity,
)
from wms2.actions import AlreadyDone, applies
from wms2.audit import audited
from wms2.errors import StaleState
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.notify import RECONCILE, RUN_EFFECTS, notify

K = DriftKind
#: A repair is made by then, as a rule; what takes longer is in flight, and left to the next comparison.
CHECK_AGAIN = timedelta(minutes=5)


def dataset_compare(*, dataset: OutputDataset, actor: str, reason: str) -> None:
    """Compare a dataset as soon as a worker has time; one that is being compared, once more."""
    with audited(actor=actor, action="dataset_compare", target=dataset.name, target_type="dataset", reason=reason):
        comparisons_ask([dataset.pk])


def comparisons_ask(dataset_ids: list[int]) -> None:
    """Have these datasets compared now."""
    now = clock.now()
    Comparison.objects.bulk_create([Comparison(dataset_id=pk) for pk in dataset_ids], ignore_conflicts=True)
    Comparison.objects.filter(dataset__in=dataset_ids).update(due_at=now, asked_at=now)
    notify(RECONCILE)


def drift_repair(*, drift: Drift, actor: str, reason: str) -> None:
    """Have done again what should have brought what is expected, registrations or what takes outputs back; the next comparison
    says whether it has.

    Raises:
        InvalidTransition: there is no repair that is known and safe.
        StaleState: it is not as it was read any more.
    """
    with audited(actor=actor, action="drift_repair", target=str(drift), target_type="drift", reason=reason, found=drift.found):
        applies(drift, repair_refused(drift))
        registrations_again(drift)
        now = clock.now()
        _settle(drift, DriftState.ASKED, actor, reason)
        later = Comparison.objects.filter(dataset=drift.dataset_id).filter(Q(due_at=None) | Q(due_at__gt=now + CHECK_AGAIN))
        later.update(due_at=now + CHECK_AGAIN)
        if drift.request_id is not None:
            mark_due([drift.request_id], "drift repaired")


def registrations_again(drift: Drift) -> None:
    """What should have brought what is expected is done once more; in the caller's transaction."""
    due: dict[str, Any] = {"state": EffectState.PENDING, "next_attempt_at": clock.now()}
    again = {**due, "attempts": 0, "first_failed_at": None, "done_at": None}
    if _was_taken_back(drift) and drift.request is not None:
        _taking_back(drift).update(**again, result={}, epoch=drift.request.epoch)
    else:
        _registrations(drift).filter(state=EffectState.DONE).update(**again)
    notify(RUN_EFFECTS)


def drift_accept(*, drift: Drift, actor: str, reason: str) -> None:
    """It is known and may stay; it is open again if it changes.

    Raises:
        InvalidTransition: it does not stand any more.
        StaleState: it is not as it was read any more.
    """
    with audited(actor=actor, action="drift_accept", target=str(drift), target_type="drift", reason=reason, found=drift.found):
        applies(drift, accept_refused(drift))
        _settle(drift, DriftState.ACCEPTED, actor, reason)


def _settle(drift: Drift, state: DriftState, actor: str, reason: str) -> None:
    as_read = Drift.objects.filter(pk=drift.pk, state=drift.state, found=drift.found)
    if not as_read.update(state=state, actor=actor, reason=reason):
        raise StaleState(f"{drift}: a comparison has found something else meanwhile; look at it again")
    drift.state, drift.actor, drift.reason = state, actor, reason


def accept_refused(drift: Drift) -> str:
    """Why it cannot be accepted; empty if it can."""
    if drift.state in (DriftState.REPAIRED, DriftState.GONE):
        return "It does not stand any more."
    return AlreadyDone("It is accepted.") if drift.state == DriftState.ACCEPTED else ""


def repair_refused(drift: Drift) -> str:
    """Why it cannot be repaired by WMS2; empty if it can."""
    if drift.state in (DriftState.REPAIRED, DriftState.GONE):
        return "It does not stand any more."
    if drift.state == DriftState.ASKED:
        return AlreadyDone("Its repair is asked for.")
    if _was_taken_back(drift):
        return "" if _taking_back(drift).exists() else "Nothing is known that could be done again to take it back."
    if not REMEDIES[K(drift.kind)].again:
        return "There is no repair that WMS2 could make safely."
    if drift.request is None or drift.dataset is None or drift.dataset.state == DatasetState.INVALIDATED:
        return "Nothing of ours is wanted there."
    if why := _unsafe(drift):
        return why
    if not _registrations(drift).exists():
        return "No registration is known that could be made again."
    return ""


def _was_taken_back(drift: Drift) -> bool:
    """Whether it is valid, or under a rule, that the outputs were taken back: a worker that was paused came late."""
    ended = drift.dataset is not None and drift.dataset.state == DatasetState.INVALIDATED
    return (drift.kind == K.DBS_FILE_DIFFERS and drift.expected == INVALID) or (drift.kind == K.RULE_UNKNOWN and ended)


def _taking_back(drift: Drift) -> QuerySet[Effect]:
    """What is done once more; all of it looks first what there is."""
    of_dataset = EffectKind.RUCIO_RELEASE if drift.kind == K.RULE_UNKNOWN else EffectKind.DBS_INVALIDATE
    whole = Q(kind=of_dataset, payload__dataset_id=drift.dataset_id)
    part = Q(kind=EffectKind.FILES_INVALIDATE, block__isnull=False, block=drift.block_id)
    return Effect.objects.filter(whole | part, request=drift.request_id, state=EffectState.DONE)


def _unsafe(drift: Drift) -> str:
    """What speaks against the repair of its kind."""
    file = OutputFile.objects.filter(lfn=drift.name).first()
    of_block = drift.block.source_rule_id if drift.block is not None else ""
    if drift.kind == K.DATASET_TYPE and drift.found != "PRODUCTION":
        return f"That it is {drift.found} was a person's decision."
    if drift.kind == K.RUCIO_FILE_MISSING and drift.block is not None and drift.block.status != BlockStatus.OPEN:
        return "Its block is closed in Rucio and takes no file."
    if drift.kind == K.REPLICA_MISSING and (file is None or not (file.rule_id or of_block)):
        return "No rule of ours says any more where it lies."
    files = OutputFile.objects.filter(block=drift.block_id)
    unruled = files.filter(validity=Validity.VALID, rule_id="")
    if drift.kind == K.RUCIO_BLOCK_MISSING and not of_block and unruled.exists():
        return "No rule of ours says any more where its files lie."
    if drift.kind == K.DBS_BLOCK_MISSING and files.exclude(validity=Validity.VALID).exists():
        return "Files of it were taken back; DBS would have them as valid again."
    known = file.rule_id if file is not None else drift.block.tape_rule_id if drift.block is not None else ""
    if drift.kind == K.RULE_UNKNOWN and known:
        return f"Our rows know another rule, {known}."
    return ""


def _registrations(drift: Drift) -> QuerySet[Effect]:
    """Those that a repair makes again; of a file those of its work unit."""
    rows = Effect.objects.filter(request=drift.request_id, epoch=F("request__epoch"), kind__in=REMEDIES[K(drift.kind)].again)
    if drift.block_id is None:
        return rows.filter(payload__dataset_id=drift.dataset_id)
    rows = rows.filter(block=drift.block_id)
    if drift.kind not in OF_A_FILE:
        return rows
    unit: int | None = OutputFile.objects.filter(lfn=drift.name).values_list("unit_id", flat=True).first()
    if unit is None:  # of the block itself: its source rule, its tape rule, or both where it is not said which
        source = drift.block.source_rule_id if drift.block is not None else ""
        kinds = [EffectKind.RUCIO_SOURCE_BLOCK] if source and drift.rule_id in ("", source) else []
        kinds += [EffectKind.RUCIO_TAPE] if not source or drift.rule_id != source else []
        return rows.filter(kind__in=kinds)
    return rows.filter(Q(unit_id=unit) | Q(payload__units__contains=[unit])).exclude(kind=EffectKind.RUCIO_TAPE)
