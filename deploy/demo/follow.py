"""``python -m deploy.demo.follow``: print where the requests stand whenever that changes, until stopped."""

from __future__ import annotations

import sys
import time

import django
from django.db import OperationalError, close_old_connections

POLL_SECONDS = 2.0


def main() -> int:
    django.setup()
    from deploy.demo.rows import standings  # models can only be imported after the set-up

    told: dict[str, str] = {}
    while True:
        close_old_connections()
        try:
            now = {standing.name: standing.line() for standing in standings()}
        except OperationalError as error:  # the database is restarting: the supervisor tells of it
            print(f"the database does not answer: {error}", file=sys.stderr)
            now = told
        for name, line in now.items():
            if told.get(name) != line:
                print(line, flush=True)
        told = now
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
