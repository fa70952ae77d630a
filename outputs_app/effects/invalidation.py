"""What becomes of outputs that are no longer wanted: superseded, listed for invalidation, invalidated (error-handling 4.2, 4.3).

Only writes rows, inside its caller's transaction; ``outputs_app.effects`` acts outside. DBS knows no invalid block, so first the
files and the dataset become invalid; then an OPEN or COMPLETE block loses its source rules, an ARCHIVED one its tape rule too
(spec 6.3). So no file is VALID without a rule.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.db.models.fields.json import KT

from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.models import (
    OPEN_EFFECT,
    REPORTS,
    SETTLED_EFFECT,
    BlockStatus,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from wms2.adapters.dbs import BULK_TIMEOUT_FACTOR
from wms2.conf import conf
from wms2.errors import FieldRefused
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
SCHEMA = "wms2.invalidation/1"
#: Writing a manifest takes less.
WRITING_SECONDS = 30
TAKING_BACK = (
    EffectKind.INVALIDATION_MANIFEST, EffectKind.DBS_INVALIDATE, EffectKind.RUCIO_RELEASE, EffectKind.FILES_INVALIDATE,
)  # fmt: skip


#: What may still be owed for a block of which files are taken back: none of it registers or protects anything.
_NO_OBSTACLE = (*TAKING_BACK, EffectKind.RUCIO_UNPROTECT, EffectKind.BLOCK_VALIDATE)


def manifest_ask(*, request_id: uuid.UUID, request_epoch: int) -> None:
    """Ask for the file that lists what has to be invalidated; asked twice it is written once."""
    wanted = [EffectRequest(EffectKind.INVALIDATION_MANIFEST, request_id)]
    effects_enqueue(effect_requests=wanted, request_id=request_id, request_epoch=request_epoch)


_RENEW = """
UPDATE effects SET next_attempt_at = CASE WHEN state = %(claimed)s THEN {now} + %(writing)s ELSE {now} END, state = %(pending)s,
  claim_epoch = claim_epoch + 1, claimed_by = '', claim_expires_at = NULL
WHERE key = %(key)s AND state IN (%(claimed)s, %(done)s)
"""


def manifest_renew(*, request_id: uuid.UUID) -> None:
    """Something was registered or protected after the manifest was asked for: have it written again.

    In the transaction that records it. A writing that is under way has not seen it: its result does not count, and the next one
    comes when it is over.
    """
    values: dict[str, Any] = {
        "key": EffectRequest(EffectKind.INVALIDATION_MANIFEST, request_id).key, "writing": timedelta(seconds=WRITING_SECONDS),
        "pending": EffectState.PENDING, "claimed": EffectState.CLAIMED, "done": EffectState.DONE,
    }  # fmt: skip
    sql_rows(_RENEW.format(now=clock.in_plain_sql()), values)


def invalidation_asked(*, request_id: uuid.UUID, request_epoch: int) -> bool:
    """Whether the outputs are being taken back already, in this epoch."""
    return Effect.objects.filter(request_id=request_id, epoch=request_epoch, kind=EffectKind.RUCIO_RELEASE).exists()


def taken_back(lfns: Collection[str]) -> set[str]:
    """Those of these files that are INVALID, or of which it is asked for and not done yet."""
    fields = ("lfn", "pk", "dataset_id", "block__workflow__request__pk", "validity")
    rows = list(OutputFile.objects.filter(lfn__in=lfns).values_list(*fields))
    asked = Effect.objects.filter(
        request__in={request for *_, request, _ in rows}, state__in=OPEN_EFFECT,
        kind__in=(EffectKind.FILES_INVALIDATE, EffectKind.DBS_INVALIDATE),
    )  # fmt: skip
    files, datasets = set[int](), set[int]()
    for payload in asked.values_list("payload", flat=True):
        files.update(payload.get("files", ()))
        datasets.add(payload.get("dataset_id", 0))
    return {lfn for lfn, pk, dataset, _, validity in rows if validity != Validity.VALID or pk in files or dataset in datasets}


#: Of a former epoch, and asked for again under the new one.
CONTINUED = (*TAKING_BACK, *REPORTS)
#: The others. Kinds of a later release are left to its workers: it may keep them.
ENDED = tuple(kind for kind in EffectKind if kind not in CONTINUED)
NOT_WANTED = "The outputs of its request are taken back."


def former_end(*, request_id: uuid.UUID, request_epoch: int) -> None:
    """With a new epoch, in the transaction that raises it: waiting effects are discarded, and claims that have run out are void,
    however long their workers were paused. Calls under way run to their end and are waited for; effects that take outputs back
    are asked for again under the new epoch; reports to ReqMgr2 go on under it."""
    Effect.objects.filter(request_id=request_id, kind__in=REPORTS).exclude(state=EffectState.DONE).update(epoch=request_epoch)
    former = Effect.objects.filter(request_id=request_id, epoch__lt=request_epoch)
    former_waiting_end(request_ids=[request_id])
    run_out = former.filter(state=EffectState.CLAIMED, claim_expires_at__lt=clock.in_sql())
    run_out.update(claim_epoch=F("claim_epoch") + 1)


def former_waiting_end(*, request_ids: Collection[uuid.UUID]) -> None:
    """Discard what waits under former epochs of these requests, for a worker or for a person: effects of other requests may wait
    for it. Not what is asked for again under the new one."""
    rows = Effect.objects.filter(request_id__in=request_ids, epoch__lt=F("request__epoch"), kind__in=ENDED)
    waiting = rows.filter(state__in=OPEN_EFFECT).exclude(state=EffectState.CLAIMED)
    waiting.update(state=EffectState.DISCARDED, done_at=clock.now(), last_error=NOT_WANTED)


def former_settle(effect: Effect) -> None:
    """Its worker stops: if it is of a former epoch it is never claimed again, and no longer waited for."""
    rows = Effect.objects.filter(pk=effect.pk, claim_epoch=effect.claim_epoch, epoch__lt=F("request__epoch"))
    _discard_claimed(rows)


def former_run_out(*, request_id: uuid.UUID, request_epoch: int) -> bool:
    """Whether nothing of a former epoch is under way any more: no claim, nor a call that may have begun just before its claim ran
    out and still be carried out. Such claims are discarded; those of a later release's kinds are left to its workers."""
    former_waiting_end(request_ids=[request_id])  # also what was refused while the epoch was raised
    rows = Effect.objects.filter(request_id=request_id, epoch__lt=request_epoch, state=EffectState.CLAIMED)
    last = rows.aggregate(last=Max("claim_expires_at"))["last"]
    if last is None:
        return True
    if clock.now() <= last + timedelta(seconds=BULK_TIMEOUT_FACTOR * conf().service_timeout_seconds):
        return False
    _discard_claimed(rows.filter(kind__in=EffectKind.values))
    return True


def _discard_claimed(rows: QuerySet[Effect]) -> None:
    """``claim_epoch`` rises: the worker that has the claim learns it from its next renewal or record."""
    rows.filter(state=EffectState.CLAIMED).update(
        state=EffectState.DISCARDED, claim_epoch=F("claim_epoch") + 1, claimed_by="", claim_expires_at=None,
        done_at=clock.now(), last_error=NOT_WANTED,
    )  # fmt: skip


def invalidation_ask(*, request_id: uuid.UUID, request_epoch: int, workflow_id: uuid.UUID, purge: bool = False) -> int:
    """Ask for the invalidation of every output; returns the number of datasets. ``request_epoch`` must be a new one.

    Args:
        purge: Rucio removes the files as soon as no rule is on them, not only when it needs their room.

    The caller has raised the request's epoch, so nothing registers or protects these outputs any more. What was asked for before
    to take them back goes on under the new epoch: asked twice it is done once. So rules that an
    INVALIDATED dataset still has go, too. The manifest comes first, while there are rules.
    """
    former_waiting_end(request_ids=[request_id])
    asked = Effect.objects.filter(request_id=request_id, kind__in=TAKING_BACK)
    # a registration that ends just now has the manifest written again
    asked.exclude(~Q(kind=EffectKind.INVALIDATION_MANIFEST), state=EffectState.DONE).update(epoch=request_epoch)
    asked.filter(state=EffectState.DISCARDED).update(state=EffectState.PENDING, done_at=None)  # now it is asked for again
    manifest = list(asked.filter(kind=EffectKind.INVALIDATION_MANIFEST).values_list("key", flat=True))
    datasets = OutputDataset.objects.filter(workflow_id=workflow_id).exclude(state=DatasetState.INVALIDATED)
    effect_requests = []
    for dataset in datasets:
        in_dbs = EffectRequest(EffectKind.DBS_INVALIDATE, dataset.pk, manifest, payload={"dataset_id": dataset.pk})
        after = [*manifest, in_dbs.key]  # rules keep the files as long as they are valid
        payload = {"dataset_id": dataset.pk, "purge": purge}
        effect_requests += [in_dbs, EffectRequest(EffectKind.RUCIO_RELEASE, dataset.pk, after, payload=payload)]
    effects_enqueue(effect_requests=effect_requests, request_id=request_id, request_epoch=request_epoch)
    return len(datasets)


class Parts(NamedTuple):
    """Files of a workflow that are to be taken back, and those blocks among theirs that are taken back whole."""

    files: Sequence[OutputFile]
    whole: frozenset[uuid.UUID]

    @property
    def blocks(self) -> set[uuid.UUID]:
        return {file.block_id for file in self.files} | self.whole


def parts_of(*, workflow_id: uuid.UUID, lfns: Collection[str], blocks: Collection[str]) -> Parts:
    """Valid files by name, and those of whole blocks.

    Raises:
        FieldRefused: the workflow has no such file or block, or it is not one that can be taken back by itself.
    """
    named = ProcessingBlock.objects.filter(workflow_id=workflow_id, dbs_block_name__in=blocks)
    whole = {block.dbs_block_name: block for block in named}
    files = OutputFile.objects.filter(block__workflow_id=workflow_id).defer("lumis", "parents")
    by_name = {file.lfn: file for file in files.filter(lfn__in=lfns)}
    for field, wanted, known in (("files", lfns, by_name.keys()), ("blocks", blocks, whole.keys())):
        if missing := sorted(set(wanted) - known):
            raise FieldRefused(field, f"it has no such output: {missing[0]} ({len(missing)} in all)")
    found = {file.pk: file for file in (*by_name.values(), *files.filter(block__in=[block.pk for block in whole.values()]))}
    parts = Parts([file for file in found.values() if file.validity == Validity.VALID], frozenset(b.pk for b in whole.values()))
    for block in ProcessingBlock.objects.filter(pk__in=parts.blocks):
        if why := block_refused(block):
            raise FieldRefused("blocks" if block.pk in parts.whole else "files", f"{block.dbs_block_name} {why}")
    return parts


def block_refused(block: ProcessingBlock) -> str:
    """Why none of its files can be taken back now; empty if they can."""
    owed = Effect.objects.filter(block=block).exclude(state__in=SETTLED_EFFECT).exclude(kind__in=_NO_OBSTACLE)
    if effect := owed.first():  # it may register or protect something yet, a failed one if it is retried
        owes = f"{effect.get_kind_display().lower()} ({effect.get_state_display().lower()})"
        return f"is still owed: {owes}; wait for it, or discard it"
    coming = not block.dbs_block_closed and block.status != BlockStatus.GIVEN_UP
    return "is not registered as a whole yet" if coming else ""


def children_of(*, workflow_id: uuid.UUID, parts: Parts) -> list[str]:
    """Other valid files of the workflow that were made of these: by their parents, or in datasets that name theirs as parent."""
    others = OutputFile.objects.filter(block__workflow_id=workflow_id, validity=Validity.VALID)
    others = others.exclude(pk__in=[file.pk for file in parts.files])
    datasets = list(OutputDataset.objects.filter(workflow_id=workflow_id))
    taken = {file.dataset_id for file in parts.files}
    names = {dataset.name for dataset in datasets if dataset.pk in taken}
    below = [dataset.pk for dataset in datasets if names & set(dataset.registration.get("parents", ()))]
    made = Q(parents__has_any_keys=[file.lfn for file in parts.files])
    made |= Q(dataset__in=below, unit__in={file.unit_id for file in parts.files})
    return list(others.filter(made).order_by("lfn").values_list("lfn", flat=True))


def parts_ask(*, parts: Parts, request_id: uuid.UUID, request_epoch: int) -> list[str]:
    """Ask for them to be taken back, one effect for each block; asked twice it is done once. Returns the effects' keys."""
    effect_requests = []
    for block in ProcessingBlock.objects.filter(pk__in=parts.blocks).order_by("dbs_block_name"):
        keys = sorted(file.pk for file in parts.files if file.block_id == block.pk)
        whole = block.pk in parts.whole
        of = hashlib.sha256(f"{keys} {whole}".encode()).hexdigest()[:16]
        payload = {"files": keys, "whole": whole}
        effect_requests.append(EffectRequest(EffectKind.FILES_INVALIDATE, f"{block.pk}:{of}", block_id=block.pk, payload=payload))
    asked = effects_enqueue(effect_requests=effect_requests, request_id=request_id, request_epoch=request_epoch)
    discarded = Effect.objects.filter(key__in=asked, state=EffectState.DISCARDED)
    discarded.update(state=EffectState.PENDING, done_at=None, next_attempt_at=clock.now())  # now it is asked for again
    return sorted(asked)


class Progress(NamedTuple):
    """How far one step of an invalidation is: ``done`` of ``of`` rules or files; 0 of 0 before it has begun."""

    step: str
    what: str
    state: str
    done: int
    of: int
    last_error: str


def invalidation_progress(request_id: uuid.UUID) -> list[Progress]:
    """Every step that was asked for, in that order; two queries."""
    rows = Effect.objects.filter(request_id=request_id, kind__in=TAKING_BACK[1:]).select_related("block").order_by("id")
    rows = rows.annotate(done=KT("result__done"), of=KT("result__of"), dataset=KT("payload__dataset_id"))
    found = list(rows.defer("payload", "result", "block__failure_context"))
    names = dict(OutputDataset.objects.filter(pk__in=[row.dataset for row in found if row.dataset]).values_list("pk", "name"))
    return [
        Progress(
            row.kind, row.block.dbs_block_name if row.block is not None else names.get(int(row.dataset), ""), row.state,
            int(row.done or 0), int(row.of or 0), row.last_error,
        )
        for row in found
    ]  # fmt: skip


def outputs_counted(workflow_id: uuid.UUID) -> dict[str, int]:
    """How many datasets, blocks and rules there are to take back."""
    blocks = ProcessingBlock.objects.filter(workflow_id=workflow_id)
    datasets = OutputDataset.objects.filter(workflow_id=workflow_id)
    rules = OutputFile.objects.filter(block__workflow_id=workflow_id).exclude(rule_id="").count()
    rules += blocks.exclude(tape_rule_id="").count() + blocks.exclude(source_rule_id="").count()
    return {
        "datasets": datasets.count(),
        "blocks": blocks.count(),
        "rules": rules + datasets.exclude(disk_rule_id="").count(),
    }


def invalidation_manifest(*, request_name: str, workflow_id: uuid.UUID) -> dict[str, Any]:
    """Everything of a request that is registered or protected outside, as one document."""
    datasets = [_dataset(row) for row in OutputDataset.objects.filter(workflow_id=workflow_id).order_by("name")]
    return {
        "schema": SCHEMA,
        "request_name": request_name,
        "written_at": clock.now().isoformat(),
        "datasets": datasets,
        "totals": {
            "datasets": len(datasets),
            "blocks": sum(len(dataset["blocks"]) for dataset in datasets),
            "rules": sum(len(each["rules"]) for dataset in datasets for each in (dataset, *dataset["blocks"])),
        },
    }


def _dataset(dataset: OutputDataset) -> dict[str, Any]:
    blocks = ProcessingBlock.objects.filter(dataset=dataset).order_by("block_index")
    counted = blocks.annotate(number=Count("files"), size=Sum("files__size_bytes"))
    rules = [{"id": dataset.disk_rule_id, "kind": "disk", "did": dataset.name}] if dataset.disk_rule_id else []
    return {"name": dataset.name, "state": dataset.state, "rules": rules, "blocks": [_block(block) for block in counted]}


def _block(block: Any) -> dict[str, Any]:
    files = OutputFile.objects.filter(block=block).exclude(rule_id="").order_by("lfn")
    rules = [
        {"id": rule, "kind": "source", "did": lfn, "rse": rse} for rule, lfn, rse in files.values_list("rule_id", "lfn", "rse")
    ]
    if block.source_rule_id:
        rules.append({"id": block.source_rule_id, "kind": "source", "did": block.dbs_block_name, "rse": block.origin_rse})
    if block.tape_rule_id:
        rules.append({"id": block.tape_rule_id, "kind": "tape", "did": block.dbs_block_name, "rse": block.dataset.tape_rse})
    return {
        "name": block.dbs_block_name,
        "status": block.status,
        "open_in_dbs": block.dbs_block_open and not block.dbs_block_closed,
        "files": block.number,
        "bytes": block.size or 0,
        "rules": rules,
    }
