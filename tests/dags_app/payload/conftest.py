"""Fixtures of the payload tests: the built zipapp, launchers of the simulated programs, and a workbench on top of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dags_app.payload.build import build_payload
from deploy.simulators.worker.install import install
from tests.support.payload_psets import GENERATE, pset
from tests.support.payload_workbench import Workbench, generating_node, job_document, output, step


@pytest.fixture(scope="session")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp."""
    path = tmp_path_factory.mktemp("payload") / "wms2_payload.pyz"
    build_payload(path)
    return path


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the simulated cmsRun and hadd."""
    directory = tmp_path_factory.mktemp("programs")
    install(directory, Path(sys.executable))
    return directory


@pytest.fixture
def bench(tmp_path: Path, payload: Path, programs: Path) -> Workbench:
    """An empty workbench."""
    return Workbench(tmp_path, payload, programs)


@pytest.fixture
def one_step(bench: Workbench) -> Workbench:
    """A unit of two nodes that generate 20 events in 2 lumis each."""
    generating_unit(bench)
    return bench


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory, payload: Path, programs: Path) -> Workbench:
    """The unit of ``one_step`` with its processing nodes done; not to be changed."""
    bench = Workbench(tmp_path_factory.mktemp("generated"), payload, programs)
    generating_unit(bench)
    for node in ("proc_000000", "proc_000001"):
        bench.process("job", node)
    return bench


@pytest.fixture
def done_unit(generated: Workbench, tmp_path: Path) -> Workbench:
    """A copy of it for this test."""
    return generated.copy_to(tmp_path)


def generating_unit(bench: Workbench) -> None:
    """Prepare the unit of ``one_step``."""
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    nodes = [generating_node(index, 20, 10) for index in (0, 1)]
    bench.prepare(job, nodes, {"step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"})})
