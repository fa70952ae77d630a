"""Whether an address of WMS2's web answers 200, for health checks of containers: python -m deploy.run.healthy URL.

Standard library only.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

TIMEOUT_SECONDS = 5.0
# As the proxy would ask that ends TLS in front, so that production does not send us to https.
THROUGH_THE_PROXY = {"X-Forwarded-Proto": "https"}
# Asked directly, whatever proxy the caller's environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def problem(url: str, headers: Mapping[str, str] | None = None, *, seconds: float = 10.0) -> str | None:
    """None when a GET answers 200; else what came instead."""
    try:
        question = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310  (our own address)
        with _OPENER.open(question, timeout=seconds) as answer:
            answer.read(1)
            return None if answer.status == 200 else f"{url} answered {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{url} answered {error.code}: {error.read(2000).decode(errors='replace')}"
    except OSError as error:
        return f"{url}: {error}"


def main(arguments: Sequence[str]) -> int:
    """0 when healthy; else 1, and what came instead on standard error."""
    (url,) = arguments
    found = problem(url, THROUGH_THE_PROXY, seconds=TIMEOUT_SECONDS)
    if found:
        print(found, file=sys.stderr)
    return int(found is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
