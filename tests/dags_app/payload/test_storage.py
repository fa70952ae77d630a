"""Storage of a site by each of its doors: files that are there whole, as the storage itself tells, or not at all.

The doors of ``root`` and ``davs`` are a real XRootD server's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dags_app.payload.contract import codes
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.documents import STAGE_OUT_PAUSES
from dags_app.payload.contract.reports import Slot, StoredFile
from dags_app.payload.run import doors, storage
from dags_app.payload.run.journal import Journals, StageOut
from dags_app.payload.run.processes import Answer, run_limited, stop_requests_as_errors
from dags_app.payload.run.siteconf import StorageProblem
from tests.support.faults import fault
from tests.support.xrootd import OwnServer, serving

#: Each call of gfal2's clients costs a second of processor.
OVER_TLS = pytest.mark.deep("tests/dags_app/payload/test_storage.py::test_a_storage_tells_of_its_files")
SITE, RSE, FALLBACK = "T2_DE_DESY", "T2_DE_DESY", "T1_DE_KIT_Disk"
LFN, WIKIPEDIA = "/store/unmerged/a/b.root", b"Wikipedia"


@dataclass
class Site:
    """A site with one volume; ``place`` is where its files lie on this machine."""

    siteconf: Path
    place: Path
    source: Path

    @property
    def volume(self) -> storage.Volume:
        return storage.site_volumes(SITE)[0]

    def at(self, lfn: str = LFN) -> Path:
        return Path(f"{self.place}{lfn}")

    def describe(self, protocols: dict[str, str], fallback: str = "") -> None:
        described = [(SITE, RSE, protocols), ("T1_DE_KIT", FALLBACK, {"file": fallback})]
        for site, rse, prefixes in described:
            listed = [{"protocol": name, "access": "site-rw", "prefix": prefix} for name, prefix in prefixes.items()]
            volume = {"site": site, "volume": rse, "protocols": listed, "type": "DISK", "rse": rse}
            (self.siteconf / site / "JobConfig").mkdir(parents=True, exist_ok=True)
            (self.siteconf / site / "storage.json").write_text(json.dumps([volume]))
        methods = "".join(f'<method volume="{RSE}" protocol="{name}"/>' for name in protocols)
        methods += f'<method site="T1_DE_KIT" volume="{FALLBACK}" protocol="file"/>' if fallback else ""
        text = f'<site-local-config><site name="{SITE}"><stage-out>{methods}</stage-out></site></site-local-config>'
        (self.siteconf / SITE / "JobConfig/site-local-config.xml").write_text(text)

    def left(self) -> list[str]:
        """Everything that lies in the storage, leftovers too."""
        return sorted(path.name for path in (self.place / "store").rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with serving(tmp_path_factory.mktemp("xrootd")) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("SITECONF_ROOT", str(tmp_path / "siteconf"))
    monkeypatch.setenv(storage.PAUSES_VARIABLE, "")
    found = Site(tmp_path / "siteconf", tmp_path / "disk", tmp_path / "out.root")
    found.source.write_bytes(WIKIPEDIA)
    found.describe({"file": str(found.place)})
    return found


@pytest.fixture
def remote(site: Site, server: OwnServer, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same at the server, by XRootD's protocol."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    site.place = server.storage
    for path in (server.storage / "store").rglob("*"):
        if path.is_file():
            path.unlink()
    site.describe({"XRootD": server.url})
    return site


#: What each door does in calls of its own; elsewhere the davs door is for the long run.
EACH_DOOR = pytest.mark.parametrize("any_site", ["file", "root", "davs"], indirect=True)


@pytest.fixture(params=["file", "root", pytest.param("davs", marks=OVER_TLS)])
def any_site(request: pytest.FixtureRequest, site: Site) -> Site:
    if request.param == "file":
        return site
    remote: Site = request.getfixturevalue("remote")
    if request.param == "davs":
        remote.describe({"WebDAV": request.getfixturevalue("server").described.davs_url})
    return remote


def instead(site: Site, monkeypatch: pytest.MonkeyPatch, program: str, script: str) -> None:
    """Another program of that name first on PATH; ``$REAL`` is the real one."""
    real = subprocess.run(["which", program], capture_output=True, text=True, check=True).stdout.strip()
    directory = site.siteconf / "bin"
    directory.mkdir(exist_ok=True)
    (directory / program).write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
    (directory / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_a_staged_out_file_is_whole_under_its_name(any_site: Site) -> None:
    stored = storage.stage_out(any_site.source, any_site.volume, LFN)
    assert (stored.size_bytes, stored.adler32, stored.rse) == (9, "11e60398", RSE)
    assert stored.pfn == any_site.volume.pfn(LFN)
    assert any_site.left() == ["b.root"] and any_site.at().read_bytes() == WIKIPEDIA


@EACH_DOOR
def test_nothing_that_is_there_is_ever_overwritten(any_site: Site) -> None:
    any_site.at().parent.mkdir(parents=True, exist_ok=True)
    any_site.at().write_bytes(b"accepted")
    with pytest.raises(PayloadError, match="File exists") as error:
        storage.stage_out(any_site.source, any_site.volume, LFN, [0])
    assert error.value.code == codes.STAGE_OUT_FAILED
    assert any_site.left() == ["b.root"] and any_site.at().read_bytes() == b"accepted"


@EACH_DOOR
def test_what_comes_under_its_name_while_a_file_is_copied_is_this_starts_own(
    any_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that repeats a request meets what its first, unanswered one made."""
    kind = type(any_site.volume.ways[0].door)
    put = kind.put

    def repeated(door: doors.Door, source: Path, pfn: str) -> None:
        monkeypatch.setattr(kind, "put", put)
        any_site.at().parent.mkdir(parents=True, exist_ok=True)
        any_site.at().write_bytes(b"Wiki")
        put(door, source, pfn)

    monkeypatch.setattr(kind, "put", repeated)
    assert storage.stage_out(any_site.source, any_site.volume, LFN).adler32 == "11e60398"
    assert any_site.left() == ["b.root"] and any_site.at().read_bytes() == WIKIPEDIA


def test_a_name_that_stays_taken_is_tried_after_each_pause_and_nothing_is_left(
    remote: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
for target; do :; done
case $target in *.journals/*) exec "$REAL" "$@";; esac
echo x >> "$(dirname "$0")/tries"; "$REAL" "$@"
echo 'Run: [ERROR] Server responded with an error: [3018] Unable to open file; file exists (destination)' >&2; exit 54
"""
    instead(remote, monkeypatch, "xrdcp", script)
    with pytest.raises(StorageProblem, match="file exists"):
        storage.stage_out(remote.source, remote.volume, LFN, [0])
    assert len((remote.siteconf / "bin/tries").read_text().split()) == 4 and remote.left() == []


@pytest.mark.dear("the davs door on a real server: each call of gfal2's clients costs a second of processor")
@EACH_DOOR
def test_a_storage_tells_of_its_files(any_site: Site) -> None:
    volume = any_site.volume
    assert (storage.size(volume, LFN), storage.checksum(volume, LFN), storage.text(volume, LFN)) == (None, None, None)
    assert storage.listed(volume, "/store/unmerged/no") == [] and not storage.remove(volume, LFN)
    assert storage.stage_out(any_site.source, volume, LFN).adler32 == "11e60398"
    assert any_site.left() == ["b.root"] and any_site.at().read_bytes() == WIKIPEDIA
    any_site.at("/store/unmerged/a/c.root").write_bytes(WIKIPEDIA)
    assert (storage.size(volume, LFN), storage.checksum(volume, LFN), storage.text(volume, LFN)) == (9, "11e60398", "Wikipedia")
    assert storage.listed(volume, "/store/unmerged/a") == ["b.root", "c.root"]
    assert storage.remove(volume, LFN) and storage.listed(volume, "/store/unmerged/a") == ["c.root"]
    any_site.at("/store/unmerged/a/c.root").unlink()
    storage.remove_directory(volume, "/store/unmerged/a")
    assert storage.listed(volume, "/store/unmerged") == (["a"] if volume.pfn("").startswith("davs:") else [])


@EACH_DOOR
def test_a_directory_that_is_not_empty_is_never_removed(any_site: Site) -> None:
    storage.stage_out(any_site.source, any_site.volume, LFN)
    with suppress(StorageProblem):
        storage.remove_directory(any_site.volume, "/store/unmerged/a")
    assert any_site.left() == ["b.root"]


def test_a_staged_out_file_can_be_read(any_site: Site, tmp_path: Path) -> None:
    volumes = storage.site_volumes(SITE)
    stored = storage.stage_out(any_site.source, volumes[0], LFN)
    brought = storage.bring(volumes, stored, tmp_path)
    assert brought.read_bytes() == WIKIPEDIA
    assert (brought == any_site.at()) == (stored.pfn.startswith("file:")), "what is mounted is read where it lies"
    url = storage.readable(volumes, stored)
    assert url is None if stored.pfn.startswith("davs:") else url == stored.pfn.replace("file://", "file:")

    any_site.at().write_bytes(b"wikipedia")
    with pytest.raises(PayloadError, match=r"adler32 .*; its job staged out 9, 11e60398") as error:
        storage.bring(volumes, stored, tmp_path)
    assert error.value.code == codes.FILE_OPEN_FAILED
    any_site.at().unlink()
    with pytest.raises(PayloadError, match="is not there") as error:
        storage.bring(volumes, stored, tmp_path)
    assert error.value.code == codes.FILE_OPEN_FAILED


READERS = [
    ("davs", {}, None),
    ("davs", {"XRootD": ("global-ro", "root://reader.site//cms")}, f"root://reader.site//cms{LFN}"),
    ("davs", {"mounted": ("site-ro", "{place}")}, "file:{place}" + LFN),
    ("davs", {"mounted": ("site-ro", "/not/mounted/here"), "XRootD": ("site-rw", "root://door/")}, f"root://door/{LFN}"),
    ("davs", {"names": ("virtual", "root://nothing.serves.this/")}, None),
    ("root", {"mounted": ("site-ro", "{place}")}, f"root://writer.site:1094/{LFN}"),
]


@pytest.mark.parametrize(("first", "others", "url"), READERS)
def test_a_file_is_read_where_it_lies_by_any_protocol_of_its_volume(
    site: Site, first: str, others: dict[str, tuple[str, str]], url: str | None
) -> None:
    """Where a site is written to by WebDAV first, or alone, cmsRun reads by what else the site describes."""
    site.describe({first: f"{first}://writer.site:1094/"})
    described = json.loads((site.siteconf / SITE / "storage.json").read_text())
    described[0]["protocols"] += [
        {"protocol": name, "access": access, "prefix": prefix.format(place=site.place)}
        for name, (access, prefix) in others.items()
    ]
    (site.siteconf / SITE / "storage.json").write_text(json.dumps(described))
    site.at().parent.mkdir(parents=True)
    site.at().write_bytes(WIKIPEDIA)
    stored = StoredFile(LFN, "of the writer", RSE, 9, "11e60398")
    assert storage.readable(storage.site_volumes(SITE), stored) == (url and url.format(place=site.place))


def test_a_copy_that_differs_is_removed_and_tried_again(remote: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
for word; do [ "$word" = --path ] && out=1; done
mark=$(dirname "$0")/damaged
if [ -n "$out" ] && [ ! -e "$mark" ]; then
    touch "$mark"; printf wikipedia > "$mark.root"; for target; do :; done; set -- --path "$mark.root" "$target"
fi
exec "$REAL" --nopbar "$@"
"""
    instead(remote, monkeypatch, "xrdcp", script)
    stored = storage.stage_out(remote.source, remote.volume, LFN, [0])
    assert (remote.siteconf / "bin/damaged").exists() and remote.at().read_bytes() == WIKIPEDIA
    assert stored.adler32 == "11e60398"

    (remote.siteconf / "bin/damaged").unlink()
    with pytest.raises(StorageProblem, match="is not what was written: 9 bytes, adler32 130603b8, expected") as error:
        storage.stage_out(remote.source, remote.volume, "/store/unmerged/a/c.root")
    assert error.value.code == codes.STAGE_OUT_FAILED and remote.left() == ["b.root"], "what differs is not left there"


@pytest.mark.parametrize(
    "script", ["echo '[ERROR] [3013] not supported' >&2; exit 54", "echo md5 d41d8cd98f00b204e9800998ecf8427e"]
)
def test_a_file_is_read_back_where_the_storage_tells_no_checksum(
    remote: Site, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    instead(remote, monkeypatch, "xrdfs", f'[ "$2" = query ] && {{ {script}; exit; }}\nexec "$REAL" "$@"')
    assert storage.stage_out(remote.source, remote.volume, LFN).adler32 == "11e60398"
    assert storage.checksum(remote.volume, LFN) == "11e60398"


def test_a_storage_that_refuses_is_told_with_the_command_its_status_and_its_last_lines(remote: Site) -> None:
    with pytest.raises(StorageProblem) as error:
        storage.stage_out(remote.source, remote.volume, "/user/a.root")
    assert error.value.code == codes.STAGE_OUT_FAILED
    assert "stage-out of out.root to root://127.0.0.1" in error.value.message and f"({RSE}) failed" in error.value.message
    assert "xrdfs root://127.0.0.1" in error.value.message and "[3010]" in error.value.message
    assert "exit status 54" in error.value.message


def test_a_file_system_that_refuses_is_a_stage_out_failure_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("a file where the directory should be")
    with pytest.raises(PayloadError, match=r"stage-out of out\.root to .* \(T2_DE_DESY\) failed") as error:
        storage.stage_out(site.source, site.volume, LFN)
    assert error.value.code == codes.STAGE_OUT_FAILED


def test_the_next_method_is_tried_and_the_rounds_are_repeated(remote: Site, server: OwnServer) -> None:
    remote.describe({"nobody": "root://127.0.0.1:1/", "XRootD": server.url})
    os.environ["XRD_CONNECTIONWINDOW"] = os.environ["XRD_CONNECTIONRETRY"] = "1"
    stored = storage.stage_out(remote.source, remote.volume, LFN)
    assert stored.pfn == f"{server.url}{LFN}" and remote.at().read_bytes() == WIKIPEDIA
    assert storage.size(remote.volume, LFN) == 9


@pytest.fixture
def own_server(tmp_path: Path, remote: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnServer]:
    """A server that the test may stop."""
    with serving(tmp_path / "own") as running:
        for name in ("XRD_CONNECTIONWINDOW", "XRD_CONNECTIONRETRY", "XRD_STREAMERRORWINDOW"):
            monkeypatch.setenv(name, "1")
        remote.describe({"XRootD": running.url}, fallback=str(tmp_path / "kit"))
        remote.place = running.storage
        yield running


@fault(
    "a door restarted for ten minutes",
    done="a storage's only door is away when a job stages out, and comes back after ten minutes (all times by 150)",
    spec="ADR 0010",
    afterwards="the file is at the site's own volume; nothing was computed again, and nothing went to the fallback",
)
def test_a_server_that_comes_back_costs_no_file(remote: Site, own_server: OwnServer, tmp_path: Path) -> None:
    out = staging([LFN], pauses=[seconds / 150 for seconds in STAGE_OUT_PAUSES])
    own_server.kill()
    restarted = threading.Timer(600 / 150, own_server.start)
    restarted.start()
    stored = out.store(remote.source, LFN)
    restarted.join()
    assert stored.rse == RSE and remote.at().read_bytes() == WIKIPEDIA
    assert len(remote.left()) == 2, "the file and its journal"
    assert not (tmp_path / "kit").exists()


def test_a_server_that_is_gone_in_the_middle_of_a_copy_leaves_nothing_that_counts(
    remote: Site, own_server: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remote.source.open("wb") as stream:
        stream.truncate(300 * 2**20)
    instead(remote, monkeypatch, "xrdcp", 'exec "$REAL" --xrate 20m "$@"')

    def kill_while_it_writes() -> None:
        while not (remote.at().is_file() and remote.at().stat().st_size > 2**20):
            time.sleep(0.02)
        own_server.kill()

    killer = threading.Thread(target=kill_while_it_writes)
    killer.start()
    with pytest.raises(StorageProblem, match=r"xrdcp .*exit status"):
        storage.stage_out(remote.source, remote.volume, LFN)
    killer.join()
    own_server.start()
    assert remote.left() == ["b.root"], "what could not be removed is in the journal"
    remote.source.write_bytes(WIKIPEDIA)
    with pytest.raises(StorageProblem, match="File exists"):
        storage.stage_out(remote.source, remote.volume, LFN)


@pytest.fixture(params=["root", pytest.param("davs", marks=OVER_TLS)])
def own_door(request: pytest.FixtureRequest, remote: Site, own_server: OwnServer, monkeypatch: pytest.MonkeyPatch) -> OwnServer:
    """The same server by either of its doors."""
    if request.param == "davs":
        remote.describe({"WebDAV": own_server.described.davs_url})
    monkeypatch.setenv("X509_CERT_DIR", str(own_server.described.authorities))
    for name in ("XRD_CONNECTIONWINDOW", "XRD_STREAMERRORWINDOW"):
        monkeypatch.setenv(name, "20")
    return own_server


def test_a_copy_whose_client_is_killed_is_removed_and_begun_again(
    remote: Site, own_door: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remote.source.open("wb") as stream:
        stream.truncate(30 * 2**20)
    script = f"""
if [ -e {remote.siteconf}/killed ]; then exec "$REAL" "$@"; fi
touch {remote.siteconf}/killed
"$REAL" SLOWLY "$@" & copy=$!
until [ "$(stat -c %s {remote.at()} 2>/dev/null || echo 0)" -gt 0 ]; do :; done
kill -9 $copy; wait $copy
"""
    instead(remote, monkeypatch, "xrdcp", script.replace("SLOWLY", "--xrate 20m"))
    instead(remote, monkeypatch, "gfal-copy", script.replace("SLOWLY", ""))
    stored = storage.stage_out(remote.source, remote.volume, LFN, [0.5])
    assert (remote.siteconf / "killed").exists() and remote.at().stat().st_size == stored.size_bytes == 30 * 2**20
    assert remote.left() == ["b.root"]


def test_a_slow_door_is_waited_for(remote: Site, own_door: OwnServer) -> None:
    own_door.pause()
    goes_on = threading.Timer(1.5, own_door.resume)
    goes_on.start()
    assert storage.stage_out(remote.source, remote.volume, LFN).adler32 == "11e60398"
    goes_on.join()


def test_a_door_that_hangs_in_a_copy_costs_a_try(remote: Site, own_door: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "COPY_SECONDS", 2.0)
    kind = type(remote.volume.ways[0].door)
    put, tries = kind.put, []

    def hanging(door: doors.Door, source: Path, pfn: str) -> None:
        tries.append(pfn)
        if len(tries) == 1:
            own_door.pause()
            threading.Timer(2.5, own_door.resume).start()
        put(door, source, pfn)

    monkeypatch.setattr(kind, "put", hanging)
    assert storage.stage_out(remote.source, remote.volume, LFN, [1, 1, 1]).adler32 == "11e60398"
    assert len(tries) > 1 and remote.left() == ["b.root"]


def test_a_command_that_hangs_is_ended_at_its_time_limit_and_its_children_with_it(
    remote: Site, own_server: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "ANSWER_SECONDS", 1.0)
    own_server.pause()
    with pytest.raises(StorageProblem, match="ended after its time limit of 1 s") as error:
        storage.size(remote.volume, LFN)
    assert error.value.code == codes.STAGE_OUT_TOO_LONG
    own_server.resume()


def slot() -> Slot:
    return Slot(SITE, "host", "1.0", None, "mg_000000", 1, "0" * 32)


def staging(lfns: list[str], pauses: Sequence[float] = ()) -> StageOut:
    os.environ.pop(storage.PAUSES_VARIABLE, None)
    directory = "/store/unmerged/a/x.journals"
    return StageOut(storage.site_volumes(SITE), directory, "dag-1", "proc_000000", slot(), lfns, pauses)


def test_a_storage_that_stays_away_sends_files_and_their_journal_to_the_fallback(
    remote: Site, own_server: OwnServer, tmp_path: Path
) -> None:
    lfns = [LFN, "/store/unmerged/a/c.root"]
    out = staging(lfns)
    first = out.store(remote.source, LFN)
    own_server.kill()
    second = out.store(remote.source, lfns[1])
    assert (first.rse, second.rse) == (RSE, FALLBACK)
    assert second.pfn == f"file://{tmp_path}/kit{lfns[1]}" and Path(f"{tmp_path}/kit{lfns[1]}").read_bytes() == WIKIPEDIA
    assert not Path(f"{tmp_path}/kit{LFN}").exists()
    own_server.start()
    for volume in storage.site_volumes(SITE):
        (named,) = Journals(volume, "/store/unmerged/a/x.journals").read().values()
        assert list(named) == lfns, "each volume's journal names what may be there"


def test_what_stays_of_a_copy_is_no_obstacle_where_the_fallback_is_the_same_storage(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.describe({"file": str(site.place)}, fallback=f"{site.place}/.")
    put, remove = doors.FileSystem.put, doors.FileSystem.remove
    home = f"file://{site.at()}"

    def breaks(door: doors.FileSystem, source: Path, pfn: str) -> None:
        if pfn == home:
            site.at().parent.mkdir(parents=True, exist_ok=True)
            site.at().write_bytes(b"Wiki")
            raise OSError("Input/output error")
        put(door, source, pfn)

    def refused(door: doors.FileSystem, pfn: str) -> bool:
        if pfn == home:
            raise OSError("not now")
        return remove(door, pfn)

    monkeypatch.setattr(doors.FileSystem, "put", breaks)
    monkeypatch.setattr(doors.FileSystem, "remove", refused)
    assert staging([LFN]).store(site.source, LFN).rse == FALLBACK
    assert site.at().read_bytes() == WIKIPEDIA


def test_when_no_volume_takes_a_file_each_one_is_told(remote: Site, own_server: OwnServer, tmp_path: Path) -> None:
    (tmp_path / "kit").write_text("no directory")
    own_server.kill()
    with pytest.raises(PayloadError) as error:
        staging([LFN]).store(remote.source, LFN)
    assert error.value.code == codes.STAGE_OUT_FAILED and not isinstance(error.value, StorageProblem)
    assert "xrdfs root://" in error.value.message and f"({FALLBACK}) failed" in error.value.message


@pytest.mark.parametrize("any_site", ["file", "root"], indirect=True)
def test_journals_are_kept_read_and_removed(any_site: Site) -> None:
    out = staging([LFN])
    out.store(any_site.source, LFN)
    journals = Journals(any_site.volume, "/store/unmerged/a/x.journals")
    name = f"proc_000000.{'0' * 32}.json"
    assert journals.read() == {name: (LFN,)}
    storage.remove(any_site.volume, f"/store/unmerged/a/x.journals/{name}")
    out.store(any_site.source, "/store/unmerged/a/late.root")
    assert journals.read() == {name: (LFN,)}, "a start that is late writes it anew"
    any_site.at(f"/store/unmerged/a/x.journals/{name}").write_text('{"schema"')
    out.store(any_site.source, "/store/unmerged/a/later.root")
    assert journals.read() == {name: (LFN,)}, "one that is not whole is written anew"
    any_site.at(f"/store/unmerged/a/x.journals/cut{name}").write_text('{"schema": "wms2.jour')
    assert journals.read() == {f"cut{name}": (), name: (LFN,)}
    journals.remove(journals.read())
    assert storage.listed(any_site.volume, "/store/unmerged/a") == ["b.root", "late.root", "later.root"]


def test_a_directory_is_no_file(any_site: Site) -> None:
    storage.stage_out(any_site.source, any_site.volume, LFN)
    assert storage.size(any_site.volume, LFN) == len(WIKIPEDIA)
    assert storage.size(any_site.volume, LFN.rpartition("/")[0]) is None


@pytest.mark.parametrize("any_site", ["file", "root"], indirect=True)
def test_a_file_where_journals_should_be_is_no_outage(any_site: Site) -> None:
    place = any_site.at("/store/unmerged/a/x.journals")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("something else")
    with pytest.raises(PayloadError, match="is no directory of journals") as error:
        staging([LFN]).store(any_site.source, LFN)
    assert error.value.code == codes.INVALID_DOCUMENT
    assert not any_site.at().exists(), "nothing is written without a journal"


def test_what_hangs_is_ended_when_the_job_is_told_to_stop(tmp_path: Path) -> None:
    script = f"import subprocess, time; subprocess.Popen(['sleep', '987']); open({str(tmp_path / 'up')!r}, 'w'); time.sleep(987)"

    def stop_when_it_runs() -> None:
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_it_runs)
    stopper.start()
    with pytest.raises(PayloadError, match="asked to stop") as error, stop_requests_as_errors():
        run_limited([sys.executable, "-c", script], 600.0, dict(os.environ))
    stopper.join()
    assert error.value.code == codes.TERMINATED
    assert subprocess.run(["pgrep", "-fx", "sleep 987"], check=False).returncode == 1, "its children are ended with it"


def test_answers_come_with_their_status() -> None:
    def answer(script: str, seconds: float) -> Answer:
        return run_limited(["sh", "-c", script], seconds, dict(os.environ))

    assert answer("echo out; echo err >&2; exit 3", 60.0) == (3, "out\n", "err\n")
    assert answer("kill -9 $$", 60.0) == (137, "", "")
    assert answer("echo begun; sleep 600", 0.5) == (None, "begun\n", "")
    assert answer("sleep 600 & echo done", 60.0) == (0, "done\n", ""), "nobody waits for what it left behind"


def test_a_worker_node_without_the_command_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    site.describe({"XRootD": "root://door/"})
    with pytest.raises(StorageProblem, match=r"xrdfs cannot be started: .*No such file") as error:
        storage.size(site.volume, LFN)
    assert error.value.code == codes.STAGE_OUT_FAILED


def test_reports_of_a_volume_that_the_site_no_longer_has_are_refused(site: Site) -> None:
    gone = StoredFile(LFN, "davs://x", "T0_XX_Gone", 9, "11e60398")
    with pytest.raises(StorageProblem, match="at T0_XX_Gone, which is not one of the volumes here: T2_DE_DESY"):
        storage.readable(storage.site_volumes(SITE), gone)
