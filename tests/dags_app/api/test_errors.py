"""The errors of a request, and what is kept of each attempt. error-handling 4.1, "Inspect"."""

from __future__ import annotations

import io
import json
import tarfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from dags_app.models import DAG, FailureLog
from dags_app.packs import pack
from dags_app.services.failures import failures_sweep
from requests_app.models import RequestStatus
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene_failures import line

pytestmark = pytest.mark.django_db


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)


def fail(dag: DAG, *lines: dict[str, Any]) -> None:
    path = Path(dag.submit_dir) / "failures.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    failures_sweep(dag)


def errors(client: APIClient, dag: DAG) -> dict[str, Any]:
    response = client.get(f"/api/v1/requests/{dag.workflow.request_id}/errors")
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def test_failures_are_counted_by_category_code_site_and_step(reader: APIClient, dag: DAG) -> None:
    data = {"category": "data", "code": 8021, "rule": "cms-8021", "final": True, "bad_input_files": ["/store/a.root"]}
    fail(dag, line(), line(attempt=1), line(site="T2_CH_CERN", step="Reco"), line(**data))
    body = errors(reader, dag)
    assert (body["attempts"], body["given_up"]) == (4, 1)
    assert body["by_category"] == [
        {"value": "transient", "attempts": 3, "given_up": 0},
        {"value": "data", "attempts": 1, "given_up": 1},
    ]
    assert [(count["value"], count["attempts"]) for count in body["by_code"]] == [("8001", 3), ("8021", 1)]
    assert [(count["value"], count["attempts"]) for count in body["by_site"]] == [("T1_US_FNAL", 3), ("T2_CH_CERN", 1)]
    assert [(count["value"], count["attempts"]) for count in body["by_step"]] == [("Gen", 3), ("Reco", 1)]
    assert body["groups"][0]["rule"] == "cms-8021", "what was given up comes first"
    assert [(file["lfn"], file["code"]) for file in body["bad_files"]] == [("/store/a.root", 8021)]
    assert (body["groups_left_out"], body["files_left_out"], body["problems"]) == (0, 0, [])


def test_a_group_has_at_most_three_log_tails_with_links(reader: APIClient, dag: DAG) -> None:
    fail(dag, *(line(job_id=f"{number}.0", log_tail=f"end {number}") for number in range(5)))
    (group,) = errors(reader, dag)["groups"]
    assert [sample["log_tail"] for sample in group["samples"]] == ["end 4", "end 3", "end 2"]
    for link in group["samples"][0]["links"].values():
        assert reader.get(link).status_code == 200, link


def test_a_request_without_failures_or_without_a_workflow_has_none(reader: APIClient, dag: DAG) -> None:
    assert errors(reader, dag)["groups"] == []
    bare = request_row(RequestStatus.SUBMITTED)
    body = reader.get(f"/api/v1/requests/{bare.request_name}/errors").json()
    assert (body["attempts"], body["by_code"]) == (0, [])
    problem(reader.get("/api/v1/requests/no_such_request/errors"), 404, "not_found")


def test_failures_that_could_not_be_read_are_told(reader: APIClient, dag: DAG) -> None:
    FailureLog.objects.create(directory_id=dag.directory_id, problem="a line is none")
    assert errors(reader, dag)["problems"] == ["a line is none"]


@pytest.mark.parametrize("kinds", [1, 40])
def test_it_costs_the_same_for_many_failures(reader: APIClient, dag: DAG, kinds: int, django_assert_num_queries: Any) -> None:
    fail(dag, *(line(step=f"Step{number}", job_id=f"{number}.0") for number in range(kinds)))
    with django_assert_num_queries(7) as captured:
        assert len(errors(reader, dag)["groups"]) == kinds
    assert not any('"psets"' in query["sql"] for query in captured.captured_queries)


LOGS = {"../../x<b>": "out of place", "step1_Gen/cmsRun.stderr": "<script>alert(1)</script>\nFatal Exception é\n"}


@pytest.fixture
def attempt(dag: DAG) -> DAG:
    """A unit's directory with one attempt of job 7.0."""
    place = Path(dag.submit_dir) / "mg_000000"
    place.mkdir()
    record = {"node_name": "proc_000000", "attempt": 0, "job_id": "7.0"}
    (place / "proc_000000.attempts.jsonl").write_text(json.dumps(record) + "\n" + '{"cut off')
    (place / "proc_000000.0.report.json").write_text(json.dumps({"schema": "wms2.report/1", "job_id": "7.0", "exit_code": 8001}))
    with tarfile.open(place / "proc_000000.0.7.0.logs.tar.gz", "w:gz") as archive:
        logs = {"job.ad": "ClusterId = 7\nProcId = 0\n", "machine.ad": 'GLIDEIN_CMSSite = "T1_US_FNAL"\n', **LOGS}
        for name, text in logs.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    event = "001 ({c}.000.000) 2026-11-21 10:00:00 Job executing on host: <x>\n...\n"
    (place / "cluster.log").write_text(event.format(c="007") + event.format(c="008"))
    (Path(dag.submit_dir) / "secret.report.json").write_text("{}")
    return dag


def address(dag: DAG, what: str, unit: str = "mg_000000", node: str = "proc_000000", number: int = 0, job: str = "7.0") -> str:
    return f"/api/v1/dags/{dag.pk}/units/{unit}/nodes/{node}/attempts/{number}/jobs/{job}/{what}"


def test_all_attempts_of_a_node(reader: APIClient, attempt: DAG) -> None:
    body = reader.get(f"/api/v1/dags/{attempt.pk}/units/mg_000000/nodes/proc_000000/attempts").json()
    assert [one["job_id"] for one in body["attempts"]] == ["7.0"]
    none = reader.get(f"/api/v1/dags/{attempt.pk}/units/mg_000001/nodes/proc_000000/attempts").json()
    assert none["attempts"] == []


def test_the_report_and_the_ads_of_an_attempt(reader: APIClient, attempt: DAG) -> None:
    report = reader.get(address(attempt, "report")).json()
    assert (report["problem"], report["content"]["exit_code"]) == ("", 8001)
    ads = reader.get(address(attempt, "job-ad")).json()["content"]
    assert "ClusterId = 7" in ads["job_ad"] and "T1_US_FNAL" in ads["machine_ad"]
    assert [event["number"] for event in ads["events"]] == [1]


def test_a_later_job_with_the_same_attempt_number_is_not_taken_for_the_one_asked_for(reader: APIClient, attempt: DAG) -> None:
    report = reader.get(address(attempt, "report", job="8.0")).json()
    assert report["content"] is None and "replaced" in report["problem"]
    ads = reader.get(address(attempt, "job-ad", job="8.0")).json()
    assert (ads["content"]["job_ad"], len(ads["content"]["events"])) == ("", 1)
    assert "no POST script has judged it" in ads["problem"]


@pytest.mark.parametrize("in_a_pack", [False, True])
def test_the_logs_of_an_attempt_are_listed_read_and_downloaded(reader: APIClient, attempt: DAG, in_a_pack: bool) -> None:
    whole = (Path(attempt.submit_dir) / "mg_000000/proc_000000.0.7.0.logs.tar.gz").read_bytes()
    if in_a_pack:
        pack(Path(attempt.submit_dir))
    logs = reader.get(address(attempt, "logs")).json()
    assert [file["name"] for file in logs["files"]] == ["job.ad", "machine.ad", *LOGS]
    assert (logs["problem"], logs["size_bytes"]) == ("", len(whole))
    last = reader.get(logs["files"][3]["text"])
    assert (last.content.decode(), last["Content-Type"]) == (LOGS["step1_Gen/cmsRun.stderr"], "text/plain; charset=utf-8")
    assert last["X-Content-Type-Options"] == "nosniff" and "default-src 'self'" in last["Content-Security-Policy"]
    archive = reader.get(logs["archive"])
    assert archive.content == whole
    assert archive["Content-Disposition"] == 'attachment; filename="mg_000000.proc_000000.0.7.0.logs.tar.gz"'
    problem(reader.get(address(attempt, "logs/4")), 404, "not_found")


KEPT = {"unit": "mg_000000", "node": "proc_000000", "job_id": "7.0", "at": "2026-11-21T10:00:00Z", "step": "Gen"}


@pytest.mark.parametrize("in_a_pack", [False, True])
def test_the_logs_that_a_dag_keeps_are_listed(reader: APIClient, attempt: DAG, in_a_pack: bool) -> None:
    lines = [json.dumps({**KEPT, "attempt": number, "code": 8001, "size_bytes": 9}) for number in range(2)]
    (Path(attempt.submit_dir) / "kept_logs.jsonl").write_text("\n".join([*lines, "{cut"]))
    if in_a_pack:
        pack(Path(attempt.submit_dir))
    body = reader.get(f"/api/v1/dags/{attempt.pk}/kept-logs").json()
    assert [(row["attempt"], row["name"]) for row in body["results"]] == [
        (1, "proc_000000.1.7.0.logs.tar.gz"),
        (0, "proc_000000.0.7.0.logs.tar.gz"),
    ]
    assert len(reader.get(body["results"][1]["logs"]).json()["files"]) == 4


@pytest.mark.parametrize(
    ("record", "job", "reported"),
    [
        ({"logs": None, "job": {"hold_reason": "WMS2: ran longer than 9 s", "exit_signal": None}}, "9.0", "ran longer than 9 s"),
        ({"logs": None}, "9.0", "nothing came back of this job"),
        ({"logs": "proc_000000.0.9.0.logs.tar.gz"}, "9.0", "were removed since"),
        ({}, "-1.-1", "could not be submitted"),
    ],
)
def test_where_there_are_no_logs_it_is_said_why(reader: APIClient, attempt: DAG, record: Any, job: str, reported: str) -> None:
    with (Path(attempt.submit_dir) / "mg_000000/proc_000000.attempts.jsonl").open("a") as stream:
        stream.write("\n" + json.dumps({"node_name": "proc_000000", "attempt": 0, "job_id": job, **record}) + "\n")
    body = reader.get(address(attempt, "logs", job=job)).json()
    assert (body["files"], body["size_bytes"]) == ([], 0) and reported in body["problem"]
    problem(reader.get(address(attempt, "logs.tar.gz", job=job)), 404, "not_found")


def test_a_directory_that_cannot_be_read_from_here_is_called_so(reader: APIClient, attempt: DAG) -> None:
    DAG.objects.update(submit_dir="/nowhere/at/all", schedd_name="schedd9")
    reported = "the DAG's directory /nowhere/at/all (of schedd9) cannot be read from this host, or is gone"
    assert reader.get(address(attempt, "logs")).json()["problem"] == reported
    assert "cannot be read" in reader.get(f"/api/v1/dags/{attempt.pk}/kept-logs").json()["problem"]


@pytest.mark.parametrize("damage", [b"", b"no archive", b"\x1f\x8b" + b"0" * 99], ids=["empty", "text", "gzip cut"])
def test_a_damaged_archive_is_told_and_can_be_downloaded(reader: APIClient, attempt: DAG, damage: bytes) -> None:
    (Path(attempt.submit_dir) / "mg_000000/proc_000000.0.7.0.logs.tar.gz").write_bytes(damage)
    body = reader.get(address(attempt, "logs")).json()
    assert body["files"] == [] and "damaged" in body["problem"] and body["size_bytes"] == len(damage)


def test_an_archive_that_is_a_link_out_of_the_directory_is_not_read(reader: APIClient, attempt: DAG, tmp_path: Path) -> None:
    path = Path(attempt.submit_dir) / "mg_000000/proc_000000.0.7.0.logs.tar.gz"
    outside = tmp_path.parent / f"{tmp_path.name}-outside.tar.gz"
    path.rename(outside)
    path.symlink_to(outside)
    assert reader.get(address(attempt, "logs")).json()["files"] == []


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_report_is_told(reader: APIClient, attempt: DAG, content: str) -> None:
    (Path(attempt.submit_dir) / "mg_000000/proc_000000.0.report.json").write_text(content)
    body = reader.get(address(attempt, "report")).json()
    assert body["content"] is None and body["problem"]


@pytest.mark.parametrize(
    ("unit", "node", "job"),
    [
        ("..", "secret", "7.0"),
        ("mg_000000", "..", "7.0"),
        ("mg_000000", "proc_000000", "..%2F7"),
        ("mg_000000", "..%2Fsecret", "7.0"),
        ("unit", "proc_000000", "7.0"),
        ("mg_000000", "Proc", "7.0"),
        ("mg_000000", "proc_000000", "seven"),
    ],
)
def test_names_that_wms2_does_not_give_lead_nowhere(reader: APIClient, attempt: DAG, unit: str, node: str, job: str) -> None:
    for what in ("report", "job-ad", "logs", "logs/0", "logs.tar.gz"):
        assert reader.get(address(attempt, what, unit, node, 0, job)).status_code == 404


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ('{"job_id": "7.0", "x": [NaN, 1e999, 1.5]}', ["NaN", "1e999", 1.5]),
        ('{"job_id": "7.0", "x": ' + "[" * 5000 + "]" * 5000 + "}", None),
        ('{"job_id": "7.0", "x": "\\ud800"}', None),
    ],
    ids=["no numbers", "deep", "half a character"],
)
def test_a_report_that_json_cannot_hold_is_told(reader: APIClient, attempt: DAG, content: str, shown: object) -> None:
    (Path(attempt.submit_dir) / "mg_000000/proc_000000.0.report.json").write_text(content)
    (Path(attempt.submit_dir) / "mg_000000/proc_000000.attempts.jsonl").write_text(content + "\n")
    body = reader.get(address(attempt, "report")).json()
    assert (body["content"] or {}).get("x") == shown
    assert bool(body["problem"]) is (shown is None)
    reported = reader.get(f"/api/v1/dags/{attempt.pk}/units/mg_000000/nodes/proc_000000/attempts").json()["attempts"]
    assert [one["x"] for one in reported] == ([shown] if shown else [])


def test_a_link_out_of_the_directory_is_not_followed(reader: APIClient, attempt: DAG, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text(json.dumps({"job_id": "7.0", "secret": 1}))
    report = Path(attempt.submit_dir) / "mg_000000/proc_000000.0.report.json"
    report.unlink()
    report.symlink_to(outside)
    assert reader.get(address(attempt, "report")).json()["content"] is None


def test_a_dag_that_is_not_there_has_no_attempts(reader: APIClient, nobody: APIClient, attempt: DAG) -> None:
    assert nobody.get(address(attempt, "report")).status_code == 401
    problem(reader.get(address(attempt, "report").replace(str(attempt.pk), str(uuid.uuid4()))), 404, "not_found")
