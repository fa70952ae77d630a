"""The packed logs of failed jobs in a browser: one click from the error, told apart from markup, a page at a time."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from django.test import Client

from dags_app.models import DAG
from dags_app.packs import pack
from dags_app.services.failures import failures_sweep
from requests_app.models import RequestStatus
from requests_app.pages.logs import PAGE_CHARACTERS
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene_failures import line

pytestmark = pytest.mark.django_db
LONG = "first\n" + "x" * 2 * PAGE_CHARACTERS + "\n<b>Fatal</b> Exception"


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    """A job with logs, and one that left none."""
    row = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)
    lines = (line(), line(node="proc_000001", job_id="8.0"))
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    failures_sweep(row)
    place = tmp_path / "mg_000000"
    place.mkdir()
    with tarfile.open(place / "proc_000000.0.7.0.logs.tar.gz", "w:gz") as archive:
        for name, data in (
            ("job.ad", "A = 1"),
            ("<i>step1</i>/a.py", "b"),
            ("step1_Gen/cmsRun.stderr", LONG),
            ("step1_Gen/z", ""),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data.encode()))
    kept = {"unit": "mg_000000", "node": "proc_000000", "attempt": 0, "job_id": "7.0", "at": "2026", "code": 8001, "step": "Gen"}
    (tmp_path / "kept_logs.jsonl").write_text(json.dumps({**kept, "size_bytes": 12_345}) + "\n")
    return row


def address(dag: DAG, job: str = "7.0", node: str = "proc_000000") -> str:
    return f"/dags/{dag.pk}/units/mg_000000/nodes/{node}/attempts/0/jobs/{job}/logs/"


def test_each_kind_of_error_leads_to_the_logs_of_its_example_jobs(reader: Client, dag: DAG) -> None:
    html = reader.get(f"/requests/{dag.workflow.request_id}/").content.decode()
    found = [link for link in links(html, "part-errors") if link.endswith("/logs/")]
    assert set(found) == {address(dag), address(dag, "8.0", "proc_000001")}
    assert "mg_000000/proc_000001, attempt 0 not there" in text(html, "part-errors")
    for link in found:
        assert reader.get(link).status_code == 200


def test_the_end_of_the_last_stderr_is_shown_first_and_nothing_in_it_is_markup(reader: Client, dag: DAG) -> None:
    html = reader.get(address(dag)).content.decode()
    assert "&lt;b&gt;Fatal&lt;/b&gt; Exception</pre>" in html and "first" not in html
    assert "&lt;i&gt;step1&lt;/i&gt;/a.py" in html and "<i>" not in html
    assert "Page 3 of 3" in html
    assert 'aria-labelledby="file">first\nxxx' in reader.get(address(dag), {"file": "2", "page": "1"}).content.decode()
    assert ">A = 1</pre>" in reader.get(address(dag), {"file": "0"}).content.decode()


@pytest.mark.parametrize("query", ["file=4", "file=-1", "file=x", "page=0", "page=4", "page=../etc/passwd"])
def test_a_file_or_page_that_is_none_is_not_found(reader: Client, dag: DAG, query: str) -> None:
    assert reader.get(f"{address(dag)}?{query}").status_code == 404


def test_a_job_that_left_nothing_has_a_page_that_says_so(reader: Client, dag: DAG) -> None:
    html = reader.get(address(dag, "8.0", "proc_000001")).content.decode()
    assert "no POST script has judged it." in html and "<pre" not in html and "Download" not in html


def test_the_logs_are_there_after_the_directory_was_packed(reader: Client, dag: DAG) -> None:
    pack(Path(dag.submit_dir))
    assert "Exception</pre>" in reader.get(address(dag)).content.decode()
    assert "proc_000000, attempt 0" in reader.get(f"/requests/{dag.workflow.request_id}/").content.decode()


def test_all_logs_that_a_dag_keeps_are_on_one_page(reader: Client, dag: DAG) -> None:
    html = reader.get(f"/dags/{dag.pk}/logs/").content.decode()
    assert address(dag) in html and "8001 Gen" in html and "12.3 KB" in html
    DAG.objects.update(submit_dir="/nowhere")
    assert "cannot be read from this host" in reader.get(f"/dags/{dag.pk}/logs/").content.decode()


def test_only_who_is_signed_in_reads_them(client: Client, dag: DAG) -> None:
    for path in (address(dag), f"/dags/{dag.pk}/logs/"):
        assert client.get(path).status_code == 302
