"""``python -m deploy.demo.progress``: one line on where the requests stand."""

from __future__ import annotations

import sys

import django


def main() -> int:
    django.setup()
    from deploy.demo.rows import standings  # models can only be imported after the set-up

    print(" · ".join(standing.line() for standing in standings()) or "no request yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
