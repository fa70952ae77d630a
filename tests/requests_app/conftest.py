"""The scripted world, for all tests of the life cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripted.branching import _of_this_process, world_root
from tests.support.scripted.world import World

__all__ = ["_of_this_process", "world_root"]


@pytest.fixture
def world(request: pytest.FixtureRequest, world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Furnished; ``WORLD`` in a test's module changes its settings, ``SWEEP_EVERY`` how often it looks for what was forgotten."""
    made = World(world_root, monkeypatch, **getattr(request.module, "WORLD", {}))
    made.sweep_every = getattr(request.module, "SWEEP_EVERY", made.sweep_every)
    made.furnish()
    return made
