"""Parsers of DAGMan's files and ads on recordings of both versions (``recorded/README.md``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import classad2
import pytest

from dags_app import dagman
from dags_app.dagman import DagmanFileError, DagOutcome, DagStatusFile, NodeState, RescueFile, done_by_jobstate
from dags_app.services.outcome import history_outcome
from tests.support.cases import in_one_test
from wms2.adapters.htcondor_ads import DAGMAN_PROJECTION, HISTORY_PROJECTION, dagman_ads, history_ad
from wms2.adapters.types import DagStatus, JobStatus
from wms2.errors import ServiceUnavailable

RECORDED = Path(__file__).with_name("recorded")
VERSIONS = ("23.9", "25")
#: The ad of a DAGMan job in its first second.
STARTED = {"ClusterId": 7, "JobStatus": JobStatus.IDLE, "QDate": 1, "EnteredCurrentStatus": 1}


@pytest.fixture(params=VERSIONS)
def recorded(request: pytest.FixtureRequest) -> Path:
    """The recordings of one HTCondor version."""
    return RECORDED / str(request.param)


def ads(path: Path) -> list[dict[str, Any]]:
    return [dict(ad) for ad in classad2.parseAds(path.read_text())]


def outer(path: Path) -> dict[str, Any]:
    """The newest outer DAGMan of a recording."""
    return max((ad for ad in ads(path) if "DAGNodeName" not in ad), key=lambda ad: int(ad["ClusterId"]))


def ended(ad: dict[str, Any]) -> DagOutcome | None:
    """How a DAGMan ended, by its ad as the adapter reads it."""
    return history_outcome(history_ad(ad))


# --- job ads


@in_one_test(
    "scenario, outcome",
    [
        ("completed", DagOutcome.COMPLETED),
        ("failed", DagOutcome.NODES_FAILED),
        ("aborted", DagOutcome.ABORTED),
        ("removed", DagOutcome.REMOVED),
        ("halted", DagOutcome.DRAINED),
        ("rescued", DagOutcome.COMPLETED),
    ],
)
def test_history_and_metrics_agree_on_how_a_dag_ended(recorded: Path, scenario: str, outcome: DagOutcome) -> None:
    assert ended(outer(recorded / scenario / "history.ads")) is outcome
    metrics = dagman.read_metrics(recorded / scenario / "workflow.dag.metrics")
    assert metrics is not None
    assert metrics.outcome is outcome


def test_inner_dagmans_that_were_removed_with_the_outer_one_are_not_failures(recorded: Path) -> None:
    jobs = {ad.get("DAGNodeName"): ad for ad in ads(recorded / "aborted/history.ads")}
    assert ended(jobs["mg_000000"]) is DagOutcome.ABORTED
    assert ended(jobs["mg_000001"]) is DagOutcome.REMOVED
    assert jobs["mg_000001"]["DAGManJobId"] == jobs[None]["ClusterId"]


def test_a_live_dagman_has_counts_and_stamps_and_no_outcome(recorded: Path) -> None:
    raw = ads(recorded / "running/queue.ads")
    jobs = {job.node: job for job in dagman_ads(raw, "test-1")}
    assert set(jobs) == {"", "mg_000000", "mg_000001"}
    top, unit = jobs[""], jobs["mg_000001"]
    assert (top.request_name, top.fence) == ("amaltaro_SC_Test_250101_000000_1234", 1)
    assert top.dag_id == unit.dag_id == "3f0f5c1e-0000-4000-8000-000000000001"
    assert (top.parent_cluster, unit.parent_cluster) == (None, top.cluster)
    assert (top.nodes_total, top.nodes_queued, top.jobs_running, top.nodes_done) == (2, 2, 2, 0)
    assert (top.job_status, top.dag_status, top.in_recovery) == (JobStatus.RUNNING, DagStatus.OK, False)
    assert ended(outer(recorded / "running/queue.ads")) is None


def test_a_dagman_that_has_not_reported_yet_has_no_counts() -> None:
    (job,) = dagman_ads([{**STARTED, "WMS2_Instance": "test-1"}], "test-1")
    assert (job.cluster, job.nodes_total, job.dag_status, job.fence) == (7, None, None, None)


def test_an_ad_without_a_job_status_is_an_error() -> None:
    with pytest.raises(ServiceUnavailable, match="without JobStatus"):
        history_ad({name: value for name, value in STARTED.items() if name != "JobStatus"})


def test_the_projections_name_every_attribute_that_is_read(recorded: Path) -> None:
    for path in recorded.rglob("*.ads"):
        rows = ads(path)
        lean = [{name: ad[name] for name in DAGMAN_PROJECTION if name in ad} for ad in rows]
        assert dagman_ads(rows, "test-1") == dagman_ads(lean, "test-1") != []
        for ad in rows:
            assert history_ad(ad) == history_ad({name: ad[name] for name in HISTORY_PROJECTION if name in ad})


def test_a_dagman_that_could_not_run_is_neither_failed_nor_drained() -> None:
    for dag_status in (DagStatus.ERROR, DagStatus.OK):
        ad = {**STARTED, "JobStatus": JobStatus.COMPLETED, "ExitCode": 1, "DAG_Status": dag_status}
        assert ended(ad) is DagOutcome.BROKEN


def test_a_dagman_that_gave_up_when_it_was_started_again_was_not_drained(recorded: Path) -> None:
    """Its counters are of the start before."""
    drained = outer(recorded / "halted/history.ads")
    counted = drained["DAG_AdUpdateTime"]
    assert ended(drained | {"JobCurrentStartDate": counted}) is DagOutcome.DRAINED
    assert ended(drained | {"JobCurrentStartDate": counted + 1}) is DagOutcome.BROKEN
    assert ended(outer(recorded / "failed/history.ads") | {"JobCurrentStartDate": 2**31}) is DagOutcome.BROKEN


# --- status file


def test_a_status_file_of_a_running_dag(recorded: Path) -> None:
    status = dagman.read_status(recorded / "running/workflow.dag.status")
    assert status is not None
    assert (status.counts.total, status.counts.queued, status.final) == (2, 2, False)
    assert [(node.name, node.state, node.details) for node in status.nodes] == [
        ("mg_000000", NodeState.SUBMITTED, "not_idle"),
        ("mg_000001", NodeState.SUBMITTED, "not_idle"),
    ]


def failed_nodes(status: DagStatusFile) -> list[str]:
    return [node.name for node in status.nodes if node.state is NodeState.ERROR and not node.was_removed]


def test_a_node_that_gave_up_is_failed_and_one_that_was_removed_is_not(recorded: Path) -> None:
    failed = dagman.read_status(recorded / "failed/workflow.dag.status")
    removed = dagman.read_status(recorded / "removed/workflow.dag.status")
    aborted = dagman.read_status(recorded / "aborted/workflow.dag.status")
    assert failed is not None and removed is not None and aborted is not None
    assert (failed_nodes(failed), failed.done_nodes(), failed.final) == (["mg_000000"], ("mg_000001",), True)
    assert (failed_nodes(removed), removed.done_nodes(), removed.counts.failed) == ([], ("mg_000000",), 1)
    assert failed_nodes(aborted) == ["mg_000000"]


def test_the_nodes_of_a_unit_tell_why_it_failed(recorded: Path) -> None:
    status = dagman.read_status(recorded / "failed/mg_000000/group.dag.status")
    assert status is not None
    states = {node.name: (node.state, node.details) for node in status.nodes}
    assert states["proc_000001"] == (NodeState.ERROR, "POST script failed with status 42")
    assert states["merge"] == (NodeState.NOT_READY, "")  # not FUTILE, as after an abort: measured on both
    assert (status.counts.done, status.counts.failed, status.counts.unready) == (2, 1, 2)
    aborted = dagman.read_status(recorded / "aborted/mg_000000/group.dag.status")
    assert aborted is not None
    assert [(node.state, node.details) for node in aborted.nodes if node.name == "merge"] == [
        (NodeState.FUTILE, "Had an ancestor node fail")
    ]


def test_every_recorded_status_file_is_torn_wherever_it_is_cut(recorded: Path) -> None:
    text = (recorded / "failed/workflow.dag.status").read_text()
    for end in range(len(text) - 1):
        assert dagman.parse_status(text[:end]) is None
    assert dagman.parse_status(text) is not None


def test_no_status_file_yet_is_not_an_error(tmp_path: Path) -> None:
    assert dagman.read_status(tmp_path / "workflow.dag.status") is None


def test_a_whole_status_file_without_its_counts_is_an_error(recorded: Path) -> None:
    text = (recorded / "failed/workflow.dag.status").read_text()
    with pytest.raises(DagmanFileError, match="NodesDone is missing"):
        dagman.parse_status(text.replace("NodesDone", "NodesGone"))
    with pytest.raises(DagmanFileError, match="no DagStatus ad"):
        dagman.parse_status(text.replace('"DagStatus"', '"Other"'))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("  Node = ", "  Knot = "), ("NodeStatus = 5", "NodeStatus = 77"), ("NodeStatus = 5", "NodeStatus = = 5")],
)
def test_a_whole_status_file_with_a_damaged_node_is_an_error(recorded: Path, right: str, wrong: str) -> None:
    text = (recorded / "failed/workflow.dag.status").read_text()
    assert right in text
    with pytest.raises(DagmanFileError, match="the status file has"):
        dagman.parse_status(text.replace(right, wrong))


# --- metrics


def test_metrics_of_both_versions_count_sub_dags_and_nodes_alike(recorded: Path) -> None:
    top = dagman.read_metrics(recorded / "failed/workflow.dag.metrics")
    unit = dagman.read_metrics(recorded / "failed/mg_000000/group.dag.metrics")
    assert top is not None and unit is not None
    assert (top.nodes_total, top.nodes_done, top.nodes_failed, top.exit_code, top.status) == (
        2,
        1,
        1,
        1,
        DagStatus.NODE_FAILED,
    )
    assert (unit.nodes_total, unit.nodes_done, unit.nodes_failed) == (5, 2, 1)
    assert top.started_at < top.ended_at
    assert int(top.cluster) == outer(recorded / "failed/history.ads")["ClusterId"]


def test_metrics_of_a_rescue_count_what_was_done_before_it(recorded: Path) -> None:
    metrics = dagman.read_metrics(recorded / "rescued/workflow.dag.metrics")
    assert metrics is not None
    assert metrics.nodes_done == 2


def test_torn_metrics_are_none_and_foreign_ones_an_error(recorded: Path, tmp_path: Path) -> None:
    text = (recorded / "failed/workflow.dag.metrics").read_text()
    assert dagman.parse_metrics(text[: len(text) // 2]) is None
    assert dagman.read_metrics(tmp_path / "workflow.dag.metrics") is None
    with pytest.raises(DagmanFileError, match="exitcode"):
        dagman.parse_metrics(text.replace("exitcode", "code"))
    with pytest.raises(DagmanFileError, match="no JSON object"):
        dagman.parse_metrics("[]")


# --- rescue files


def last_rescue(dag_file: Path) -> RescueFile | None:
    path = dagman.newest_rescue(dag_file)
    return dagman.read_rescue(path) if path else None


def test_rescue_files_say_what_is_done_and_what_failed(recorded: Path) -> None:
    top = last_rescue(recorded / "failed/workflow.dag")
    unit = last_rescue(recorded / "failed/mg_000000/group.dag")
    assert top is not None and unit is not None
    assert (top.total, top.done, top.failed) == (2, {"mg_000001"}, {"mg_000000"})
    assert (unit.done, unit.failed) == ({"landing", "proc_000000"}, {"proc_000001"})


def test_a_rescue_after_a_removal_names_no_failed_node(recorded: Path) -> None:
    rescue = last_rescue(recorded / "removed/workflow.dag")
    assert rescue is not None
    assert (rescue.done, rescue.failed) == ({"mg_000000"}, frozenset())


def test_the_newest_rescue_counts_and_renamed_ones_do_not(recorded: Path, tmp_path: Path) -> None:
    text = (recorded / "removed/workflow.dag.rescue001").read_text()
    assert last_rescue(tmp_path / "workflow.dag") is None
    for name in ("rescue001", "rescue002", "rescue003.site1"):
        (tmp_path / f"workflow.dag.{name}").write_text(text)
    assert dagman.newest_rescue(tmp_path / "workflow.dag") == tmp_path / "workflow.dag.rescue002"


def test_half_a_rescue_file_is_an_error(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "workflow.dag.rescue001"
    path.write_text((recorded / "failed/workflow.dag.rescue001").read_text()[:120])
    with pytest.raises(DagmanFileError, match="not a whole rescue file"):
        dagman.read_rescue(path)


JOBSTATE = """\
10 INTERNAL *** DAGMAN_STARTED 47.0 ***
10 mg_000000 PRE_SCRIPT_SUCCESS - - - 1
12 mg_000000 SUBMIT 48.0 - - 1
12 mg_000000 EXECUTE 48.0 - - 1
13 mg_000000 JOB_TERMINATED 48.0 - - 1
13 mg_000000 JOB_SUCCESS 0 - - 1
14 mg_000001 JOB_TERMINATED 49.0 - - 2
14 mg_000001 JOB_FAILURE 1 - - 2
15 mg_000001 PRE_SCRIPT_SUCCESS - - - 4
"""
RECOVERED = """\
31 INTERNAL *** DAGMAN_STARTED 47.0 ***
31 INTERNAL *** RECOVERY_STARTED ***
31 INTERNAL *** RECOVERY_FINISHED ***
"""


@pytest.mark.parametrize(
    ("more", "done"),
    [
        ("", {"mg_000000"}),
        ("16 mg_000001 JOB_SUCCESS 0 - - 4\n", {"mg_000000", "mg_000001"}),
        ("16 mg_000001 JOB_SUCCESS 0 - - 4", {"mg_000000"}),  # it is being written
        (RECOVERED, {"mg_000000"}),
        (RECOVERED + "32 mg_000001 JOB_SUCCESS 0 - - 4\n", {"mg_000000", "mg_000001"}),
        ("40 INTERNAL *** DAGMAN_FINISHED 1 ***\n41 INTERNAL *** DAGMAN_STARTED 53.0 ***\n", set()),
        ("41 INTERNAL *** DAGMAN_STARTED 53.0 ***\n42 mg_000002 JOB_SUCCESS 0 - - 5\n", set()),
        ("41 INTERNAL *** DAGMAN_STARTED 4.0 ***\n50 INTERNAL *** DAGMAN_STARTED 47.0 ***\n", set()),
    ],
)
def test_the_job_state_log_tells_what_one_dagman_job_saw_succeed(more: str, done: set[str]) -> None:
    """Recorded with 23.9.6, a kill of DAGMan and a second submission included."""
    assert done_by_jobstate(JOBSTATE + more, "47") == done


def test_what_a_later_submission_sees_succeed_is_its_own() -> None:
    text = JOBSTATE + "41 INTERNAL *** DAGMAN_STARTED 53.0 ***\n42 mg_000001 JOB_SUCCESS 0 - - 6\n"
    assert done_by_jobstate(text, "53") == {"mg_000001"}
    assert done_by_jobstate("", "53") == done_by_jobstate("nonsense\n", "53") == frozenset()
