"""The set-up of a CMSSW release: which architecture, in which container, and that cmsRun side by side share one project area."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from dags_app.payload.contract.codes import CMSSW_SETUP_FAILED, PayloadError
from dags_app.payload.run import cmssw, slot
from dags_app.payload.run.fjr import read_framework_report
from dags_app.payload.run.processes import Finished
from dags_app.payload.run.psets import FRAMEWORK_REPORT
from dags_app.payload.run.steps import exit_code_of
from tests.support.places import ROOT

SCRIPT = ROOT / "dags_app/payload/programs/cmssw_run.sh"
SCRAM = """#!/bin/sh
if [ "$1" = project ]; then echo "$3" >> "$HERE/made"; sleep 0.3; mkdir "$3"; else echo "export RELEASE_IS=up"; fi
"""


def test_processes_that_want_the_same_release_make_it_once(tmp_path: Path) -> None:
    (tmp_path / "scramv1").write_text(SCRAM)
    (tmp_path / "scramv1").chmod(0o755)
    (tmp_path / "cmsset_default.sh").touch()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VO_CMS_SW_DIR": str(tmp_path), "HERE": str(tmp_path)}
    words = ["bash", str(SCRIPT), "CMSSW_14_0_0", "el8_amd64_gcc12", str(tmp_path / "area"), "sh", "-c", "echo $RELEASE_IS"]
    running = [subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(child.communicate()[0].strip(), child.returncode) for child in running] == [("up", 0)] * 3
    assert (tmp_path / "made").read_text().split() == ["CMSSW_14_0_0"]


@pytest.fixture
def cvmfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every architecture's directory, as on every node, and containers for three systems that start with what they are given."""
    root = tmp_path / "cvmfs"
    for system, compilers in (("slc6", (472,)), ("slc7", (700, 820, 900, 10)), ("el8", (8, 10, 12)), ("el9", (11,))):
        for compiler in compilers:
            for machine in ("amd64", "aarch64", "ppc64le"):
                (root / f"{system}_{machine}_gcc{compiler}").mkdir(parents=True)
    (root / "common").mkdir()
    (root / "cmsset_default.sh").touch()
    for number in (7, 8, 9):
        (root / f"common/cmssw-el{number}").write_text(CONTAINER.format(number=number))
        (root / f"common/cmssw-el{number}").chmod(0o755)
    (root / "scramv1").write_text(SCRAM)
    (root / "scramv1").chmod(0o755)
    monkeypatch.setattr(cmssw, "CVMFS", root)
    monkeypatch.setenv("VO_CMS_SW_DIR", str(root))
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    monkeypatch.setenv("HERE", str(tmp_path))
    return root


#: Says which it is, and runs what follows ``--``.
CONTAINER = """#!/bin/sh
[ ! -e "$0.refuses" ] || {{ echo "FATAL: no user namespaces" >&2; exit 255; }}
echo {number} >>"$HERE/entered"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
OLD, NEW = "slc7_amd64_gcc700", "el8_amd64_gcc12"


def on(
    monkeypatch: pytest.MonkeyPatch, place: Path, machine: str, ad: str, os_release: str = "ID=debian\nVERSION_ID=12\n"
) -> None:
    """A worker node: its machine, its ad and its system's own file."""
    (place / ".machine.ad").write_text(ad)
    (place / "os-release").write_text(os_release)
    monkeypatch.setenv("_CONDOR_MACHINE_AD", str(place / ".machine.ad"))
    (place / ".job.ad").touch()
    monkeypatch.setenv("_CONDOR_JOB_AD", str(place / ".job.ad"))
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(slot, "_OS_RELEASE", place / "os-release")
    monkeypatch.setattr(slot, "_REDHAT_RELEASE", place / "nothing")


ALMA8, ALMA9 = (f'ID="almalinux"\nID_LIKE="rhel centos fedora"\nVERSION_ID="{number}"\n' for number in ("8.9", "9.4"))
REQUIRED_8 = 'GLIDEIN_REQUIRED_OS = "rhel8"\n'


@pytest.mark.parametrize(
    ("machine", "ad", "os_release", "offered", "taken"),
    [
        ("x86_64", REQUIRED_8, ALMA9, (OLD, "el9_amd64_gcc11", "el8_amd64_gcc10", NEW), NEW),
        ("aarch64", REQUIRED_8, ALMA8, (NEW, "el8_aarch64_gcc10"), "el8_aarch64_gcc10"),
        ("x86_64", 'GLIDEIN_REQUIRED_OS = "any"\n', ALMA8, ("el9_amd64_gcc11", NEW, OLD), NEW),
        ("x86_64", 'GLIDEIN_REQUIRED_OS = "rhel7,rhel9"\n', ALMA9, (OLD, "el9_amd64_gcc11"), "el9_amd64_gcc11"),
        ("x86_64", 'OpSysAndVer = "CentOS7"\n', "", (NEW, "slc7_amd64_gcc900", "slc7_amd64_gcc10", OLD), "slc7_amd64_gcc10"),
        ("x86_64", 'OpSysAndVer = "CentOS7"\n', "ID=centos\n", (NEW, OLD), OLD),
        ("ppc64le", REQUIRED_8, ALMA8, (NEW, "el8_ppc64le_gcc10", "el8_aarch64_gcc10"), "el8_ppc64le_gcc10"),
        ("x86_64", "", "", (OLD, NEW), NEW),
    ],
    ids=["the slot's", "another machine", "any", "one of a list", "by HTCondor", "no number", "a third machine", "unknown"],
)
def test_the_newest_architecture_that_machine_and_system_can_run_is_taken(
    cvmfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, ad: str, os_release: str,
    offered: tuple[str, ...], taken: str,
) -> None:  # fmt: skip
    on(monkeypatch, tmp_path, machine, ad, os_release)
    for order in (offered, offered[::-1]):
        assert cmssw._architecture("CMSSW_14_0_0", order) == taken


def test_an_older_compiler_is_taken_where_only_that_has_the_release(
    cvmfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, tmp_path, "x86_64", REQUIRED_8)
    (cvmfs / "el8_amd64_gcc10/cms/cmssw-patch/CMSSW_12_4_14_patch3").mkdir(parents=True)
    assert cmssw._architecture("CMSSW_12_4_14_patch3", ("el8_amd64_gcc10", NEW)) == "el8_amd64_gcc10"
    (cvmfs / OLD / "cms/cmssw/CMSSW_10_6_0").mkdir(parents=True)
    assert cmssw._architecture("CMSSW_10_6_0", (OLD, NEW)) == OLD, "in a container"


@pytest.mark.parametrize(
    ("machine", "ad", "here"),
    [("aarch64", REQUIRED_8, "rhel8 on aarch64"), ("x86_64", "", "debian12 on x86_64")],
)
def test_where_none_can_run_it_is_told_what_was_offered_and_what_is_here(
    cvmfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, ad: str, here: str
) -> None:
    on(monkeypatch, tmp_path, machine, ad)
    shutil.rmtree(cvmfs / "common")
    with pytest.raises(PayloadError, match=f"CMSSW_14_0_0 is there for {OLD}, {NEW}; here is {here}") as refused:
        cmssw._architecture("CMSSW_14_0_0", (OLD, NEW))
    assert refused.value.code == 50513


def test_steps_without_a_common_system_run_in_containers_of_their_own_where_the_node_can(
    cvmfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, tmp_path, "x86_64", REQUIRED_8)
    monkeypatch.setenv("PYTHONPATH", "/of/the/payload/alone")

    def run(arch: str) -> tuple[int, str]:
        place = tmp_path / arch
        place.mkdir(exist_ok=True)
        words = ["sh", "-c", "echo $SCRAM_ARCH $RELEASE_IS$PYTHONPATH"]
        (finished,) = cmssw.run_in_release(words, "CMSSW_14_0_0", (arch,), [place], tmp_path / "work", {})
        return finished.exit_code, (place / "sh.stdout").read_text()

    (tmp_path / "work").mkdir()
    assert run(OLD) == (0, f"{OLD} up\n") and (tmp_path / "entered").read_text().split() == ["7", "7"]
    (tmp_path / "entered").unlink()
    assert run(NEW) == (0, f"{NEW} up\n") and not (tmp_path / "entered").exists()
    (cvmfs / "common/cmssw-el7.refuses").touch()
    with pytest.raises(PayloadError, match=f"{OLD} needs a container here, in rhel8: .*FATAL: no user namespaces") as refused:
        run(OLD)
    assert refused.value.code == 50513


def in_release(place: Path, monkeypatch: pytest.MonkeyPatch, script: str, setup: str = "") -> Finished:
    """How a cmsRun of that script ends in a release of a CVMFS of the test's."""
    for name, text in {"cmsset_default.sh": setup, "scramv1": SCRAM, "cmsRun": f"#!/bin/sh\n{script}\n"}.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    for directory in ("el8_amd64_gcc12", "step"):
        (place / directory).mkdir()
    on(monkeypatch, place, "x86_64", REQUIRED_8)
    monkeypatch.setattr(cmssw, "CVMFS", place)
    monkeypatch.setenv("VO_CMS_SW_DIR", str(place))
    monkeypatch.setenv("HERE", str(place))
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    command = ["cmsRun", "-j", FRAMEWORK_REPORT, "PSet.py"]
    return cmssw.run_in_release(command, "CMSSW_14_0_0", ("el8_amd64_gcc12",), [place / "step"], place, {})[0]


REPORT = """echo '<FrameworkJobReport><FrameworkError ExitStatus="8033" Type="FileWriteError">no space</FrameworkError>\
</FrameworkJobReport>' > FrameworkJobReport.xml; exit 97"""


def test_a_release_that_was_set_up_keeps_what_its_cmsrun_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cmsRun's 8033 arrives as 97, whatever other program ends with that too."""
    finished = in_release(tmp_path, monkeypatch, REPORT)
    report = read_framework_report(tmp_path / "step" / FRAMEWORK_REPORT)
    assert (finished.exit_code, exit_code_of(finished, report)) == (97, 8033)


@pytest.mark.parametrize("setup", ["return 1", "scramv1() { echo no such architecture >&2; return 5; }"])
def test_a_release_that_cannot_be_set_up_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: str
) -> None:
    with pytest.raises(PayloadError, match=r"CMSSW_14_0_0 could not be set up: (cmsset_default\.sh failed|no release)") as error:
        in_release(tmp_path, monkeypatch, "touch never", setup)
    assert error.value.code == CMSSW_SETUP_FAILED and not (tmp_path / "step/never").exists()
