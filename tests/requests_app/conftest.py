"""The scripted world, for all tests of the life cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripted.world import World


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Furnished; ``WORLD`` in a test's module changes its settings, ``SWEEP_EVERY`` how often it looks for what was forgotten."""
    made = World(tmp_path, monkeypatch, **getattr(request.module, "WORLD", {}))
    made.sweep_every = getattr(request.module, "SWEEP_EVERY", made.sweep_every)
    made.furnish()
    return made
