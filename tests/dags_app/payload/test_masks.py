"""Jobs with a lumi mask and with parents: exactly the mask of all files that hold it, and every file opened."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot

from deploy.simulators.worker.rootfiles import EventTable, write_events
from tests.support.payload_psets import READ, pset
from tests.support.payload_workbench import Workbench, input_file, job_document, output, reading_node, step

A, B, PARENT = "/store/data/Run/a.root", "/store/data/Run/b.root", "/store/data/Run/parent.root"
Lumis = list[tuple[int, int]]


@dataclass(frozen=True)
class Site:
    """A site's storage, and a node that reads from it."""

    bench: Workbench

    def store(self, lfn: str, lumis: Lumis, first_event: int = 1, each: int = 2) -> dict[str, Any]:
        """Write a file of ``each`` events to a lumi; as ``unit.json`` names it."""
        path: Path = self.bench.stored(lfn)
        path.parent.mkdir(parents=True, exist_ok=True)
        run, lumi = np.repeat(np.array(lumis, "u4"), each, axis=0).T
        events = EventTable(run, lumi, np.arange(len(run), dtype="u8") + np.uint64(first_event))
        write_events(path, events, lumis, 100, seed=1)
        return input_file(lfn, each * len(lumis))

    def run(self, files: list[dict[str, Any]], mask: dict[str, Any] | None) -> dict[str, Any]:
        """The report of the only attempt."""
        job = job_document([step(1, "Reco", ["RECOoutput"])], [output("Reco", "RECOoutput", "RECO")])
        self.bench.prepare(job, [reading_node(0, files, mask)], {"step1_Reco.py": pset("RECO", READ, {"RECOoutput": "RECO"})})
        return self.bench.run("job", "proc_000000").report

    def written(self, report: dict[str, Any]) -> list[tuple[int, int, int]]:
        """(run, lumi, event) in the staged-out file."""
        assert report["exit_code"] == 0, report["error_message"]
        with uproot.open(self.bench.stored(report["outputs"][0]["lfn"])) as file:
            columns = file["Events"].arrays(["run", "luminosityBlock", "event"], library="np")
        return sorted(zip(*(columns[name].tolist() for name in ("run", "luminosityBlock", "event")), strict=True))


@pytest.fixture(name="site")
def _site(bench: Workbench) -> Site:
    return Site(bench)


def test_a_lumi_of_several_files_is_read_from_all_of_them(site: Site) -> None:
    files = [site.store(A, [(1, 1), (1, 2), (1, 3)]), site.store(B, [(1, 3), (1, 4)], first_event=101)]
    report = site.run(files, {"1": [[3, 3]]})
    assert site.written(report) == [(1, 3, 5), (1, 3, 6), (1, 3, 101), (1, 3, 102)]
    assert report["processed"]["lumis"] == {"1": [[3, 3]]}
    assert [(f["lfn"], f["events"]) for f in report["processed"]["files"]] == [(A, 2), (B, 2)]
    assert report["outputs"][0]["lumis"] == {"1": [[3, 4]]}


def test_a_mask_of_several_intervals_and_runs_cuts_inside_files(site: Site) -> None:
    files = [site.store(A, [(1, n) for n in range(1, 9)] + [(2, n) for n in range(1, 4)])]
    report = site.run(files, {"1": [[1, 2], [5, 5], [8, 8]], "2": [[2, 3]]})
    wanted = [(1, 1), (1, 2), (1, 5), (1, 8), (2, 2), (2, 3)]
    assert [(run, lumi) for run, lumi, _ in site.written(report)] == sorted(wanted * 2)
    assert report["processed"]["lumis"] == {"1": [[1, 2], [5, 5], [8, 8]], "2": [[2, 3]]}


def test_a_mask_of_thousands_of_intervals_is_obeyed(site: Site) -> None:
    files = [site.store(A, [(1, n) for n in range(1, 4001)], each=1)]
    report = site.run(files, {"1": [[n, n] for n in range(1, 4001, 2)]})
    assert [lumi for _, lumi, _ in site.written(report)] == list(range(1, 4001, 2))
    assert len(report["processed"]["lumis"]["1"]) == 2000


def test_wanted_lumis_without_events_are_kept(site: Site) -> None:
    files = [site.store(A, [(1, 1), (1, 2)], each=0)]
    report = site.run(files, {"1": [[2, 2]]})
    assert site.written(report) == []
    assert report["outputs"][0]["lumis"] == {"1": [[2, 0]]}


def test_a_masked_job_that_did_not_open_a_file_fails_though_the_lumis_are_there(site: Site) -> None:
    """Another file holds the same lumi, so its number alone would not show that a share of it is missing."""
    files = [site.store(A, [(1, 3)]), site.store(B, [(1, 3)], first_event=101)]
    real = site.bench.programs / "cmsRun"
    own = site.bench.root / "bin"
    own.mkdir()
    script = own / "cmsRun"
    script.write_text(f'#!/bin/sh\nsed -i \'s#"{B}"##; s#"{A}",#"{A}"#\' tweak.json\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    site.bench.programs = own
    report = site.run(files, {"1": [[3, 3]]})
    assert report["exit_code"] == 95002
    assert f"did not open 1 of its files: {B}" in report["error_message"]


def test_parents_are_read_beside_the_files(site: Site) -> None:
    site.store(PARENT, [(1, n) for n in range(1, 5)])
    files = [site.store(A, [(1, 1), (1, 2)]) | {"parents": [PARENT]}, site.store(B, [(1, 3)]) | {"parents": [PARENT]}]
    report = site.run(files, {"1": [[1, 3]]})
    assert len(site.written(report)) == 6
    assert {file["lfn"] for file in report["processed"]["files"]} == {A, B}, "parents are not what the job processed"
    assert report["outputs"][0]["parents"] == [A, B]


def test_a_missing_parent_fails_the_job(site: Site) -> None:
    files = [site.store(A, [(1, 1)]) | {"parents": [PARENT]}]
    report = site.run(files, {"1": [[1, 1]]})
    assert report["exit_code"] == 8020
    assert PARENT in report["error_message"]


def test_the_tweak_names_masks_and_parents_as_cmsrun_takes_them(site: Site) -> None:
    site.store(PARENT, [(1, 1)])
    files = [site.store(A, [(1, n) for n in range(1, 9)]) | {"parents": [PARENT]}]
    site.bench.variables["CMSSIM_FAIL"] = "exitCode=8001"  # a job that ends well removes its working directory
    job = job_document([step(1, "Reco", ["RECOoutput"])], [output("Reco", "RECOoutput", "RECO")])
    node = reading_node(0, files, {"1": [[1, 2], [8, 8]]})
    site.bench.prepare(job, [node], {"step1_Reco.py": pset("RECO", READ, {"RECOoutput": "RECO"})})
    done = site.bench.run("job", "proc_000000")
    with tarfile.open(site.bench.logs("proc_000000")) as logs:
        (name,) = [member for member in logs.getnames() if member.endswith("tweak.json")]
        tweak = json.loads(logs.extractfile(name).read())  # type: ignore[union-attr]
    assert done.report["exit_code"] == 8001
    assert tweak["lumis"] == ["1:1-1:2", "1:8-1:8"]
    assert (tweak["files"], tweak["secondary_files"]) == ([A], [PARENT])


@pytest.mark.parametrize(
    ("first", "last", "lumis"),
    [(0, 39, [1, 2, 3, 4, 5, 6]), (20, 39, [4, 5, 6])],
    ids=["all", "last range"],
)
def test_lumis_behind_the_last_event_of_a_file_are_kept(site: Site, first: int, last: int, lumis: list[int]) -> None:
    """cmsRun stops at the event that reaches maxEvents: the last range of a file has none."""
    path: Path = site.bench.stored(A)
    path.parent.mkdir(parents=True, exist_ok=True)
    held = np.repeat(np.array([1, 2, 4, 5], "u4"), 10)
    events = EventTable(np.ones(40, "u4"), held, np.arange(1, 41, dtype="u8"))
    write_events(path, events, [(1, lumi) for lumi in range(1, 7)], 100, seed=1)
    report = site.run([input_file(A, 40, first, last)], None)
    assert (report["exit_code"], report["processed"]["events"]) == (0, last - first + 1)
    assert sorted(lumi for lumi, _ in report["outputs"][0]["lumis"]["1"]) == lumis
