"""The real XRootD server of the mock site, over both of its protocols, with the clients that a worker node finds on its PATH."""

from __future__ import annotations

import os
import socket
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.xrootd import OwnServer, serving

LFN = "/store/unmerged/Era/Primary/TIER/Proc-v1/0/file.root"
CONTENT = os.urandom(3 * 1024 * 1024)
ADLER32 = f"{zlib.adler32(CONTENT):08x}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with serving(tmp_path_factory.mktemp("storage")) as running:
        yield running


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.root"
    path.write_bytes(CONTENT)
    return path


def run(server: OwnServer, *words: object, code: int = 0) -> str:
    asked = [str(word) for word in words]
    reported = subprocess.run(asked, env=server.environment(), capture_output=True, text=True, check=False, timeout=120)
    assert reported.returncode == code, reported.stderr
    return reported.stdout


def test_a_file_is_written_summed_listed_read_and_removed_over_root(server: OwnServer, source: Path, tmp_path: Path) -> None:
    pfn, name = f"{server.url}{LFN}", LFN.rpartition("/")[2]
    run(server, "xrdcp", "--nopbar", source, pfn)
    assert Path(f"{server.storage}{LFN}").read_bytes() == CONTENT
    assert run(server, "xrdfs", server.url, "query", "checksum", LFN).split() == ["adler32", ADLER32]
    assert f"Size:   {len(CONTENT)}" in run(server, "xrdfs", server.url, "stat", LFN)
    assert run(server, "xrdfs", server.url, "ls", LFN.removesuffix(f"/{name}")).split() == [LFN]
    run(server, "xrdcp", "--nopbar", pfn, tmp_path / "back.root")
    assert (tmp_path / "back.root").read_bytes() == CONTENT
    assert run(server, "xrdadler32", pfn).split()[0] == ADLER32
    run(server, "xrdfs", server.url, "mv", LFN, f"{LFN}.moved")
    run(server, "xrdfs", server.url, "rm", f"{LFN}.moved")
    assert not list(server.storage.rglob("file.root*"))
    assert LFN in server.log.read_text()  # what the demo looks for: who read it


def test_what_is_there_is_not_written_over_and_paths_outside_the_store_are_refused(server: OwnServer, source: Path) -> None:
    run(server, "xrdcp", "--nopbar", source, f"{server.url}/store/taken.root")
    run(server, "xrdcp", "--nopbar", source, f"{server.url}/store/taken.root", code=50)
    run(server, "xrdfs", server.url, "stat", "/store/nothing.root", code=54)
    run(server, "xrdfs", server.url, "rm", "/etc/passwd", code=54)


def test_the_same_door_speaks_davs_with_a_certificate_that_clients_check(server: OwnServer, source: Path) -> None:
    pfn = f"{server.described.davs_url}/store/davs/file.root"
    run(server, "gfal-copy", "-p", f"file://{source}", pfn)
    assert (server.storage / "store/davs/file.root").read_bytes() == CONTENT
    assert run(server, "gfal-sum", pfn, "adler32").split() == [pfn, ADLER32]
    assert "file.root" in run(server, "gfal-ls", f"{server.described.davs_url}/store/davs")
    run(server, "gfal-copy", "-p", f"file://{source}", pfn, code=17)  # it exists
    run(server, "gfal-rm", pfn)
    assert not (server.storage / "store/davs/file.root").exists()
    distrusting = {**server.environment(), "X509_CERT_DIR": "/nonexistent"}
    reported = subprocess.run(["gfal-ls", pfn], env=distrusting, capture_output=True, text=True, check=False, timeout=120)
    assert reported.returncode != 0
    assert "certificate" in reported.stderr


def test_other_machines_do_not_reach_it(server: OwnServer) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it tells which address would be ours
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        address = probe.getsockname()[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, server.described.port), timeout=30)


def test_a_server_that_is_kept_away_says_how_it_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.described.away.touch()
        assert str(server.described.away) in str(server.described.problem())
        server.described.away.unlink()
        assert server.described.problem() is None
