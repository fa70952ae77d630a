"""Reading the mock sites' storage."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from deploy.demo import storage
from deploy.simulators.worker.rootfiles import EventTable, write_events
from tests.support import demo_world as world
from tests.support.xrootd import serving


def test_the_adler32_of_a_file_is_eight_digits_and_that_of_its_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1_000_000)
    assert storage.adler32(path) == f"{zlib.adler32(path.read_bytes()):08x}"
    path.write_bytes(b"")
    assert storage.adler32(path) == "00000001"


def test_events_and_lumis_of_a_file_are_read_empty_lumis_included(tmp_path):
    path = world.write_root(tmp_path / "x.root", [(1, 5, 2**63 - 2), (1, 5, 7)], empty_lumis=[(1, 6)])
    events, lumis = storage.read_numbers(path)
    assert events == ((1, 5, 2**63 - 2), (1, 5, 7))
    assert lumis == {(1, 5), (1, 6)}


def test_a_file_without_events_has_none(tmp_path):
    path = world.write_root(tmp_path / "x.root", [], empty_lumis=[(1, 6)])
    assert storage.read_numbers(path) == ((), frozenset({(1, 6)}))


def test_files_are_read_by_a_job_of_wmcore_unless_a_name_is_not_the_guid_inside(tmp_path):
    guid = "0f1e2d3c-4b5a-4968-8778-695a4b3c2d1e"
    path, events = tmp_path / f"{guid}.root", EventTable(*(np.array([n], f"u{size}") for n, size in ((1, 4), (5, 4), (7, 8))))
    for inside, refused in ((guid, False), (guid.upper(), True)):
        write_events(path, events, [(1, 5)], 0, 1, inside)
        found = [storage.open_file(f"/store/mc/E/P/{tier}/S-v1/0/{guid}.root", "X", path) for tier in ("AODSIM", "NANOAODSIM")]
        assert [file.problem for file in found] == ["", ""]
        said = storage.refused_by_wmcore(found)
        assert ("FileNameInconsistentWithGUID" in said and guid.upper() in said) if refused else said == ""
        assert storage.refused_by_wmcore(found[1:]) == "", "no EDM file"


def test_a_pfn_of_a_mock_site_is_a_path():
    assert storage.path_of("file://localhost:0/srv/T2_CH_CERN/store/mc/a.root") == Path("/srv/T2_CH_CERN/store/mc/a.root")


def test_a_replica_behind_a_server_is_read_over_root_and_the_log_tells_who_read(tmp_path, monkeypatch):
    with serving(tmp_path) as server:
        monkeypatch.setenv("PATH", server.environment()["PATH"])
        world.write_root(server.storage / "store/a.root", [(1, 5, 7)])
        assert storage.given_out(server.log) == frozenset()
        opened = storage.open_pfn("/store/a.root", "T2_DE_DESY", f"{server.url}/store/a.root")
        assert (opened.path, opened.events, opened.problem) == (f"{server.url}/store/a.root", ((1, 5, 7),), "")
        assert storage.given_out(server.log) == {"/store/a.root"}
        gone = storage.open_pfn("/store/b.root", "T2_DE_DESY", f"{server.url}/store/b.root")
        assert "no such file" in gone.problem
    assert storage.given_out(tmp_path / "no log") == frozenset()


def test_files_below_finds_hidden_and_deep_files_and_accepts_missing_directories(tmp_path):
    for name in ("a/b/c.root", "a/.journal"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [path.name for path in storage.files_below([tmp_path, tmp_path / "none"])] == [".journal", "c.root"]
