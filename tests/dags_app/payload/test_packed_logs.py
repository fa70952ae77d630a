"""What a job packs of its logs: bounded, cut openly, without secrets; and what is read back of an archive, whoever wrote it."""

from __future__ import annotations

import io
import signal
import tarfile
import time
from pathlib import Path

import pytest

from dags_app.payload.contract import packed
from dags_app.payload.contract.layout import logs_name
from dags_app.payload.post.attempts import PostCall, stderr
from tests.support.payload_workbench import Workbench

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+abc/=\nMIIEow\n-----END RSA PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjbXMifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ"


def written(tmp_path: Path, **logs: bytes) -> dict[str, packed.LogFile]:
    """The archive of these logs of one step, by name."""
    step = tmp_path / "steps" / "step1_Gen"
    step.mkdir(parents=True)
    for name, data in logs.items():
        (step / f"{name}.stderr").write_bytes(data)
    (step / "link.stderr").symlink_to("/etc/passwd")
    (step / "events.root").write_bytes(b"no log")
    packed.write_logs(tmp_path / "a.tar.gz", [("environment.txt", b"host: h\n")], tmp_path / "steps")
    return {each.name: each for each in packed.read_logs(tmp_path / "a.tar.gz")}


@pytest.mark.parametrize("step", ["HIG-RunIISummer20UL18wmLHEGEN-01234_0", "GEN-SIM", "Gen"])
@pytest.mark.parametrize("process", ["", ".0", ".11"])
def test_logs_of_a_step_are_read_back_whatever_its_name(tmp_path: Path, step: str, process: str) -> None:
    directory = tmp_path / "steps" / f"step2_{step}{process}"
    directory.mkdir(parents=True)
    (directory / "FrameworkJobReport.xml").write_text("<FrameworkJobReport/>")
    (directory / "cmsRun.stderr").write_text("Fatal Exception\n")
    packed.write_logs(tmp_path / logs_name("proc_000000", 0, "1.0"), [], tmp_path / "steps")
    assert list(packed.framework_reports(tmp_path, "proc_000000", 0, "1.0")) == [(step, "<FrameworkJobReport/>")]
    assert stderr(tmp_path, PostCall("proc_000000", 65, 0, 3, "1.0"), 5) == "Fatal Exception"


def test_a_long_log_keeps_its_beginning_and_its_end_and_says_what_is_left_out(tmp_path: Path) -> None:
    found = written(tmp_path, cmsRun=b"first\n" + b"x" * 3_000_000 + b"\nlast", short=b"whole")
    assert found.keys() == {"environment.txt", "step1_Gen/cmsRun.stderr", "step1_Gen/short.stderr"}
    text = found["step1_Gen/cmsRun.stderr"].text
    assert text.startswith("first\n") and text.endswith("\nlast")
    assert f"[... WMS2 left out {3_000_011 - 512 * 1024} bytes here ...]" in text
    assert found["step1_Gen/short.stderr"].text == "whole"


def test_many_logs_share_the_room_and_none_is_left_out(tmp_path: Path) -> None:
    found = written(tmp_path, **{f"p{number}": b"y" * 600_000 for number in range(40)})
    assert len(found) == 41
    assert sum(len(each.data) for each in found.values()) < 9 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"before\n{KEY}\nafter", "before\n[left out: a secret]\nafter"),
        (KEY[20:] + "\nafter", None),
        (KEY[:60], "[left out: a secret]"),
        (f"token {TOKEN} end", "token [left out: a secret] end"),
        ("Authorization: Bearer MDAxY2xvY2F0aW9uIG9w rest", "Authorization: Bearer[left out: a secret] rest"),
        ("davs://user:word@host/store", "davs://[left out: a secret]@host/store"),
        ("root://host:1094//store/a.root", "root://host:1094//store/a.root"),
    ],
)
def test_keys_tokens_and_passwords_are_not_packed(tmp_path: Path, text: str, left: str | None) -> None:
    found = written(tmp_path, cmsRun=text.encode())["step1_Gen/cmsRun.stderr"].text
    assert found == left if left is not None else "after" in found
    for secret in (TOKEN, "MDAxY2xvY2F0aW9uIG9w", "user:word"):
        assert secret not in found


def test_a_foreign_archive_gives_plain_files_only_and_writes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    with tarfile.open(place / "a.tar.gz", "w:gz") as archive:
        for kind, name in (
            (tarfile.SYMTYPE, "link"),
            (tarfile.LNKTYPE, "hard"),
            (tarfile.CHRTYPE, "device"),
            (tarfile.DIRTYPE, "d"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        for name, data in (("../../escaped", b"text"), ("/etc/shadow", b"more"), ("big", b"0" * 2 * 1024 * 1024)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    found = packed.read_logs(place / "a.tar.gz")
    assert [(each.name, each.size_bytes) for each in found] == [
        ("../../escaped", 4),
        ("/etc/shadow", 4),
        ("big", 2 * 1024 * 1024),
    ]
    assert len(found[2].data) == 1024 * 1024
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.tar.gz"]


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_a_torn_archive_gives_what_came_before(tmp_path: Path, cut: int) -> None:
    written(tmp_path, cmsRun=bytes(range(256)) * 999)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(path.read_bytes()[:cut])
    assert len(packed.read_logs(path)) <= 1
    assert packed.read_logs(tmp_path / "none.tar.gz") == ()


def test_a_job_packs_its_report_its_environment_and_why_it_failed(one_step: Workbench) -> None:
    one_step.variables.update(
        CMSSIM_FAIL="exitCode=8001", SITECONF_TOKEN="secret", X509_USER_PROXY="/tmp/x509up", CMS_PATH="/cvmfs/x"
    )
    one_step.beside["x509up"] = "not a certificate"
    one_step.run("job", "proc_000000")
    found = {each.name: each.text for each in packed.read_logs(one_step.logs("proc_000000"))}
    assert {"job.ad", "machine.ad", "environment.txt", "report.json", "wrapper.log", "step1_Gen/PSet.py"} <= found.keys()
    assert "CMS_PATH=/cvmfs/x" in found["environment.txt"] and "disk free: " in found["environment.txt"]
    assert '"exit_code": 8001' in found["report.json"] and "PayloadError" in found["wrapper.log"]
    assert not any("secret" in text or "x509up" in text for text in found.values())


def test_a_job_that_cannot_pack_its_logs_ends_as_it_would(one_step: Workbench) -> None:
    one_step.variables["CMS_PATH"] = "caf\udce9"  # not UTF-8
    done = one_step.start("job", "proc_000000")
    (done.scratch / f"proc_000000.0.{done.cluster}.0.logs.tar.gz").mkdir()
    done.finish()
    assert (done.value, done.report["exit_code"]) == (0, 0)
    assert "the logs could not be packed" in (one_step.place / "proc_000000.0.err").read_text()


def test_a_job_that_is_told_to_stop_leaves_its_logs(one_step: Workbench) -> None:
    one_step.variables["CMSSIM_FAIL"] = "kind=hang"
    started = one_step.start("job", "proc_000000")
    while not list(started.scratch.glob("work/steps/*/cmsRun.stderr")):
        time.sleep(0.05)
    started.popen.send_signal(signal.SIGTERM)
    started.finish()
    assert started.report["error_message"].startswith("asked to stop by SIGTERM")
    names = {each.name for each in packed.read_logs(one_step.logs("proc_000000"))}
    assert {"report.json", "wrapper.log", "step1_Gen/cmsRun.stderr"} <= names
