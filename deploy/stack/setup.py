"""``make setup``: everything that is installed, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from deploy.stack import tools, venv
from deploy.stack.paths import Layout
from deploy.stack.steps import cancel, say

PARTS: Mapping[str, Callable[[Layout], None]] = {
    "python environment": venv.ensure,
    "htcondor": tools.ensure_htcondor,
    "rucio": tools.ensure_rucio,
}
FOR_TESTS: Mapping[str, Callable[[Layout], None]] = {"browser": tools.ensure_browser}
HEARTBEAT_SECONDS = 15.0


def run_all(layout: Layout, *, tests: bool = False) -> None:
    """Install what is missing; with ``tests`` also what only they need. A failure or an interruption of one ends the others."""
    parts = {**PARTS, **FOR_TESTS} if tests else PARTS
    layout.tools.mkdir(parents=True, exist_ok=True)
    layout.state_root.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        futures = {pool.submit(part, layout): name for name, part in parts.items()}
        try:
            _wait(futures)
        except BaseException:
            cancel()
            raise


def _wait(futures: Mapping[Future[None], str]) -> None:
    begun, told = time.monotonic(), time.monotonic()
    while True:
        # A short wait: Python handles signals between waits.
        done, pending = wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if not pending:
            return
        if time.monotonic() - told > HEARTBEAT_SECONDS:
            told = time.monotonic()
            say(f"still installing: {', '.join(sorted(futures[f] for f in pending))} ({told - begun:.0f} s)")
