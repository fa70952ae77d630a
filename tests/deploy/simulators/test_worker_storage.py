"""The simulated programs find and read files as the site publishes its storage: by catalogue, prefix and rule, and over root://."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dags_app.payload.run.fjr import FrameworkReport, read_framework_report
from deploy.simulators.worker.install import install
from tests.support.xrootd import OwnServer, serving

SITE, LFN = "T2_XX_Test", "/store/data/Era/file.root"
WRITES = """
import FWCore.ParameterSet.Config as cms
process = cms.Process("WRITE")
process.source = cms.Source("EmptySource")
process.maxEvents.input = 25
process.out = cms.OutputModule("PoolOutputModule", fileName = cms.untracked.string("file:in.root"))
"""
READS = """
import FWCore.ParameterSet.Config as cms
process = cms.Process("READ")
process.source = cms.Source("PoolSource", fileNames = cms.untracked.vstring("{name}"))
process.maxEvents.input = -1
process.out = cms.OutputModule("PoolOutputModule", fileName = cms.untracked.string("file:out.root"))
"""
CATALOGUES = '<site-local-config><site name="{site}"><data-access>{catalogues}</data-access></site></site-local-config>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with serving(tmp_path_factory.mktemp("storage")) as running:
        yield running


@dataclass(frozen=True)
class Node:
    """A worker node at ``SITE``, with the simulated programs and XRootD's clients."""

    here: Path
    server: OwnServer

    def publish(self, *protocols: dict[str, Any], catalogues: tuple[str, ...] = ()) -> None:
        """The site's storage: one volume with these protocols; ``catalogues`` are the names of protocols to read by."""
        directory = self.here / "siteconf" / SITE
        (directory / "JobConfig").mkdir(parents=True, exist_ok=True)
        volume = {"site": SITE, "volume": "Disk", "rse": SITE, "type": "DISK", "protocols": protocols}
        (directory / "storage.json").write_text(json.dumps([volume]))
        if catalogues:
            named = "".join(f'<catalog volume="Disk" protocol="{name}"/>' for name in catalogues)
            (directory / "JobConfig/site-local-config.xml").write_text(CATALOGUES.format(site=SITE, catalogues=named))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        ad = self.here / "machine.ad"
        ad.write_text(f'GLIDEIN_CMSSite = "{SITE}"\n')
        bare = {"PATH": f"{self.here}/bin:/usr/bin:/bin", "SITECONF_ROOT": str(self.here / "siteconf")}
        bare["XRD_CONNECTIONWINDOW"] = "2"
        environment = self.server.environment({**bare, "_CONDOR_MACHINE_AD": str(ad)})
        return subprocess.run(words, cwd=self.here, env=environment, capture_output=True, text=True, check=False)

    def cmsrun(self, text: str) -> FrameworkReport:
        (self.here / "pset.py").write_text(text)
        self.run(f"{self.here}/bin/cmsRun", "-j", "report.xml", "pset.py")
        return read_framework_report(self.here / "report.xml")


@pytest.fixture
def node(tmp_path: Path, server: OwnServer) -> Node:
    install(tmp_path / "bin", Path(sys.executable))
    return Node(tmp_path, server)


@pytest.fixture
def stored(node: Node) -> Path:
    """A file of 25 events behind the server."""
    assert not node.cmsrun(WRITES).errors
    target = Path(f"{node.server.storage}{LFN}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return (node.here / "in.root").replace(target)


def root(server: OwnServer) -> dict[str, Any]:
    return {"protocol": "XRootD", "access": "site-ro", "prefix": server.url}


def local(server: OwnServer) -> dict[str, Any]:
    return {"protocol": "file", "access": "site-ro", "prefix": str(server.storage)}


def test_a_file_of_a_site_that_has_root_alone_is_read_by_the_server(node: Node, stored: Path) -> None:
    node.publish(root(node.server), catalogues=("XRootD",))
    before = node.server.log.read_text().count(LFN)
    report = node.cmsrun(READS.format(name=LFN))
    assert not report.errors
    (file,) = report.inputs
    assert (file.lfn, file.pfn, file.events_read) == (LFN, f"{node.server.url}{LFN}", 25)
    assert node.server.log.read_text().count(LFN) > before
    assert not list(node.here.glob("read.*"))


def test_the_catalogue_chooses_the_protocol_and_the_next_one_is_tried(node: Node, stored: Path) -> None:
    gone = {**local(node.server), "protocol": "file", "prefix": "/nonexistent"}
    for protocols, catalogues, pfn in (
        ((local(node.server), root(node.server)), ("XRootD", "file"), f"{node.server.url}{LFN}"),
        ((local(node.server), root(node.server)), ("file", "XRootD"), f"file:{stored}"),
        ((gone, root(node.server)), ("file", "XRootD"), f"{node.server.url}{LFN}"),
        ((gone, root(node.server)), (), f"{node.server.url}{LFN}"),
    ):
        node.publish(*protocols, catalogues=catalogues)
        (file,) = node.cmsrun(READS.format(name=LFN)).inputs
        assert file.pfn == pfn


def test_rules_translate_chained_ones_what_the_other_protocol_made(node: Node, stored: Path) -> None:
    first = {"protocol": "pnfs", "access": "site-ro", "rules": [{"lfn": "/store/(.*)", "pfn": "/pnfs/cms/store/$1"}]}
    rules = [{"lfn": "/other/(.*)", "pfn": "/no/$1"}, {"lfn": "/pnfs/cms(/.*)", "pfn": f"{node.server.url}$1", "chain": "pnfs"}]
    node.publish(first, {"protocol": "XRootD", "access": "site-ro", "rules": rules})
    (file,) = node.cmsrun(READS.format(name=LFN)).inputs
    assert file.pfn == f"{node.server.url}{LFN}"


def test_what_cannot_be_opened_is_a_file_open_error_that_says_why(node: Node, tmp_path: Path) -> None:
    node.publish(root(node.server))
    (error,) = node.cmsrun(READS.format(name="/store/data/gone.root")).errors
    assert error.exit_status == 8020
    assert "no such file" in error.text
    with serving(tmp_path / "other") as dead:
        pass
    node.publish(root(dead))
    (error,) = node.cmsrun(READS.format(name=LFN)).errors
    assert (error.exit_status, dead.url in error.text) == (8020, True)


def test_hadd_and_cmsrun_read_pfns_of_the_server(node: Node, stored: Path) -> None:
    pfn = f"{node.server.url}{LFN}"
    done = node.run(f"{node.here}/bin/hadd", "-f", "all.root", pfn, pfn)
    assert done.returncode == 0, done.stderr
    assert not node.cmsrun(READS.format(name=pfn)).errors
    assert node.cmsrun(READS.format(name=f"file:{node.here}/all.root")).inputs[0].events_read == 50
