"""What tests of outputs share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbours import root


@pytest.fixture(name="admin", scope="module")
def _admin() -> Any:
    """Rucio's root account: another client that changes things there, blocks storage elements, approves rules."""
    return root()
