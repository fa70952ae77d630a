"""What of a unit's manifest is believed: damaged metrics are dropped, and its files count all the same, each where it lies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dags_app.manifest import Manifest, ManifestProblem, read_manifest
from tests.support.cases import in_one_test

JOB: dict[str, Any] = {
    "node": "proc_000000",
    "processes": 2,
    "threads": 4,
    "wall_seconds": 100.0,
    "cpu_seconds": 700.5,
    "peak_rss_mb": 900.0,
    "slot_rss_mb": 1700.0,
    "cgroup_peak_mb": None,
    "events_read": 10,
    "events_written": 5,
    "bytes_written": {"out": 1000},
}


def manifest(place: Path, metrics: str, schema: str = "wms2.manifest/1.2", files: Sequence[Any] = ()) -> Manifest:
    """A manifest with this text for its metrics, read back."""
    outputs = [{"dataset": "/a/b/C", "module": "out", "step": "Gen", "files": list(files)}] if files else []
    stamps = dict.fromkeys(("request_name", "workflow_id", "dag_id", "unit", "site", "rse"), "x")
    jobs = [{"node": "proc_000000", "processed": {"events": 10, "lumis": {"1": [[1, 1]]}}}]
    text = json.dumps({"schema": schema, **stamps, "fence": 1, "jobs": jobs, "outputs": outputs, "metrics": "@"})
    (place / "merge_output.json").write_text(text.replace('"@"', metrics))
    return read_manifest(place / "merge_output.json")[0]


def steps(**changes: Any) -> str:
    return json.dumps({"steps": {"Gen": {"processes": 2, "threads": 4, "jobs": [{**JOB, **changes}]}}})


def test_metrics_of_each_job_are_typed(tmp_path: Path) -> None:
    (job,) = manifest(tmp_path, steps()).step_metrics["Gen"]
    assert job.model_dump() == JOB


@in_one_test(
    "metrics",
    [
        "null",
        "[]",
        '{"steps": {"Gen": 5}}',
        steps(wall_seconds=-1),
        steps(wall_seconds=1e30),
        steps(cpu_seconds="much"),
        steps(peak_rss_mb=1e12),
        steps(processes=0),
        steps(events_read=2**60),
        steps(bytes_written={"out": -5}),
        steps(bytes_written=[1]),
        steps().replace("700.5", "NaN"),
        steps().replace("700.5", "Infinity"),
        json.dumps({"steps": {"Gen": {"processes": 2, "threads": 4, "jobs": [JOB, JOB]}}}),
    ],
)
def test_damaged_metrics_are_dropped_and_the_work_counts(tmp_path: Path, metrics: str) -> None:
    found = manifest(tmp_path, metrics)
    assert found.step_metrics == {}
    assert found.claimants[0].processed.events == 10


FILE = {"lfn": "/store/a.root", "size_bytes": 1, "adler32": "00000001", "events": 1, "lumis": {}, "pieces": {"lumis": {}}}


def test_each_file_says_where_it_lies_and_older_manifests_say_it_once(tmp_path: Path) -> None:
    read = manifest(tmp_path, "{}", "wms2.manifest/1.3", [FILE | {"rse": "T1_US_FNAL_Disk"}])
    assert [file.rse for output in read.outputs for file in output.files] == ["T1_US_FNAL_Disk"]
    assert manifest(tmp_path, "{}", "wms2.manifest/1.2", [FILE]).rse == "x"
    for files in ([FILE], [FILE | {"rse": ""}]):
        with pytest.raises(ManifestProblem):
            manifest(tmp_path, "{}", "wms2.manifest/1.3", files)


@pytest.mark.parametrize("schema", ["wms2.manifest/1", "wms2.manifest/1.1"])
def test_an_older_manifest_has_no_metrics_of_jobs(tmp_path: Path, schema: str) -> None:
    old = {"steps": {"Gen": {"jobs": 2, "cpu_efficiency": 0.8, "peak_rss_mb": [1.0, 2.0]}}}
    assert manifest(tmp_path, json.dumps(old), schema).step_metrics == {}
