"""The checks of a schedd: everything that is wrong is told at once, one canary at most, whatever dies or is silent meanwhile."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dags_app.models import DAGStatus, SiteJobPurpose
from dags_app.payload.contract.codes import exit_status
from dags_app.planning.canary import ANSWER, NODES_LOG, OUTER
from dags_app.services import onboarding
from dags_app.services.onboarding import onboardings_process, schedd_check
from dags_app.services.orphans import orphans_known
from dags_app.services.site_jobs import site_job_begin
from sites_app.models import Onboarding, OnboardingState, PoolSite, Schedd, ScheddState, Site
from sites_app.schedds import adapter
from sites_app.submit_roots import CANARIES, MARKER, SITE_JOBS, root_refused
from tests.support.calls import stopping
from tests.support.payload_workbench import EXECUTE_EVENT
from tests.support.pythons import THIS, path_with
from tests.support.rows import dag_row, schedd_row, workflow_row
from wms2.adapters import factory
from wms2.adapters.caller import retry_call
from wms2.adapters.htcondor_ads import schedd_facts
from wms2.adapters.types import FoundDag, HistoryAd, JobStatus, ScheddAd, ScheddFacts
from wms2.conf import conf
from wms2.errors import InvalidTransition, ServiceRejected, ServiceUnavailable
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
WHO = {"actor": "olga", "reason": "new"}
S = OnboardingState
NO_PYTHON = 11004


class Killed(BaseException):
    """A worker dies there."""


FACTS = ScheddFacts(ScheddAd("schedd@new", "25.14.1", 5, owner="wms2"), 100_000, 500, 500)


@dataclass
class Queue:
    """Takes the place of the HTCondor adapter: one schedd, and what became of the canary."""

    facts_: ScheddFacts = FACTS
    listed: bool = True
    silent: bool = False
    refuses: str = ""
    submitted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    found: FoundDag | None = None

    def collector_ad(self) -> ScheddAd | None:
        return self._said(self.facts_.about if self.listed else None)

    def facts(self) -> ScheddFacts:
        return self._said(self.facts_)

    def find_dag(self, dag_id: str, since: datetime) -> FoundDag | None:
        return self._said(self.found)

    def submit_dag(self, place: Path, dag: str, stamps: dict[str, str], priority: int, begun: float) -> int:
        assert (place / dag).is_file() and stamps["WMS2_Instance"] == conf().instance
        if self.refuses:
            raise ServiceRejected("htcondor", "submit_dag", self.refuses)
        self.submitted.append(stamps["WMS2_DagID"])
        self.found = FoundDag(7, None, JobStatus.RUNNING, (7,), None)
        return 7

    def remove(self, cluster: int, reason: str, dag_id: str) -> int:
        self.removed.append(reason)
        self.end(None, reason)
        return 1

    def end(self, exit_code: int | None, why: str = "") -> None:
        about: dict[str, Any] = {"cluster": 7, "dag_id": "", "request_name": "", "fence": None, "job_status": JobStatus.COMPLETED}
        about |= {"queued_at_seconds": 1, "in_recovery": False, "exit_code": exit_code, "remove_reason": why}
        self.found = FoundDag(7, None, JobStatus.COMPLETED, (), HistoryAd(**about))

    def _said(self, what: Any) -> Any:
        if self.silent:
            raise ServiceUnavailable("htcondor", "ask", "scripted: silent", "timeout")
        return what


@pytest.fixture(name="queue")
def _queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(factory, "htcondor", lambda *_: queue)
    return queue


@pytest.fixture(name="schedd")
def _schedd(tmp_path: Path) -> Schedd:
    schedd = schedd_row("schedd@new", state=ScheddState.DISCOVERED, onboarded_at=None, submit_root=str(tmp_path))
    site = Site.objects.create(name="T2_CH_CERN")
    PoolSite.objects.create(pool=schedd.pool, site=site, total_slots=8, seen_at=timezone.now())
    return schedd


def processed(schedd: Schedd) -> Onboarding:
    onboardings_process()
    schedd.refresh_from_db()
    return schedd.onboardings.first()


def answered(row: Onboarding) -> None:
    """What DAGMan and the job leave."""
    place = Path(row.directory)
    (place / ANSWER).write_text(f"{row.pk}\n")
    (place / f"{OUTER}.metrics").write_text("{}")


def test_the_canary_runs_once_and_then_the_schedd_may_be_enabled(queue: Queue, schedd: Schedd) -> None:
    schedd_check(schedd=schedd, **WHO)
    with pytest.raises(InvalidTransition, match="being checked already"):
        schedd_check(schedd=schedd, **WHO)
    row = processed(schedd)
    assert (row.state, [each["passed"] for each in row.checks]) == (S.CANARY, [True] * 7)
    assert queue.submitted == [str(row.pk)]
    assert str(row.pk) in orphans_known(schedd, timezone.now()), "no orphan while it runs"
    assert processed(schedd).state == S.CANARY
    answered(row)
    queue.end(0)
    row = processed(schedd)
    assert (row.state, row.checks[-1]["check"], schedd.onboarding) == (S.PASSED, "canary DAG", "")
    assert schedd.onboarded_at is not None and not Path(row.directory).exists()
    assert root_refused(Path(schedd.submit_root)) == "" and schedd.owner == "wms2"
    onboardings_process()
    assert len(queue.submitted) == 1


def test_everything_that_is_wrong_is_told_at_once_and_nothing_is_submitted(queue: Queue, schedd: Schedd, tmp_path: Path) -> None:
    queue.facts_ = ScheddFacts(ScheddAd("schedd@new", "9.0.20", 5), 100, None, None)
    queue.listed = False
    Schedd.objects.update(submit_root=str(tmp_path / "absent"))
    PoolSite.objects.update(total_slots=0)
    schedd_check(schedd=schedd, **WHO)
    row = processed(schedd)
    wrong = {each["check"]: each["told"] for each in row.checks if not each["passed"]}
    assert row.state == S.FAILED and not queue.submitted
    assert wrong.keys() == {"reachable", "version", "submit directory", "limits", "sites"}
    assert "has no ad of it" in wrong["reachable"] and "HTCondor 9.0.20" in wrong["version"]
    assert "MAX_JOBS_PER_OWNER = 100" in wrong["limits"]
    assert all(reported in schedd.onboarding for reported in wrong.values())
    assert AuditEntry.objects.get(action="schedd_checked").outcome == "refused"
    schedd_check(schedd=schedd, **WHO)


@pytest.mark.parametrize(
    ("limits", "reported"),
    [
        ({"MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER": "200"}, "MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER = 200"),
        ({"START_SCHEDULER_UNIVERSE": "TotalSchedulerJobsRunning < 300"}, "START_SCHEDULER_UNIVERSE = 300"),
        ({"MAX_JOBS_PER_OWNER": "0", "START_SCHEDULER_UNIVERSE": "true"}, ""),
    ],
)
def test_a_schedd_that_starts_fewer_dagmans_than_it_is_to_have_fails(
    limits: dict[str, str], reported: str, queue: Queue, schedd: Schedd
) -> None:
    Schedd.objects.update(max_dagman_slots=500)
    queue.facts_ = schedd_facts(
        {"Name": "schedd@new", "CondorVersion": "$CondorVersion: 25.14.1 $", "JobQueueBirthdate": 5}, limits
    )
    schedd_check(schedd=schedd, **WHO)
    wrong = {each["check"]: each["told"] for each in processed(schedd).checks if not each["passed"]}
    assert set(wrong) == ({"limits"} if reported else set())
    assert reported in wrong.get("limits", "")


def test_a_credential_that_is_missing_or_ends_soon_is_told(queue: Queue, schedd: Schedd, tmp_path: Path) -> None:
    schedd.pool.token_dir = str(tmp_path / "tokens")
    schedd.pool.save()
    for text, reported in ((None, "there is no token in"), ("no.token", "no JSON web token")):
        if text:
            (tmp_path / "tokens").mkdir()
            (tmp_path / "tokens/one").write_text(text)
        schedd_check(schedd=schedd, **WHO)
        processed(schedd)
        assert reported in schedd.onboarding


def test_the_same_queue_is_not_added_twice(queue: Queue, schedd: Schedd) -> None:
    schedd_row("schedd@new", pool="another", job_queue_birthdate=5)
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    assert "the one of the schedd of this name in pool another" in schedd.onboarding


def test_the_same_queue_is_not_added_twice_either_when_both_rows_are_checked_before_one_is_in_use(
    queue: Queue, schedd: Schedd
) -> None:
    new = {"state": ScheddState.DISCOVERED, "onboarded_at": None, "submit_root": schedd.submit_root}
    twin = schedd_row("schedd@new", pool="another", **new)
    PoolSite.objects.create(pool=twin.pool, site_id="T2_CH_CERN", total_slots=8, seen_at=timezone.now())
    for one in (schedd, twin):
        schedd_check(schedd=one, **WHO)
    assert processed(schedd).state == S.CANARY
    assert processed(twin).state == S.FAILED
    assert f"the one of the schedd of this name in pool {schedd.pool_id}" in twin.onboarding


@pytest.mark.parametrize("point", ["canary.claimed", "canary.called", "canary.recorded"])
def test_a_worker_that_is_killed_leaves_one_canary_at_most(
    point: str, queue: Queue, schedd: Schedd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(name: str) -> None:
        if name == point:
            raise Killed(name)

    schedd_check(schedd=schedd, **WHO)
    with monkeypatch.context() as dying:
        dying.setattr(onboarding, "crash_point", kill)
        if point == "canary.recorded":
            queue.refuses = "no such file"
        with pytest.raises(Killed):
            onboardings_process()
    row = processed(schedd)
    if point == "canary.claimed":  # nobody knows whether it was sent: for a while it is looked for
        assert (row.state, queue.submitted) == (S.CANARY, [])
        long_ago = timezone.now() - timedelta(days=1)
        Onboarding.objects.update(intent_at=long_ago, missing_since=long_ago)
        assert processed(schedd).state == S.FAILED
        assert "neither queue nor history" in schedd.onboarding
    elif point == "canary.called":
        assert (row.state, row.cluster) == (S.CANARY, "7")
    else:
        assert (row.state, schedd.onboarding) == (S.FAILED, "canary DAG: htcondor submit_dag: no such file")
    assert len(queue.submitted) == (point == "canary.called")


def test_a_worker_that_is_stopped_before_it_submits_the_canary_sends_none_and_it_is_submitted_anew(
    queue: Queue, schedd: Schedd, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedd_check(schedd=schedd, **WHO)
    stop, submit = stopping(monkeypatch), queue.submit_dag

    def stopped(*given: Any) -> int:
        stop(conf().submit_timeout_seconds)
        return retry_call(partial(submit, *given), tries=1)

    with monkeypatch.context() as once:
        once.setattr(queue, "submit_dag", stopped)
        processed(schedd)
    assert queue.submitted == []
    assert processed(schedd).state == S.CANARY and len(queue.submitted) == 1


@pytest.mark.parametrize("over", [False, True])
def test_a_worker_that_stood_still_writes_nothing_into_the_directory_of_a_canary_that_runs(
    queue: Queue, schedd: Schedd, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """Another has submitted it meanwhile, and DAGMan reads it; nor is anything left of a canary that is over."""
    schedd_check(schedd=schedd, **WHO)
    real = onboarding._submit

    def stands_still(condor: Any, row: Onboarding) -> None:
        monkeypatch.setattr(onboarding, "_submit", real)
        running = processed(schedd)
        (Path(running.directory) / OUTER).write_text("as DAGMan has it")
        if over:
            queue.end(0)
            answered(running)
            assert processed(schedd).state == S.PASSED
        real(condor, row)

    monkeypatch.setattr(onboarding, "_submit", stands_still)
    place = Path(processed(schedd).directory)
    assert len(queue.submitted) == 1
    assert not place.exists() if over else (place / OUTER).read_text() == "as DAGMan has it"


@pytest.mark.parametrize(
    ("ran", "spreads", "reported"),
    [
        ([6, 6], True, "6 ran at .*: its negotiator spreads landings"),
        ([11, 1], False, "11 ran at .*so WMS2 spreads landings by slots; set NEGOTIATOR_PRE_JOB_RANK = Cpus"),
        ([3, 3], None, "6 of 12 jobs ran"),
    ],
)
def test_the_canary_tells_whether_the_negotiator_spreads_landings(
    queue: Queue, schedd: Schedd, ran: list[int], spreads: bool | None, reported: str
) -> None:
    PoolSite.objects.create(pool=schedd.pool, site=Site.objects.create(name="T2_B"), total_slots=9, seen_at=timezone.now())
    schedd_check(schedd=schedd, **WHO)
    row = processed(schedd)
    answered(row)
    sites = ["T2_CH_CERN"] * ran[0] + ["T2_B"] * ran[1]
    log = "".join(EXECUTE_EVENT.format(cluster=number, site=site) for number, site in enumerate(sites, 50))
    (Path(row.directory) / NODES_LOG).write_text(log)
    queue.end(0)
    row = processed(schedd)
    (check,) = [each for each in row.checks if each["check"] == "spread of landings"]
    assert re.search(reported, check["told"])
    assert (row.state, schedd.pool.spreads) == (S.PASSED, spreads)


def test_a_canary_that_is_not_seen_here_or_has_no_answer_does_not_count(queue: Queue, schedd: Schedd) -> None:
    schedd_check(schedd=schedd, **WHO)
    row = processed(schedd)
    queue.end(0)
    row = processed(schedd)
    assert row.state == S.FAILED and "a file system that the schedd shares" in schedd.onboarding
    assert Path(row.directory).exists(), "kept for a look"


def test_a_canary_says_that_the_schedds_host_has_no_python_for_scripts(queue: Queue, schedd: Schedd, tmp_path: Path) -> None:
    schedd_check(schedd=schedd, **WHO)
    place = Path(processed(schedd).directory)
    (line,) = re.findall(r"^SCRIPT PRE canary (.*)", (place / OUTER).read_text(), re.MULTILINE)
    for versions, status in (((THIS,), 0), (("3.6",), exit_status(NO_PYTHON))):
        environment = {"PATH": path_with(tmp_path / versions[0], *versions)}
        assert subprocess.run(line.split(), cwd=place, env=environment, capture_output=True).returncode == status
    (place / f"{OUTER}.metrics").write_text("{}")
    queue.end(1)
    assert processed(schedd).state == S.FAILED and "exit code 11004: no Python of 3.9 or newer on PATH" in schedd.onboarding
    assert not list(place.parent.glob("failures.jsonl"))


def test_a_canary_that_takes_too_long_is_removed_and_a_silent_schedd_fails_at_the_end(queue: Queue, schedd: Schedd) -> None:
    long_ago = timezone.now() - timedelta(days=1)
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    Onboarding.objects.update(intent_at=long_ago)
    processed(schedd)
    assert len(queue.removed) == 1
    assert processed(schedd).state == S.FAILED
    assert "has had its time" in schedd.onboarding

    queue.found = None
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    queue.silent = True
    assert processed(schedd).state == S.CANARY, "silence proves nothing"
    Onboarding.objects.filter(ended_at=None).update(intent_at=long_ago)
    assert processed(schedd).state == S.FAILED
    assert "was silent at the end" in schedd.onboarding
    assert len(queue.submitted) == 2


def test_a_schedd_in_service_that_fails_stays_and_is_not_enabled_again(queue: Queue, schedd: Schedd) -> None:
    Schedd.objects.update(state=ScheddState.ENABLED, onboarded_at=timezone.now())
    queue.listed = False
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    assert (schedd.state, schedd.onboarded_at) == (ScheddState.ENABLED, None)


def test_a_job_at_a_site_goes_where_the_site_has_slots(db: None) -> None:
    site = Site.objects.create(name="T2_DE_DESY")
    schedd_row("first@test")
    there = schedd_row("second@test", pool="second")
    PoolSite.objects.create(pool=there.pool, site=site, total_slots=4, seen_at=timezone.now())
    job = site_job_begin(site="T2_DE_DESY", purpose=SiteJobPurpose.REMOVE, items=1)
    other = site_job_begin(site="T2_US_Purdue", purpose=SiteJobPurpose.REMOVE, items=1)
    assert job is not None and other is not None
    assert (job.schedd.name, other.schedd.name) == ("second@test", "first@test")


def test_a_directory_with_things_of_others_is_not_taken_and_one_of_another_installation_neither(
    queue: Queue, schedd: Schedd, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    assert "holds what is not WMS2's, e.g. precious" in schedd.onboarding
    (tmp_path / MARKER).write_text("another")
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    assert "the submit root of instance 'another'" in schedd.onboarding
    (tmp_path / MARKER).write_text(conf().instance)
    schedd_check(schedd=schedd, **WHO)
    assert processed(schedd).state == S.CANARY


def test_a_root_with_requests_of_a_former_release_is_marked_when_it_is_checked_again(
    queue: Queue, schedd: Schedd, tmp_path: Path
) -> None:
    dag = dag_row(workflow_row(), DAGStatus.COMPLETED, schedd=schedd)
    for name in (dag.workflow.request.request_name, SITE_JOBS, CANARIES, ".snapshot"):
        (tmp_path / name).mkdir()
    assert "have its schedd checked" in root_refused(tmp_path)
    schedd_check(schedd=schedd, **WHO)
    row = processed(schedd)
    assert root_refused(tmp_path), "not before all checks have passed"
    answered(row)
    queue.end(0)
    assert processed(schedd).state == S.PASSED
    assert root_refused(tmp_path) == ""


def test_another_owner_is_refused_while_jobs_of_the_former_are_there(queue: Queue, schedd: Schedd) -> None:
    Schedd.objects.update(owner="former")
    schedd.refresh_from_db()
    dag = dag_row(workflow_row(), DAGStatus.RUNNING, schedd=schedd)
    schedd_check(schedd=schedd, **WHO)
    processed(schedd)
    assert "jobs would be wms2's by now, and 1 DAGs and site jobs there are former's" in schedd.onboarding
    assert (schedd.owner, queue.submitted) == ("former", [])
    type(dag).objects.update(status=DAGStatus.COMPLETED)
    schedd_check(schedd=schedd, **WHO)
    assert processed(schedd).state == S.CANARY
    assert schedd.owner == "wms2"


def test_each_schedd_is_asked_about_its_own_owners_jobs(db: None) -> None:
    there = {"one@test": "cmsprod", "two@test": "wmagent"}
    rows = [schedd_row(name, owner=owner) for name, owner in there.items()]
    assert [adapter(row)._ours().owner for row in rows] == list(there.values())
