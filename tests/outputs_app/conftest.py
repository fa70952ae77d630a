"""What tests of outputs share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rucio import plain_client, rucio_home


@pytest.fixture(name="admin", scope="module")
def _admin() -> Any:
    """Rucio's root account: another client that changes things there."""
    return plain_client(rucio_home().parent / "admin")
