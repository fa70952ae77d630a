"""A fresh set of simulators for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.simulators.app import Application
from tests.simulators.world import World, start, stop


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty databases, made once: copying them is much faster than making them for each test."""
    folder = tmp_path_factory.mktemp("simulators") / "state"
    Application(folder).close()
    return folder


@pytest.fixture
def world(tmp_path: Path, empty_state: Path) -> Iterator[World]:
    """All services, empty."""
    shutil.copytree(empty_state, tmp_path / "state")
    found, server = start(tmp_path / "state")
    yield found
    stop(found, server)


@pytest.fixture
def sequential_world(tmp_path: Path, empty_state: Path) -> Iterator[World]:
    """The same with DBS in its sequential mode."""
    shutil.copytree(empty_state, tmp_path / "state")
    found, server = start(tmp_path / "state", "sequential")
    yield found
    stop(found, server)
