"""``plan_document``: the planner's answer."""

from __future__ import annotations

import json

from dags_app.planning.plan import PlanLimits
from dags_app.planning.report import plan_document
from dags_app.planning.specs import InputFileSpec, ResourceSpec, SplittingAlgo
from tests.support.planning import CERN, FNAL, generation_workflow, input_file, input_workflow


def test_generation_is_reported_with_its_numbers_sites_and_units() -> None:
    answer = plan_document(generation_workflow(), [], PlanLimits(jobs_per_work_unit=4))
    assert len(answer["jobs"]) == 10
    assert answer["jobs"][5] == {
        "files": [],
        "events": 100,
        "first_event": 501,
        "last_event": 600,
        "first_lumi": 11,
        "last_lumi": 12,
        "mask": None,
        "sites": ["T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"],
        "work_unit": "mg_000001",
    }
    assert (answer["excluded"], answer["refused"], answer["warnings"]) == ([], [], [])


def test_jobs_of_a_location_group_stand_together_whatever_the_order_of_the_files() -> None:
    files = [input_file(n, locations=(FNAL,) if n % 2 else (CERN,)) for n in (5, 3, 0, 4, 1, 2)]
    answer = plan_document(input_workflow(SplittingAlgo.FILE_BASED, files_per_job=2), files)
    assert [[lfn[-6:-5] for lfn in job["files"]] for job in answer["jobs"]] == [["0", "2"], ["4"], ["1", "3"], ["5"]]
    assert [job["work_unit"] for job in answer["jobs"]] == ["mg_000000", "mg_000000", "mg_000001", "mg_000001"]
    assert json.loads(json.dumps(answer)) == answer


def test_event_ranges_masks_and_excluded_files_are_reported() -> None:
    by_event = plan_document(
        input_workflow(SplittingAlgo.EVENT_BASED, events_per_job=60), [input_file(0), input_file(1, events=0)]
    )
    assert [(job["first_event"], job["last_event"], job["events"]) for job in by_event["jobs"]] == [
        (0, 59, 60),
        (60, 99, 40),
        (0, None, 0),
    ]
    masked = input_workflow(SplittingAlgo.FILE_BASED, wanted={"lumi_list": {1: ((3, 4),)}})
    by_file = plan_document(masked, [input_file(0), input_file(1), input_file(2, locations=())])
    assert [job["mask"] for job in by_file["jobs"]] == [{"1": [[3, 4]]}]
    assert [(each["lfn"][-9:], each["reason"]) for each in by_file["excluded"]] == [
        ("0001.root", "no lumi of the file survives LumiList and the run lists"),
        ("0002.root", "no replica at any site"),
    ]


def test_a_request_that_cannot_be_planned_has_no_jobs_and_says_why() -> None:
    wanted = {"lumi_list": {1: ((1, 5),)}}
    workflow = input_workflow(SplittingAlgo.EVENT_BASED, events_per_job=10, wanted=wanted, warnings=("harvesting is ignored",))
    answer = plan_document(workflow, [input_file(0)])
    assert answer["jobs"] == []
    (refusal,) = answer["refused"]
    assert (refusal["run"], refusal["lumi"]) == (None, None)
    assert "EventBased cannot apply a LumiList" in refusal["reason"]
    assert answer["warnings"] == ["harvesting is ignored"]


def test_jobs_by_lumi_are_reported_over_all_location_groups_at_once_with_what_is_refused() -> None:
    def file(number: int, first: int, last: int, events: int, *locations: str) -> InputFileSpec:
        return input_file(number, ranges={1: ((first, last),)}, events=events, locations=locations)

    files = [
        file(0, 1, 3, 30, CERN, FNAL),
        file(1, 3, 5, 30, FNAL),
        file(2, 6, 6, 5000, FNAL),
        file(3, 3, 7, 50, FNAL, CERN),
    ]
    workflow = input_workflow(
        SplittingAlgo.EVENT_AWARE_LUMI_BASED,
        events_per_job=100,
        job_time_limit_seconds=1000,
        resources=ResourceSpec(1, 2000, 1.0, 1.0),
    )
    answer = plan_document(workflow, files)
    assert [([lfn[-6:-5] for lfn in job["files"]], job["mask"], job["sites"]) for job in answer["jobs"]] == [
        (["0", "3"], {"1": [[1, 2], [7, 7]]}, [FNAL, CERN]),
        (["0", "1", "3"], {"1": [[3, 5]]}, [FNAL]),
    ]
    assert [(each["run"], each["lumi"]) for each in answer["refused"]] == [(1, 6)]
    assert answer["excluded"] == [{"lfn": "/store/data/0002.root", "reason": "every lumi of the file that is wanted is refused"}]
    assert plan_document(workflow, files[::-1]) == answer


def test_jobs_beyond_the_wall_clock_cap_are_warned_about() -> None:
    answer = plan_document(generation_workflow(resources=ResourceSpec(1, 2000, 2000.0, 1.0)), [])
    assert "10 of the jobs are expected to take longer than 48 h" in answer["warnings"][0]


def test_more_jobs_than_one_answer_holds_are_refused_and_not_made() -> None:
    endless = input_file(1, events=10**18, locations=(FNAL,))
    answer = plan_document(input_workflow(SplittingAlgo.EVENT_BASED, events_per_job=1), [endless], PlanLimits(max_jobs=1000))
    assert answer["jobs"] == []
    assert answer["refused"][0]["reason"].startswith("the plan has more than 1000 jobs")
    fits = plan_document(generation_workflow(), [], PlanLimits(max_jobs=10))
    assert len(fits["jobs"]) == 10
