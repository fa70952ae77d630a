"""Asking a loopback HTTP server whether it serves."""

from __future__ import annotations

import urllib.error
import urllib.request

# Loopback is asked directly, whatever proxy the caller's environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def problem(url: str, headers: dict[str, str] | None = None) -> str | None:
    """None when a GET answers 200; else what came instead."""
    try:
        with _OPENER.open(urllib.request.Request(url, headers=headers or {}), timeout=10) as answer:  # noqa: S310  (http, ours)
            answer.read(1)
            return None if answer.status == 200 else f"{url} answered {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{url} answered {error.code}"
    except (OSError, TimeoutError) as error:
        return f"{url}: {error}"
