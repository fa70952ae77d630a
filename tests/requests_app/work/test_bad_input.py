"""What POST scripts say of input files and sites becomes the ledger's and the bans'. error-handling 5.2 and 6.1."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from dags_app.models import DAG, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.services.failures import failures_sweep, site_failures, unread_waves
from requests_app.models import Event, InputFile, RequestStatus, Workflow
from requests_app.work.exclusions import bad_input_read
from requests_app.work.ledger import ledger_check, ledger_of
from requests_app.work.rounds import round_close
from sites_app.bans import SiteFailures
from sites_app.guard import guard_check
from sites_app.models import Site, SiteRse, SystemicAlert
from tests.support.rows import dag_row, input_spec, request_row, unit_row, workflow_row
from tests.support.scene_failures import line

pytestmark = pytest.mark.django_db
FILES = [f"/store/data/{dead_letter}.root" for dead_letter in "abcd"]


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    """Two units of two files each: the first is done, the second was given up."""
    workflow = workflow_row(request_row(RequestStatus.ACTIVE), input_spec())
    dag = dag_row(workflow, submit_dir=str(tmp_path), fence=1, total_work_units=2)
    rows = [InputFile.objects.create(workflow=workflow, lfn=lfn, block_name="/a#1", size_bytes=1, events=10) for lfn in FILES]
    done = unit_row(dag, 0, state=WorkUnitState.DONE, manifest_sha256="x", fence=1, site="T1_US_FNAL", jobs=2)
    lost = unit_row(dag, 1, jobs=2)
    for unit, mine in ((done, rows[:2]), (lost, rows[2:])):
        for row in mine:
            claim(unit, row)
    (tmp_path / "mg_000001").mkdir()
    return dag


def claim(unit: WorkUnit, row: InputFile, first: int = 0, last: int = 9) -> None:
    WorkUnitClaim.objects.create(
        unit=unit, input_file=row, kind=WorkUnitClaim.KIND_FILE_EVENTS, scope=row.pk, run=0, first=first, last=last,
        events=last - first + 1,
    )  # fmt: skip


def gave_up(dag: DAG, lfn: str, *, now: str = "data", unit: str = "mg_000001", **changes: Any) -> None:
    """A node gave up over a file; ``now``: what its last post.json says."""
    failed = line(**{"unit": unit, "category": "data", "code": 8021, "final": True, "bad_input_files": [lfn]} | changes)
    directory = Path(dag.submit_dir)
    with (directory / "failures.jsonl").open("a") as stream:
        stream.write(json.dumps(failed) + "\n")
    verdict = {"category": now, "bad_input_files": [lfn], "reason": "exit code 8021: cannot read it"}
    (directory / unit).mkdir(exist_ok=True)
    (directory / unit / "proc_000000.post.json").write_text(json.dumps({"classification": verdict}))


def excluded(workflow: Workflow) -> dict[str, str]:
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=False)
    return dict(rows.values_list("lfn", "excluded_reason"))


def test_the_named_file_of_a_failed_unit_is_excluded_and_the_others_are_tried_again(dag: DAG) -> None:
    gave_up(dag, FILES[2])
    gave_up(dag, FILES[2], site="T2_CH_CERN")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    reason = excluded(dag.workflow)[FILES[2]]
    assert reason.startswith("mg_000001/proc_000000: exit code 8021: cannot read it; could not be read at T1_US_FNAL on ")
    assert InputFile.objects.get(lfn=FILES[2]).excluded_kind == "lost"
    ledger = ledger_check(ledger_of(dag.workflow))
    assert (ledger.done_files, ledger.excluded_files, ledger.attempted_files, ledger.left_files) == (2, 1, 1, 0)
    assert Event.objects.get(kind="input.excluded").data["files"] == [FILES[2]]


@pytest.mark.parametrize(
    ("again", "rses", "lost"),
    [
        ({"fence": 2, "at": "2026-11-21T14:00:00Z"}, ["T1_US_FNAL_Disk"], True),
        ({"fence": 2, "at": "2026-11-21T13:59:00Z"}, ["T1_US_FNAL_Disk"], False),  # too soon
        ({"fence": 1, "at": "2026-11-21T20:00:00Z"}, ["T1_US_FNAL_Disk"], False),  # the same submission
        ({"fence": 2, "at": "2026-11-21T20:00:00Z"}, ["T1_US_FNAL_Disk", "T2_CH_CERN"], False),  # another site has it
        ({"fence": 2, "at": "2026-11-21T20:00:00Z", "looked": "2026-11-21T09:00Z"}, ["T1_US_FNAL_Disk"], False),  # had it then
        ({"fence": 2, "at": "2026-11-21T20:00:00Z", "site": ""}, ["T1_US_FNAL_Disk"], False),  # nobody knows where
    ],
)
def test_a_site_that_fails_alone_must_be_the_only_one_and_fail_again_hours_later(
    dag: DAG, again: dict[str, Any], rses: list[str], lost: bool
) -> None:
    for name, rse in {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN"}.items():
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=rse, seen_at=timezone.now())
    looked = again.pop("looked", "2026-11-21T11:00Z")
    InputFile.objects.filter(lfn=FILES[2]).update(rses=rses, located_at=datetime.fromisoformat(looked))
    gave_up(dag, FILES[2], fence=1, at="2026-11-21T10:00:00Z")
    gave_up(dag, FILES[2], **again)
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert (FILES[2] in excluded(dag.workflow)) is lost


def places(*sites: str, rses: list[str], looked: str = "2026-11-21T11:00Z") -> None:
    """CRIC's sites, and where FILES[2] is by the catalogue."""
    for name in sites:
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=name, seen_at=timezone.now())
    InputFile.objects.filter(lfn=FILES[2]).update(rses=rses, located_at=datetime.fromisoformat(looked))


@pytest.mark.parametrize("third", [True, False])
def test_a_file_is_not_lost_while_a_site_that_has_it_was_not_asked(dag: DAG, third: bool) -> None:
    sites = ["T1_US_FNAL", "T2_CH_CERN", "T2_DE_DESY"]
    Workflow.objects.filter(pk=dag.workflow_id).update(spec=dag.workflow.spec | {"site_whitelist": sites})
    dag = DAG.objects.get(pk=dag.pk)
    places(*sites, rses=sites if third else sites[:2])
    gave_up(dag, FILES[2])
    gave_up(dag, FILES[2], site="T2_CH_CERN")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert (FILES[2] in excluded(dag.workflow)) is not third


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("rule", ["file-on-no-server", "wms2-95003"])
def test_what_only_a_redirector_says_is_believed_when_it_is_said_again_hours_later(dag: DAG, rule: str, later: bool) -> None:
    """Two sites ask the same federation; its servers may be down for both."""
    places("T1_US_FNAL", "T2_CH_CERN", rses=["T1_US_FNAL", "T2_CH_CERN"])
    for site in ("T1_US_FNAL", "T2_CH_CERN"):
        gave_up(dag, FILES[2], site=site, rule=rule, fence=1, at="2026-11-21T10:00:00Z")
    if later:
        gave_up(dag, FILES[2], rule=rule, fence=2, at="2026-11-21T14:00:00Z")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert (FILES[2] in excluded(dag.workflow)) is later


@pytest.mark.parametrize(("others_read_well", "lost"), [(0, 0), (40, 6)])
def test_a_wave_of_unreadable_files_is_a_systemic_alert_and_excludes_none(dag: DAG, others_read_well: int, lost: int) -> None:
    now = timezone.now()
    names = [f"/store/data/wave{n}.root" for n in range(6)]
    for name in names:
        row = InputFile.objects.create(workflow=dag.workflow, lfn=name, block_name="/a#1", size_bytes=1, events=10)
        claim(WorkUnit.objects.get(name="mg_000001"), row)
    for n in range(others_read_well):
        unit_row(dag, 10 + n, state=WorkUnitState.DONE, manifest_sha256="x", fence=1, site="T1_US_FNAL", jobs=1, done_at=now)
    for site in ("T1_US_FNAL", "T2_CH_CERN"):
        for n, name in enumerate(names):
            gave_up(dag, name, site=site, node=f"proc_{n:06d}", at=f"{now:%Y-%m-%dT%H:%M:%SZ}")
    for n, name in enumerate(names):
        verdict = {"category": "data", "bad_input_files": [name], "reason": "exit code 8028: no such file"}
        path = Path(dag.submit_dir) / f"mg_000001/proc_{n:06d}.post.json"
        path.write_text(json.dumps({"classification": verdict}))
    if others_read_well:  # at the second site as well
        for n in range(40):
            unit_row(dag, 60 + n, state=WorkUnitState.DONE, manifest_sha256="x", fence=1, site="T2_CH_CERN", jobs=1, done_at=now)
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert len(excluded(dag.workflow)) == lost
    guard_check(transaction.atomic, unread_waves().words)
    alert = SystemicAlert.objects.filter(ended_at=None).first()
    assert (alert is None) is bool(lost)
    if alert is not None:
        assert alert.reason.startswith("6 input files could not be read at T1_US_FNAL, T2_CH_CERN, and little else was read")
        assert not alert.holds, "other work goes on"


def test_what_was_said_before_a_file_was_let_in_again_does_not_count(dag: DAG) -> None:
    gave_up(dag, FILES[2])
    gave_up(dag, FILES[2], site="T2_CH_CERN")
    failures_sweep(dag)
    InputFile.objects.filter(lfn=FILES[2]).update(restored_at=timezone.now())
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert excluded(dag.workflow) == {}


def test_a_node_that_did_well_later_blames_no_file(dag: DAG) -> None:
    gave_up(dag, FILES[2])
    gave_up(dag, FILES[2], site="T2_CH_CERN", now="success")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert excluded(dag.workflow) == {}


def test_a_file_that_a_done_unit_has_read_is_not_excluded(dag: DAG) -> None:
    gave_up(dag, FILES[0])
    gave_up(dag, FILES[0], site="T2_CH_CERN", unit="mg_000000")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert excluded(dag.workflow) == {}


def test_files_that_are_no_input_of_the_request_change_nothing(dag: DAG) -> None:
    gave_up(dag, "/store/mc/pileup.root")
    gave_up(dag, "/store/mc/pileup.root", site="T2_CH_CERN")
    failures_sweep(dag)
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert excluded(dag.workflow) == {}


def test_without_a_readable_post_json_the_file_stays(dag: DAG) -> None:
    gave_up(dag, FILES[2])
    gave_up(dag, FILES[2], site="T2_CH_CERN")
    failures_sweep(dag)
    (Path(dag.submit_dir) / "mg_000001/proc_000000.post.json").write_text("{")
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))
    assert excluded(dag.workflow) == {}


def test_attempts_of_one_submission_are_counted_by_site(dag: DAG) -> None:
    lines = [
        *(line(category="infrastructure", code=60311) for _ in range(3)),
        line(category="data", code=8021, bad_input_files=["/store/data/a.root"]),
        line(category="data", code=8021),
        line(),
        line(category="infrastructure", code=95010, site="T1_US_FNAL"),
        line(category="infrastructure", code=95103, site="T2_DE_DESY", rule="held-idle"),
        line(category="infrastructure", fence=7),
        line(category="permanent", site="T2_CH_CERN"),
    ]
    (Path(dag.submit_dir) / "failures.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    # at FNAL: six failed attempts, one without a named file, and two jobs and a merge of the unit that is done
    assert site_failures(dag) == {"T1_US_FNAL": SiteFailures(9, 4), "T2_CH_CERN": SiteFailures(1, 0)}


def test_a_dag_without_failures_speaks_against_no_site(dag: DAG) -> None:
    assert site_failures(dag) == {}
