"""A DAG's directory becomes a file with everything in it, whatever happens meanwhile, and is read as before."""

from __future__ import annotations

import os
import shutil
import signal
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dags_app import packs
from dags_app.packs import PackProblem, files_like, files_of, pack, pack_path

CRASHES = ("pack.claimed", "pack.called", "pack.moved")


def tree(place: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(place)): p.read_bytes() if p.is_file() else None for p in place.rglob("*")}


def unzipped(directory: Path, place: Path) -> dict[str, bytes | None]:
    with zipfile.ZipFile(pack_path(directory)) as archive:
        archive.extractall(place)
    return tree(place)


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    made = tmp_path / "request/dag"
    (made / "mg_000000/empty").mkdir(parents=True)
    (made / "workflow.dag").write_text("JOB a b\n" * 1000)
    (made / "workflow.dag.dagman.out").write_text("line\n")
    (made / ".fence.inc.lock").touch()
    (made / "mg_000000/cluster.log").write_bytes(os.urandom(3_000_000))
    return made


def killed_at(point: str, directory: Path) -> None:
    """In a process of its own, which must die there."""
    child = os.fork()
    if child == 0:
        os.environ["WMS2_CRASH_AT"] = point
        try:
            pack(directory)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_pack_has_everything_and_nothing_else_is_left(directory: Path, tmp_path: Path) -> None:
    before = tree(directory)
    assert pack(directory) == pack_path(directory).stat().st_size
    assert [p.name for p in directory.parent.iterdir()] == ["dag.zip"]
    assert unzipped(directory, tmp_path / "out") == before


def test_twice_is_the_same_as_once(directory: Path) -> None:
    size = pack(directory)
    content = pack_path(directory).read_bytes()
    assert pack(directory) == size
    assert pack_path(directory).read_bytes() == content


@pytest.mark.parametrize("point", CRASHES)
def test_killed_anywhere_it_is_all_there_and_goes_on(point: str, directory: Path, tmp_path: Path) -> None:
    before = tree(directory)
    killed_at(point, directory)
    with files_of(str(directory), "mg_000000/cluster.log") as place:
        assert (place / "mg_000000/cluster.log").read_bytes() == before["mg_000000/cluster.log"]
    pack(directory)
    assert [p.name for p in directory.parent.iterdir()] == ["dag.zip"]
    assert unzipped(directory, tmp_path / "out") == before


def test_killed_while_the_directory_was_removed_the_rest_of_it_goes(directory: Path, tmp_path: Path) -> None:
    before = tree(directory)
    killed_at("pack.moved", directory)
    (gone,) = directory.parent.glob(".dag.*.gone")
    (gone / "workflow.dag").unlink()
    pack(directory)
    assert unzipped(directory, tmp_path / "out") == before


def test_a_pack_that_is_not_the_directorys_is_made_anew(directory: Path, tmp_path: Path) -> None:
    for damage in (b"no zip", b""):
        pack_path(directory).write_bytes(damage)
        with files_of(str(directory)) as place:
            assert place == directory, "the directory counts while it stands"
    killed_at("pack.called", directory)
    (directory / "mg_000000/late").write_text("written since")
    before = tree(directory)
    pack(directory)
    assert unzipped(directory, tmp_path / "out") == before


def test_a_directory_that_changes_while_it_is_packed_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written_to(name: str) -> None:
        if name == "pack.claimed":
            with (directory / "workflow.dag.dagman.out").open("a") as log:
                log.write("more\n")

    monkeypatch.setattr(packs, "crash_point", written_to)
    before = tree(directory)
    with pytest.raises(PackProblem, match="still being written to"):
        pack(directory)
    assert tree(directory) == before | {"workflow.dag.dagman.out": b"line\nmore\n"}
    assert [p.name for p in directory.parent.iterdir()] == ["dag"]


def test_what_a_pack_cannot_give_back_is_not_packed(directory: Path) -> None:
    (directory / "link").symlink_to("workflow.dag")
    with pytest.raises(PackProblem, match="neither a file nor a directory"):
        pack(directory)
    assert (directory / "workflow.dag").exists()


def test_neither_directory_nor_pack_is_told(tmp_path: Path) -> None:
    with pytest.raises(PackProblem, match="neither"):
        pack(tmp_path / "dag")


def test_a_damaged_pack_removes_nothing_and_reads_as_nothing(directory: Path) -> None:
    pack(directory)
    pack_path(directory).write_bytes(pack_path(directory).read_bytes()[:-100])
    with files_of(str(directory), "workflow.dag") as place:
        assert list(place.iterdir()) == []
    assert files_like(str(directory), "*") == []


def test_of_a_long_file_the_end_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MOST_BYTES", 8)
    pack(directory)
    with files_of(str(directory), "workflow.dag", "../../etc/passwd", "none") as place:
        assert tree(place) == {"workflow.dag": b"JOB a b\n"}


def test_files_are_listed_as_before(directory: Path) -> None:
    os.utime(directory / "workflow.dag", (1_700_000_000, 1_700_000_000))
    os.utime(directory / "workflow.dag.dagman.out", (1_700_000_002, 1_700_000_002))
    before = files_like(str(directory), "workflow.dag*", ".fence*")
    assert len(before) == 3
    pack(directory)
    after = files_like(str(directory), "workflow.dag*", ".fence*")
    assert [(f.path, f.size_bytes) for f in after] == [(f.path, f.size_bytes) for f in before]
    assert after[1:] == before[1:], "times, too, to two seconds"


NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name.strip("."))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.tuples(NAMES, NAMES), st.binary(max_size=50), max_size=8), st.sampled_from(("", *CRASHES)))
def test_whatever_lies_there_comes_back(
    tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[str, str], bytes], point: str
) -> None:
    place = tmp_path_factory.mktemp("packs")
    directory = place / "dag"
    directory.mkdir()
    for (unit, name), content in files.items():
        (directory / f"d{unit}").mkdir(exist_ok=True)
        (directory / f"d{unit}" / name).write_bytes(content)
    before = tree(directory)
    if point:
        killed_at(point, directory)
    pack(directory)
    assert unzipped(directory, place / "out") == before
    shutil.rmtree(place)
