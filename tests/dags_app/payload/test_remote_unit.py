"""Whole work units at a site that no job can mount: a real XRootD server, by root and by davs; and what its fallback takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dags_app.manifest import read_manifest
from tests.support.payload_psets import GENERATE, READ, pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import (
    SITES,
    Workbench,
    event_numbers,
    generating_node,
    job_document,
    output,
    step,
    task,
)
from tests.support.xrootd import OwnServer, serving

SITE, FALLBACK = "T1_US_FNAL", "T2_CH_CERN"
HOME_RSE, FALLBACK_RSE = SITES[SITE], SITES[FALLBACK]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with serving(tmp_path_factory.mktemp("xrootd")) as running:
        yield running


def at_server(bench: Workbench, server: OwnServer, protocol: str, fallback: bool = False) -> None:
    """The site's volume is at the server from now on."""
    prefix = {"XRootD": server.url, "WebDAV": server.described.davs_url}[protocol]
    described = {"protocol": protocol, "access": "global-rw", "prefix": prefix}
    volume = {"site": SITE, "volume": HOME_RSE, "protocols": [described], "type": "DISK", "rse": HOME_RSE}
    place = bench.root / "siteconf" / SITE
    (place / "storage.json").write_text(json.dumps([volume]))
    if fallback:
        methods = f'<method volume="{HOME_RSE}" protocol="{protocol}"/>'
        methods += f'<method site="{FALLBACK}" volume="{FALLBACK_RSE}" protocol="file"/>'
        (place / "JobConfig").mkdir()
        text = f'<site-local-config><site name="{SITE}"><stage-out>{methods}</stage-out></site></site-local-config>'
        (place / "JobConfig/site-local-config.xml").write_text(text)
    path = f"{bench.programs}:/usr/bin:/bin"
    bench.variables |= server.environment({"PATH": path})


def files_at(place: Path) -> list[str]:
    return sorted(f"/{path.relative_to(place)}" for path in (place / "store").rglob("*") if path.is_file())


def test_a_unit_of_two_tasks_lives_where_nothing_is_mounted(bench: Workbench, server: OwnServer, protocol: str) -> None:
    source = ("Gen", "GENoutput")
    job = job_document(
        [step(1, "Gen", ["GENoutput"]), step(2, "Reco", ["AODoutput"], source)],
        [output("Gen", "GENoutput", "GEN"), output("Reco", "AODoutput", "AOD")],
    )
    job["tasks"] = [task(1, "Gen"), task(2, "Reco", source)]
    reading = {
        "node": "t2_000000",
        "task": 2,
        "events": 20,
        "reads": ["proc_000000"],
        "generate": None,
        "files": [],
        "mask": None,
    }
    psets = {
        "step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"}),
        "step2_Reco.py": pset("RECO", READ, {"AODoutput": "AOD"}),
    }
    bench.prepare(job, [generating_node(0, 20, 10) | {"task": 1}, reading], psets)
    at_server(bench, server, protocol)

    bench.process("job", "proc_000000")
    assert bench.script("gather", "t2_000000") == 0
    validate("node_input", bench.read("t2_000000.input.json"))
    bench.process("job", "t2_000000")
    assert bench.script("collect") == 0
    bench.process("merge", "merge")
    assert len(files_at(server.storage)) == 7, "two unmerged files, two merged, and three journals"
    assert bench.run("cleanup", "cleanup").value == 0

    manifest, _ = read_manifest(bench.place / "merge_output.json")
    merged = [file for out in manifest.outputs for file in out.files]
    assert files_at(server.storage) == sorted(file.lfn for file in merged)
    for file in merged:
        assert (file.rse, file.events) == (HOME_RSE, 20)
        numbers = event_numbers(Path(f"{server.storage}{file.lfn}"))
        assert [event for _, _, event in numbers] == list(range(1, 21))
        Path(f"{server.storage}{file.lfn}").unlink()


#: Each of a unit's many calls of the client costs half a second of processor over TLS.
OVER_TLS = pytest.mark.deep("tests/dags_app/payload/test_storage.py::test_a_storage_tells_of_its_files")


@pytest.fixture(params=["XRootD", pytest.param("WebDAV", marks=OVER_TLS)])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_files_that_went_to_the_fallback_are_read_and_removed_there(one_step: Workbench, server: OwnServer) -> None:
    bench = one_step
    at_server(bench, server, "XRootD", fallback=True)
    bench.process("job", "proc_000000")
    away = replace(server.described, port=1)  # nobody listens there
    volumes = (bench.root / "siteconf" / SITE / "storage.json").read_text()
    (bench.root / "siteconf" / SITE / "storage.json").write_text(volumes.replace(server.url, away.url))
    bench.variables |= {"XRD_CONNECTIONWINDOW": "1", "XRD_CONNECTIONRETRY": "1"}
    bench.process("job", "proc_000001")
    (bench.root / "siteconf" / SITE / "storage.json").write_text(volumes)
    rses = [bench.read(f"proc_00000{n}.0.report.json")["outputs"][0]["rse"] for n in (0, 1)]
    assert rses == [HOME_RSE, FALLBACK_RSE]

    shutil.rmtree(server.storage / "store/mc", ignore_errors=True)
    (server.storage / "store/mc").write_text("no directory: merged files cannot be written here")
    assert bench.script("collect") == 0
    bench.process("merge", "merge")
    validate("manifest", bench.read("merge_output.json"))
    manifest, _ = read_manifest(bench.place / "merge_output.json")
    (merged,) = manifest.outputs[0].files
    assert (manifest.rse, merged.rse, merged.events) == (HOME_RSE, FALLBACK_RSE, 40)

    (server.storage / "store/mc").unlink()
    assert bench.run("cleanup", "cleanup").value == 0
    assert files_at(server.storage) == [], "journals too are gone from both"
    assert files_at(bench.storage(FALLBACK)) == [merged.lfn]


def test_the_scratch_of_a_merge_stays_under_twice_the_largest_merged_file(bench: Workbench, server: OwnServer) -> None:
    job = job_document([step(1, "Gen", ["GENoutput"])], [output("Gen", "GENoutput", "GEN")])
    nodes = [generating_node(index, 20, 10) for index in range(3)]
    bench.prepare(job, nodes, {"step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"})})
    at_server(bench, server, "XRootD")
    for node in nodes:
        bench.process("job", node["node"])
    sizes = sorted(Path(f"{server.storage}{lfn}").stat().st_size for lfn in files_at(server.storage) if lfn.endswith(".root"))
    job["merge"]["max_bytes"] = sum(sizes[-2:])
    (bench.dag / "job.json").write_text(json.dumps(job))
    assert bench.script("collect") == 0
    seen = bench.root / "seen"
    (bench.root / "watched").mkdir()
    for program, place in (("cmsRun", bench.programs), ("xrdcp", server.described.prefix / "bin")):
        watched = bench.root / "watched" / program
        sizes_there = f"find {bench.root}/execute -name '*.root' -printf '%s\\n'"
        added_up = f"{sizes_there} | awk '{{ sum += $1 }} END {{ print sum + 0 }}' >> {seen}"
        watched.write_text(f'#!/bin/sh\n{place}/{program} "$@"\nended=$?\n{added_up}\nexit $ended\n')
        watched.chmod(0o755)
    bench.variables["PATH"] = f"{bench.root}/watched:{bench.variables['PATH']}"
    bench.process("merge", "merge")
    peak = max(map(int, seen.read_text().split()))
    assert len(bench.read("merge_output.json")["outputs"][0]["files"]) == 2
    assert sum(sizes[:2]) < peak < 2 * job["merge"]["max_bytes"], "the inputs of one merged file, and that file"
    assert bench.run("cleanup", "cleanup").value == 0
    assert len(files_at(server.storage)) == 2
