"""The script that sets up a CMSSW release: cmsRun that start side by side share one project area."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
