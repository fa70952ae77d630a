"""The head of the payload's file: it finds a Python that is new enough, on PATH or on CVMFS, or says what it looked for."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from dags_app.payload.contract.codes import exit_status
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Workbench
from tests.support.pythons import THIS, path_with, place_python

NO_PYTHON = 11004


def environment_of(bench: Workbench, node: str) -> dict[str, str]:
    """``environment.txt`` of the attempt's logs."""
    with tarfile.open(bench.logs(node)) as logs:
        member = next(name for name in logs.getnames() if name.endswith("environment.txt"))
        text = logs.extractfile(member).read().decode()  # type: ignore[union-attr]
    return dict(line.replace(": ", "=", 1).split("=", 1) for line in text.splitlines())


#: What a machine ad says of the system that a job runs in.
SYSTEMS = {"told": 'GLIDEIN_REQUIRED_OS = "rhel8"\n', "a choice": 'GLIDEIN_REQUIRED_OS = "rhel8,rhel9"\n', "unknown": ""}


@pytest.mark.parametrize(("versions", "runs"), [(("3.6", THIS), THIS), (("3.9",), "3.9"), (("3.13",), "3.13")])
def test_job_and_scripts_run_by_the_first_python_that_is_new_enough(
    one_step: Workbench, tmp_path: Path, versions: tuple[str, ...], runs: str
) -> None:
    one_step.path = path_with(tmp_path / "container", *versions)
    one_step.process("job", "proc_000000")
    assert environment_of(one_step, "proc_000000")["python"].startswith(f"{runs}.")


def test_a_python3_that_does_not_run_is_passed_over(one_step: Workbench, tmp_path: Path) -> None:
    one_step.path = path_with(tmp_path / "container", THIS)
    for name, script in (("fails", "exit 1"), ("killed", "kill -9 $$"), ("silent", ""), ("link", "")):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "python3"
        program.symlink_to("/nowhere") if name == "link" else program.write_text(f"#!/bin/sh\n{script or 'exit 127'}\n")
        if name != "link":
            program.chmod(0o755)
        one_step.path = f"{tmp_path / name}:{one_step.path}"
    one_step.process("job", "proc_000000")


def test_a_job_in_a_container_with_python_3_6_alone_is_told_as_11004_with_what_was_looked_for(
    one_step: Workbench, tmp_path: Path
) -> None:
    path = one_step.variables["PATH"] = path_with(tmp_path / "container", "3.6")
    done = one_step.run("job", "proc_000000")
    assert done.value == exit_status(NO_PYTHON)
    assert one_step.post(done) == 1
    verdict = one_step.read("proc_000000.post.json")["classification"]
    assert (verdict["code"], verdict["category"], verdict["rule"]) == (NO_PYTHON, "infrastructure", "cms-11003-11005")
    assert path in verdict["reason"] and "/python3.6/python3 (3.6." in verdict["reason"] and "COMP/rhel" in verdict["reason"]


def cvmfs(root: Path, **pythons: str) -> Path:
    """CVMFS with these versions of Python, by the directory above ``external`` (``__`` for ``/``); each needs its init.sh."""
    for place, version in pythons.items():
        home = root / place.replace("__", "/") / "external/python3" / f"{version}.0-abc"
        (home / "etc/profile.d").mkdir(parents=True)
        (home / "bin").mkdir()
        (home / "etc/profile.d/init.sh").write_text(
            f'export PATH="{home}/bin:$PATH" LD_LIBRARY_PATH="{home}/lib:$LD_LIBRARY_PATH"\n'
        )
        place_python(home / "bin/real", version)
        program = home / "bin/python3"
        program.write_text(f'#!/bin/sh\ncase $LD_LIBRARY_PATH in "{home}/lib"*) exec "{home}/bin/real" "$@" ;; esac\nexit 127\n')
        program.chmod(0o755)
    return root


@pytest.mark.parametrize("system", SYSTEMS)
def test_on_cvmfs_it_is_looked_for_in_comp_then_at_the_releases_of_the_system_and_children_do_not_get_its_libraries(
    one_step: Workbench, tmp_path: Path, system: str
) -> None:
    machine = {"x86_64": "amd64"}.get(os.uname().machine, os.uname().machine)
    places = {f"COMP__rhel8_{os.uname().machine}": "3.8", f"slc7_{machine}_gcc11": "3.7", f"el8_{machine}_gcc12": THIS}
    one_step.variables |= {
        "PATH": f"{one_step.programs}:{path_with(tmp_path / 'container', '3.6')}",
        "VO_CMS_SW_DIR": str(cvmfs(tmp_path / "cvmfs", **places)),
        "LD_LIBRARY_PATH": "/site/lib",
    }
    one_step.machine_ad = SYSTEMS[system]
    one_step.process("job", "proc_000000")
    seen = environment_of(one_step, "proc_000000")
    assert seen["python"].startswith(f"{THIS}.") and seen["LD_LIBRARY_PATH"] == "/site/lib"


def test_scripts_at_a_schedd_without_a_python_say_so_where_dagman_and_wms2_look(one_step: Workbench, tmp_path: Path) -> None:
    one_step.path = path_with(tmp_path / "schedd", "3.6")
    assert one_step.script("reelect", one_step.unit, 0, directory=one_step.dag) == exit_status(NO_PYTHON)
    assert one_step.script("post", "proc_000000", 0, 0, 3, "7.0") == exit_status(NO_PYTHON)
    reported = [json.loads(line) for line in (one_step.dag / "failures.jsonl").read_text().splitlines()]
    for line in reported:
        validate("failure", line)
    assert [(line["unit"], line["node"], line["step"], line["code"], line["fence"]) for line in reported] == [
        (one_step.unit, "landing", "reelect", NO_PYTHON, 1),
        (one_step.unit, "proc_000000", "post", NO_PYTHON, 1),
    ]
    assert (one_step.place / "scripts.log").read_text().count("no Python of 3.9 or newer on PATH") == 2
