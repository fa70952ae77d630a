"""Files between releases (docs/design/control.md, Versions of files): this one reads those of the release before, and of later
minor versions of their schemas; another major version, and a file without what is needed, is refused in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dags_app.manifest import ManifestProblem, read_manifest
from dags_app.payload.contract import layout
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.documents import Pileup, read_job, read_unit
from dags_app.payload.contract.reading import load_document
from dags_app.payload.contract.reports import accepted_report, node_report
from dags_app.payload.contract.rules import load_rules
from dags_app.payload.contract.site_tasks import (
    HarvestTask,
    Listed,
    ListedFile,
    Listing,
    ListingTask,
    Removal,
    RemovalTask,
    Removed,
    SiteResult,
    Uploaded,
    WrongFile,
    read_result,
    read_task,
)
from dags_app.payload.contract.step_profile import read_step_profile
from dags_app.payload.merge.collecting import read_merge_input
from dags_app.payload.run import gathering, journal
from dags_app.payload.run.journal import Journals
from dags_app.payload.run.pileup import mixing_of
from dags_app.planning.pileup import pileup_document
from dags_app.planning.specs import PileupBlock, PileupDataset
from dags_app.services.failures import FailureLine
from tests.support import former_release
from tests.support.cases import in_one_test
from tests.support.payload_schemas import SCHEMAS, validate
from tests.support.payload_workbench import SHARING_DIGI, SHARING_RECO, Workbench, chain_of_shares
from tests.support.scene_failures import line

FILES = former_release.FOLDER / "files"
NODE = SHARING_DIGI[0]
LATER = "later"
#: What a file may lack although it changes what is read: without measures the work counts all the same.
SPARED = {"manifest": {"metrics"}}
#: What a file may lack although it changes what is read: without measures the work counts all the same.
SPARED = {"manifest": {"metrics"}}
MIXED = "/Mixed/Era-v1/GEN-SIM"
#: Where its reader looks for each.
NAMES = {
    "job": layout.JOB_FILE, "unit": layout.UNIT_FILE, "step_profile": layout.STEP_PROFILE_FILE, "pileup": layout.PILEUP_FILE,
    "rules": "rules.json", "report": layout.report_name(NODE, 0), "post": layout.post_name(NODE),
    "node_input": layout.node_input_name(NODE), "merge_input": layout.MERGE_INPUT_FILE, "manifest": layout.MANIFEST_FILE,
    "journal": "journal.json", "failure": "failure.json", "site_task": layout.SITE_TASK_FILE,
    "listing_task": layout.SITE_TASK_FILE, "harvest_task": layout.SITE_TASK_FILE, "site_result": layout.SITE_RESULT_FILE,
}  # fmt: skip


def _mixing(place: Path) -> Any:
    job, unit = read_job(place), read_unit(place)
    step = job.steps[0]._replace(pileup=(Pileup("mc", MIXED),))
    return mixing_of(place, job, unit.jobs[0], step, site="T1_US_FNAL", seed="1")


READERS: dict[str, Callable[[Path], Any]] = {
    "job": read_job,
    "unit": read_unit,
    "step_profile": read_step_profile,
    "pileup": _mixing,
    "rules": lambda place: load_rules(place / NAMES["rules"]),
    "report": lambda place: node_report(load_document(place / NAMES["report"], layout.REPORT_SCHEMA), read_unit(place), NODE),
    "post": lambda place: accepted_report(place, read_unit(place), NODE, None)[1],
    "node_input": lambda place: gathering.read_node_input(place, read_unit(place), read_unit(place).job(NODE), (), place),
    "merge_input": lambda place: read_merge_input(place, read_unit(place)),
    "manifest": lambda place: read_manifest(place / NAMES["manifest"])[0],
    "journal": lambda place: Journals(None, str(place))._files(NAMES["journal"]),  # type: ignore[arg-type]
    "failure": lambda place: FailureLine.model_validate_json((place / NAMES["failure"]).read_text()),
    "site_task": read_task,
    "listing_task": read_task,
    "harvest_task": read_task,
    "site_result": read_result,
}


@pytest.fixture(autouse=True)
def _storage_is_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal.storage, "text", lambda volume, lfn: Path(lfn).read_text())
    monkeypatch.setattr(gathering, "_place", lambda volumes, file, scratch: file.lfn)


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FILES / f"{name}.json").read_text())
    return found


def result_of(place: Path, name: str, document: dict[str, Any]) -> str:
    """What the reader makes of it, beside the other recorded files; without what only a later release says."""
    for other in ("job", "unit", "report", "post"):
        (place / NAMES[other]).write_text(json.dumps(recorded(other)))
    (place / NAMES[name]).write_text(json.dumps(document))
    said = repr(READERS[name](place))
    return re.sub(r"(wms2\.\w+/1)\.\d+", r"\1", said.replace(f", '{LATER}': 1", ""))


def problem_of(place: Path, name: str, document: dict[str, Any]) -> str:
    """How it is refused; empty when it is read as the recorded one."""
    try:
        said = result_of(place, name, document)
    except (PayloadError, ManifestProblem, ValidationError) as error:
        return str(error)
    assert said == result_of(place, name, recorded(name)), "read as something else"
    return ""


def with_later_fields(value: Any, schema: dict[str, Any]) -> Any:
    """A copy in which each object that the schema describes has one field more."""
    if isinstance(value, list):
        return [with_later_fields(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    known = {key: with_later_fields(item, schema["properties"].get(key, {})) for key, item in value.items()}
    return known | {LATER: 1}


def test_every_schema_has_a_recorded_file_and_a_reader() -> None:
    assert set(SCHEMAS) >= {path.stem for path in FILES.iterdir()} == set(READERS) == set(NAMES)


@in_one_test("name", READERS)
def test_a_file_of_the_former_release_is_read_and_so_is_one_of_a_later_minor_version(name: str, tmp_path: Path) -> None:
    document = recorded(name)
    validate(name, document)
    later = with_later_fields(document, SCHEMAS[name]) | {"schema": document["schema"].partition("/")[0] + "/1.99"}
    assert problem_of(tmp_path, name, later) == ""


@in_one_test("name", READERS)
def test_another_major_version_is_refused_in_words(name: str, tmp_path: Path) -> None:
    document = recorded(name)
    assert "schema" in problem_of(tmp_path, name, document | {"schema": document["schema"].partition("/")[0] + "/2"})
    assert "schema" in problem_of(tmp_path, name, {key: value for key, value in document.items() if key != "schema"})


@in_one_test("name", READERS)
def test_what_is_missing_is_not_needed_or_is_named(name: str, tmp_path: Path) -> None:
    document, unnamed = recorded(name), []
    for field in set(SCHEMAS[name]["required"]) - SPARED.get(name, set()):
        problem = problem_of(tmp_path, name, {key: value for key, value in document.items() if key != field})
        unnamed += [field] if problem and field not in problem else []
    assert unnamed == []


if former_release.RECORDING:

    def test_files_are_recorded_for_the_next_release(bench: Workbench) -> None:
        """Of a unit of three tasks, and what other jobs write."""
        FILES.mkdir(exist_ok=True)
        chain_of_shares(bench)
        bench.profile(GenSim=(1, 1, 900))
        bench.process("job", "proc_000000")
        for node in (*SHARING_DIGI, *SHARING_RECO, "t3_000002"):
            assert bench.script("gather", node) == 0
            bench.process("job", node)
        assert bench.script("collect") == 0
        bench.process("merge", "merge")
        found = {name: bench.place / NAMES[name] for name in ("unit", "report", "post", "node_input", "merge_input", "manifest")}
        found |= {name: bench.dag / NAMES[name] for name in ("job", "step_profile", "rules")}
        found["journal"] = next(path for path in bench.storage().rglob("*.json") if '"wms2.journal/1"' in path.read_text())
        documents = {name: json.loads(path.read_text()) for name, path in found.items()}
        dqm = "DQM_V0001_R000000001__A__E-v1__DQMIO.root"
        block = PileupBlock(f"{MIXED}#1", ("T1_US_FNAL",), 60, ("/store/p.root",))
        documents |= {
            "pileup": json.loads(pileup_document([PileupDataset(MIXED, "mc", (block,))])),
            "failure": line(),
            "site_task": to_json(RemovalTask("j", "T1_US_FNAL", 1.5, 60.0, 9, ("/store/unmerged/E",), frozenset(("/store/a",)),
                                             (Removal(1, ("/store/unmerged/E/j",), ("/store/unmerged/E/a.root",)),))),
            "listing_task": to_json(ListingTask("j", "T1_US_FNAL", 60.0, (
                Listing(1, "T1_US_FNAL_Disk", (ListedFile(1, "/store/a.root", 9, "0000000a", True),)),))),
            "harvest_task": to_json(HarvestTask("j", "T1_US_FNAL", "/A/E-v1/DQMIO", False, (1,), ("/store/a.root",), "pset", "C",
                                                ("el8_amd64_gcc12",), "GT", ("https://dqm.example",))),
            "site_result": to_json(SiteResult("j", "T1_US_FNAL", "host", "7.0", "2026-11-21T10:00:00Z", "2026-11-21T10:00:09Z",
                                              (Removed(1, ("/store/a",), ("no",), 1),),
                                              (Listed(1, 3, 3, 1, (WrongFile(1, 5, "0000000b"),)),),
                                              (Uploaded(dqm, 5, "0" * 32, "https://dqm.example", "ok"),))),
        }  # fmt: skip
        for name, document in documents.items():
            validate(name, document)
            text = json.dumps(document, indent=1).replace(str(bench.root), "/recorded")
            (FILES / f"{name}.json").write_text(text + "\n")
