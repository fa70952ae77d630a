"""import_request and plan_request: what they answer and with which exit code. What services store is tested with the services."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from requests_app import services
from requests_app.management.commands import plan_request
from requests_app.services.intake import Checked
from requests_app.work.spec import Prepared
from tests.support.intake import Document, chain, read, reprocessing, typed, with_step
from tests.support.places import ROOT
from wms2.conf import from_environment
from wms2.errors import ServiceUnavailable
from wms2.runtime.offline import is_offline


class _Stored:
    """Stands where the row would: it remembers how it was asked for."""

    status = "submitted"

    def __init__(self, **asked: Any) -> None:
        self.asked = asked


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[_Stored]:
    """Services without a database: the real intake on known configurations, and a list of what was stored."""
    found: list[_Stored] = []

    def request_check(*, document: Document, request_name: str | None, **_: Any) -> Checked:
        return Checked(read(document, name=request_name), Prepared(typed(document), {}))

    def request_import(**asked: Any) -> _Stored:
        found.append(_Stored(**asked))
        return found[-1]

    monkeypatch.setattr(services, "request_check", request_check)
    monkeypatch.setattr(services, "request_import", request_import)
    return found


@pytest.fixture(autouse=True)
def _knobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needed = {
        "INSTANCE": "test", "ENVIRONMENT": "test", "STATE_DIR": str(tmp_path), "SUBMIT_ROOT": str(tmp_path), "REQMGR2_URL": "http://h/r",
        "DBS_READER_URL": "http://h/r", "DBS_WRITER_URL": "http://h/w", "CRIC_URL": "http://h", "RUCIO_HOME": str(tmp_path),
        "RUCIO_ACCOUNT": "wms2", "SCHEDD_NAME": "schedd", "COLLECTOR": "h:1", "LIMITS": '{"jobs_per_work_unit": 2}',
    }  # fmt: skip
    settings = from_environment({f"WMS2_{name}": value for name, value in needed.items()})
    monkeypatch.setattr(plan_request, "conf", lambda: settings)


def _write(folder: Path, content: object, name: str = "DOC.json") -> str:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def _run(*arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except SystemExit as stopped:
        assert isinstance(stopped.code, int)
        return stopped.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def _problems(*arguments: str) -> list[str]:
    code, out, _ = _run(*arguments, "--json")
    assert code == 2
    answer = json.loads(out)
    assert set(answer) == {"problems"}
    assert all(set(problem) == {"field", "problem"} for problem in answer["problems"])
    return [problem["field"] for problem in answer["problems"]]


def test_a_check_answers_the_typed_request_and_stores_nothing(tmp_path: Path, stored: list[_Stored]) -> None:
    code, out, _ = _run("import_request", "--file", _write(tmp_path, chain()), "--check", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["generation"]["events"] == 10_000
    assert [step["name"] for step in answer["steps"]] == ["Gen", "Digi", "Reco"]
    assert "status" not in answer
    assert stored == []


def test_an_import_stores_what_was_asked(tmp_path: Path, stored: list[_Stored]) -> None:
    path = _write(tmp_path, chain())
    code, out, _ = _run("import_request", "--file", path, "--name", "mine", "--urgent", "--priority", "77", "--json")
    assert code == 0
    assert json.loads(out)["status"] == "submitted"
    asked = stored[0].asked
    assert (asked["request_name"], asked["asked"].urgent, asked["document"]["RequestPriority"]) == ("mine", True, 77)
    assert asked["actor"].endswith("(command line)")


def test_people_read_lines(tmp_path: Path, stored: list[_Stored]) -> None:
    _, out, _ = _run("import_request", "--file", _write(tmp_path, chain(CustodialSites=["T1_US_FNAL"])))
    assert "generate 10000 events from event 1 and lumi 1 on: 1000 events per job, 100 per lumi" in out
    assert "/MinBias_TuneCP5/Run3TestDR-140X_test-v2/AODSIM" in out
    assert "Warning    CustodialSites" in out
    assert "Imported, submitted" in out


def test_a_refusal_names_every_problem_and_stores_nothing(tmp_path: Path, stored: list[_Stored]) -> None:
    document = with_step(2, chain(Memory="much"), LheInputFiles=True)
    assert set(_problems("import_request", "--file", _write(tmp_path, document))) == {"Memory", "Step2.LheInputFiles"}
    assert stored == []


def test_people_read_the_refusal_as_lines(tmp_path: Path, stored: list[_Stored]) -> None:
    code, out, err = _run("import_request", "--file", _write(tmp_path, chain(Memory="much")))
    assert (code, out) == (2, "")
    assert "Memory: must be a number, not 'much'" in err


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe{}", b'{"a": 1, "a": 2}', b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut off", "not UTF-8", "key twice", "nested", "endless number"],
)
def test_a_file_that_is_no_json_is_a_problem_of_the_file(content: bytes, tmp_path: Path, stored: list[_Stored]) -> None:
    assert _problems("import_request", "--file", _write(tmp_path, content), "--check") == ["file"]
    assert _problems("plan_request", "--file", _write(tmp_path, content)) == ["file"]


def test_a_file_that_is_not_there_is_a_problem_of_the_file(tmp_path: Path, stored: list[_Stored]) -> None:
    assert _problems("import_request", "--file", str(tmp_path / "none.json")) == ["file"]
    assert _problems("import_request", "--file", str(tmp_path)) == ["file"]


def test_json_that_is_no_request_is_refused(tmp_path: Path, stored: list[_Stored]) -> None:
    for content in ([], 1, {"hello": "world"}, None):
        assert _problems("import_request", "--file", _write(tmp_path, content), "--priority", "5") == ["document"]


def test_a_service_that_is_silent_is_no_refusal(tmp_path: Path, stored: list[_Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(**_: Any) -> Checked:
        raise ServiceUnavailable("configcache", "config", "no answer")

    monkeypatch.setattr(services, "request_check", silent)
    with pytest.raises(CommandError, match="nothing was stored: configcache config: no answer"):
        _run("import_request", "--file", _write(tmp_path, chain()))


def test_a_generation_is_planned_without_files(tmp_path: Path) -> None:
    code, out, _ = _run("plan_request", "--file", _write(tmp_path, chain()), "--json")
    plan = json.loads(out)
    assert code == 0
    assert [(job["first_event"], job["last_event"]) for job in plan["jobs"]] == [
        (n * 1000 + 1, (n + 1) * 1000) for n in range(10)
    ]
    assert (plan["jobs"][-1]["first_lumi"], plan["jobs"][-1]["last_lumi"]) == (91, 100)
    assert [job["work_unit"] for job in plan["jobs"]] == [f"mg_{n // 2:06d}" for n in range(10)]


def test_files_are_planned_as_the_document_says(tmp_path: Path) -> None:
    listed = [
        {
            "lfn": f"/store/f{n}.root", "size_bytes": 10, "events": 5, "lumis": [{"run": 1, "lumi": n, "events": None}],
            "locations": sites,
        }
        for n, sites in enumerate([["T1_US_FNAL"], ["T1_US_FNAL"], ["T1_US_FNAL"], []], start=1)
    ]  # fmt: skip
    files = _write(tmp_path, {"files": listed}, "FILES.json")
    code, out, _ = _run("plan_request", "--file", _write(tmp_path, reprocessing()), "--files", files, "--json")
    plan = json.loads(out)
    assert code == 0
    assert [job["files"] for job in plan["jobs"]] == [["/store/f1.root", "/store/f2.root"], ["/store/f3.root"]]
    assert [excluded["lfn"] for excluded in plan["excluded"]] == ["/store/f4.root"]


def test_people_read_the_plan_as_lines(tmp_path: Path) -> None:
    _, out, _ = _run("plan_request", "--file", _write(tmp_path, chain()))
    assert "mg_000000: events 1-1000, lumis 1-10 at T1_US_FNAL, T2_CH_CERN" in out
    assert "10 jobs, 0 files excluded" in out


def test_an_unknown_algorithm_or_a_bad_file_list_is_refused(tmp_path: Path) -> None:
    document = _write(tmp_path, reprocessing(SplittingAlgo="RunBased"))
    bad_files = _write(tmp_path, {"files": [{"lfn": "x"}]}, "FILES.json")
    assert _problems("plan_request", "--file", document) == ["SplittingAlgo"]
    assert "files.0.size_bytes" in _problems("plan_request", "--file", document, "--files", bad_files)


@pytest.mark.parametrize(
    ("arguments", "set_already"),
    [
        (["plan_request", "--file", "DOC.json"], {}),
        (["import_request", "--check", "--offline", "--json", "--file", "DOC.json"], {"WMS2_ENVIRONMENT": "production"}),
        (["classify_failure", "--shipped", "--json", "--exit-code", "8021", "--report", "DOC.json"], {}),
    ],
    ids=["plan_request", "import_request", "classify_failure"],
)
def test_commands_on_paper_need_no_setting_and_no_service(
    arguments: list[str], set_already: dict[str, str], tmp_path: Path
) -> None:
    _write(tmp_path, chain())
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin", **set_already}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = {"plan_request": "10 jobs, 0 files excluded", "import_request": "extra_requirements", "classify_failure": "cms-8021"}
    assert said[arguments[0]] in done.stdout


def test_other_commands_do_not_start_without_settings(tmp_path: Path) -> None:
    others = (["import_request", "--check", "--file", "DOC.json"], ["classify_failure", "--report", "DOC.json"], ["migrate"])
    assert [arguments for arguments in others if is_offline(["manage.py", *arguments])] == []
    _write(tmp_path, chain())
    command = [sys.executable, str(ROOT / "manage.py"), *others[0]]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "WMS2_ENVIRONMENT is not set" in done.stderr


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    """As ``| head`` does."""
    _write(tmp_path, chain())
    program = f"{sys.executable} {ROOT / 'manage.py'} plan_request --file DOC.json 2>errors | true"
    subprocess.run(["bash", "-c", program], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, check=True)
    assert (tmp_path / "errors").read_text() == ""
