"""What the slot is given for the job's ad: the whole exit code, of which a process's status is a byte. Nothing rests on it."""

from __future__ import annotations

import json
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dags_app.payload.contract.names import tells_progress
from dags_app.payload.run.chirp import EXIT_CODE, set_number
from tests.support.payload_workbench import Workbench


@dataclass
class Starter:
    """HTCondor's, as it answers a job: the cookie first, then delayed updates of attributes that begin with ``Chirp``."""

    config: Path
    attributes: dict[str, str] = field(default_factory=dict)
    answers: str = ""


@pytest.fixture(name="starter")
def _starter(tmp_path: Path) -> Iterator[Starter]:
    found = Starter(tmp_path / ".chirp.config")

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            known = False
            for line in self.rfile:
                action, *words = line.decode("ascii").split()
                known |= (action, words) == ("cookie", ["crumbs"])
                allowed = known and (action == "cookie" or (action == "set_job_attr_delayed" and words[0].startswith("Chirp")))
                if allowed and action != "cookie":
                    found.attributes[words[0]] = words[1]
                self.wfile.write(found.answers.encode() or (b"0\n" if allowed else b"-1\n"))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        found.config.write_text(f"127.0.0.1 {server.server_address[1]} crumbs\n")
        yield found
        server.shutdown()


def test_a_job_gives_its_slot_the_whole_exit_code(one_step: Workbench, starter: Starter) -> None:
    one_step.variables["_CONDOR_CHIRP_CONFIG"] = str(starter.config)
    assert one_step.run("job", "proc_000000").value == 0
    assert starter.attributes == {EXIT_CODE: "0"}
    done = one_step.run("job", "proc_none")  # the unit has no such job
    assert starter.attributes == {EXIT_CODE: str(done.report["exit_code"])}
    assert done.value == done.report["exit_code"] & 0xFF != done.report["exit_code"]


@pytest.mark.parametrize("config", [None, "", "127.0.0.1 1 crumbs\n", "127.0.0.1 none crumbs\n", "nowhere.invalid 9 crumbs\n"])
def test_without_chirp_a_job_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None) -> None:
    monkeypatch.setenv("_CONDOR_CHIRP_CONFIG", str(tmp_path / "config"))
    if config is not None:
        (tmp_path / "config").write_text(config)
    assert not set_number(EXIT_CODE, 8021)
    monkeypatch.delenv("_CONDOR_CHIRP_CONFIG")
    assert not set_number(EXIT_CODE, 8021)


@pytest.mark.parametrize("answers", ["-1\n", "what\n", "\n"])
def test_a_slot_that_refuses_changes_nothing(starter: Starter, monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
    starter.answers = answers
    monkeypatch.setenv("_CONDOR_CHIRP_CONFIG", str(starter.config))
    assert not set_number(EXIT_CODE, 8021)


@pytest.mark.parametrize(("release", "tells"), [("CMSSW_7_5_8", False), ("CMSSW_7_6_0_pre7", True), ("CMSSW_14_0_0", True)])
def test_cmsrun_tells_events_and_their_rate_where_its_release_can(release: str, tells: bool) -> None:
    assert tells_progress(release) is tells


def test_the_steps_of_a_job_have_a_tag_each(one_step: Workbench) -> None:
    assert one_step.run("job", "proc_000000").value == 0
    with tarfile.open(one_step.logs("proc_000000")) as archive:
        tweak = archive.extractfile("step1_Gen/tweak.json")
        assert tweak is not None and json.load(tweak)["status_tag"] == "_cmsRun1_"
