"""``make setup``: everything that is installed, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from deploy.nginx.install import PACKAGES as NGINX
from deploy.prometheus.install import PACKAGES as PROMETHEUS
from deploy.stack import tools, venv
from deploy.stack.paths import Layout
from deploy.stack.services import monitoring
from deploy.stack.steps import each_of, say
from deploy.xrootd.install import PACKAGES as XROOTD

PARTS: Mapping[str, Callable[[Layout], None]] = {
    "python environment": venv.ensure,
    "htcondor": tools.ensure_htcondor,
    "rucio": tools.ensure_rucio,
    "xrootd": partial(tools.ensure, XROOTD),
}
MONITORING: Mapping[str, Callable[[Layout], None]] = {"prometheus": partial(tools.ensure, PROMETHEUS)}
FOR_TESTS: Mapping[str, Callable[[Layout], None]] = {
    "browser": tools.ensure_browser,
    "nginx": partial(tools.ensure, NGINX),
    **MONITORING,
}
HEARTBEAT_SECONDS = 15.0


def run_all(layout: Layout, *, tests: bool = False) -> None:
    """Install what is missing; with ``tests`` also what only they need, with MONITORING=1 what the demo then needs.

    A failure or an interruption of one ends the others.
    """
    parts = {**PARTS, **(FOR_TESTS if tests else {}), **(MONITORING if monitoring.wanted() else {})}
    layout.tools.mkdir(parents=True, exist_ok=True)
    layout.state_root.mkdir(parents=True, exist_ok=True)
    begun = said = time.monotonic()

    def heartbeat(names: Collection[str]) -> None:
        nonlocal said
        if time.monotonic() - said > HEARTBEAT_SECONDS:
            said = time.monotonic()
            say(f"still installing: {', '.join(sorted(names))} ({said - begun:.0f} s)")

    each_of({name: partial(part, layout) for name, part in parts.items()}, waiting=heartbeat)
