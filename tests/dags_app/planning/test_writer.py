"""DAG directories on disk: whole or absent, repeatable after a crash, immutable but for the include files."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
from pathlib import Path

import pytest

from dags_app.payload.contract import layout
from dags_app.payload.contract.step_profile import StepProfile, StepRun, read_step_profile
from dags_app.planning import writer
from dags_app.planning.dagfiles import avoid_inc
from dags_app.planning.sizing import Sizes
from dags_app.planning.specs import GenerationSpec, PileupBlock, PileupDataset
from dags_app.planning.writer import (
    DagDirectoryConflict,
    Programs,
    changed_files,
    held_by,
    remove_leftovers,
    replace_file,
    sync_filesystem,
    write_dag_directory,
    write_fence,
)
from tests.support.planning import FNAL, dag_spec, generation_workflow
from wms2.errors import ServiceUnavailable, StaleState

PROGRAMS = Programs(payload=b"#!/usr/bin/env python3\n", sandbox=b"sandbox", rules=b"{}\n")


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_pileup_is_counted_among_the_files_and_may_change(tmp_path: Path) -> None:
    mixed = PileupDataset(
        "/A/Premix-v1/PREMIX", "mc", (PileupBlock("/A/Premix-v1/PREMIX#1", (FNAL,), 10, ("/store/mc/1.root",)),)
    )
    written = write_dag_directory(dag_spec(pileup=(mixed,)), PROGRAMS, parent=tmp_path)
    files = snapshot(written.directory)
    assert "pileup.json" in files
    assert b"pileup.json" not in files["SHA256SUMS"]


def test_the_directory_holds_everything_and_its_sums_name_every_immutable_file(tmp_path: Path) -> None:
    written = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path / "request")
    files = snapshot(written.directory)
    assert written.directory == tmp_path / "request" / dag_spec().dag_id
    assert (written.directory / layout.OUTER_DAG).read_text().startswith("# Round 0 of amaltaro_SC_Test")
    sums = files.pop("SHA256SUMS")
    assert written.files_sha256 == hashlib.sha256(sums).hexdigest()
    listed = dict(reversed(line.split("  ")) for line in sums.decode().splitlines())
    changing = {
        "avoid.inc",
        "credential.inc",
        "fence.dag.inc",
        "limits.dag.inc",
        "units.dag.inc",
        "sizes.inc",
        "step_profile.json",
        "spread.json",
    }
    assert files.keys() - listed.keys() == changing
    assert all(hashlib.sha256(files[path]).hexdigest() == digest for path, digest in listed.items())
    assert os.access(written.directory / "bin/wms2_payload.pyz", os.X_OK)
    assert changed_files(written.directory) == []


def test_what_a_crash_left_behind_does_not_matter_and_goes_once_the_dag_is_recorded(tmp_path: Path, monkeypatch) -> None:
    def crash(descriptor: int) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "sync_filesystem", crash)
        with pytest.raises(OSError, match="power cut"):
            write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    (left,) = tmp_path.iterdir()
    (left / "mg_999999").mkdir()

    written = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    assert not (written.directory / "mg_999999").exists()
    remove_leftovers(written.directory, parent=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [dag_spec().dag_id]


def test_a_disk_that_takes_a_part_of_a_file_or_does_not_answer_leaves_no_directory(tmp_path: Path, monkeypatch) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, allowed[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "sync_filesystem", lambda descriptor: sync_filesystem(-1))
        with pytest.raises(OSError, match="Bad file descriptor") as refused:
            write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    assert refused.value.errno == errno.EBADF
    assert not (tmp_path / dag_spec().dag_id).exists()
    assert changed_files(write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path).directory) == []


def test_a_writer_that_was_replaced_takes_nothing_from_its_successor(tmp_path: Path, monkeypatch) -> None:
    def successor(descriptor: int) -> None:
        patch.undo()
        made.append(write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path))

    made: list[writer.WrittenDag] = []
    with monkeypatch.context() as patch:
        patch.setattr(writer, "sync_filesystem", successor)
        late = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    assert made == [late]
    assert changed_files(late.directory) == []


def test_a_fence_only_rises_and_sizes_go_with_it(tmp_path: Path) -> None:
    directory = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path).directory
    write_fence(directory, 6)
    with pytest.raises(StaleState, match="fence 6 already; fence 5 is of the past"):
        write_fence(directory, 5)
    assert (directory / "fence.dag.inc").read_text() == 'VARS ALL_NODES My.WMS2_Fence="6"\n'
    write_fence(directory, 6)
    write_fence(directory, 10, Sizes({1: 2500, 2: 900}, StepProfile(3, {"GEN": StepRun(2, 1)})))
    with pytest.raises(StaleState):
        write_fence(directory, 9, Sizes({1: 1}))
    assert (directory / "sizes.inc").read_text() == "TASK_1_MEMORY_MB = 2500\nTASK_2_MEMORY_MB = 900\n"
    assert read_step_profile(directory) == StepProfile(3, {"GEN": StepRun(2, 1)})
    assert changed_files(directory) == []
    assert (directory / "fence.dag.inc").read_text() == 'VARS ALL_NODES My.WMS2_Fence="10"\n'


def test_nothing_is_written_for_a_submission_once_a_later_one_has_the_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(writer, "_LOCK_TRIES", 1)
    directory = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path).directory
    write_fence(directory, 6)
    with held_by(directory, 6), pytest.raises(ServiceUnavailable, match="locked by another process"):
        write_fence(directory, 7)
    write_fence(directory, 7)
    for fence in (6, 8):
        with pytest.raises(StaleState, match="of the submission with fence 7"), held_by(directory, fence):
            raise AssertionError("it is another submission's")


def test_writing_again_after_the_rename_changes_nothing(tmp_path: Path) -> None:
    first = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    (first.directory / "mg_000000/site.inc").write_text("made at run time")
    write_fence(first.directory, 4)
    before = snapshot(first.directory)
    assert write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path) == first
    assert snapshot(first.directory) == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_with_other_contents_is_a_conflict_and_stays(tmp_path: Path) -> None:
    first = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path)
    before = snapshot(first.directory)
    with pytest.raises(DagDirectoryConflict, match="other contents"):
        write_dag_directory(dag_spec(jobs_per_work_unit=2), PROGRAMS, parent=tmp_path)
    assert snapshot(first.directory) == before
    assert len(list(tmp_path.iterdir())) == 1


def test_include_files_may_change_and_rendered_ones_may_not(tmp_path: Path) -> None:
    directory = write_dag_directory(dag_spec(), PROGRAMS, parent=tmp_path).directory
    write_fence(directory, 12)
    replace_file(directory / layout.AVOID_INCLUDE, avoid_inc(frozenset([FNAL])))
    assert (directory / "fence.dag.inc").read_text() == 'VARS ALL_NODES My.WMS2_Fence="12"\n'
    assert (directory / "avoid.inc").read_text() == f"DAG_AVOID = {FNAL}\n"
    assert changed_files(directory) == []

    with (directory / "proc.sub").open("a") as file:
        file.write("queue\n")
    (directory / "mg_000001/unit.json").unlink()
    assert sorted(changed_files(directory)) == ["mg_000001/unit.json", "proc.sub"]
    assert not list(directory.glob(".*.tmp"))


def test_a_dag_costs_at_most_a_third_of_a_file_per_job(tmp_path: Path) -> None:
    workflow = generation_workflow(generation=GenerationSpec(1, 1, 1, events=40_000, events_per_job=100, events_per_lumi=100))
    written = write_dag_directory(dag_spec(workflow), PROGRAMS, parent=tmp_path)
    assert len(snapshot(written.directory)) / 400 <= 0.3
