"""A fresh set of simulators for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.simulators import seed
from deploy.simulators.app import Application
from deploy.simulators.client import Caller
from tests.support.simulator_world import DEMO, World, start, stop


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


@pytest.fixture(scope="session")
def demo_state(tmp_path_factory: pytest.TempPathFactory, empty_state: Path) -> Path:
    """Databases with the ConfigCache documents and data tiers of the demo."""
    folder = tmp_path_factory.mktemp("simulators") / "state"
    shutil.copytree(empty_state, folder)
    found, server = start(folder)
    seed.apply(Caller(found.url), DEMO / "seed.json")
    stop(found, server)
    return folder


@pytest.fixture
def prepared(tmp_path: Path, demo_state: Path) -> Iterator[World]:
    """All services, with ConfigCache documents and tiers of the demo."""
    shutil.copytree(demo_state, tmp_path / "state")
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
