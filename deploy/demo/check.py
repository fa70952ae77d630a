"""``python -m deploy.demo.check``: wait for every request to complete, then verify what was made from outside. Exit 0 or 1.

The environment is WMS2's own (``docs/configuration.md``). WMS2_DEMO_TIMEOUT_SECONDS (600) limits the waiting.
"""

from __future__ import annotations

import os
import sys

import django

TIMEOUT_VARIABLE, TIMEOUT_SECONDS = "WMS2_DEMO_TIMEOUT_SECONDS", 600.0


def limit_seconds(text: str) -> float:
    """The time limit out of the environment.

    Raises:
        SystemExit: it is no positive number.
    """
    try:
        value = float(text or TIMEOUT_SECONDS)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise SystemExit(f"{TIMEOUT_VARIABLE}={text!r} is not a positive number of seconds")
    return value


def main() -> int:
    limit = limit_seconds(os.environ.get(TIMEOUT_VARIABLE, ""))
    # The Rucio client reads its configuration where this says, and may do so when it is imported.
    os.environ["RUCIO_HOME"] = os.environ.get("WMS2_RUCIO_HOME", "")
    django.setup()
    from deploy.demo.verifying import run  # models can only be imported after the set-up

    return run(limit)


if __name__ == "__main__":
    sys.exit(main())
