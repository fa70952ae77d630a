"""Limits in the process of a test: ``WMS2_LIMITS`` with some changed. Workers take them as arguments (``stack.worker``)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from deploy.stack.environment import LIMITS, with_limits
from wms2.conf import conf


def set_limits(patch: pytest.MonkeyPatch, **limits: Any) -> None:
    """These hold until the test is over."""
    patch.setenv(LIMITS, with_limits(os.environ, **limits)[LIMITS])
    conf.cache_clear()
