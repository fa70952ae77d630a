"""Ads become our types, and no text can break out of a constraint. No pool needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from inspect import isfunction
from pathlib import Path
from typing import Any

import classad2
import htcondor2  # noqa: F401  (gives classad2 its functions of lists)
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract import layout
from tests.support.cases import in_one_test
from wms2.adapters import htcondor_ads as ads
from wms2.adapters.types import Submission
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.metrics.series import ROWS_BROKEN_TOTAL

OUTER = {
    "ClusterId": 4,
    "JobStatus": 2,
    "NumJobStarts": 1,
    "QDate": 1795187244,
    "EnteredCurrentStatus": 1795187245,
    "WMS2_Instance": "demo-1",
    "WMS2_Request": "user_Task_1",
    "WMS2_DagID": "9f1c",
    "WMS2_Fence": 7,
    "DAG_Status": 0,
    "DAG_InRecovery": 0,
    "DAG_NodesTotal": 3,
    "DAG_NodesDone": 1,
    "DAG_NodesFailed": 0,
    "DAG_JobsIdle": 2,
    "DAG_AdUpdateTime": 1795187246,
}
INNER = {
    "ClusterId": 5,
    "JobStatus": 1,
    "NumJobStarts": 0,
    "QDate": 1795187247,
    "EnteredCurrentStatus": 1795187247,
    "DAGManJobId": 4,
    "DAGNodeName": "mg_000001",
}


@given(st.text(alphabet=st.characters(min_codepoint=32, exclude_characters="$\x7f", exclude_categories=["Cc", "Cs"])))
def test_any_printable_text_survives_quoting_and_stays_one_string(text: str) -> None:
    expression = classad2.ExprTree(f"X =?= {ads.literal(text)}")
    assert expression.eval(classad2.ClassAd({"X": text})) is True


US = ads.OwnJobs("demo-1", "wms2")


@pytest.mark.parametrize("text", ["a\nqueue 5", "$(cluster)", "$ENV(HOME)", "nul\x00", "tab\t"])
def test_text_that_a_submit_file_would_expand_or_break_at_is_refused(text: str) -> None:
    with pytest.raises(ServiceRejected):
        ads.stamp_literals({"WMS2_Request": text})


def test_an_attribute_name_is_checked_too() -> None:
    with pytest.raises(ServiceRejected, match="is not an attribute name"):
        ads.stamp_literals({"WMS2_Fence = 1\nqueue": 3})


@pytest.mark.parametrize("dag_id", ['x" || true || "', "x\\", 'x\\" || true'])
def test_a_hostile_dag_id_selects_nothing_else(dag_id: str) -> None:
    outer = {"JobUniverse": 7, "WMS2_Instance": "demo-1", "Owner": "wms2"}
    other, own = (classad2.ClassAd(outer | {"WMS2_DagID": each}) for each in ("other", dag_id))
    expression = classad2.ExprTree(US.of_dag(dag_id))
    assert expression.eval(other) is False
    assert expression.eval(own) is True


def test_a_dag_of_another_instance_or_an_inner_dagman_is_not_ours() -> None:
    expression = classad2.ExprTree(US.of_dag("9f1c"))
    own = {"JobUniverse": 7, "Owner": "wms2"} | OUTER
    assert expression.eval(classad2.ClassAd(own)) is True
    for changed in ({"WMS2_Instance": "demo-2"}, {"DAGManJobId": 3}, {"JobUniverse": 5}, {"Owner": "mallory"}):
        assert expression.eval(classad2.ClassAd(own | changed)) is False


JOB = Submission(4, "9f1c", "aaaa", 7)
OUTER_JOB = {"JobUniverse": 7, "ClusterId": 4, "WMS2_DagID": "9f1c"}
NODE_JOB = {"JobUniverse": 5, "ClusterId": 9, "WMS2_DagID": "aaaa"}


@in_one_test(
    "constraint, job",
    [
        (US.of_dag("9f1c"), OUTER_JOB),
        (US.of_cluster(4), OUTER_JOB),
        (US.of_cluster(4, "9f1c", 7), OUTER_JOB),
        (US.of_clusters({4: "9f1c"}), OUTER_JOB),
        (US.tree_of(JOB), OUTER_JOB),
        (US.tree_of(JOB), {"JobUniverse": 7, "ClusterId": 5, "DAGManJobId": 4}),
        (US.all_dagmans(), OUTER_JOB),
        (US.all_dagmans(), {"JobUniverse": 7, "ClusterId": 5, "DAGManJobId": 4}),
        (US.node_jobs("aaaa"), NODE_JOB),
        (US.node_jobs("aaaa", 7), NODE_JOB),
        (US.all_node_jobs(), NODE_JOB),
        (US.waiting(JOB.directory_id, JOB.fence), NODE_JOB),
        (US.waiting_landings(JOB.directory_id, JOB.fence), NODE_JOB | {"WMS2_Role": "landing"}),
        (US.unbegun_jobs(JOB.directory_id, JOB.fence, ["mg_000001"]), NODE_JOB | {"WMS2_Unit": "mg_000001"}),
        (US.unbegun_since(JOB.directory_id, JOB.fence, ["T2_A"], 9), NODE_JOB | {"WMS2_Site": "T2_A", "QDate": 8}),
        (US.held_by_people(JOB), NODE_JOB | {"JobStatus": 5, "HoldReasonCode": 1}),
        (US.every_job(), {"JobUniverse": 12}),
        (US.orphans([]), NODE_JOB),
        (US.naming_dag("aaaa"), NODE_JOB),
        (US.naming_dag(""), {"JobUniverse": 5, "ClusterId": 9}),
        (US.dagmans_naming("aaaa"), OUTER_JOB | {"WMS2_DagID": "aaaa"}),
        (US.ended_before(10**6), OUTER_JOB | {"JobStatus": 4, "CompletionDate": 1}),
    ],
)
def test_every_constraint_selects_our_job_and_not_the_same_one_of_another_owner(constraint: str, job: dict[str, Any]) -> None:
    whole = {"Owner": "wms2", "WMS2_Instance": "demo-1", "WMS2_Fence": 7, "JobStatus": 1} | job
    selects = classad2.ExprTree(constraint)
    assert selects.eval(classad2.ClassAd(whole)) is True
    for owner in ("mallory", "WMS2x", ""):
        assert selects.eval(classad2.ClassAd(whole | {"Owner": owner})) is False


def test_a_new_constraint_is_tried_with_the_jobs_of_others_too() -> None:
    source = Path(__file__).read_text()
    made = {name for name, what in vars(ads.OwnJobs).items() if isfunction(what) and what.__module__ == ads.__name__}
    assert "every_job" in made
    assert [name for name in sorted(made) if name[0] != "_" and f"US.{name}(" not in source] == []


@pytest.mark.parametrize(
    ("constraint", "job"),
    [
        (US.of_cluster(4, "9f1c", 7), OUTER_JOB),
        (US.tree_of(JOB), OUTER_JOB),
        (US.node_jobs("aaaa", 7), NODE_JOB),
        (US.waiting(JOB.directory_id, JOB.fence), NODE_JOB),
        (US.waiting_landings(JOB.directory_id, JOB.fence), NODE_JOB | {"WMS2_Role": "landing"}),
        (US.unbegun_jobs(JOB.directory_id, JOB.fence, ["mg_000001"]), NODE_JOB | {"WMS2_Unit": "mg_000001"}),
        (US.unbegun_since(JOB.directory_id, JOB.fence, ["T2_A"], 9), NODE_JOB | {"WMS2_Site": "T2_A", "QDate": 8}),
        (US.held_by_people(JOB), NODE_JOB | {"JobStatus": 5, "HoldReasonCode": 1}),
        (US.naming_dag("aaaa", 7), NODE_JOB),
        (US.dagmans_naming("9f1c", 7), OUTER_JOB),
    ],
)
def test_what_is_sent_for_one_submission_does_not_select_the_next_of_its_directory(constraint: str, job: dict[str, Any]) -> None:
    whole = {"Owner": "wms2", "WMS2_Instance": "demo-1", "WMS2_Fence": 7, "JobStatus": 1} | job
    selects = classad2.ExprTree(constraint)
    assert selects.eval(classad2.ClassAd(whole)) is True
    assert selects.eval(classad2.ClassAd(whole | {"WMS2_Fence": 8})) is False


def test_inner_dagmans_are_listed_under_their_outer_with_its_stamps() -> None:
    stranger = INNER | {"ClusterId": 91, "DAGManJobId": 90}
    foreign = OUTER | {"ClusterId": 60, "WMS2_Instance": "demo-2"}
    found = ads.dagman_ads([INNER, stranger, foreign, OUTER], "demo-1")
    assert [(ad.cluster, ad.parent_cluster, ad.node) for ad in found] == [(4, None, ""), (5, 4, "mg_000001")]
    outer, inner = found
    assert (outer.nodes_total, outer.nodes_done, outer.jobs_idle, outer.dag_status) == (3, 1, 2, 0)
    assert (inner.dag_id, inner.request_name, inner.fence) == ("9f1c", "user_Task_1", 7)
    assert inner.nodes_total is None, "DAGMan has not written its counts yet"


def test_a_dagman_ad_fits_a_json_column() -> None:
    (ad,) = ads.dagman_ads([OUTER], "demo-1")
    assert json.loads(json.dumps(asdict(ad)))["nodes_total"] == 3


def test_a_hold_reason_counts_only_while_held() -> None:
    reason = {"HoldReason": "via condor_hold"}
    assert ads.dagman_ads([OUTER | reason | {"JobStatus": 5}], "demo-1")[0].hold_reason == "via condor_hold"
    assert ads.dagman_ads([OUTER | reason], "demo-1")[0].hold_reason == ""


@pytest.mark.parametrize(
    ("ad", "status", "code", "dag_status"),
    [
        ({"JobStatus": 4, "ExitCode": 0, "DAG_Status": 0, "CompletionDate": 1795187264}, 4, 0, 0),
        ({"JobStatus": 4, "ExitCode": 1, "DAG_Status": 2, "CompletionDate": 1795187264}, 4, 1, 2),
        (
            {"JobStatus": 3, "DAG_Status": 4, "CompletionDate": 0, "RemoveReason": "via condor_rm (by user wms2)"},
            3,
            None,
            4,
        ),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9, "ExitCode": None, "CompletionDate": 1795187264}, 4, None, 0),
    ],
)
def test_ends_of_a_dag_are_told_apart(ad: dict[str, Any], status: int, code: int | None, dag_status: int) -> None:
    found = ads.history_ad(OUTER | ad)
    assert (found.job_status, found.exit_code, found.dag_status) == (status, code, dag_status)
    assert found.remove_reason == ad.get("RemoveReason", "")


def test_slots_are_summed_per_site_without_counting_parts_twice() -> None:
    whole = {"Name": "slot1", "GLIDEIN_CMSSite": "T2_CH_CERN", "SlotType": "Partitionable", "State": "Unclaimed"}
    whole |= {"Cpus": 5, "TotalSlotCpus": 8, "Memory": 9000, "TotalSlotMemory": 16000}
    part = whole | {"SlotType": "Dynamic", "State": "Claimed", "Cpus": 3, "TotalSlotCpus": 3, "Memory": 7000}
    busy = {"Name": "s", "GLIDEIN_CMSSite": "T1_US_FNAL", "SlotType": "Static", "State": "Claimed", "Cpus": 1, "Memory": 2000}
    nameless = {"Name": "s", "SlotType": "Static", "State": "Unclaimed", "Cpus": 1, "Memory": 2000}
    found = ads.pool_answer([], [whole, part, busy, nameless])
    assert found.unread == ""
    assert [(r.site, r.cpus, r.free_cpus) for r in found.slots] == [
        ("T1_US_FNAL", 1, 0),
        ("T2_CH_CERN", 8, 5),
        ("Unknown", 1, 1),
    ]


@pytest.mark.parametrize("cpus", [{}, {"Cpus": "eight"}, {"Cpus": -1}, {"Cpus": 10**12}, {"Cpus": True}])
def test_a_slot_without_cpus_is_told_and_hides_no_other(cpus: dict[str, Any]) -> None:
    good = {"Name": "s", "GLIDEIN_CMSSite": "T1_US_FNAL", "SlotType": "Static", "State": "Claimed", "Cpus": 1}
    found = ads.pool_answer([{"Name": ""}, {}, {"Name": "schedd@a"}], [{"Name": "broken", "SlotType": "Static", **cpus}, good])
    assert [(r.site, r.cpus) for r in found.slots] == [("T1_US_FNAL", 1)]
    assert [ad.name for ad in found.schedds] == ["schedd@a"]
    assert "slot broken has no Cpus" in found.unread
    assert "2 of 3 rows cannot be read" in found.unread


@pytest.mark.parametrize("name", ["TotalIdleJobs", "TotalRunningJobs"])
@pytest.mark.parametrize("number", [-1, 10**12])
def test_a_schedd_with_a_number_of_jobs_that_cannot_be_hides_no_other(name: str, number: int) -> None:
    found = ads.pool_answer([{"Name": "schedd@bad", name: number}, {"Name": "schedd@a", name: 3}], [])
    assert ([ad.name for ad in found.schedds], f"schedd@bad has {name} {number}" in found.unread) == (["schedd@a"], True)


def test_versions_are_read_from_condors_own_line() -> None:
    assert ads.version_of("$CondorVersion: 23.9.6 2024-08-08 BuildID: Debian $") == "23.9.6"


@pytest.mark.parametrize(("reason", "kept"), [('stop "now"', "stop 'now'"), ("C:\\x", "C:/x"), ("two\nlines", "two lines")])
def test_a_reason_keeps_its_words(reason: str, kept: str) -> None:
    assert ads.reason_text(reason) == kept


@pytest.mark.parametrize("name", ["JobStatus", "QDate", "EnteredCurrentStatus"])
def test_an_ad_that_lacks_what_every_job_has_is_no_answer(name: str) -> None:
    with pytest.raises(ServiceUnavailable, match=f"without {name}"):
        ads.dagman_ads([{key: value for key, value in OUTER.items() if key != name}], "demo-1")


@pytest.mark.parametrize("wrong", [{"QDate": None}, {"JobStatus": "idle"}, {"EnteredCurrentStatus": None}])
@pytest.mark.parametrize("inner", [False, True])
def test_a_job_that_cannot_be_read_hides_no_other_and_is_not_taken_for_gone(wrong: dict[str, Any], inner: bool) -> None:
    other = OUTER | {"ClusterId": 60, "WMS2_DagID": "b00c"}
    rows = [OUTER, INNER | wrong, other] if inner else [OUTER | wrong, INNER, other]
    found, unread = ads.dagman_ads_readable(rows, "demo-1")
    assert [ad.cluster for ad in found] == [60]
    assert [(cluster, job.dag_id) for cluster, job in unread.items()] == [(4, "9f1c")]


def test_groups_of_jobs_that_cannot_be_read_hide_no_other() -> None:
    good = {"JobStatus": 2, "JobCount": 3, "WMS2_DagID": "9f1c", "WMS2_Role": "processing", "DESIRED_Sites": "T2_CH_CERN"}
    counts = [{**good, "JobCount": count} for count in (None, -1, 10**12, float("inf"), "3")]
    states = [{**good, "JobStatus": state} for state in ("run", [2], {}, 99, None)]
    broken = ROWS_BROKEN_TOTAL.labels("htcondor job_groups")._value
    before = broken.get()
    rows = [{"JobCount": 3}, *counts, *states, {**good, "JobStatus": 3}, good]
    assert [(group.dag_id, group.jobs) for group in ads.job_groups(rows)] == [("9f1c", 3)]
    assert broken.get() == before + 11, "one that is on its way out can be read, and is not counted"


def test_jobs_and_slots_name_their_site_by_one_attribute() -> None:
    """The payload may not import this package, nor this package the payload: the names stand in both."""
    assert ads.SITE_ATTRIBUTE == layout.SITE_ATTRIBUTE
    assert (ads.JOB_SITE, ads.IDLE_ATTRIBUTE) == (layout.JOB_SITE_ATTRIBUTE, layout.IDLE_ATTRIBUTE)


def test_a_job_is_at_the_site_of_its_requirements_whatever_a_router_makes_of_its_list() -> None:
    job = {"JobStatus": 1, "WMS2_DagID": "9f1c", "WMS2_Role": "processing", "WMS2_Unit": "mg_000000", "QDate": 5}
    routed = job | {"WMS2_Site": "T2_CH_CERN", "DESIRED_Sites": "T2_CH_CERN,T1_US_FNAL"}
    assert [each.site for each in ads.job_groups([routed | {"JobCount": 1}])] == ["T2_CH_CERN"]
    assert [each.site for each in ads.job_groups([job | {"DESIRED_Sites": "T2_B", "JobCount": 1}])] == ["T2_B"], "rendered before"
    assert ads.unbegun_units([routed]) == {"mg_000000": ("T2_CH_CERN", 5)}
    there = classad2.ExprTree(US.unbegun_since("9f1c", 3, ["T1_US_FNAL", "T2_CH_CERN"], 6))
    ours = {"Owner": "wms2", "WMS2_Instance": "demo-1", "WMS2_Fence": 3, "JobUniverse": 5, **routed}
    assert there.eval(classad2.ClassAd(ours)) is True
    for other in ({"QDate": 7}, {"NumJobStarts": 1}, {"JobStatus": 2}, {"WMS2_Site": "T2_B"}, {"WMS2_Fence": 2}):
        assert there.eval(classad2.ClassAd(ours | other)) is False
