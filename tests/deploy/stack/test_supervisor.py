"""Nothing is left behind, and nothing of somebody else's is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import process
from deploy.stack.errors import StackError
from deploy.stack.services.base import Service
from deploy.stack.supervisor import Supervisor, holder
from tests.support.places import ROOT
from tests.support.waiting import until


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def sleeper(directory: Path, name: str = "sleeper", script: str = "echo $$ >> pids; exec sleep 600", **more: object) -> Service:
    """A service that notes its process id in ``pids`` and serves from then on."""
    return Service(
        name=name,
        argv=("/bin/sh", "-c", script),
        log=directory / f"{name}.log",
        environment={"PATH": os.defpath},
        cwd=directory,
        # the shell makes the file before it writes into it
        problem=lambda: None if (directory / "pids").exists() and pids(directory) else "no process id yet",
        **more,  # type: ignore[arg-type]
    )


def pids(directory: Path) -> list[int]:
    return [int(word) for word in (directory / "pids").read_text().split()]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str]) -> Iterator[Supervisor]:
    with Supervisor(tmp_path, said.append) as running:
        yield running


def test_leaving_the_supervisor_ends_its_processes(tmp_path: Path) -> None:
    with Supervisor(tmp_path, print) as supervisor:
        supervisor.start([sleeper(tmp_path)])
        assert is_running(pids(tmp_path)[0])
    assert not is_running(pids(tmp_path)[0])


def test_groups_stop_in_reverse_order(tmp_path: Path) -> None:
    script = "trap 'echo NAME >> stopped; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.1; done"
    with Supervisor(tmp_path, print) as supervisor:
        for name in ("first", "second", "third"):
            (tmp_path / "pids").unlink(missing_ok=True)
            supervisor.start([sleeper(tmp_path, name, script.replace("NAME", name))])
    assert (tmp_path / "stopped").read_text().split() == ["third", "second", "first"]


def test_services_of_a_group_are_asked_to_stop_together(tmp_path: Path) -> None:
    # Each ends only once the other was asked too: one after the other, the first would wait in vain and be killed.
    wait = "trap 'touch ME; while [ ! -e OTHER ]; do sleep 0.1; done; exit 0' TERM; echo $$ >> pids"
    script = f"{wait}; while :; do sleep 0.1; done"
    pair = [("left", "right"), ("right", "left")]
    services = [sleeper(tmp_path, me, script.replace("ME", me).replace("OTHER", other)) for me, other in pair]
    said: list[str] = []
    with Supervisor(tmp_path, said.append) as supervisor:
        supervisor.start(services)
        until(lambda: len(pids(tmp_path)) == len(services))
    assert not [line for line in said if "killed" in line]


def test_a_process_that_ignores_its_stop_signal_is_killed_and_that_is_said(tmp_path: Path, said: list[str]) -> None:
    script = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done"
    with Supervisor(tmp_path, said.append) as supervisor:
        supervisor.start([sleeper(tmp_path, script=script, stop_seconds=0.5)])
    assert not is_running(pids(tmp_path)[0])
    assert any("was killed" in line for line in said)


def test_a_process_that_left_its_session_is_ended_too(tmp_path: Path, said: list[str]) -> None:
    script = "setsid sh -c 'echo $$ >> pids; exec sleep 600' & wait"
    with Supervisor(tmp_path, said.append) as supervisor:
        supervisor.start([sleeper(tmp_path, script=script)])
    assert not is_running(pids(tmp_path)[0])
    assert any("left" in line for line in said)


def test_the_sweep_leaves_another_stacks_processes_alone(tmp_path: Path) -> None:
    mine, other = tmp_path / "a", tmp_path / "ab"
    environment = {process.MARKER: str(other), "PATH": os.defpath, "CONDOR_CONFIG": str(other / "condor_config")}
    stranger = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        assert process.sweep(mine) == []
        assert stranger.poll() is None
        assert len(process.sweep(other)) == 1
        until(lambda: stranger.poll() is not None)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_shell_with_the_stacks_settings_is_not_swept(tmp_path: Path) -> None:
    environment = {"WMS2_STATE_DIR": str(tmp_path), "CONDOR_CONFIG": f"{tmp_path}/htcondor-23/condor_config", "PATH": os.defpath}
    shell = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        assert process.sweep(tmp_path) == []
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.wait()


KILLED_SUPERVISOR = """
import sys, time
from pathlib import Path
from deploy.stack import process
directory = Path(sys.argv[1])
started = process.spawn(["sleep", "600"], environment={"PATH": "/usr/bin:/bin"}, cwd=directory)
(directory / "pids").write_text(str(started.pid))
time.sleep(600)
"""


def test_services_end_when_the_supervisor_is_killed_outright(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", KILLED_SUPERVISOR, str(tmp_path)], cwd=ROOT)
    until(lambda: (tmp_path / "pids").exists() and bool((tmp_path / "pids").read_text()))
    child = pids(tmp_path)[0]
    assert is_running(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not is_running(child))


def test_a_service_that_dies_is_started_again(tmp_path: Path, supervisor: Supervisor) -> None:
    supervisor.start([sleeper(tmp_path)])
    os.kill(pids(tmp_path)[0], signal.SIGKILL)

    def restarted() -> bool:
        supervisor.check()
        return len(pids(tmp_path)) == 2

    until(restarted)
    assert is_running(pids(tmp_path)[1])


def test_a_service_that_keeps_dying_ends_the_stack_and_names_its_log(tmp_path: Path, supervisor: Supervisor) -> None:
    supervisor.start([sleeper(tmp_path, script="echo $$ >> pids; sleep 0.2")])
    with pytest.raises(StackError, match=r"died \d times.*sleeper\.log"):
        until(lambda: supervisor.check() is not None)


def test_a_service_that_ends_while_starting_is_reported_with_its_code_and_log(tmp_path: Path, supervisor: Supervisor) -> None:
    with pytest.raises(StackError, match=r"(?s)code 3 while starting; the end of .*sleeper\.log:\nthe reason"):
        supervisor.start([sleeper(tmp_path, script="echo the reason; exit 3")])


def test_a_service_that_never_serves_is_reported_with_what_it_waits_for(tmp_path: Path, supervisor: Supervisor) -> None:
    with pytest.raises(StackError, match=r"no process id yet\): see .*sleeper\.log"):
        supervisor.start([sleeper(tmp_path, script="exec sleep 600", start_seconds=0.5)])


def test_a_stack_has_one_supervisor_at_a_time(tmp_path: Path, supervisor: Supervisor) -> None:
    assert holder(tmp_path) == os.getpid()
    with pytest.raises(StackError, match="make stop"), Supervisor(tmp_path, print):
        pass


def test_a_stack_that_ended_has_no_holder(tmp_path: Path) -> None:
    with Supervisor(tmp_path, print):
        pass
    assert holder(tmp_path) is None
