"""A job whose worker node was cut off: HTCondor starts it again under the same number, and the first start goes on meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path

from dags_app.payload.contract.files import adler32
from tests.support.faults import fault
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import Attempt, Workbench

#: cmsRun that, where a file "hold" is, ends only when a file "go" has come.
HELD = """#!/bin/sh
"{programs}/cmsRun" "$@"; status=$?
if [ -e "{root}/hold" ]; then touch "{root}/held"; while [ ! -e "{root}/go" ]; do sleep 0.1; done; fi
exit $status
"""


def cut_off(bench: Workbench, command: str, node: str) -> Attempt:
    """Start a node that has done its work and stops before its stage-out."""
    (bench.root / "hold").touch()
    started = bench.start(command, node)
    while not (bench.root / "held").exists():
        assert started.popen.poll() is None
        time.sleep(0.05)
    (bench.root / "hold").unlink()
    (bench.root / "held").unlink()
    return started


def started_again(bench: Workbench, command: str, lost: Attempt) -> Attempt:
    """The same job once more, to its end, and accepted."""
    again = bench.start(command, lost.node, again=lost)
    again.finish()
    return bench.accepted(again)


def stored(bench: Workbench, below: str) -> dict[Path, tuple[int, str]]:
    return {p: (p.stat().st_ino, adler32(p)) for p in (bench.storage() / "store" / below).rglob("*.root")}


@fault(
    "a late copy",
    done="a processing job and a merge are cut off before their stage-out, started again by HTCondor under the same number, "
    "accepted and cleaned up; then the first starts come back and write",
    spec="ADR 0010",
    afterwards="accepted output is byte for byte what was accepted; what the late starts wrote has names of its own, in journals",
)
def test_a_copy_that_comes_back_after_the_unit_was_accepted_overwrites_nothing(one_step: Workbench) -> None:
    bench = one_step
    (bench.root / "slow").mkdir()
    (bench.root / "slow/cmsRun").write_text(HELD.format(programs=bench.programs, root=bench.root))
    (bench.root / "slow/cmsRun").chmod(0o755)
    bench.variables["PATH"] = f"{bench.root}/slow:{bench.programs}:/usr/bin:/bin"

    late = [cut_off(bench, "job", "proc_000000")]
    started_again(bench, "job", late[0])
    bench.process("job", "proc_000001")
    assert bench.script("collect") == 0
    late.append(cut_off(bench, "merge", "merge"))
    started_again(bench, "merge", late[1])
    assert bench.run("cleanup", "cleanup").value == 0
    accepted = stored(bench, "mc")
    (output,) = bench.read("merge_output.json")["outputs"]
    assert set(accepted) == {bench.stored(file["lfn"]) for file in output["files"]}
    assert not list((bench.storage() / "store/unmerged").rglob("*.*"))

    (bench.root / "go").touch()
    assert [started.popen.wait(120) for started in late] == [0, 0], "nothing tells them that they are late"

    after = {**stored(bench, "mc"), **stored(bench, "unmerged")}
    assert {path: after[path] for path in accepted} == accepted
    journals = [json.loads(path.read_text()) for path in (bench.storage() / "store/unmerged").rglob("*_journals/*.json")]
    for journal in journals:
        validate("journal", journal)
    losers = {bench.stored(lfn) for journal in journals for lfn in journal["files"]}
    assert losers == set(after) - set(accepted) and len(losers) == 2
    assert sorted(journal["node"] for journal in journals) == ["merge", "proc_000000"]
