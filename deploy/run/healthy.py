"""Whether an address of WMS2's web answers 200, for health checks of containers: python -m deploy.run.healthy URL.

It speaks as the proxy would that ends TLS in front, so that production does not send it to https. Standard library only.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

TIMEOUT_SECONDS = 5


def main(arguments: Sequence[str]) -> int:
    """0 when healthy; else 1, and what came instead on standard error."""
    (url,) = arguments
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        question = urllib.request.Request(url, headers={"X-Forwarded-Proto": "https"})  # noqa: S310  (our own address)
        with opener.open(question, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        print(f"{url} answered {error.code}: {error.read(2000).decode(errors='replace')}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
