"""``make audit``: what is installed is listed, and silence is not taken for good news."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from deploy.stack import audit, commands
from tests.support.places import ROOT
from tests.support.servers import free_port

BATCH, DJANGO = "/v1/querybatch", "pkg:pypi/django@5.2.19"


@pytest.fixture
def bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bill in place of one that a lock is read for, which costs a second."""
    listed = [{"name": "Django", "version": "5.2.19"}, {"name": "zope_interface", "version": "8.0"}]
    path = tmp_path / "bill.json"
    path.write_text(json.dumps({"components": listed}))
    monkeypatch.setattr(audit, "write_bill", lambda lock, directory: path)
    return path


def asked(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    monkeypatch.setenv("WMS2_ADVISORIES_URL", httpserver.url_for("").rstrip("/"))
    return audit.main([str(tmp_path), "lock.txt"])


def test_a_lock_becomes_a_bill_of_materials_of_all_that_it_pins(tmp_path: Path) -> None:
    lock = ROOT / "requirements/runtime.txt"
    pinned = dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", lock.read_text(), re.M))
    bill = audit.write_bill(lock, tmp_path)
    found = json.loads(bill.read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert audit.packages(bill) == {f"pkg:pypi/{name}@{version}" for name, version in pinned.items()}


def test_every_lock_is_among_those_that_are_listed() -> None:
    locks = {str(path.relative_to(ROOT)) for place in ("requirements", "deploy") for path in (ROOT / place).rglob("*.txt")}
    assert {name for name in locks if "--hash=" in (ROOT / name).read_text()} == set(commands.LOCKS)


def test_no_known_advisory_is_status_0_and_every_package_was_asked_about(
    bill: Path, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {"queries": [{"package": {"purl": purl}} for purl in (DJANGO, "pkg:pypi/zope-interface@8.0")]}
    httpserver.expect_request(BATCH, method="POST", json=expected).respond_with_json({"results": [{}, {}]})
    assert asked(httpserver, monkeypatch, tmp_path) == 0
    assert "2 packages, 0 advisories" in capsys.readouterr().out


def test_advisories_are_named_over_all_pages_and_withdrawn_ones_are_not(
    bill: Path, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Request) -> Response:
        pages: dict[Any, Any] = {None: ("PYSEC-1", "second"), "second": ("PYSEC-2", None)}
        results = []
        for query in request.get_json()["queries"]:
            name, more = pages[query.get("page_token")]
            is_django = query["package"]["purl"] == DJANGO
            results.append({"vulns": [{"id": name}], **({"next_page_token": more} if more else {})} if is_django else {})
        return Response(json.dumps({"results": results}), content_type="application/json")

    httpserver.expect_request(BATCH).respond_with_handler(answer)
    known = {"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "summary": "a header is trusted"}
    httpserver.expect_request("/v1/vulns/PYSEC-1").respond_with_json(known)
    httpserver.expect_request("/v1/vulns/PYSEC-2").respond_with_json({"id": "PYSEC-2", "withdrawn": "2026-11-01T00:00:00Z"})
    assert asked(httpserver, monkeypatch, tmp_path) == audit.FOUND
    out = capsys.readouterr().out
    assert f"{DJANGO}: PYSEC-1 (CVE-2026-1) a header is trusted" in out
    assert "PYSEC-2" not in out


@pytest.mark.parametrize(
    ("status", "body"), [(503, "{}"), (200, '{"results": [{}]}'), (200, "<html>a proxy's page</html>"), (200, "[]"), (200, "{}")]
)
def test_an_answer_that_is_not_about_all_packages_is_status_3(
    bill: Path,
    httpserver: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: str,
) -> None:
    httpserver.expect_request(BATCH).respond_with_data(body, status=status)
    assert asked(httpserver, monkeypatch, tmp_path) == audit.UNKNOWN
    said = capsys.readouterr()
    assert "NOT KNOWN whether advisories exist for these 2 packages" in said.err
    assert "advisories, as" not in said.out


def test_a_service_that_cannot_be_reached_is_status_3(
    bill: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WMS2_ADVISORIES_URL", f"http://127.0.0.1:{free_port()}")
    assert audit.main([str(tmp_path), "lock.txt"]) == audit.UNKNOWN
    assert "NOT KNOWN" in capsys.readouterr().err
