"""Attributes of a ClassAd with their absence and kind made plain. Owns nothing of their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import classad2

from dags_app.dagman.values import DagmanFileError


def integer(ad: Mapping[str, Any], name: str) -> int:
    """An attribute that has to be there.

    Raises:
        DagmanFileError: it is not, or it is no number.
    """
    value = optional_integer(ad, name)
    if value is None:
        raise DagmanFileError(f"{name} is missing or not a number: {ad.get(name)!r}")
    return value


def optional_integer(ad: Mapping[str, Any], name: str) -> int | None:
    """An integer or boolean attribute; None when it is absent or undefined. A value of another kind counts as absent."""
    value = ad.get(name)
    return int(value) if isinstance(value, int) and not isinstance(value, classad2.Value) else None


def text(ad: Mapping[str, Any], name: str) -> str | None:
    """A string attribute; None when it is absent or empty."""
    value = ad.get(name)
    return value if isinstance(value, str) and value else None
