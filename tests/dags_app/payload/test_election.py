"""elect and reelect: which site a unit gets, and when it may leave it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dags_app.payload.contract.failure_log import read_failures
from dags_app.payload.post import election
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import EXECUTE_EVENT, Workbench
from tests.support.places import ROOT

LOGS = sorted((ROOT / "tests/data/payload").glob("cluster-*.log"))


@pytest.fixture
def unit(one_step: Workbench) -> Workbench:
    """A unit before its landing job."""
    (one_step.place / "site.inc").unlink()
    (one_step.place / "elected.log").unlink()
    return one_step


def elected(bench: Workbench) -> str | None:
    path = bench.place / "site.inc"
    return path.read_text() if path.exists() else None


def ban(directory: Path, macro: str, *sites: str) -> None:
    (directory / "avoid.inc").write_text(f"{macro} = {','.join(sites)}\n")


@pytest.mark.parametrize("log", LOGS, ids=[path.stem for path in LOGS])
def test_the_site_comes_from_the_execute_event_of_the_landing_job(unit: Workbench, log: Path) -> None:
    shutil.copy(log, unit.place / "group.dag.nodes.log")
    cluster = log.read_text().split("(")[1].split(".")[0]
    assert unit.script("elect", "group.dag.nodes.log", f"{cluster}.1", 0) == 0
    assert elected(unit) in ("ELECTED_SITE = T2_CH_CERN\n", "ELECTED_SITE = T1_US_FNAL\n")
    assert (unit.place / "memory.inc").read_text() == "" and (unit.place / "avoid.inc").read_text() == "UNIT_AVOID =\n"


def test_landing_jobs_of_other_units_in_the_same_log_do_not_count(unit: Workbench) -> None:
    events = [(41, "T2_CH_CERN"), (42, "T1_US_FNAL"), (142, "T2_US_Purdue"), (421, "T2_US_Purdue")]
    log = "".join(EXECUTE_EVENT.format(cluster=cluster, site=site) for cluster, site in events)
    (unit.place / "group.dag.nodes.log").write_text(log)
    assert unit.script("elect", "group.dag.nodes.log", "42.0", 0) == 0
    assert elected(unit) == "ELECTED_SITE = T1_US_FNAL\n"


def test_a_landing_job_that_ran_twice_counts_where_it_ran_last(unit: Workbench) -> None:
    log = "".join(EXECUTE_EVENT.format(cluster=42, site=site) for site in ("T1_US_FNAL", "T2_CH_CERN"))
    (unit.place / "group.dag.nodes.log").write_text(log)
    assert unit.script("elect", "group.dag.nodes.log", "42.0", 0) == 0
    assert elected(unit) == "ELECTED_SITE = T2_CH_CERN\n"


@pytest.mark.parametrize(("value", "log"), [(1, EXECUTE_EVENT.format(cluster=42, site="T1_US_FNAL")), (0, ""), (-1001, "")])
def test_no_site_is_elected_without_a_landing_job_that_ended_well(unit: Workbench, value: int, log: str) -> None:
    (unit.place / "group.dag.nodes.log").write_text(log)
    assert unit.script("elect", "group.dag.nodes.log", "42.0", value) == 1
    assert elected(unit) is None
    assert "elect: " in (unit.place / "scripts.log").read_text(), "DAGMan keeps nothing of what a script prints"


@pytest.mark.parametrize(
    ("value", "job_id", "log", "code", "site"),
    [
        (1, "42.0", EXECUTE_EVENT.format(cluster=42, site="T1_US_FNAL"), 95013, "T1_US_FNAL"),
        (-1001, "-1.-1", "", 95010, ""),
        (0, "42.0", "", 95001, ""),
    ],
    ids=["failed", "not submitted", "no site in the log"],
)
def test_a_landing_that_failed_is_in_the_failure_log(
    unit: Workbench, value: int, job_id: str, log: str, code: int, site: str
) -> None:
    (unit.place / "group.dag.nodes.log").write_text(log)
    assert unit.script("elect", "group.dag.nodes.log", job_id, value) == 1
    (line,) = read_failures(unit.dag / "failures.jsonl")
    validate("failure", line)
    assert (line["unit"], line["node"], line["code"], line["site"]) == (unit.unit, "landing", code, site)
    assert line["final"] is False


def test_the_script_of_a_former_landing_that_comes_late_changes_nothing(unit: Workbench) -> None:
    log = "".join(EXECUTE_EVENT.format(cluster=cluster, site=site) for cluster, site in [(41, "T2_CH_CERN"), (42, "T1_US_FNAL")])
    (unit.place / "group.dag.nodes.log").write_text(log)
    for job_id in ("41.0", "42.0", "41.0", "42.0"):
        assert unit.script("elect", "group.dag.nodes.log", job_id, 0) == 0
    assert elected(unit) == "ELECTED_SITE = T1_US_FNAL\n"
    assert len((unit.place / "elected.log").read_text().splitlines()) == 2
    for _ in range(2):
        assert unit.script("elect", "group.dag.nodes.log", "43.0", 1) == 1
    assert len(list(read_failures(unit.dag / "failures.jsonl"))) == 1


def reelect(bench: Workbench, retry: int = 0) -> int:
    return bench.script("reelect", bench.unit, retry, directory=bench.dag)


def test_a_unit_that_has_not_landed_starts_at_any_retry(unit: Workbench) -> None:
    assert [reelect(unit, retry) for retry in (0, 1)] == [0, 0]
    assert (unit.place / "avoid.inc").read_text() == "UNIT_AVOID =\n"


def test_a_rescue_keeps_its_site_and_a_mere_retry_is_refused(one_step: Workbench) -> None:
    assert [reelect(one_step, retry) for retry in (0, 1)] == [0, 1]
    assert elected(one_step) == "ELECTED_SITE = T1_US_FNAL\n"


@pytest.mark.parametrize("own", [True, False], ids=["banned for the unit", "banned for the DAG"])
@pytest.mark.parametrize("retry", [0, 1])
def test_a_unit_leaves_a_banned_site(done_unit: Workbench, own: bool, retry: int) -> None:
    lfns = [done_unit.read(f"proc_{n:06d}.0.report.json")["outputs"][0]["lfn"] for n in (0, 1)]
    for number in (1, 2):
        (done_unit.place / f"group.dag.rescue00{number}").write_text("DONE landing\nDONE proc_000000\n")
    ban(done_unit.place if own else done_unit.dag, "UNIT_AVOID" if own else "DAG_AVOID", "T2_US_Purdue", "T1_US_FNAL")

    assert reelect(done_unit, retry) == 0
    assert elected(done_unit) is None
    assert sorted(path.name for path in done_unit.place.glob("group.dag.rescue*")) == [
        "group.dag.rescue001.site1",
        "group.dag.rescue002.site1",
    ]
    listed = [json.loads(line) for line in (done_unit.place / "orphans.jsonl").read_text().splitlines()]
    journals, orphans = listed[:2], listed[2:]
    assert {orphan["site"] for orphan in journals} == {"T1_US_FNAL"}
    assert len(list(done_unit.stored(journals[0]["journals"]).iterdir())) == 2, "one of each node, written before its files"
    assert [(orphan["site"], orphan["lfn"]) for orphan in orphans] == [("T1_US_FNAL", lfn) for lfn in lfns]
    assert all(orphan["pfn"].endswith(orphan["lfn"]) for orphan in orphans)
    assert not list(done_unit.place.glob("*.post.json")), "what was done at the old site must not be collected at the new one"
    assert len((done_unit.place / "proc_000000.attempts.jsonl").read_text().splitlines()) == 1, "but it stays on record"


def test_a_unit_whose_merge_is_done_stays_where_its_files_are(one_step: Workbench) -> None:
    (one_step.place / "group.dag.rescue001").write_text("DONE landing\nDONE proc_000000\n")
    (one_step.place / "group.dag.rescue002").write_text("# Total\nDONE landing\nDONE proc_000000\nDONE merge\n")
    ban(one_step.dag, "DAG_AVOID", "T1_US_FNAL")
    assert [reelect(one_step, retry) for retry in (0, 1)] == [0, 1]
    assert elected(one_step) == "ELECTED_SITE = T1_US_FNAL\n"


def test_a_unit_leaves_although_its_election_was_not_written_down(one_step: Workbench) -> None:
    """The landing's script was killed between the site and the log of elections."""
    (one_step.place / "elected.log").unlink()
    ban(one_step.dag, "DAG_AVOID", "T1_US_FNAL")
    assert reelect(one_step) == 0
    assert elected(one_step) is None


def test_a_site_whose_name_only_begins_alike_is_not_banned(one_step: Workbench) -> None:
    ban(one_step.dag, "DAG_AVOID", "T1_US_FNAL_Disk", "T1_US")
    assert reelect(one_step) == 0
    assert elected(one_step) == "ELECTED_SITE = T1_US_FNAL\n"


def test_a_torn_report_does_not_keep_the_unit_from_leaving(one_step: Workbench) -> None:
    (one_step.place / "proc_000000.0.report.json").write_text('{"schema": "wms2.rep')
    ban(one_step.dag, "DAG_AVOID", "T1_US_FNAL")
    assert reelect(one_step) == 0 and elected(one_step) is None
    assert "proc_000000.0.report.json cannot be read" in (one_step.place / "scripts.log").read_text()


def firsts(bench: Workbench, units: int, sites: str, **slots: int) -> Counter[str]:
    """Where so many units look first."""
    dag = bench.place.parent
    (dag / "spread.json").write_text(json.dumps(slots))
    found = Counter[str]()
    for number in range(units):
        place = dag / f"mg_{number:06d}"
        place.mkdir(exist_ok=True)
        (place / "group.dag").write_text(f'JOB landing ../landing.sub\nVARS landing sites="{sites}"\n')
        for name in ("site.inc", "elected.log"):
            (place / name).unlink(missing_ok=True)
        assert election.reelect(dag, place.name, 0) == 0
        found[(place / "first.inc").read_text().partition("=")[2].strip()] += 1
    return found


def test_units_look_first_at_sites_by_their_slots_where_the_pool_does_not_spread_them(unit: Workbench) -> None:
    names = ("T2_A", "T2_B", "T2_C", "T2_D")
    assert set(firsts(unit, 200, ",".join(names), **dict.fromkeys(names, 100)).values()) <= set(range(48, 53))
    found = firsts(unit, 100, "T2_A,T2_B", T2_A=300, T2_B=100)
    assert 72 <= found["T2_A"] <= 78
    assert firsts(unit, 50, "T2_A,T2_Empty,T2_None", T2_A=1, T2_None=0) == {"T2_A": 50}, "none waits for a site without slots"
    assert set(firsts(unit, 5, "T2_A,T2_Empty", T2_B=5)) == {"T2_A", "T2_Empty"}, "where none has any they are alike"
    ban(unit.place.parent, "DAG_AVOID", "T2_A", "T2_B")
    assert set(firsts(unit, 20, ",".join(names), T2_A=1)) == {"T2_C", "T2_D"}
    assert set(firsts(unit, 3, ",".join(names))) == {""}, "the pool spreads them"
    (unit.place.parent / "spread.json").write_text("{")
    assert election.first_site(unit.place) == ""


def test_a_unit_that_leaves_looks_first_elsewhere(unit: Workbench) -> None:
    firsts(unit, 1, "T2_A,T2_B", T2_A=1, T2_B=1)
    place = unit.place.parent / "mg_000000"
    (place / "site.inc").write_text("ELECTED_SITE = T2_A\n")
    (place / "elected.log").write_text("2026-11-26T00:00:00Z T2_A\n")
    ban(place, "UNIT_AVOID", "T2_A")
    assert election.reelect(unit.place.parent, "mg_000000", 1) == 0
    assert (place / "first.inc").read_text() == "FIRST_SITE = T2_B\n"
