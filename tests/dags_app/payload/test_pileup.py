"""Pileup in a job: the files of pileup.json that lie at its site, in an order of its own, opened by the mixing modules."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dags_app.planning.pileup import pileup_document
from dags_app.planning.specs import PileupBlock, PileupDataset
from tests.support.payload_psets import GENERATE, PREMIX, READ, pset
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Workbench, generating_node, job_document, output, step

REFUSED = pytest.mark.deep("tests/dags_app/payload/test_pileup.py::test_a_configuration_that_mixes_nothing_is_refused")
DATASET = "/Neutrino/Premix-v1/PREMIX"
HERE, ELSEWHERE = "T1_US_FNAL", "T2_CH_CERN"
FILES = {HERE: [f"/store/mc/premix/here{n}.root" for n in range(6)], ELSEWHERE: ["/store/mc/premix/elsewhere.root"]}
BLOCKS = (
    PileupBlock(f"{DATASET}#1", (HERE,), 60, tuple(FILES[HERE][:3])),
    PileupBlock(f"{DATASET}#2", (HERE,), 60, tuple(FILES[HERE][3:])),
    PileupBlock(f"{DATASET}#3", (ELSEWHERE,), 20, tuple(FILES[ELSEWHERE])),
)


@dataclass(frozen=True)
class Mixer:
    """A unit of two jobs whose second step mixes."""

    bench: Workbench

    def prepare(self, *, module: str = PREMIX, kind: str = "mc", deterministic: bool = False, **top: Any) -> None:
        mixing = {"pileup": [{"kind": kind, "dataset": DATASET}], "deterministic_pileup": deterministic}
        steps = [step(1, "Gen", ["GENoutput"]), step(2, "Digi", ["DIGIoutput"], ("Gen", "GENoutput"), **mixing)]
        job = job_document(steps, [output("Digi", "DIGIoutput", "GEN-SIM-RAW")]) | top
        validate("job", job)
        nodes = [generating_node(index, 20, 10) for index in (0, 1)]
        psets = {
            "step1_Gen.py": pset("GEN", GENERATE, {"GENoutput": "GEN"}),
            "step2_Digi.py": pset("HLT", READ, {"DIGIoutput": "GEN-SIM-RAW"}) + module,
        }
        self.bench.prepare(job, nodes, psets)
        text = pileup_document([PileupDataset(DATASET, kind, BLOCKS)])
        validate("pileup", json.loads(text))
        (self.bench.dag / "pileup.json").write_text(text)

    def opened(self, node: str, attempt: int = 0) -> list[str]:
        """The files in the order that the configuration of the second step has them."""
        return list(self.tweak(node, attempt)["pileup"][0]["files"])

    def tweak(self, node: str, attempt: int = 0) -> dict[str, Any]:
        with tarfile.open(self.bench.logs(node, attempt)) as archive:
            member = archive.extractfile("step2_Digi/tweak.json")
            assert member is not None
            found: dict[str, Any] = json.loads(member.read())
            return found

    def framework_report(self, node: str) -> str:
        with tarfile.open(self.bench.logs(node)) as archive:
            member = archive.extractfile("step2_Digi/FrameworkJobReport.xml")
            assert member is not None
            return member.read().decode()


@pytest.fixture(name="mixer")
def _mixer(bench: Workbench, generated: Workbench) -> Mixer:
    made = generated.read("proc_000000.0.report.json")["outputs"][0]["lfn"]
    for site, lfns in FILES.items():
        for lfn in lfns:
            path = bench.stored(lfn, site)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(generated.stored(made), path)
    return Mixer(bench)


def test_a_job_mixes_exactly_the_files_at_its_site_which_are_neither_input_nor_parents(mixer: Mixer) -> None:
    mixer.prepare()

    report = mixer.bench.run("job", "proc_000000").report

    assert report["exit_code"] == 0, report["error_message"]
    assert sorted(mixer.opened("proc_000000")) == FILES[HERE]
    assert "<InputType>mixingFiles</InputType>" in mixer.framework_report("proc_000000")
    assert report["processed"] == {"events": 20, "lumis": {"1": [[1, 2]]}, "files": []}
    assert report["outputs"][0]["parents"] == []
    assert not any("premix" in name for one in report["steps"] for name in one["input_files"])


def test_the_order_is_a_jobs_own_and_the_same_for_every_attempt(mixer: Mixer) -> None:
    mixer.prepare()
    for node, attempt in (("proc_000000", 0), ("proc_000000", 1), ("proc_000001", 0)):
        mixer.bench.run("job", node, attempt)

    assert mixer.opened("proc_000000") == mixer.opened("proc_000000", 1)
    assert mixer.opened("proc_000000") != mixer.opened("proc_000001")
    assert mixer.tweak("proc_000000")["pileup"][0]["sequential"] is False


def test_deterministic_pileup_goes_on_where_the_job_before_ended(mixer: Mixer) -> None:
    mixer.prepare(deterministic=True)
    for node in ("proc_000000", "proc_000001"):
        assert mixer.bench.run("job", node).report["exit_code"] == 0

    first, second = (mixer.tweak(node)["pileup"][0] for node in ("proc_000000", "proc_000001"))
    assert first["files"] == second["files"] == FILES[HERE]
    assert first["sequential"] and second["sequential"]
    assert (first["skip_events"], second["skip_events"]) == (0, 20)


def test_a_job_over_input_begins_where_the_planner_says(mixer: Mixer) -> None:
    mixer.prepare(deterministic=True)
    unit = mixer.bench.read("unit.json")
    for job in unit["jobs"]:
        job["mixed_before"] = 90 + int(job["node"][-1]) * 20
    validate("unit", unit)
    (mixer.bench.place / "unit.json").write_text(json.dumps(unit))
    for node in ("proc_000000", "proc_000001"):
        assert mixer.bench.run("job", node).report["exit_code"] == 0
    held = sum(block.events for block in BLOCKS if HERE in block.sites)
    skips = [mixer.tweak(node)["pileup"][0]["skip_events"] for node in ("proc_000000", "proc_000001")]
    assert skips == [90 % held, 110 % held] and skips[0] != skips[1]


def test_a_missing_pileup_file_ends_the_job_as_it_ends_cmsrun(mixer: Mixer) -> None:
    mixer.prepare()
    mixer.bench.stored(FILES[HERE][4]).unlink()

    report = mixer.bench.run("job", "proc_000000").report

    assert (report["exit_code"], report["exit_step"]) == (8020, "Digi")
    assert FILES[HERE][4] in report["error_message"]


def test_a_damaged_pileup_file_ends_the_job(mixer: Mixer) -> None:
    mixer.prepare()
    for lfn in FILES[HERE]:
        mixer.bench.stored(lfn).write_bytes(b"no ROOT file")

    assert mixer.bench.run("job", "proc_000000").report["exit_code"] == 8021


def test_a_site_without_pileup_is_told_before_anything_runs(mixer: Mixer) -> None:
    mixer.prepare()
    text = (mixer.bench.dag / "pileup.json").read_text().replace(HERE, "T2_US_Purdue")
    (mixer.bench.dag / "pileup.json").write_text(text)

    report = mixer.bench.run("job", "proc_000000").report

    assert report["exit_code"] == 8020
    assert f"{HERE} has no file of the pileup {DATASET}" in report["error_message"]


def test_trusted_pileup_is_read_wherever_it_lies(mixer: Mixer) -> None:
    mixer.prepare(trust_pileup_sitelists=True)
    for lfn in FILES[ELSEWHERE]:  # what a site reads over the network it has, as far as a job can see
        shutil.copy(mixer.bench.stored(lfn, ELSEWHERE), mixer.bench.stored(lfn))

    assert mixer.bench.run("job", "proc_000000").report["exit_code"] == 0
    assert sorted(mixer.opened("proc_000000")) == sorted(FILES[HERE] + FILES[ELSEWHERE])


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        pytest.param("", "mc", marks=REFUSED),
        pytest.param(PREMIX, "data", marks=REFUSED),
        (PREMIX.replace("PreMixingModule", "DigiProducer"), "mc"),
    ],
    ids=["no module", "no module for data", "no mixing module"],
)
def test_a_configuration_that_mixes_nothing_is_refused(mixer: Mixer, module: str, kind: str) -> None:
    mixer.prepare(module=module, kind=kind)

    report = mixer.bench.run("job", "proc_000000").report

    assert (report["exit_code"], report["exit_step"]) == (7002, "Digi")
    assert f"the step mixes {kind} pileup" in report["error_message"]


def test_classical_mixing_and_overlay_of_data_have_their_own_modules(mixer: Mixer) -> None:
    data = PREMIX.replace("PreMixingModule", "DataMixingModule").replace("input = cms.SecSource", "secsource = cms.SecSource")
    mixer.prepare(module=data, kind="data")

    assert mixer.bench.run("job", "proc_000000").report["exit_code"] == 0


def test_a_job_without_the_document_says_so(mixer: Mixer) -> None:
    mixer.prepare()
    (mixer.bench.dag / "pileup.json").unlink()

    report = mixer.bench.run("job", "proc_000000").report

    assert report["exit_code"] == 95001
    assert "pileup.json: no such file" in report["error_message"]
    assert not list(Path(mixer.bench.storage()).rglob("*DIGI*"))
