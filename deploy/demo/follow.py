"""``python -m deploy.demo.follow``: print where the requests stand whenever that changes, until stopped."""

from __future__ import annotations

import sys
import time
from functools import partial

import django
from django.db import InterfaceError, OperationalError, close_old_connections

from deploy.demo.waiting import Progress

POLL_SECONDS = 2.0


def main() -> int:
    django.setup()
    from deploy.demo.rows import status_details  # models can only be imported after the set-up

    progress = Progress(status_details, partial(print, flush=True), OperationalError, InterfaceError)
    while True:
        close_old_connections()
        progress.step()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
