"""Runs effects: claim and commit, call with no transaction open, record and commit (docs/design/model.md, Effects).

Several are claimed at once, then called and recorded one by one. Safe in parallel and after any crash: a claim is a lease with a
rising ``claim_epoch``, renewed while the call lasts; the result of one that has run out is dropped, and the call is made again.
A claim of a former epoch of its request is not renewed and ends with its present call; what takes the outputs back waits for it.
Retries follow the spec's schedule, spread by chance, and count from the first failure. What the life cycle has to know wakes the
request in the transaction that records it (ADR 0015).
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial, reduce
from itertools import islice
from operator import or_
from typing import Any

import structlog
from django.db import transaction
from django.db.models import BooleanField, F, QuerySet
from django.db.models.expressions import RawSQL
from structlog.contextvars import bound_contextvars

from outputs_app.effects import HANDLERS, Result
from outputs_app.effects.invalidation import ENDED, TAKING_BACK, former_settle, former_waiting_end, manifest_renew
from outputs_app.effects.time_slices import TIME_SLICE_SECONDS, TimeSliceOver, lease_end, still_claimed
from outputs_app.models import (
    AFTERWARDS,
    REPORTS,
    RULED,
    SETTLED_EFFECT,
    BlockStatus,
    Effect,
    EffectKind,
    EffectState,
    ProcessingBlock,
)
from outputs_app.states import blocks_become
from wms2.conf import conf
from wms2.errors import AwaitsPerson, LeaseLost, ResourceBusy, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.metrics.series import EFFECTS_TOTAL, POOL_WAIT_SECONDS
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.due import mark_due
from wms2.runtime.heartbeat import lease_kept_alive
from wms2.runtime.in_force import in_force
from wms2.runtime.locks import DATABASE_AWAY
from wms2.runtime.passes import row_by_itself
from wms2.runtime.sql import sql_rows
from wms2.work.resources import REGISTRATION, resource
from wms2.work.workers import may_take

#: Pause between two checks of a tape rule that waits for approval.
_APPROVAL_CHECK_SECONDS = 3600.0

log = structlog.get_logger(__name__)
#: Effects of so many blocks are claimed at once, and so many due ones looked through for them.
CLAIMED_TOGETHER, MOST_READ = 10, 200
#: Whose workers run effects.
QUEUE = "effects"
#: Until an effect that found no slot free is due again, at most.
NO_SLOT_SECONDS = 5.0
#: After a claim a worker begins effects for so long; the rest goes back, since what was true at the claim may no longer be.
BEGIN_SECONDS = 2.0


def effects_run_due(*, owner: str, limit: int = 100) -> None:
    """Run due effects until none is left, ``limit`` is reached, or a turn is over."""
    ends_at = time.monotonic() + TIME_SLICE_SECONDS
    # the next tick goes on; evaluations wait for this worker too
    while limit > 0 and time.monotonic() <= ends_at and may_take(QUEUE):
        claimed = effects_claim(owner=owner, most=min(limit, CLAIMED_TOGETHER))
        if not claimed:
            break
        limit -= len(claimed)
        begin_until = time.monotonic() + BEGIN_SECONDS
        claimed.sort(key=lambda effect: effect.kind in TAKING_BACK)  # those may last long: nothing waits behind them
        for number, effect in enumerate(claimed):
            if number and time.monotonic() > begin_until:
                _give_back(claimed[number:])
                break
            crash_point(f"{effect.kind}.claimed")
            # what is owed for a whole block belongs to no DAG alone
            dag_id = str(effect.unit.dag_id) if effect.unit is not None else ""
            with (
                bound_contextvars(request_name=effect.request.request_name, dag_id=dag_id),
                row_by_itself("effect", effect.key, partial(_record_broken, effect)),
            ):
                _run(effect)


#: Pending and due, or claimed by a worker that went silent.
_FREE = f"""
(effects.state = '{EffectState.PENDING}' AND effects.next_attempt_at <= {{now}}
  OR effects.state = '{EffectState.CLAIMED}' AND effects.claim_expires_at < {{now}})"""
#: Whether there is any, by the beginnings of two indexes, however many wait.
_ANY = f"""
SELECT (SELECT min(next_attempt_at) FROM effects WHERE state = '{EffectState.PENDING}') <= {{now}}
  OR (SELECT min(claim_expires_at) FROM effects WHERE state = '{EffectState.CLAIMED}') < {{now}}"""  # noqa: S608  (only constants, here and below)
#: Of the request's present epoch, with every dependency settled; one at a time per block: DBS's guards look before they write
#: (``wms2.adapters.dbs``). Blocks that are busy are few and read once, however many wait.
_DUE = f"""{_FREE}
AND EXISTS (SELECT FROM requests WHERE requests.id = effects.request_id AND requests.epoch = effects.epoch)
AND NOT EXISTS (
  SELECT FROM effects_depends_on JOIN effects first ON first.id = to_effect_id
  WHERE from_effect_id = effects.id AND first.state NOT IN ({", ".join(f"'{state}'" for state in SETTLED_EFFECT)}))
AND (effects.block_id IS NULL OR effects.block_id NOT IN (
  SELECT busy.block_id FROM effects busy
  WHERE busy.block_id IS NOT NULL AND busy.state = '{EffectState.CLAIMED}' AND busy.claim_expires_at >= {{now}}))"""  # noqa: S608
_OLDEST = f"""
SELECT id, block_id FROM effects WHERE kind = ANY(%(kinds)s) AND id <> ALL(%(passed)s)
AND (block_id IS NULL OR block_id <> ALL(%(locked)s)) AND {_DUE} ORDER BY next_attempt_at, id LIMIT {MOST_READ}
"""  # noqa: S608
#: Requests of which something waits under a former epoch, and is not wanted any more: each claim would read it.
_FORMER = f"""
SELECT DISTINCT request_id FROM effects JOIN requests ON requests.id = effects.request_id AND requests.epoch > effects.epoch
WHERE effects.state = '{EffectState.PENDING}' AND effects.next_attempt_at <= {{now}} AND kind = ANY(%(ended)s)
"""  # noqa: S608
#: Looked at again under the locks: two claims of one block may have been chosen at the same moment.
_TAKE = f"""
WITH mine AS (
  SELECT id FROM effects WHERE id = ANY(%(chosen)s) AND (block_id IS NULL OR block_id = ANY(%(held)s)) AND {_DUE}
  FOR NO KEY UPDATE SKIP LOCKED)
UPDATE effects SET state = '{EffectState.CLAIMED}', claimed_by = %(owner)s, claim_expires_at = %(until)s,
  claim_epoch = claim_epoch + 1, attempts = attempts + 1
FROM mine WHERE effects.id = mine.id RETURNING effects.id
"""  # noqa: S608


def due_effects() -> QuerySet[Effect]:
    """Those that a worker may claim now. Kinds of a later release are left to its workers."""
    due = RawSQL(_DUE.format(now=clock.in_plain_sql()), (), BooleanField())  # noqa: S611
    return Effect.objects.filter(due, kind__in=list(HANDLERS))


def effects_claim(*, owner: str, most: int) -> list[Effect]:
    """Take the oldest due effects that no other worker holds, of each block one; blocks with locked rows are passed over."""
    passed: set[int] = set()
    locked: set[uuid.UUID] = set()
    while chosen := _oldest(most, passed, locked):
        with transaction.atomic():
            blocks = {block_id for block_id in chosen.values() if block_id is not None}
            taken = ProcessingBlock.objects.select_for_update(skip_locked=True, no_key=True).filter(pk__in=blocks).order_by()
            held = set(taken.values_list("pk", flat=True))
            values = {"chosen": list(chosen), "held": list(held), "owner": owner, "until": lease_end()}
            if mine := [pk for (pk,) in _rows(_TAKE, values)]:
                claimed = Effect.objects.filter(pk__in=mine).select_related("block__dataset", "request", "unit")
                return _waited(list(claimed.order_by("next_attempt_at", "id")))
        locked |= blocks - held
        passed |= chosen.keys()
    return []


def _oldest(most: int, passed: Collection[int], locked: Collection[uuid.UUID]) -> dict[int, uuid.UUID | None]:
    """So many effects with their blocks, of each block one. Mostly none is due, which one query shows."""
    if _rows(_ANY, {}) != [(True,)]:
        return {}
    oldest: dict[object, tuple[int, uuid.UUID | None]] = {}
    found = _rows(_OLDEST, {"kinds": list(HANDLERS), "passed": list(passed), "locked": list(locked)})
    if len(found) < MOST_READ and (former := _rows(_FORMER, {"ended": list(ENDED)})):
        former_waiting_end(request_ids=[request_id for (request_id,) in former])
    for pk, block_id in found:
        oldest.setdefault(block_id or pk, (pk, block_id))
    return dict(islice(oldest.values(), most))


def _rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return sql_rows(statement.format(now=clock.in_plain_sql()), values)


def _waited(effects: list[Effect]) -> list[Effect]:
    now = clock.now()
    for effect in effects:
        POOL_WAIT_SECONDS.labels(QUEUE).observe(max(0.0, (now - effect.next_attempt_at).total_seconds()))
    return effects


def _give_back(effects: Sequence[Effect]) -> None:
    """Claimed and not begun: what came before them took long, so that others may be quicker, or have taken them over."""
    reduce(or_, map(still_claimed, effects)).update(
        state=EffectState.PENDING, attempts=F("attempts") - 1, claimed_by="", claim_expires_at=None
    )


def _record_broken(effect: Effect, problem: str) -> None:
    """Recording its failure failed too. Its claim runs out, as where a row stays locked, and the call is made again."""
    still_claimed(effect).update(last_error=problem)


def _renew(effect: Effect) -> bool:
    return still_claimed(effect).update(claim_expires_at=lease_end()) == 1


def _run(effect: Effect) -> None:
    # over all workers DBS gets so many blocks at once
    slot = resource(REGISTRATION, 1, effect.key) if effect.kind == EffectKind.DBS_BLOCK else nullcontext()
    life_seconds, until = conf().effect_lease_seconds, effect.claim_expires_at
    alive = lease_kept_alive(partial(_renew, effect), life_seconds=life_seconds, expires_at=until, effect=effect.key)
    try:
        with alive, slot:
            result = HANDLERS[effect.kind].call(effect)
    except TimeSliceOver:
        _record_portion(effect)
    except ResourceBusy as error:
        _record_portion(effect, f"waits for {error}", random.uniform(0.5, 1.0) * NO_SLOT_SECONDS)  # noqa: S311
    except LeaseLost as error:
        former_settle(effect)
        log.warning("effect gave way", effect=effect.key, why=str(error))
    except ServiceRejected as error:
        first = effect.first_failed_at or clock.now()
        _record_error(effect, "refused", error, state=EffectState.REFUSED, first_failed_at=first)
        log.error("effect refused, an operator must look", effect=effect.key, error=str(error))
    except AwaitsPerson as error:  # looked at again for as long as it takes, and an earlier failure's time is over
        next_at = clock.now() + timedelta(seconds=_APPROVAL_CHECK_SECONDS)
        _record_error(effect, "waits", error, state=EffectState.PENDING, first_failed_at=None, next_attempt_at=next_at)
        log.info("effect waits for a person", effect=effect.key, why=str(error), next_look_at=next_at.isoformat())
    except ServiceUnavailable as error:
        _record_failure(effect, error)
    except Exception as error:  # one broken effect must neither stop the others nor be claimed again for ever
        log.exception("effect broke", effect=effect.key)
        _record_failure(effect, error)
    else:
        crash_point(f"{effect.kind}.called")
        try:
            _record_success(effect, result)
        except DATABASE_AWAY:
            raise
        except Exception as error:
            log.exception("result of an effect not recorded", effect=effect.key)
            _record_failure(effect, error)
        crash_point(f"{effect.kind}.recorded")


#: If the claim is still ours and has not run out; of a former epoch too: what takes the outputs back has waited for it. Returns
#: whether more is to come of its block.
_SUCCEED = f"""
UPDATE effects SET state = '{EffectState.DONE}', result = %(result)s, done_at = {{now}}, last_error = '', claimed_by = '',
  claim_expires_at = NULL
WHERE id = %(id)s AND claim_epoch = %(claim_epoch)s AND state = '{EffectState.CLAIMED}' AND claim_expires_at >= {{now}}
RETURNING EXISTS (
  SELECT FROM processing_blocks
  WHERE id = effects.block_id AND status IN ('{BlockStatus.OPEN}', '{BlockStatus.COMPLETE}'))"""  # noqa: S608


def _record_success(effect: Effect, result: Result) -> None:
    """The life cycle has nothing to do with it while the block's last effect is still to come.

    That is its tape rule, which an OPEN block is yet to ask for and a COMPLETE one has asked for. It cannot be claimed before
    this success is committed (one effect of a block at a time), so the request is woken by that. It is woken here, too, if an
    error was reported before.
    """
    with transaction.atomic():
        values = {"id": effect.pk, "claim_epoch": effect.claim_epoch, "result": json.dumps(result)}
        closed = _rows(_SUCCEED, values)
        if not closed:
            _dropped(effect)
            return
        HANDLERS[effect.kind].record(effect, result)
        if effect.kind not in (*TAKING_BACK, *REPORTS, EffectKind.BLOCK_VALIDATE):
            manifest_renew(request_id=effect.request_id)
        if closed != [(True,)] or effect.kind in (*TAKING_BACK, EffectKind.RUCIO_TAPE) or effect.last_error:
            mark_due([effect.request_id], "effect done")
    EFFECTS_TOTAL.labels(effect.kind, "done").inc()
    log.info("effect done", effect=effect.key, attempts=effect.attempts)


def _record_portion(effect: Effect, waits_for: str = "", seconds: float = 0.0) -> None:
    """What it did is recorded, the rest is due again, behind what waits longer; none of this was a failed attempt."""
    due_at = clock.now() + timedelta(seconds=seconds)
    changes = {"state": EffectState.PENDING, "next_attempt_at": due_at, "attempts": F("attempts") - 1, "last_error": waits_for}
    if _close_claim(effect, **changes, **({} if waits_for else {"first_failed_at": None})):
        EFFECTS_TOTAL.labels(effect.kind, "portion").inc()
        log.info("effect goes on in another turn", effect=effect.key)


def _record_error(effect: Effect, outcome: str, error: ServiceError, **changes: object) -> None:
    """What came of the call in place of a result, on its block too if it failed; the request hears of it."""
    with transaction.atomic():
        if _close_claim(effect, last_error=str(error), **changes):
            if effect.block_id is not None and not isinstance(error, AwaitsPerson):
                ProcessingBlock.objects.filter(pk=effect.block_id).update(
                    rucio_last_error=str(error), rucio_attempt_count=F("rucio_attempt_count") + 1, last_rucio_attempt=clock.now()
                )
                if outcome == "dead" and effect.kind not in AFTERWARDS:
                    _fail_block(effect, effect.block_id)
            mark_due([effect.request_id], f"effect {outcome}")
    EFFECTS_TOTAL.labels(effect.kind, outcome).inc()


#: Of calls to ReqMgr2, until a clone whose answer was lost is looked for again.
_CLONE_TIMEOUTS = 4


def _record_failure(effect: Effect, error: Exception) -> None:
    """Of a service, or a defect of WMS2's own."""
    if not isinstance(error, ServiceUnavailable):
        error = ServiceUnavailable("wms2", effect.kind, f"{type(error).__name__}: {error}")
    now = clock.now()
    first = effect.first_failed_at or now
    # the request's own override (``requests_app.work.overrides``) comes before the limit
    patience = effect.request.overrides.get("effect_max_retry_seconds", in_force().effect_max_retry_seconds)
    until = first + timedelta(seconds=float(patience))
    if now >= until:
        state, next_at = EffectState.DEAD, now
    else:
        pauses, most = conf().effect_backoff_seconds, in_force().effect_max_pause_seconds
        pause = min(pauses[min(effect.attempts - 1, len(pauses) - 1)], most) * random.uniform(0.0, 1.0)  # noqa: S311  "full jitter"
        if effect.kind == EffectKind.REQMGR2_CLONE:  # what was sent may still be carried out, and is found only then
            pause = max(pause, _CLONE_TIMEOUTS * conf().service_timeout_seconds)
        state, next_at = EffectState.PENDING, min(now + timedelta(seconds=pause), until)  # the last try is at the limit
    outcome = "dead" if state is EffectState.DEAD else "failed"
    _record_error(effect, outcome, error, state=state, first_failed_at=first, next_attempt_at=next_at)
    log.warning("effect failed", effect=effect.key, error=str(error), state=state.value)


def _close_claim(effect: Effect, **values: object) -> bool:
    """Write the outcome if the claim is still ours; a newer claim has made or will make the call itself."""
    if still_claimed(effect).update(claimed_by="", claim_expires_at=None, **values):
        return True
    _dropped(effect)
    return False


def _dropped(effect: Effect) -> None:
    former_settle(effect)
    log.warning("result of an older claim dropped", effect=effect.key, claim_epoch=effect.claim_epoch)


def _fail_block(effect: Effect, block_id: uuid.UUID) -> None:
    """Retries used up: the block is FAILED with what an operator needs to judge it (spec 4.7)."""
    block = ProcessingBlock.objects.select_for_update().get(pk=block_id)
    context = {
        "effect": effect.key,
        "dataset": block.dataset_name,
        "block": block.dbs_block_name,
        "closed_in_dbs": block.dbs_block_closed,
        "work_units": f"{block.members.filter(done=True).count()}/{block.total_work_units}",
        "protected_files": block.files.filter(RULED).count(),
        "tape_rule": block.tape_rule_id,
        "attempts": effect.attempts,
        "first_failed_at": (effect.first_failed_at or clock.now()).isoformat(),
        "last_error": effect.last_error or block.rucio_last_error,
    }
    blocks_become(ProcessingBlock.objects.filter(pk=block.pk), BlockStatus.FAILED, failure_context=context)
