"""Storage of a site: names by storage.json, and files that are there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dags_app.payload.contract import codes
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.run import storage

SITE = "T1_US_FNAL"


@pytest.fixture
def siteconf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SITECONF_ROOT", str(tmp_path / "siteconf"))
    directory = tmp_path / "siteconf" / SITE
    directory.mkdir(parents=True)
    return directory / "storage.json"


def volume(kind: str, protocols: list[dict[str, Any]], rse: str = "T1_US_FNAL_Disk") -> dict[str, Any]:
    return {"site": SITE, "volume": "v", "protocols": protocols, "type": kind, "rse": rse}


def local(tmp_path: Path) -> dict[str, Any]:
    return {"protocol": "file", "access": "local", "prefix": str(tmp_path / "disk")}


def test_the_first_disk_volume_with_protocol_file_is_used(siteconf: Path, tmp_path: Path) -> None:
    remote = {"protocol": "XRootD", "access": "global-rw", "prefix": "root://door/"}
    siteconf.write_text(
        json.dumps([volume("TAPE", [local(tmp_path)], "T1_US_FNAL_Tape"), volume("DISK", [remote, local(tmp_path)])])
    )
    found = storage.site_volume(SITE)
    assert found.rse == "T1_US_FNAL_Disk"
    assert found.pfn("/store/a.root") == f"file://{tmp_path}/disk/store/a.root"


def test_rules_are_tried_in_order(siteconf: Path, tmp_path: Path) -> None:
    rules = [{"lfn": "/+store/unmerged/(.*)", "pfn": "/scratch/$1"}, {"lfn": "/+store/(.*)", "pfn": "/disk/cms/$1"}]
    siteconf.write_text(json.dumps([volume("DISK", [{"protocol": "file", "access": "local", "rules": rules}])]))
    found = storage.site_volume(SITE)
    assert [str(found.path(lfn)) for lfn in ("/store/unmerged/x/y.root", "/store/mc/y.root")] == [
        "/scratch/x/y.root",
        "/disk/cms/mc/y.root",
    ]
    with pytest.raises(PayloadError, match="no rule of T1_US_FNAL_Disk"):
        found.path("/user/z.root")


def test_a_site_that_cannot_be_written_to_is_named(siteconf: Path) -> None:
    siteconf.write_text(json.dumps([volume("DISK", [{"protocol": "WebDAV", "prefix": "davs://door"}])]))
    with pytest.raises(PayloadError, match="no DISK volume with protocol 'file'") as error:
        storage.site_volume(SITE)
    assert error.value.code == codes.STORAGE_UNUSABLE
    with pytest.raises(PayloadError, match="storage description of T3_XX_Nowhere cannot be read"):
        storage.site_volume("T3_XX_Nowhere")


def test_without_a_siteconf_the_message_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITECONF_ROOT", raising=False)
    with pytest.raises(PayloadError, match="SITECONF_ROOT is not set"):
        storage.site_volume(SITE)


def test_a_staged_out_file_is_whole_under_its_name(siteconf: Path, tmp_path: Path) -> None:
    siteconf.write_text(json.dumps([volume("DISK", [local(tmp_path)])]))
    source, target = tmp_path / "out.root", tmp_path / "disk/store/unmerged/a.root"
    source.write_bytes(b"Wikipedia")
    stored = storage.stage_out(source, storage.site_volume(SITE), "/store/unmerged/a.root", "78.0")
    assert (stored.size_bytes, stored.adler32, stored.rse) == (9, "11e60398", "T1_US_FNAL_Disk")
    assert [path.name for path in target.parent.iterdir()] == ["a.root"] and target.read_bytes() == b"Wikipedia"


def test_nothing_that_is_there_is_ever_overwritten(siteconf: Path, tmp_path: Path) -> None:
    siteconf.write_text(json.dumps([volume("DISK", [local(tmp_path)])]))
    source, target = tmp_path / "out.root", tmp_path / "disk/store/unmerged/a.root"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"accepted")
    source.write_bytes(b"Wikipedia")
    with pytest.raises(PayloadError, match="File exists") as error:
        storage.stage_out(source, storage.site_volume(SITE), "/store/unmerged/a.root", "78.0")
    assert error.value.code == codes.STAGE_OUT_FAILED
    assert [path.name for path in target.parent.iterdir()] == ["a.root"] and target.read_bytes() == b"accepted"


def test_a_storage_that_refuses_is_a_stage_out_failure_and_leaves_nothing(siteconf: Path, tmp_path: Path) -> None:
    siteconf.write_text(json.dumps([volume("DISK", [local(tmp_path)])]))
    (tmp_path / "disk").write_text("a file where the directory should be")
    source = tmp_path / "out.root"
    source.write_bytes(b"data")
    with pytest.raises(PayloadError, match=r"stage-out of out\.root to .* \(T1_US_FNAL_Disk\) failed") as error:
        storage.stage_out(source, storage.site_volume(SITE), "/store/unmerged/a.root", "1.0")
    assert error.value.code == codes.STAGE_OUT_FAILED


def test_removing_says_whether_the_file_was_there(siteconf: Path, tmp_path: Path) -> None:
    siteconf.write_text(json.dumps([volume("DISK", [local(tmp_path)])]))
    (tmp_path / "disk/store").mkdir(parents=True)
    (tmp_path / "disk/store/a.root").write_bytes(b"x")
    assert [storage.remove(storage.site_volume(SITE), "/store/a.root") for _ in range(2)] == [True, False]
