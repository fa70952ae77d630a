"""Reading a required environment variable."""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured


def required(name: str) -> str:
    """The variable's value.

    Raises:
        ImproperlyConfigured: when it is missing or empty; names it.
    """
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set. See docs/configuration.md; for the demo's values: make shell-env")
    return value
