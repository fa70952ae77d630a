"""What a Celery task's declaration says: name, queue, schedule, and whether it can wait. The beat schedule and the routes follow.

Celery itself retries none of them: a run that fails, or that no worker takes before the next one is due, is made up for by
the next; ``wms2.work.failing`` records failures. ``Wms2Config.ready`` imports every ``tasks`` module, so that a process
that only sends, by name, knows the same queues.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from celery import shared_task

#: Ticks and operations have workers of their own (deploy/run/process ticker, verbs), which nothing that lasts may keep busy.
#: For another that serves several queues the broker takes turns between them: effects never wait behind evaluations.
QueueName = Literal["celery", "ticks", "effects", "verbs"]
QUEUES: tuple[QueueName, ...] = get_args(QueueName)

_CYCLE_SECONDS = float(os.environ.get("WMS2_CYCLE_SECONDS") or 60)
#: Requests are admitted, and those that are due are evaluated, so often.
POLL_SECONDS = 2.0
TICK_SECONDS = min(_CYCLE_SECONDS, POLL_SECONDS)
REQMGR2_SECONDS = float(os.environ.get("WMS2_REQMGR2_POLL_SECONDS") or 60)
#: A new effect is notified at once; this is for those that are due later, or tried again.
EFFECTS_SECONDS = min(_CYCLE_SECONDS, 10.0)
#: What is to be said of alerts is looked for so often.
ALERTS_SECONDS = min(_CYCLE_SECONDS, 10.0)
#: Jobs at sites are processed so often.
SITE_SECONDS = min(_CYCLE_SECONDS, 60.0)


@dataclass(frozen=True, slots=True)
class Declared:
    """A task as it was declared; ``every_seconds`` is None for one that only a hint starts."""

    name: str
    queue: QueueName
    beat: str
    every_seconds: float | None
    can_wait: bool


DECLARED: dict[str, Declared] = {}


def task(
    name: str, *, queue: QueueName = "celery", beat: str = "", every: float | None = None, can_wait: bool = False
) -> Callable[[Callable[..., object]], Any]:
    """Make a function the Celery task of this name.

    Args:
        beat: the entry's name in the beat schedule; with it goes ``every``.
        every: seconds from one run to the next, after which a run that no worker has taken expires.
        can_wait: skipped while the service is strained or closed: it looks after what is at rest, and nothing that runs
            waits for it.

    Raises:
        ValueError: the name is declared twice, or an entry has no period or a period no entry.
    """
    if name in DECLARED:
        raise ValueError(f"two Celery tasks are declared as {name}; give one of them another name")
    if bool(beat) != (every is not None):
        raise ValueError(f"the Celery task {name} needs both beat= and every=, or neither of them")
    DECLARED[name] = Declared(name, queue, beat, every, can_wait)
    return shared_task(name=name, ignore_result=True)  # type: ignore[no-any-return]


def beat_schedule() -> dict[str, dict[str, Any]]:
    """Celery's ``beat_schedule`` of all that is declared with a period."""
    return {
        each.beat: {"task": each.name, "schedule": each.every_seconds, "options": {"expires": each.every_seconds}}
        for each in DECLARED.values()
        if each.every_seconds is not None
    }


def routes() -> dict[str, dict[str, str]]:
    """Celery's ``task_routes``: ``send_task`` by name reads these, not the task's own options."""
    return {each.name: {"queue": each.queue} for each in DECLARED.values()}
