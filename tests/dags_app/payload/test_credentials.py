"""As whom a job speaks to storage: found inside a container whose paths are others than outside, and good for the whole job."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.run import credentials
from tests.support.credentials import Authority, token
from tests.support.payload_workbench import Workbench

#: Where a pilot has a job, as HTCondor's variables name it; its container has that elsewhere.
OUTSIDE = "/pilot/execute/dir_4711"
HOUR_SECONDS = 3600.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def contained(one_step: Workbench, tmp_path: Path) -> Workbench:
    """In a container, with a cmsRun that writes down which token it was given."""
    one_step.variables |= {
        "_CONDOR_JOB_AD": f"{OUTSIDE}/.job.ad",
        "_CONDOR_MACHINE_AD": f"{OUTSIDE}/.machine.ad",
        "_CONDOR_SCRATCH_DIR": OUTSIDE,
        "PATH": f"{tmp_path}/bin:{one_step.programs}:{one_step.path}",
        "SEEN": f"{tmp_path}/seen",
    }
    program = tmp_path / "bin/cmsRun"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "${{BEARER_TOKEN-$(cat "$BEARER_TOKEN_FILE")}}" >"$SEEN"\nexec "{one_step.programs}/cmsRun" "$@"\n'
    )
    program.chmod(0o755)
    return one_step


def text_of(place: Path, seconds: float) -> str:
    return token(place / "made", seconds)


def test_children_find_the_token_that_came_with_the_job_into_the_container(contained: Workbench, tmp_path: Path) -> None:
    contained.variables["BEARER_TOKEN_FILE"] = f"{OUTSIDE}/token"
    contained.beside["token"] = text = text_of(tmp_path, HOUR_SECONDS)
    contained.process("job", "proc_000000")
    assert (tmp_path / "seen").read_text().strip() == text


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"BEARER_TOKEN_FILE": "/outside/carried", "_CONDOR_CREDS": "/outside/.condor_creds"}, "carried"),
        ({"BEARER_TOKEN_FILE": "/outside/lost", "_CONDOR_CREDS": "/outside/.condor_creds"}, ".condor_creds/cms.use"),
        ({}, ".condor_creds/cms.use"),
        ({"_CONDOR_CREDS": "{here}/others"}, "others/a.use"),
        ({"_CONDOR_CREDS": "/outside", "XDG_RUNTIME_DIR": "{here}"}, f"bt_u{os.geteuid()}"),
        ({"BEARER_TOKEN": "itself"}, None),
        ({"BEARER_TOKEN_FILE": "carried"}, "carried"),
    ],
)
def test_a_token_is_looked_for_beside_the_job_at_credential_services_and_as_wlcg_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: str | None
) -> None:
    for name in ("carried", ".condor_creds/another.use", ".condor_creds/cms.use", "others/a.use", f"bt_u{os.geteuid()}"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "_CONDOR_CREDS", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "")  # to be put back as it was
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(here=tmp_path))
    monkeypatch.chdir(tmp_path)
    credentials.find(tmp_path)
    assert os.environ.get("BEARER_TOKEN_FILE") == (str(tmp_path / found) if found else None)


@pytest.mark.parametrize("kind", ["token", "proxy"])
def test_a_credential_that_ends_before_the_job_may_is_refused_before_cmsrun_starts(
    contained: Workbench, authority: Authority, tmp_path: Path, kind: str
) -> None:
    contained.job_ad = "MaxWallTimeMins = 120\n"
    if kind == "token":
        contained.variables["BEARER_TOKEN_FILE"] = f"{OUTSIDE}/carried"
        contained.beside["carried"] = text_of(tmp_path, HOUR_SECONDS)
    else:
        contained.variables["X509_USER_PROXY"] = f"{OUTSIDE}/carried"
        contained.beside["carried"] = authority.proxy("robot", HOUR_SECONDS).read_text()
    done = contained.run("job", "proc_000000")
    assert (done.report["exit_code"], done.report["steps"]) == (95009, []) and not (tmp_path / "seen").exists()
    assert f"the job's {kind} ends at " in done.report["error_message"] and "asked for 120 min" in done.report["error_message"]
    assert contained.post(done) == 1
    verdict = contained.read("proc_000000.post.json")["classification"]
    assert (verdict["category"], verdict["rule"]) == ("transient", "wms2-95009-ends")


def test_what_htcondor_renews_while_the_job_runs_need_only_be_good_now(
    contained: Workbench, authority: Authority, tmp_path: Path
) -> None:
    contained.job_ad = f'MaxWallTimeMins = 120\nx509userproxy = "{OUTSIDE}/proxy"\n'
    contained.variables |= {"X509_USER_PROXY": f"{OUTSIDE}/proxy", "_CONDOR_CREDS": f"{OUTSIDE}/.condor_creds"}
    contained.beside["proxy"] = authority.proxy("robot", HOUR_SECONDS).read_text()
    contained.beside[".condor_creds/cms.use"] = text_of(tmp_path, HOUR_SECONDS)
    contained.process("job", "proc_000000")
    contained.beside["proxy"] = authority.proxy("robot", -1).read_text()
    ended = contained.run("job", "proc_000001")
    assert ended.report["exit_code"] == 95009 and "the job's proxy ends at " in ended.report["error_message"]


def test_a_token_that_did_not_come_with_the_job_is_told_with_the_place_where_it_should_be(contained: Workbench) -> None:
    contained.variables["BEARER_TOKEN_FILE"] = f"{OUTSIDE}/token"
    assert contained.run("job", "proc_000001").report["exit_code"] == 0, "a pilot's; the job was sent none"
    contained.job_ad = f'Environment = "BEARER_TOKEN_FILE={OUTSIDE}/token"\n'
    done = contained.run("job", "proc_000000")
    assert done.report["exit_code"] == 95009
    assert f"BEARER_TOKEN_FILE={OUTSIDE}/token is not there" in done.report["error_message"]
    assert contained.post(done) == 1
    assert contained.read("proc_000000.post.json")["classification"]["rule"] == "wms2-95009"


def test_a_token_that_came_empty_is_told(contained: Workbench) -> None:
    contained.variables["BEARER_TOKEN_FILE"] = f"{OUTSIDE}/token"
    contained.job_ad = f'Environment = "BEARER_TOKEN_FILE={OUTSIDE}/token"\n'
    contained.beside["token"] = "\n"
    done = contained.run("job", "proc_000000")
    assert (done.report["exit_code"], done.report["steps"]) == (95009, [])
    assert "/token is empty or no file" in done.report["error_message"]


@pytest.mark.parametrize("claims", ['{"sub": "cms"}', '{"exp": NaN}', '{"exp": null}', '{"exp": 1e400}', "[]", "no JSON"])
def test_a_token_that_does_not_say_when_it_ends_is_let_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: str) -> None:
    for name in ("BEARER_TOKEN_FILE", "X509_USER_PROXY", "_CONDOR_CREDS", "_CONDOR_JOB_AD"):
        monkeypatch.delenv(name, raising=False)
    first, second = (base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in (claims, '{"exp": -1e300}'))
    monkeypatch.setenv("BEARER_TOKEN", f" e30.{first}.s\n")
    credentials.check(HOUR_SECONDS)
    monkeypatch.setenv("BEARER_TOKEN", f"e30.{second}.s")
    with pytest.raises(PayloadError, match="the job's token ends at 1970-01-01"):
        credentials.check(HOUR_SECONDS)


def test_a_token_of_the_pilot_is_not_missed_by_a_job_with_a_proxy(
    contained: Workbench, authority: Authority, tmp_path: Path
) -> None:
    contained.variables |= {"BEARER_TOKEN_FILE": f"{OUTSIDE}/pilots", "X509_USER_PROXY": f"{OUTSIDE}/proxy"}
    contained.beside["proxy"] = authority.proxy("robot", HOUR_SECONDS).read_text()
    contained.process("job", "proc_000000")
    contained.job_ad = f'Environment = "BEARER_TOKEN_FILE={OUTSIDE}/pilots"\n'
    assert contained.run("job", "proc_000001").report["exit_code"] == 95009, "its own"
    contained.job_ad = f'MaxWallTimeMins = 960\nx509userproxy = "{OUTSIDE}/proxy"\n'
    contained.beside["pilots"] = text_of(tmp_path, 600)
    assert contained.run("job", "proc_000001", 1).report["exit_code"] == 0, "one that ends sooner than the job"
