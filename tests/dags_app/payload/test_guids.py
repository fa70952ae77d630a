"""EDM files are named by the GUID inside them, as CMS's own jobs demand of what they read and mix."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest

from dags_app.payload.contract import names
from deploy.simulators.worker.rootfiles import EventTable, read_guid, stem, write_events
from tests.support.payload_psets import PREMIX, READ, pset
from tests.support.payload_workbench import Workbench, input_file, job_document, output, reading_node, step

GUID = "0F1E2D3C-4B5A-4968-8778-695A4B3C2D1E"
INPUT = f"/store/data/Era/Primary/RAW/v1/00000/{GUID}.root"


def merged(bench: Workbench) -> list[str]:
    return [file["lfn"] for output in bench.read("merge_output.json")["outputs"] for file in output["files"]]


def unmerged(bench: Workbench, *nodes: str) -> list[str]:
    return [file["lfn"] for node in nodes for file in bench.read(f"{node}.0.report.json")["outputs"]]


def change(bench: Workbench, **merge: Any) -> None:
    """Another format, or other limits, of the unit's only output."""
    job = json.loads((bench.dag / "job.json").read_text())
    job["outputs"][0]["merge"] = merge.pop("kind", "edm")
    job["merge"].update(merge)
    (bench.dag / "job.json").write_text(json.dumps(job))


def wmcore_job(bench: Workbench, read: list[str], mixed: list[str]) -> tuple[int, str]:
    """cmsRun of one of CMS's own jobs, which compares every source's names with the GUIDs inside; its status and last words."""
    place = bench.root / "wmcore"
    place.mkdir(exist_ok=True)
    text = pset("RECO", READ, {"RECOoutput": "RECO"}) + PREMIX
    text += f"process.source.fileNames = {read!r}\nprocess.mixData.input.fileNames = {mixed!r}\n"
    enforced = "enforceGUIDInFileName = cms.untracked.bool(True)\n"
    (place / "PSet.py").write_text(text + f"process.source.{enforced}process.mixData.input.{enforced}")
    (place / ".machine.ad").write_text(f'GLIDEIN_CMSSite = "{bench.site}"\n')
    words = [str(bench.programs / "cmsRun"), "-j", "FrameworkJobReport.xml", "PSet.py"]
    done = subprocess.run(words, cwd=place, env=bench.environment(place), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_job_of_wmcore_reads_and_mixes_what_wms2_wrote(done_unit: Workbench) -> None:
    bench = done_unit
    assert bench.script("collect") == 0
    first = bench.run("merge", "merge")
    bench.process("merge", "merge", attempt=1)
    (lfn,) = merged(bench)
    files = [lfn, first.report["outputs"][0]["lfn"], *unmerged(bench, "proc_000000", "proc_000001")]
    assert len(set(files)) == 4, "each start writes its own"
    assert [stem(each) for each in files] == [read_guid(bench.stored(each)) for each in files]
    assert wmcore_job(bench, [lfn], [lfn]) == (0, "")
    renamed = lfn.replace(stem(lfn), GUID)
    bench.stored(lfn).rename(bench.stored(renamed))
    for read, mixed in (([renamed], files[2:]), (files[2:], [renamed])):
        status, reported = wmcore_job(bench, read, mixed)
        assert status == 8034 & 0xFF and "FileNameInconsistentWithGUID" in reported and GUID in reported


def test_a_file_past_the_merge_keeps_its_guid_and_two_starts_of_the_merge_do_not_meet(done_unit: Workbench) -> None:
    bench = done_unit
    change(bench, max_bytes=100)
    assert bench.script("collect") == 0
    first = bench.run("merge", "merge")
    bench.process("merge", "merge", attempt=1)
    given, again = unmerged(bench, "proc_000000", "proc_000001"), merged(bench)
    before = [file["lfn"] for file in first.report["outputs"]]
    assert list(map(stem, before)) == list(map(stem, again)) == list(map(stem, given))
    assert not set(before) & set(again)
    assert wmcore_job(bench, again, before) == (0, "")
    journals = [json.loads(path.read_text()) for path in (bench.storage() / "store/unmerged").rglob("*.merge_journals/*.json")]
    assert sorted(lfn for journal in journals for lfn in journal["files"]) == sorted(before + again)
    assert bench.run("cleanup", "cleanup").value == 0
    assert set(bench.storage().rglob("*.root")) == set(map(bench.stored, again))


@pytest.mark.parametrize("kind", ["nano", "dqmio", "plain"])
def test_other_formats_have_names_of_their_own(done_unit: Workbench, kind: str) -> None:
    change(done_unit, kind=kind)
    assert done_unit.script("collect") == 0
    done_unit.process("merge", "merge")
    (lfn,) = merged(done_unit)
    assert names.guid_of(lfn)[14] == "5", "a version 5 UUID of what it is"


def reading(bench: Workbench, inside: str, lfn: str = INPUT, release: str = "CMSSW_10_6_8") -> dict[str, Any]:
    """The report of a job that reads a file with a GUID."""
    bench.stored(lfn).parent.mkdir(parents=True)
    numbers = np.arange(1, 5)
    events = EventTable(np.ones(4, "u4"), np.ones(4, "u4"), numbers.astype("u8"))
    write_events(bench.stored(lfn), events, [(1, 1)], 100, 1, inside)
    job = job_document([step(1, "Reco", ["RECOoutput"], cmssw_version=release)], [output("Reco", "RECOoutput", "RECO")])
    text = pset("RECO", READ, {"RECOoutput": "RECO"})
    bench.prepare(job, [reading_node(0, [input_file(lfn, 4)])], {"step1_Reco.py": text})
    bench.variables["CMSSW_VERSION"] = release
    return bench.run("job", "proc_000000").report


@pytest.mark.parametrize("guid", [GUID, GUID.lower()])
def test_an_input_file_that_is_named_by_a_guid_has_to_have_it_inside(bench: Workbench, guid: str) -> None:
    report = reading(bench, GUID, INPUT.replace(GUID, guid))
    assert report["exit_code"] == (0 if guid == GUID else 8034), report["error_message"]


@pytest.mark.parametrize(
    ("lfn", "release"), [(INPUT.replace(GUID, "4-reco"), "CMSSW_14_0_0"), (INPUT, "CMSSW_10_6_7"), (INPUT, "CMSSW_7_1_46")]
)
def test_no_guid_is_asked_for_by_another_name_or_in_a_release_that_knows_none(bench: Workbench, lfn: str, release: str) -> None:
    assert reading(bench, GUID.lower(), lfn, release)["exit_code"] == 0


@pytest.mark.parametrize(
    ("release", "able"),
    [
        ("CMSSW_15_0_0_pre3", True), ("CMSSW_11_0_0", True), ("CMSSW_10_6_47_patch1", True), ("CMSSW_10_2_20_UL", True),
        ("CMSSW_7_1_45_patch3", True), ("CMSSW_10_5_1", False), ("CMSSW_9_4_15", False), ("CMSSW_8_0_33", False), ("odd", False),
    ],
)  # fmt: skip
def test_releases_that_compare_names_with_guids(release: str, able: bool) -> None:
    assert names.are_compared([INPUT, f"root://door:1094//{GUID}.root?x=a.b"], release) is able
    assert not names.are_compared([INPUT, "/store/a.root"], release) and not names.are_compared([], release)


def test_an_edm_file_without_a_guid_in_its_report_is_no_output(one_step: Workbench) -> None:
    wrapped = one_step.root / "bin/cmsRun"
    wrapped.parent.mkdir()
    wrapped.write_text(f"#!/bin/sh\n{one_step.programs}/cmsRun \"$@\" && sed -i 's,<GUID>.*,<GUID>../x</GUID>,' *.xml\n")
    wrapped.chmod(0o755)
    one_step.variables["PATH"] = f"{wrapped.parent}:/usr/bin:/bin"
    report = one_step.run("job", "proc_000000").report
    assert report["exit_code"] == 60450 and "no GUID" in report["error_message"]
