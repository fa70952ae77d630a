"""A fresh set of simulators for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.simulators import seed
from deploy.simulators.app import Application
from deploy.simulators.client import Caller
from tests.support.simulator_world import DEMO, World, bulkblock, make_open_block, running


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty databases, made once: copying them is much faster than making them for each test."""
    folder = tmp_path_factory.mktemp("simulators") / "state"
    Application(folder).close()
    return folder


@pytest.fixture
def world(tmp_path: Path, empty_state: Path) -> Iterator[World]:
    """All services, empty."""
    with running(tmp_path / "state", begins_as=empty_state) as found:
        yield found


@pytest.fixture(scope="session")
def demo_state(tmp_path_factory: pytest.TempPathFactory, empty_state: Path) -> Path:
    """Databases with the ConfigCache documents and data tiers of the demo."""
    folder = tmp_path_factory.mktemp("simulators") / "state"
    with running(folder, begins_as=empty_state) as found:
        seed.apply(Caller(found.url), DEMO / "seed.json")
    return folder


@pytest.fixture
def prepared(tmp_path: Path, demo_state: Path) -> Iterator[World]:
    """All services, with ConfigCache documents and tiers of the demo."""
    with running(tmp_path / "state", begins_as=demo_state) as found:
        yield found


@pytest.fixture
def sequential_world(tmp_path: Path, empty_state: Path) -> Iterator[World]:
    """The same with DBS in its sequential mode."""
    with running(tmp_path / "state", "sequential", begins_as=empty_state) as found:
        yield found


@pytest.fixture
def open_block(world: World) -> None:
    """DBS has an open block without files."""
    make_open_block(world)


@pytest.fixture
def three_files(world: World) -> None:
    """DBS has a closed block of three files."""
    assert world.dbs("POST", "bulkblocks", bulkblock()).status_code == 200
