"""The HTCondor adapter on a real pool: submission at most once, finding, watching, steering."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import htcondor2
import pytest

from deploy.htcondor.pool import DOMAIN
from tests.pool import condor
from tests.support.adapter_pool import Pool, jobs_running
from tests.support.places import ROOT
from tests.support.servers import Behaviour, RawServer
from tests.support.waiting import until
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.htcondor_process import since_boot
from wms2.adapters.types import Submission
from wms2.errors import CircuitOpen, ServiceRejected, ServiceUnavailable

pytestmark = pytest.mark.pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool.from_environment()
    yield pool
    adapter = pool.adapter()
    for ad in adapter.watch(pool.instance)[1]:
        if ad.parent_cluster is None:
            adapter.remove(ad.cluster, "end of test")
    until(lambda: not adapter.watch(pool.instance)[1])
    shutil.rmtree(pool.root / pool.instance, ignore_errors=True)


@pytest.fixture
def adapter(pool: Pool) -> HtcondorAdapter:
    return pool.adapter()


def test_a_submitted_dag_is_found_by_its_id_in_the_queue_and_later_in_the_history(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    assert adapter.find_dag(dag.dag_id) is None
    cluster = dag.submit(adapter, fence=3)
    found = adapter.find_dag(dag.dag_id)
    assert found is not None
    assert (found.cluster, found.fence, found.in_queue, found.history) == (cluster, 3, (cluster,), None)
    assert adapter.history(cluster) is None
    assert adapter.remove(cluster, 'stopped by "an operator"') == 1
    until(lambda: (gone := adapter.find_dag(dag.dag_id)) and not gone.in_queue)
    gone = adapter.find_dag(dag.dag_id)
    assert gone is not None and gone.history is not None
    assert (gone.cluster, gone.fence, gone.job_status) == (cluster, 3, 3)
    assert gone.history.remove_reason.startswith("stopped by 'an operator'")
    assert gone.history == adapter.history(cluster)
    began = datetime.fromtimestamp(gone.history.queued_at_seconds, UTC)
    assert adapter.find_dag(dag.dag_id, began) == gone, "the history is read back to then"
    assert adapter.remove(cluster, "again") == 0


def test_the_history_is_read_back_to_the_first_job_of_ours_that_ended_before(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag(seconds=0)
    cluster = dag.submit(adapter)
    until(lambda: adapter.history(cluster) is not None)
    ended = adapter.history(cluster)
    assert ended is not None
    moment = datetime.now(UTC)
    assert adapter.find_dag(dag.dag_id, moment) is not None, "clocks may differ by up to an hour"
    assert adapter.history(cluster, dag.dag_id, moment) == ended
    later = moment + timedelta(hours=2)
    assert adapter.find_dag(dag.dag_id, later) is None
    assert adapter.history(cluster, dag.dag_id, later) is None


def test_jobs_of_no_known_dag_are_counted_with_their_dagmans(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag, known = pool.dag(), pool.dag()
    cluster = dag.submit(adapter)
    known.submit(adapter)
    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 2)
    (found,) = adapter.orphans([known.dag_id])
    assert (found.dag_id, found.request_name, found.dagmans, found.jobs) == (dag.dag_id, "user_Task_1", 1, 1)
    assert adapter.orphans([dag.dag_id, known.dag_id]) == []
    assert adapter.remove_orphans(dag.dag_id, "end of test") >= 1
    until(lambda: adapter.orphans([known.dag_id]) == [])
    until(lambda: adapter.history(cluster, dag.dag_id) is not None)


def test_several_dags_are_removed_by_one_call_each_only_by_its_own_id(pool: Pool, adapter: HtcondorAdapter) -> None:
    dags = [pool.dag() for _ in range(3)]
    first, second, other = (dag.submit(adapter) for dag in dags)
    wanted = {first: dags[0].dag_id, second: dags[1].dag_id, other: dags[0].dag_id, 2_000_000_000: dags[2].dag_id}
    assert pool.adapter(instance="somebody-else").remove_all(wanted, "not mine") == 0
    assert adapter.remove_all(wanted, "ended") == 2
    until(lambda: {ad.cluster for ad in adapter.watch(pool.instance)[1] if ad.parent_cluster is None} == {other})
    assert adapter.remove_all(wanted, "again") == 0


def test_another_instance_neither_sees_nor_touches_the_dag(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    cluster = dag.submit(adapter)
    stranger = pool.adapter(instance="somebody-else")
    assert stranger.find_dag(dag.dag_id) is None
    assert stranger.remove(cluster, "not mine") == 0
    assert stranger.hold_tree(Submission(cluster, dag.dag_id, dag.dag_id, 1), "not mine") == 0
    assert stranger.set_priority(dag.dag_id, 1, 9000) == 0
    assert cluster not in [ad.cluster for ad in stranger.watch("somebody-else")[1]]
    assert adapter.find_dag(dag.dag_id) is not None


@pytest.fixture(name="stranger")
def _stranger(pool: Pool, tmp_path: Path) -> HtcondorAdapter:
    """Who may submit to the same schedd, and gives his jobs our stamps."""
    token = tmp_path / "tokens/stranger"
    token.parent.mkdir()
    token.write_text(condor.run("condor_token_create", "-identity", f"stranger@{DOMAIN}"))
    token.chmod(0o600)
    return pool.adapter(token_dir=str(token.parent))


def test_a_strangers_jobs_with_our_stamps_are_neither_found_nor_counted_nor_touched(
    pool: Pool, adapter: HtcondorAdapter, stranger: HtcondorAdapter
) -> None:
    dag, job_id = pool.dag(), uuid.uuid4().hex
    began = datetime.now(UTC)
    theirs = dag.submit(stranger, fence=9)
    stamps = {"WMS2_Instance": pool.instance, "WMS2_DagID": job_id}
    single = stranger.submit_job(dag.directory, "executable = /bin/true\nhold = True\n", stamps, since_boot())
    assert stranger.find_dag(dag.dag_id) is not None and stranger.find_job(job_id, began) is not None
    assert adapter.find_dag(dag.dag_id) is None and adapter.find_job(job_id, began) is None
    seen = adapter.watch(pool.instance)
    assert (seen[1], seen[2]) == ([], [])
    assert adapter.orphans([]) == []
    assert adapter.remove(theirs, "not ours") == adapter.remove_all({theirs: dag.dag_id}, "not ours") == 0
    assert adapter.remove_job(single, job_id, "not ours") == adapter.set_priority(dag.dag_id, 9, 1000) == 0
    assert adapter.hold_tree(Submission(theirs, dag.dag_id, dag.dag_id, 9), "not ours") == 0
    assert stranger.remove(theirs, "end of test") == 1 and stranger.remove_job(single, job_id, "end of test") == 1
    until(lambda: stranger.history(theirs) is not None)
    assert adapter.history(theirs) is None


def test_a_job_that_would_be_another_owners_is_not_submitted(pool: Pool, stranger: HtcondorAdapter) -> None:
    dag = pool.dag()
    owner = pool.adapter().facts().about.owner
    assert owner and stranger.facts().about.owner == "stranger"
    changed = pool.adapter(owner=owner, token_dir=stranger._place.token_dir)
    with pytest.raises(ServiceRejected, match=f"would be stranger's, and those that are known here are {owner}'s"):
        dag.submit(changed)
    assert stranger.find_dag(dag.dag_id) is None


def test_one_query_tells_of_the_dag_its_running_units_and_their_counts(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    cluster = dag.submit(adapter, fence=5)
    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 1)
    outer, inner = adapter.watch(pool.instance)[1]
    assert (outer.cluster, outer.parent_cluster, outer.dag_id, outer.fence, outer.job_status) == (cluster, None, dag.dag_id, 5, 2)
    assert (outer.nodes_total, outer.nodes_done, outer.dag_status) == (1, 0, 0)
    assert (inner.parent_cluster, inner.node, inner.dag_id, inner.fence) == (cluster, "mg_000000", dag.dag_id, 5)
    assert (inner.nodes_total, inner.nodes_done) == (2, 1)
    shell = f'set -a; . "{os.environ["WMS2_STATE_DIR"]}/env"; htcondor dag status {cluster}'
    reported = subprocess.run(["sh", "-c", shell], env={"PATH": os.defpath}, capture_output=True, text=True, check=False)
    assert "has been running for" in reported.stdout + reported.stderr, "HTCondor's own command line works in the stack's shell"


def test_landing_jobs_that_wait_are_kept_from_sites_beside_those_that_they_avoid_already(
    pool: Pool, adapter: HtcondorAdapter
) -> None:
    directory, job_id = pool.dag(), uuid.uuid4().hex
    job = 'executable = /bin/true\nrequirements = false\nMy.WMS2_Avoid = "{}"\nMy.WMS2_Role = "{}"\nMy.WMS2_First = "{}"\n'
    stamps = {"WMS2_Instance": pool.instance, "WMS2_DagID": job_id, "WMS2_Fence": 3}
    of = [("T2_A,", "landing", "T2_B"), (",", "landing", "T2_C"), ("T2_A,", "merge", "T2_B")]
    clusters = [adapter.submit_job(directory.directory, job.format(*each), stamps, since_boot()) for each in of]
    assert adapter.avoid_sites(job_id, 2, ["T2_B"]) == 0, "not of this submission"
    assert adapter.avoid_sites(job_id, 3, ["T2_B"]) == 2
    assert adapter.avoid_sites(job_id, 3, ["T2_B", "T2_A"]) == 1
    assert adapter.avoid_sites(job_id, 3, ["T2_B"]) == 0
    ads = ask_queue(pool, f'WMS2_DagID == "{job_id}"', ["ClusterId", "WMS2_Avoid", "WMS2_First"])
    avoided = {ad["ClusterId"]: ad["WMS2_Avoid"] for ad in ads}
    assert [avoided[cluster] for cluster in clusters] == ["T2_A,T2_B", "T2_B,T2_A", "T2_A,"]
    first = {ad["ClusterId"]: ad["WMS2_First"] for ad in ads}
    assert [first[cluster] for cluster in clusters] == ["", "T2_C", "T2_B"], "it would wait there for half an hour"
    for cluster in clusters:
        adapter.remove_job(cluster, job_id, "end of test")


def test_a_new_priority_is_given_to_the_jobs_of_one_submission(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    dag.submit(adapter, priority=5000)
    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 1)
    assert node_priorities(pool) == [5007], "as DAGs of a former release add it"
    assert adapter.set_priority(dag.dag_id, 2, 9000) == 0, "not of this submission of its directory"
    assert adapter.set_priority(dag.dag_id, 1, 9000) == 1
    assert node_priorities(pool) == [9000]
    assert adapter.set_priority(dag.dag_id, 1, 9000) == 0


def test_a_dag_that_runs_takes_another_number_of_units_at_once(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    units = [f"mg_{index:06}" for index in range(3)]
    for unit in units[1:]:
        shutil.copytree(dag.directory / units[0], dag.directory / unit)
    nodes = [f"SUBDAG EXTERNAL {unit} group.dag DIR {unit}\nCATEGORY {unit} MergeGroup\n" for unit in units]
    (dag.directory / "workflow.dag").write_text("".join([*nodes, "MAXJOBS MergeGroup 3\n"]))
    cluster = adapter.submit_dag(dag.directory, "workflow.dag", dag.stamps(), 0, units=1)

    def running() -> list[str]:
        return [ad.node for ad in adapter.watch(pool.instance)[1] if ad.parent_cluster is not None]

    def most() -> set[int | None]:
        return {ad.max_jobs for ad in adapter.watch(pool.instance)[1] if ad.parent_cluster is None}

    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 1 and most() == {1})
    assert running() == units[:1], "although its own limit is three"
    assert adapter.set_units_at_once(cluster, dag.dag_id, 2) == 1
    until(lambda: len(running()) == 2)
    assert adapter.set_units_at_once(cluster, "another", 3) == 0
    assert most() == {2}


def test_a_held_dag_says_why_and_is_released(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    cluster = dag.submit(adapter)
    job = Submission(cluster, dag.dag_id, dag.dag_id, 1)
    assert adapter.release_tree(job, "it is not held") == 0
    for other in (job._replace(fence=2), job._replace(dag_id="another"), job._replace(cluster=cluster + 1)):
        assert adapter.hold_tree(other, "of another submission") == 0
    assert adapter.hold_tree(job, "site is down") >= 1
    (held,) = [ad for ad in adapter.watch(pool.instance)[1] if ad.parent_cluster is None]
    assert held.job_status == 5
    assert held.hold_reason.startswith("site is down")
    assert adapter.release_tree(job._replace(fence=2), "of another submission") == 0
    assert adapter.release_tree(job, "site is back") >= 1


def test_a_rescue_file_is_used_and_finished_work_is_not_run_again(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    first = dag.submit(adapter, fence=1)
    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 1)
    adapter.remove(first, "stop")
    until(lambda: (dag.directory / "mg_000000/group.dag.rescue001").exists() and not adapter.watch(pool.instance)[1])
    second = dag.submit(adapter, fence=2)
    found = adapter.find_dag(dag.dag_id)
    assert found is not None and (found.cluster, found.fence, found.in_queue) == (second, 2, (second,))
    until(lambda: jobs_running(adapter.watch(pool.instance)[1]) == 1)
    assert [submissions(dag.directory / f"mg_000000/{node}.log") for node in ("first", "second")] == [1, 2]
    assert not list(dag.directory.rglob("*.old"))


def test_a_submission_that_died_before_the_schedd_was_asked_can_be_made_again(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    (dag.directory / "workflow.dag.condor.sub").write_text("# left behind\n")
    cluster = dag.submit(adapter)
    assert [ad.cluster for ad in adapter.watch(pool.instance)[1] if ad.parent_cluster is None] == [cluster]


def test_two_jobs_for_one_dag_are_shown_as_such(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    twin = pool.dag(dag_id=dag.dag_id)
    first, second = dag.submit(adapter, fence=1), twin.submit(adapter, fence=2)
    found = adapter.find_dag(dag.dag_id)
    assert found is not None
    assert (found.cluster, found.fence, found.in_queue) == (second, 2, (first, second))


def test_a_dag_that_has_finished_is_not_run_a_second_time(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag(seconds=0)
    cluster = dag.submit(adapter)
    until(lambda: adapter.history(cluster))
    ended = adapter.history(cluster)
    assert ended is not None and (ended.job_status, ended.exit_code, ended.dag_status, ended.nodes_done) == (4, 0, 0, 1)
    with pytest.raises(ServiceRejected, match="has finished"):
        dag.submit(adapter, fence=2)
    assert adapter.watch(pool.instance)[1] == []


def test_what_cannot_be_submitted_is_refused_and_nothing_is_sent(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    with pytest.raises(ServiceRejected, match=r"no file .*missing\.dag"):
        adapter.submit_dag(dag.directory, "missing.dag", dag.stamps(), 0)
    (dag.directory / "bad.dag").write_text("NONSENSE here\n")
    with pytest.raises(ServiceRejected, match="NONSENSE"):
        adapter.submit_dag(dag.directory, "bad.dag", dag.stamps(), 0)
    with pytest.raises(ServiceRejected, match="WMS2_DagID"):
        adapter.submit_dag(dag.directory, "workflow.dag", {"WMS2_Instance": pool.instance}, 0)
    with pytest.raises(ServiceRejected, match="WMS2_Instance"):
        adapter.submit_dag(dag.directory, "workflow.dag", dag.stamps() | {"WMS2_Instance": "somebody-else"}, 0)
    assert adapter.watch(pool.instance)[1] == []


def test_dagman_inherits_none_of_our_secrets(pool: Pool, adapter: HtcondorAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_SECRET_KEY", "very-secret")
    monkeypatch.setenv("_CONDOR_DAGMAN_USE_STRICT", "0")
    monkeypatch.setenv("PYTHONPATH", "/not/for/dagman")
    dag = pool.dag()
    cluster = dag.submit(adapter)
    (ad,) = ask_queue(pool, f"ClusterId == {cluster}", ["Env", "Environment"])
    inherited = f"{ad.get('Env')} {ad.get('Environment')}"
    assert "CONDOR_CONFIG=" in inherited
    for word in ("very-secret", "_CONDOR_DAGMAN_USE_STRICT", "/not/for/dagman"):
        assert word not in inherited


def test_the_schedd_and_the_sites_are_described(adapter: HtcondorAdapter, pool: Pool) -> None:
    schedd = adapter.watch(pool.instance).about
    assert schedd.name == pool.schedd_name
    assert schedd.version.count(".") == 2 and schedd.job_queue_birthdate_seconds
    said = HtcondorAdapter("", pool.collector, instance="", token_dir=pool.token_dir).pool()
    assert schedd.name in {each.name for each in said.schedds}
    slots = {row.site: row for row in said.slots}
    assert {"T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"} <= set(slots)
    assert all(row.cpus >= row.free_cpus >= 0 and row.cpus > 0 for row in slots.values())


def test_a_schedd_tells_how_many_jobs_and_dagmans_one_owner_may_have(adapter: HtcondorAdapter) -> None:
    facts = adapter.facts()
    assert (facts.jobs_per_owner, facts.dagmans_per_owner, facts.dagmans) == (100_000, 500, 500)


def test_a_schedd_the_collector_does_not_know_is_unavailable_not_empty(pool: Pool) -> None:
    stranger = HtcondorAdapter("nobody@nowhere", pool.collector, instance=pool.instance)
    with pytest.raises(ServiceUnavailable, match="knows no schedd"):
        stranger.find_dag("any")


# --- a pool that does not answer; needs HTCondor's client configuration but no daemons


def silent(connection: object) -> None:
    time.sleep(60)


def test_a_submission_to_a_silent_pool_ends_at_its_limit_is_not_repeated_and_leaves_nothing(
    pool: Pool, adapter: HtcondorAdapter, raw_server: Callable[[Behaviour], RawServer], calls: list[tuple[str, str, str]]
) -> None:
    server = raw_server(silent)
    dag = pool.dag()
    deaf = HtcondorAdapter(pool.schedd_name, f"127.0.0.1:{server.port}", instance=pool.instance, submit_timeout_seconds=1.5)
    with pytest.raises(ServiceUnavailable, match="did not answer within") as caught:
        dag.submit(deaf)
    assert caught.value.code == "timeout"
    assert calls == [("htcondor", "submit_dag", "timeout")]
    assert server.connections == 1
    assert not (dag.directory / "workflow.dag.condor.sub").exists()
    assert adapter.find_dag(dag.dag_id) is None


def test_a_submission_that_was_paused_beyond_its_limit_is_not_made(pool: Pool, adapter: HtcondorAdapter) -> None:
    dag = pool.dag()
    long_ago = since_boot() - 3600
    with pytest.raises(ServiceUnavailable, match="did not answer within"):
        adapter.submit_dag(dag.directory, "workflow.dag", dag.stamps(), 0, long_ago)
    assert adapter.find_dag(dag.dag_id) is None


def test_a_question_to_a_silent_pool_is_asked_three_times_then_the_schedd_is_left_alone(
    pool: Pool, raw_server: Callable[[Behaviour], RawServer]
) -> None:
    server = raw_server(silent)
    deaf = HtcondorAdapter(pool.schedd_name, f"127.0.0.1:{server.port}", instance=pool.instance, timeout_seconds=1.0)
    with pytest.raises(ServiceUnavailable, match="did not answer within"):
        deaf.find_dag("any")
    assert server.connections == 3
    with pytest.raises(CircuitOpen):
        deaf.watch(pool.instance)
    with pytest.raises(CircuitOpen):
        pool.dag().submit(deaf)
    assert server.connections == 3


def test_the_child_ends_at_its_limit_even_when_nobody_is_left_to_kill_it(
    pool: Pool, raw_server: Callable[[Behaviour], RawServer]
) -> None:
    server = raw_server(silent)
    question = {
        "schedd": pool.schedd_name,
        "collector": f"127.0.0.1:{server.port}",
        "token_dir": "",
        "ends_at": since_boot() + 1.0,
        "calls": [{"op": "slots", "projection": ["Name"]}],
    }
    root = ROOT
    process = subprocess.run(
        [sys.executable, "-m", "wms2.adapters.htcondor_child"],
        input=json.dumps(question),
        text=True,
        capture_output=True,
        cwd=root,
        timeout=30,
    )
    assert process.returncode == -signal.SIGALRM
    assert process.stdout == ""


def submissions(log: Path) -> int:
    """How often a job was submitted, by its own event log."""
    return sum(line.startswith("000 (") for line in log.read_text().splitlines())


def ask_queue(pool: Pool, constraint: str, projection: list[str]) -> list[dict[str, object]]:
    collector = htcondor2.Collector(pool.collector)
    schedd = htcondor2.Schedd(collector.locate(htcondor2.DaemonType.Schedd, pool.schedd_name))
    return [dict(ad) for ad in schedd.query(constraint, projection)]


def node_priorities(pool: Pool) -> list[object]:
    return [ad["JobPrio"] for ad in ask_queue(pool, f'WMS2_Instance =?= "{pool.instance}" && JobUniverse == 5', ["JobPrio"])]
