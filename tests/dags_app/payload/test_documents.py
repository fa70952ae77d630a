"""job.json and unit.json: what the planner writes is read, what is wrong is named with its place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dags_app.payload.contract import names
from dags_app.payload.contract.codes import INVALID_DOCUMENT, PayloadError
from dags_app.payload.contract.documents import read_job, read_unit
from tests.support.payload_schemas import SCHEMAS, validate
from tests.support.payload_workbench import generating_node, input_file, job_document, output, reading_node, step

JOB = job_document(
    [step(1, "Gen", ["GENoutput"]), step(2, "Sim", ["SIMoutput"], ("Gen", "GENoutput"))], [output("Sim", "SIMoutput", "GEN-SIM")]
)
UNIT = {
    "schema": "wms2.unit/1",
    "unit": "mg_001234",
    "index": 1234,
    "jobs": [generating_node(0, 25, 10), reading_node(1, [input_file("/store/a.root", 100, 10, 19)], {"1": [[1, 2], [5, 5]]})],
}


def change(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field replaced, or removed when the value is ``...``."""
    copied = copy.deepcopy(document)
    at: Any = copied
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part) if isinstance(at, list) else part]
    key = int(last) if isinstance(at, list) else last
    if value is ...:
        del at[key]
    else:
        at[key] = value
    return copied


def test_the_documents_of_these_tests_follow_their_schemas() -> None:
    validate("job", JOB)
    validate("unit", UNIT)


def test_every_schema_is_itself_valid_and_named_by_its_file() -> None:
    from jsonschema import Draft202012Validator

    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"urn:wms2:schema:{name}:1"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", "wms2.job/2", r"job\.json\.schema: expected wms2\.job/1, found wms2\.job/2"),
        ("workflow_id", "42", r"job\.json\.workflow_id: expected a UUID"),
        ("steps.0.threads", "8", r"job\.json\.steps\[0\]\.threads: expected a whole number, found \"8\""),
        ("steps.1.pset", ..., r"job\.json\.steps\[1\]: the field 'pset' is missing"),
        ("steps.1.input_module", "RAWoutput", r"reads module 'RAWoutput' of step 'Gen', which no earlier step writes"),
        ("steps.1.input_step", None, r"only the first step may be without input_step"),
        ("steps.1.name", "Gen", r"the step name 'Gen' appears twice"),
        ("steps", [], r"there is no step"),
        ("outputs.0.module", "X", r"step 'Sim' has no output module 'X'"),
    ],
)
def test_a_wrong_job_document_is_refused_with_the_place(tmp_path: Path, path: str, value: Any, message: str) -> None:
    (tmp_path / "job.json").write_text(json.dumps(change(JOB, path, value)))
    with pytest.raises(PayloadError, match=message) as error:
        read_job(tmp_path)
    assert error.value.code == INVALID_DOCUMENT


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("jobs.0.generate.last_lumi", 2, r"25 events of 10 a lumi need 3 lumis"),
        ("jobs.0.generate.last_event", 0, r"at least 1 event"),
        ("jobs.0.generate", None, r"a job either generates or reads files"),
        ("jobs.1.mask.1.0", [5, 1], r"expected \[first, last\] with first <= last"),
        ("jobs.1.files.0.events", True, r"expected a whole number, found true"),
    ],
)
def test_a_wrong_unit_document_is_refused_with_the_place(tmp_path: Path, path: str, value: Any, message: str) -> None:
    (tmp_path / "unit.json").write_text(json.dumps(change(UNIT, path, value)))
    with pytest.raises(PayloadError, match=message):
        read_unit(tmp_path)


def test_an_event_range_needs_a_job_with_one_file(tmp_path: Path) -> None:
    files = [input_file("/store/a.root", 5, 0, 2), input_file("/store/b.root", 5)]
    (tmp_path / "unit.json").write_text(json.dumps({**UNIT, "jobs": [reading_node(0, files)]}))
    with pytest.raises(PayloadError, match="an event range needs a job with one file"):
        read_unit(tmp_path)


def test_a_minor_version_and_unknown_fields_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({**JOB, "schema": "wms2.job/1.3", "novelty": {"x": 1}}))
    assert read_job(tmp_path).request_name == "request_1"


def test_a_document_that_is_missing_or_torn_is_named(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match=r"job\.json: no such file"):
        read_job(tmp_path)
    (tmp_path / "job.json").write_text('{"schema": "wms2.job/1", "inst')
    with pytest.raises(PayloadError, match=r"job\.json: cannot be read as JSON"):
        read_job(tmp_path)


def test_file_names_depend_on_what_the_file_is_and_on_the_start_that_writes_it(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "unit.json").write_text(json.dumps(UNIT))
    job, unit = read_job(tmp_path), read_unit(tmp_path)
    kept = job.outputs[0]
    lfns = [names.unmerged_lfn(job, unit, node, kept, "a") for node in ("proc_000000", "proc_000001")]
    lfns += [names.merged_lfn(job, unit, kept, number, "a") for number in (0, 1)]
    lfns += [names.unmerged_lfn(job, unit, "proc_000000", kept, "b"), names.merged_lfn(job, unit, kept, 0, "b")]
    assert len(set(lfns)) == 6
    assert lfns[0].startswith("/store/unmerged/Era/Primary/GEN-SIM/Proc-v1/00001/") and "/00001/" in lfns[2]
    assert lfns[2] == names.merged_lfn(read_job(tmp_path), unit, kept, 0, "a")
