"""Questions to several services at the same time; what is done with the answers stays in the thread that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

K = TypeVar("K")
R = TypeVar("R")
_PAUSE_SECONDS = 2.0


def side_by_side(questions: Mapping[K, Callable[[], R]], meanwhile: Callable[[], None]) -> Iterator[tuple[K, R]]:
    """The answers as they come, each with its key. A question has a thread and its own time limit, and touches no database; it
    works under the leases of the thread that asks.

    Args:
        meanwhile: called every few seconds while no answer comes; what it raises ends the waiting.
    """
    if not questions:
        return
    threads = ThreadPoolExecutor(max_workers=len(questions))
    try:
        pending = {threads.submit(copy_context().run, ask): key for key, ask in questions.items()}
        while pending:
            done, _ = wait(pending, timeout=_PAUSE_SECONDS, return_when=FIRST_COMPLETED)
            if not done:
                meanwhile()
            for answered in done:
                yield pending.pop(answered), answered.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
