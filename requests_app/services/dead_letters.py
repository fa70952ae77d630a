"""Dead letters: what each kind means, and how it is retried or discarded, by its owner's service if there is one (ADR 0028)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dags_app.models import DAG, Leftover
from outputs_app.models import Comparison, Effect, StorageCheck
from outputs_app.services import effect_discard, effect_retry_now
from requests_app.harvesting.jobs import harvest_decide
from requests_app.models import DeadLetter, DeadLetterKind, Harvest, HarvestState, ReqMgr2Request, RequestStatus
from wms2.actions import must_apply
from wms2.audit import audited
from wms2.errors import StaleState
from wms2.models import FailingTask
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.notify import CHECK_STORAGE, PACK_DAGS, POLL_REQMGR2, RECONCILE, REMOVE_LEFTOVERS, notify
from wms2.work.failing import task_discard, task_retry

K = DeadLetterKind
#: What it means, and what to do.
ADVICE = {
    K.EFFECT: "A service refuses a registration, or did not answer for days. Put right what it says, then retry; discarding gives"
    " it up, with its block if that rests on it.",
    K.HARVEST: "DQM could not be harvested after all attempts. Look at its last job, then retry; discarded nothing is uploaded.",
    K.LEFTOVER: "Files that are not needed cannot be removed. Ask the site; it is tried on. Discarded they stay where they are.",
    K.STORAGE: "A storage cannot be looked at. Ask the site; it is tried on. Discarded its block counts as not looked at there.",
    K.COMPARISON: "DBS or Rucio cannot be compared for hours. It is tried on; discarded, only when it is asked for.",
    K.PACK: "The directory of an ended DAG cannot be packed. See the file system; retry has it tried at once.",
    K.REQMGR2: "A request of our team cannot be taken or followed. Correct or reject it in ReqMgr2; retry looks at it at once.",
    K.TASK: "A task of the schedule fails again and again. See its error; discarded it is not shown until it has worked once.",
}
Act = Callable[..., None]


def dead_letter_retry(*, dead_letter: DeadLetter, actor: str, reason: str) -> None:
    """Have it tried again now.

    Raises:
        InvalidTransition, StaleState: it is over by now, or its owner refuses.
    """
    _ACTS[K(dead_letter.kind)][0](dead_letter, actor, reason)


def dead_letter_discard(*, dead_letter: DeadLetter, actor: str, reason: str) -> None:
    """Give it up, or hear no more of it.

    Raises:
        InvalidTransition, StaleState: it cannot be given up here, it is over by now, or its owner refuses.
    """
    must_apply(dead_letter, discard_refused(dead_letter))
    _ACTS[K(dead_letter.kind)][1](dead_letter, actor, reason)


def discard_refused(dead_letter: DeadLetter) -> str:
    """Why it cannot be discarded; empty if it can."""
    if dead_letter.kind in (K.PACK, K.REQMGR2):
        return "It is not given up here; put right what it says."
    if (
        dead_letter.kind == K.LEFTOVER
        and dead_letter.request is not None
        and dead_letter.request.status == RequestStatus.CLEANING
    ):
        return "Its request is being cleaned; accept there what cannot be removed."
    return ""


def _by(model: Any, service: Act, name: str, **more: Any) -> Act:
    """By the service of the owner."""

    def act(dead_letter: DeadLetter, actor: str, reason: str) -> None:
        row = model.objects.filter(pk=dead_letter.row).first()
        if row is None:
            raise StaleState(f"{dead_letter} is over by now")
        service(**{name: row}, actor=actor, reason=reason, **more)

    return act


def _set(model: Any, task: str, done: str, values: Callable[[str], dict[str, Any]]) -> Act:
    """By writing when it is due, or that it is settled."""

    def act(dead_letter: DeadLetter, actor: str, reason: str) -> None:
        with audited(
            actor=actor, action=f"{dead_letter.kind}_{done}", target=dead_letter.what, target_type=dead_letter.kind, reason=reason
        ):
            model.objects.filter(pk=dead_letter.row).update(**values(f"discarded by {actor}: {reason}"))
            if dead_letter.request is not None:
                mark_due([dead_letter.request.pk], f"{dead_letter.kind} {done}")
            if task:
                notify(task)

    return act


def _again(reason: str) -> dict[str, Any]:
    return {"next_try_at": clock.now(), "tries": 0}


_harvest = partial(_by, Harvest, harvest_decide, "harvest")
_ACTS: dict[DeadLetterKind, tuple[Act, Act]] = {
    K.EFFECT: (_by(Effect, effect_retry_now, "effect"), _by(Effect, effect_discard, "effect")),
    K.HARVEST: (_harvest(state=HarvestState.WAITING), _harvest(state=HarvestState.DISCARDED)),
    K.LEFTOVER: (
        _set(Leftover, REMOVE_LEFTOVERS, "retry", _again),
        _set(Leftover, "", "discard", lambda reason: {"settled_at": clock.now(), "problem": reason}),
    ),
    K.STORAGE: (
        _set(StorageCheck, CHECK_STORAGE, "retry", _again),
        _set(StorageCheck, "", "discard", lambda reason: {"done_at": clock.now(), "problem": f"not looked at: {reason}"}),
    ),
    K.COMPARISON: (
        _set(Comparison, RECONCILE, "retry", lambda reason: {"due_at": clock.now(), "asked_at": clock.now()}),
        _set(Comparison, "", "discard", lambda reason: {"due_at": None, "last_error": ""}),
    ),
    K.PACK: (_set(DAG, PACK_DAGS, "retry", lambda reason: {"pack_tried_at": None}),) * 2,
    K.REQMGR2: (_set(ReqMgr2Request, POLL_REQMGR2, "retry", lambda reason: {"compared_at": None}),) * 2,
    K.TASK: (_by(FailingTask, task_retry, "task"), _by(FailingTask, task_discard, "task")),
}
