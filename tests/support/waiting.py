"""Waiting for what happens by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.side_by_side import PATIENCE

Found = TypeVar("Found")


def until(asked: Callable[[], Found], what: object = "it", *, seconds: float = 60.0) -> Found:
    """The first answer that is true.

    Raises:
        AssertionError: none was in time; with ``what``, or with what that says by then.
    """
    began, pause = time.monotonic(), 0.02
    while not (found := asked()):
        late = time.monotonic() > began + seconds * PATIENCE
        assert not late, f"{what() if callable(what) else what}: not within {seconds * PATIENCE:g} s"
        time.sleep(pause)
        pause = min(pause * 1.2, 0.3)  # what takes long is not asked for all the time
    return found
