"""How a DAG ended, told from job history, metrics, status and rescue files together: every combination of the four.

What is safe: COMPLETED only when nothing speaks against it; where two disagree, and where neither history nor metrics say
anything, the end is unknown. ADR 0006.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from dags_app.dagman import DagmanCounts, DagMetrics, DagStatusFile, NodeState, NodeStatus, RescueFile
from dags_app.models import DAG, DAGStatus
from dags_app.services.outcome import Sources, judge, sources_of
from tests.support.cases import in_one_test
from tests.support.scripted import dagman
from wms2.adapters.types import DagStatus, HistoryAd, JobStatus

D, E = NodeState.DONE, NodeState.ERROR
UNITS = 3
CLUSTER = 7

#: (JobStatus, ExitCode, DAG_Status, failed nodes); None: no ad.
HISTORY: dict[str, tuple[int, int | None, int | None, int] | None] = {
    "absent": None,
    "still queued": (JobStatus.RUNNING, None, 0, 0),
    "completed": (JobStatus.COMPLETED, 0, 0, 0),
    "failed": (JobStatus.COMPLETED, 1, 2, 1),
    "aborted": (JobStatus.COMPLETED, 1, 3, 1),
    "drained": (JobStatus.COMPLETED, 1, 6, 0),
    "killed": (JobStatus.COMPLETED, None, 0, 0),
    "removed": (JobStatus.REMOVED, None, 4, 0),
}
#: (exit code, DagStatus, nodes done, nodes failed); a metrics file that is cut off is the same as none.
METRICS: dict[str, tuple[int, int, int, int] | None] = {
    "absent or cut off": None,
    "completed": (0, 0, 3, 0),
    "completed, short": (0, 0, 2, 0),
    "failed": (1, 2, 2, 1),
    "aborted": (1, 3, 1, 1),
    "drained": (1, 6, 2, 0),
    "removed": (2, 4, 2, 0),
}
STATUS: dict[str, tuple[NodeState, ...] | None] = {
    "absent or cut off": None,
    "all done": (D, D, D),
    "one failed": (D, D, E),
    "all failed": (E, E, E),
    "stopped half way": (D, NodeState.SUBMITTED, NodeState.READY),
}
#: Units that the rescue file of this submission says are done; "cut off": it is there and not whole.
RESCUE: dict[str, int | None] = {"absent": None, "two done": 2, "all done": 3, "cut off": -1}

#: What each source by itself says of the end; None: nothing.
SAYS = {
    "absent": None, "absent or cut off": None, "still queued": None, "completed": "completed", "completed, short": "completed",
    "failed": "failed", "killed": "broken", "aborted": "aborted", "drained": "drained", "removed": "removed",
}  # fmt: skip
#: What is left beside history and metrics, and whether we asked for the end.
REST = list(itertools.product(STATUS, RESCUE, (False, True)))


def history(kind: str) -> HistoryAd | None:
    reported = HISTORY[kind]
    if reported is None:
        return None
    status, exit_code, dag_status, failed = reported
    return HistoryAd(
        cluster=CLUSTER, dag_id="d", request_name="r", fence=1, job_status=status, exit_code=exit_code,
        remove_reason="via condor_rm (by user ops)" if kind == "removed" else "", queued_at_seconds=1000,
        dag_status=dag_status, nodes_total=UNITS,
        nodes_done=UNITS - failed, nodes_failed=failed,
    )  # fmt: skip


def metrics(kind: str) -> DagMetrics | None:
    reported = METRICS[kind]
    if reported is None:
        return None
    exit_code, status, done, failed = reported
    return DagMetrics(str(CLUSTER), exit_code, DagStatus(status), UNITS, done, failed, 1000.0, 2000.0)


def status(kind: str) -> DagStatusFile | None:
    states = STATUS[kind]
    if states is None:
        return None
    nodes = tuple(NodeStatus(f"mg_{n:06d}", state, "", 0, 0, 0) for n, state in enumerate(states))
    counts = DagmanCounts(UNITS, states.count(D), 0, 0, 0, 0, 0, states.count(E), 0, 0, 0)
    return DagStatusFile(1900, counts, nodes, final=True)


def rescue(kind: str) -> tuple[str, RescueFile | None]:
    done = RESCUE[kind]
    if done is None:
        return "", None
    name = "workflow.dag.rescue001"
    if done < 0:
        return name, None
    return name, RescueFile(UNITS, frozenset(f"mg_{n:06d}" for n in range(done)), frozenset())


def found(of_history: str, of_metrics: str, of_status: str, of_rescue: str) -> Sources:
    name, contents = rescue(of_rescue)
    return Sources(history(of_history), metrics(of_metrics), status(of_status), name, contents)


@in_one_test("of_metrics", METRICS)
@in_one_test("of_history", HISTORY)
def test_every_combination_of_what_is_left_is_judged_safely(of_history: str, of_metrics: str) -> None:
    for of_status, of_rescue, stopped in REST:
        assert_safe(of_history, of_metrics, of_status, of_rescue, stopped=stopped)


def assert_safe(of_history: str, of_metrics: str, of_status: str, of_rescue: str, *, stopped: bool) -> None:
    outcome = judge(found(of_history, of_metrics, of_status, of_rescue), stopped=stopped)
    said = {SAYS[of_history], SAYS[of_metrics]} - {None}
    all_done = of_status == "all done" or of_rescue == "all done"
    something_left = of_status in ("one failed", "all failed", "stopped half way") or of_rescue != "absent"
    assert outcome.why

    if len(said) != 1:
        assert outcome.status is None, "nobody says how it ended, or two say different things"
    elif said == {"completed"}:
        safe = not something_left and of_metrics != "completed, short"
        assert outcome.status is (DAGStatus.COMPLETED if safe else None)
    elif said <= {"removed", "drained"}:
        assert outcome.status is (DAGStatus.STOPPED if stopped else DAGStatus.REMOVED), "our stop, or somebody else's"
    elif all_done:
        assert outcome.status is None, "it failed, and all is done"
    else:
        assert outcome.status in (DAGStatus.PARTIAL, DAGStatus.FAILED)
        assert outcome.aborted == (said == {"aborted"})


def test_only_these_combinations_complete_a_dag() -> None:
    completed = {
        case
        for case in itertools.product(HISTORY, METRICS, STATUS, RESCUE)
        if judge(found(*case), stopped=False).status is DAGStatus.COMPLETED
    }
    said = [
        ("completed", "completed"),
        ("completed", "absent or cut off"),
        ("absent", "completed"),
        ("still queued", "completed"),
    ]
    agreed = ["all done", "absent or cut off"]
    assert completed == {(*ends, of_status, "absent") for ends in said for of_status in agreed}


@pytest.mark.parametrize(
    ("of_status", "of_rescue", "status", "units"),
    [
        ("one failed", "two done", DAGStatus.PARTIAL, (2, 1, 3)),
        ("all failed", "absent", DAGStatus.FAILED, (0, 3, 3)),
        ("absent or cut off", "two done", DAGStatus.PARTIAL, (2, 0, 3)),
        ("absent or cut off", "absent", DAGStatus.FAILED, (0, 0, 0)),
    ],
)
def test_the_units_are_counted_by_the_status_file_or_else_by_the_rescue_file(
    of_status: str, of_rescue: str, status: DAGStatus, units: tuple[int, int, int]
) -> None:
    outcome = judge(found("failed", "failed", of_status, of_rescue), stopped=False)
    counts = outcome.evidence["units"]
    assert (outcome.status, (counts["done"], counts["failed"], counts["total"])) == (status, units)


# --- the files themselves


NODES = {"mg_000000": D, "mg_000001": D, "mg_000002": E}


def dag(tmp_path: Path, **fields: Any) -> DAG:
    return DAG(dag_file_path=str(tmp_path / "workflow.dag"), submit_dir=str(tmp_path), dagman_cluster_id=str(CLUSTER), **fields)


def leave(tmp_path: Path, *, exit_code: int = 1, dag_status: int = 2, cluster: int = CLUSTER) -> None:
    """What a DAG of three units leaves, one of which failed."""
    dagman.write_status(tmp_path, NODES, final=True)
    dagman.write_metrics(tmp_path, NODES, cluster=cluster, exit_code=exit_code, dag_status=dag_status)
    dagman.write_rescue(tmp_path, NODES)


def test_whole_files_of_this_submission_all_count(tmp_path: Path) -> None:
    leave(tmp_path)
    sources = sources_of(dag(tmp_path), history("failed"))
    assert sources.metrics and sources.status and sources.rescue
    assert (sources.rescue_name, sources.damaged) == ("workflow.dag.rescue001", ())


@pytest.mark.parametrize("name", ["workflow.dag.metrics", "workflow.dag.status", "workflow.dag.rescue001"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_file_that_is_cut_off_is_none_and_is_named(tmp_path: Path, name: str, share: float) -> None:
    leave(tmp_path)
    text = (tmp_path / name).read_text()
    kept = text[: int(len(text) * share)] if not name.endswith("001") else text[: min(int(len(text) * share), 40)]
    (tmp_path / name).write_text(kept)
    sources = sources_of(dag(tmp_path), history("failed"))
    assert sources.damaged == (name,)
    outcome = judge(sources, stopped=False)
    assert outcome.status is DAGStatus.PARTIAL
    assert outcome.evidence["damaged"] == [name]


@pytest.mark.parametrize("name", ["workflow.dag.metrics", "workflow.dag.status", "workflow.dag.rescue001"])
def test_a_file_full_of_garbage_is_none_and_is_named(tmp_path: Path, name: str) -> None:
    leave(tmp_path)
    (tmp_path / name).write_bytes(b'\xff\xfe[ Type = "StatusEnd"; ]')
    assert sources_of(dag(tmp_path), history("failed")).damaged == (name,)


def test_a_whole_metrics_file_without_its_figures_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "workflow.dag.metrics").write_text(json.dumps({"version": "25", "dagman_id": str(CLUSTER)}))
    assert sources_of(dag(tmp_path), None).damaged == ("workflow.dag.metrics",)


def test_metrics_of_an_earlier_submission_say_nothing(tmp_path: Path) -> None:
    leave(tmp_path, exit_code=0, dag_status=0, cluster=CLUSTER - 1)
    assert judge(sources_of(dag(tmp_path), None), stopped=False).status is None


def test_a_status_file_from_before_this_submission_says_nothing(tmp_path: Path) -> None:
    """A full disk keeps DAGMan from replacing it."""
    leave(tmp_path)
    text = (tmp_path / "workflow.dag.status").read_text()
    (tmp_path / "workflow.dag.status").write_text(text.replace("Timestamp = 1795187247", "Timestamp = 999"))
    assert sources_of(dag(tmp_path), history("completed")).status is None


def test_the_rescue_file_that_a_submission_started_from_is_not_its_own(tmp_path: Path) -> None:
    leave(tmp_path)
    started_from = dag(tmp_path, rescue_dag_path=str(tmp_path / "workflow.dag.rescue001"))
    assert sources_of(started_from, history("completed")).rescue_name == ""
    dagman.write_rescue(tmp_path, NODES)
    assert sources_of(started_from, history("failed")).rescue_name == "workflow.dag.rescue002"


def inner_metrics(tmp_path: Path, unit: str, *, dag_status: int, started_at: float) -> None:
    (tmp_path / unit).mkdir(exist_ok=True)
    dagman.write_metrics(tmp_path, {}, cluster=1, exit_code=2, dag_status=dag_status)
    written = json.loads((tmp_path / "workflow.dag.metrics").read_text()) | {"start_time": started_at}
    (tmp_path / unit / "group.dag.metrics").write_text(json.dumps(written))


@pytest.mark.parametrize(
    ("dag_status", "started_at", "removed"),
    [(4, 1.5, ("mg_000002",)), (2, 1.5, ()), (4, 0.5, ())],
    ids=["removed", "failed", "removed in an earlier submission"],
)
def test_a_unit_whose_dagman_was_removed_has_not_failed(
    tmp_path: Path, dag_status: int, started_at: float, removed: tuple[str, ...]
) -> None:
    """docs/design/model.md, Failed units: the refused retry hides it from the outer status file, the unit's metrics tell."""
    inner_metrics(tmp_path, "mg_000002", dag_status=dag_status, started_at=started_at)
    leave(tmp_path)
    sources = sources_of(dag(tmp_path), history("failed"))
    assert sources.removed == removed
    units = judge(sources, stopped=False).evidence["units"]
    assert (units["failed"], units["removed"]) == (1 - len(removed), len(removed))


# --- a status file of a time before the end


@pytest.mark.parametrize(
    "states", [(D, D, NodeState.PRERUN), (D, NodeState.SUBMITTED, NodeState.READY)], ids=["in a script", "early"]
)
@pytest.mark.parametrize("with_rescue", [True, False])
def test_a_status_file_that_was_written_before_the_end_is_not_counted(states: tuple[NodeState, ...], with_rescue: bool) -> None:
    """DAGMan could not write it any more; metrics and rescue file tell of one failed unit."""
    nodes = tuple(NodeStatus(f"mg_{n:06d}", state, "", 0, 0, 0) for n, state in enumerate(states))
    counts = DagmanCounts(UNITS, states.count(D), 0, 0, 0, 0, 0, 0, 0, 0, 0)
    frozen = DagStatusFile(1900, counts, nodes, final=False)
    rescue = RescueFile(UNITS, frozenset({"mg_000000", "mg_000001"}), frozenset({"mg_000002"})) if with_rescue else None
    sources = Sources(history("failed"), metrics("failed"), frozen, "workflow.dag.rescue001" if rescue else "", rescue)
    outcome = judge(sources, stopped=False)
    assert (outcome.status, outcome.why) == (DAGStatus.PARTIAL, "nodes_failed: 1 of 3 units failed")
    assert outcome.evidence["units"] == {"done": 2, "failed": 1, "removed": 0, "total": 3}
    assert "older than the end" in outcome.evidence["status_file"]


@pytest.mark.parametrize(
    "states", [(D, D, NodeState.POSTRUN), (D, NodeState.SUBMITTED, NodeState.READY), (D, NodeState.READY, E)]
)
@pytest.mark.parametrize("of_history", ["completed", "absent"])
def test_an_old_status_file_contradicts_no_end_with_everything_done(of_history: str, states: tuple[NodeState, ...]) -> None:
    """A further update was announced, and never written; that there is no rescue file agrees with the metrics."""
    nodes = tuple(NodeStatus(f"mg_{n:06d}", state, "", 0, 0, 0) for n, state in enumerate(states))
    counts = DagmanCounts(UNITS, states.count(D), 0, 0, 0, 0, 0, states.count(E), 0, 0, 0)
    frozen = DagStatusFile(1900, counts, nodes, final=False)
    outcome = judge(Sources(history(of_history), metrics("completed"), frozen), stopped=False)
    assert (outcome.status, outcome.why) == (DAGStatus.COMPLETED, "all units done")
    assert outcome.evidence["units"] == {"done": 3, "failed": 0, "removed": 0, "total": 3}
    assert "older than the end" in outcome.evidence["status_file"]
    name, contents = rescue("two done")
    assert judge(Sources(history(of_history), metrics("completed"), frozen, name, contents), stopped=False).status is None
    assert judge(Sources(history("completed"), None, frozen), stopped=False).status is None, "one source against one"
    last = frozen._replace(final=True)
    assert judge(Sources(history(of_history), metrics("completed"), last), stopped=False).status is None
