"""Each check of the demo's verification catches its fault: a good request is doctored in one place at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import storage, verdicts
from deploy.demo.facts import CondorJob, DagRow, DatasetFacts, Planned, RequestFacts, RoundRow, Rule
from tests.support import demo_world as world


@pytest.fixture
def good(tmp_path: Path) -> RequestFacts:
    return world.request(tmp_path)


def failing(request: RequestFacts, pool=world.POOL) -> dict[str, str]:
    """check -> its problems, of the checks that do not hold."""
    return {v.check: "; ".join(v.problems) for v in verdicts.judge([request], pool) if not v.good}


def doctored(request: RequestFacts, dataset: DatasetFacts) -> RequestFacts:
    return replace(request, datasets=(dataset, *request.datasets[1:]))


def otherwise(request: RequestFacts, **first: Any) -> RequestFacts:
    """With such a first dataset, or with a first file, block or rule of it that is so: ``dbs_files={"events": 1}``."""
    changes = {}
    for name, value in first.items():
        rows = getattr(request.datasets[0], name)
        changes[name] = (replace(rows[0], **value), *rows[1:]) if isinstance(value, dict) else value
    return doctored(request, replace(request.datasets[0], **changes))


def test_a_good_request_passes_every_check(good):
    assert failing(good) == {}
    assert len(verdicts.judge([good], world.POOL)) == 5 + 2 * 8 + 5


def test_no_request_at_all_is_a_failure():
    assert any(v.check == "requests" and not v.good for v in verdicts.judge([], world.POOL))


# --- rounds


ROUNDS = (RoundRow(4, 8000, 50, 8, 6500.0), RoundRow(2, 5500, 120, 4, 4500.0), RoundRow(2, 4100, 560, 2, 3500.0, -0.15))


@pytest.mark.parametrize(
    ("rounds", "problem"),
    [
        (ROUNDS, ""),
        (ROUNDS[:2], "2 rounds, expected 3 or more"),
        ((*ROUNDS[:2], replace(ROUNDS[1], measured=2)), "round 2 is sized as the one before"),
        ((*ROUNDS[:2], replace(ROUNDS[2], measured=0)), "round 2: no job was measured"),
    ],
)
def test_rounds_have_to_be_sized_by_what_was_measured(good, rounds, problem):
    found = failing(replace(good, rounds=rounds))
    assert found == ({"rounds sized by what was measured": problem} if problem else {})


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        ({"used_mb": 3200.0}, "the last round asked for 4100 MB and took 3200 MB"),
        ({"used_mb": 4200.0}, "the last round asked for 4100 MB and took 4200 MB"),
        ({"used_mb": 3200.0, "bounds": frozenset({("memory_mb", "default_memory_per_core_mb")})}, ""),
        ({"off_target": 0.25}, "jobs of the last round were +25% off the time that they should take"),
        ({"merged": (2_000_000_000, 5_000_000_000)}, ""),
        (
            {"merged": (6_000_000_000,)},
            "units of the last round wrote 1: 6000000000 bytes, and should write 2147483648 to 4294967296",
        ),
    ],
)
def test_the_last_round_has_to_fit_what_its_jobs_took(good, last, problem):
    found = failing(replace(good, rounds=(*ROUNDS[:2], replace(ROUNDS[2], **last))))
    assert found == ({"rounds converged": problem} if problem else {})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"layouts": "2x1 1x2"}, ""),
        ({"cores": 4, "layouts": "1x4"}, "round 2 has 4 cores 1x4 as one before the last"),
        ({"throughput": 26.0}, ""),
        ({"throughput": 24.0}, "round 2 did 24.0 events per core-hour, the one before 30.0"),
    ],
)
def test_rounds_neither_swing_nor_slow_down_by_more_than_noise(good, change, problem):
    """A scatter of 8 % in the first round allows two rounds of two jobs each to differ by 16 %."""
    course = (
        replace(ROUNDS[0], layouts="1x4", throughput=20.0, scatter=0.08),
        replace(ROUNDS[1], layouts="1x2", measured=2, throughput=30.0),
        replace(ROUNDS[2], layouts="1x2", throughput=30.0),
    )
    found = failing(replace(good, rounds=(*course[:2], replace(course[2], **change))))
    assert found == ({"rounds neither swing nor slow down": problem} if problem else {})


# --- events


def test_a_missing_event_is_found_although_all_catalogues_agree(good):
    short = world.rewritten(good.datasets[0], 0, world.events_of(world.PLANNED[0])[:-1])
    assert failing(doctored(good, short)) == {"every event once": "events missing, 1: (1, 104, 10200)"}


def test_an_event_in_two_files_is_found(good):
    twice = world.rewritten(good.datasets[0], 0, [*world.events_of(world.PLANNED[0]), world.events_of(world.PLANNED[1])[0]])
    problems = failing(doctored(good, twice))
    assert problems == {"every event once": "events more than once, 1: (1, 105, 10201)"}


def test_an_event_twice_in_one_file_is_found(good):
    events = world.events_of(world.PLANNED[0])
    assert (
        "more than once"
        in failing(doctored(good, world.rewritten(good.datasets[0], 0, [*events, events[3]])))["every event once"]
    )


def test_an_event_number_that_nobody_asked_for_is_found(good):
    more = world.rewritten(good.datasets[0], 1, [*world.events_of(world.PLANNED[1]), (1, 108, 10_401)])
    assert "not asked for" in failing(doctored(good, more))["every event once"]


def test_an_event_in_the_wrong_lumi_is_found(good):
    events = world.events_of(world.PLANNED[0])
    moved = world.rewritten(good.datasets[0], 0, [(1, 102, events[0][2]), *events[1:]])
    assert "another lumi" in failing(doctored(good, moved))["every event once"]


def test_a_lost_lumi_without_events_is_found(good):
    expected = {(run, lumi) for job in world.PLANNED for run, lumi, _ in world.events_of(job)} | {(1, 109)}
    assert list(verdicts.lumis_kept(expected, good.datasets[0].on_disk)) == ["lumis in the plan only, 1: (1, 109)"]


def test_filtered_events_may_be_missing_but_never_double(good):
    events = world.events_of(world.PLANNED[0])
    assert list(verdicts.events_once(events, good.datasets[0].on_disk[:1], share=0.5)) == []
    half = world.rewritten(good.datasets[0], 0, events[::2]).on_disk[:1]
    assert list(verdicts.events_once(events, half, share=0.5)) == []
    assert list(verdicts.events_once(events, [*half, *half], share=0.5)) != []
    assert list(verdicts.events_once(events, [], share=0.5)) == ["no event at all"]


def test_a_second_dataset_is_judged_like_the_first(good):
    short = world.rewritten(good.datasets[1], 1, world.events_of(world.PLANNED[1])[1:])
    request = replace(good, datasets=(good.datasets[0], short))
    assert [v.subject for v in verdicts.judge([request], world.POOL) if not v.good] == [good.datasets[1].name]


# --- the plan against the document


def test_a_plan_that_leaves_numbers_out_is_found(good):
    shorter = (world.PLANNED[0], replace(world.PLANNED[1], last_event=world.PLANNED[1].last_event - 1))
    assert "in the document only, 1: 10400" in failing(replace(good, planned=shorter))["the plan is the document's"]


def test_a_plan_that_gives_a_number_twice_is_found(good):
    overlapping = (world.PLANNED[0], replace(world.PLANNED[1], first_event=world.PLANNED[1].first_event - 1))
    assert "planned twice" in failing(replace(good, planned=overlapping))["the plan is the document's"]


def test_a_plan_in_another_run_or_with_a_gap_in_lumis_is_found():
    other = (world.PLANNED[0], replace(world.PLANNED[1], run=2))
    gap = (world.PLANNED[0], replace(world.PLANNED[1], first_lumi=106))
    assert "runs other than 1" in next(verdicts.plan_as_asked(world.ASKED, other, 0))
    assert any("lumis in" in problem for problem in verdicts.plan_as_asked(world.ASKED, gap, 0))


def test_after_lost_work_other_numbers_are_right_but_not_fewer_events():
    later = (world.PLANNED[0], Planned(1, 10_601, 10_800, 113, 50))
    assert list(verdicts.plan_as_asked(world.ASKED, later, lost_numbers=200)) == []
    assert list(verdicts.plan_as_asked(world.ASKED, later, lost_numbers=0)) != []
    assert list(verdicts.plan_as_asked(world.ASKED, later[:1], lost_numbers=200)) == [
        "200 events were planned and done, 400 are asked for"
    ]


def test_a_kept_step_without_outputs_is_found(good):
    assert "Reco" in failing(replace(good, dataset_steps=("GenSim",)))["every kept step has outputs"]


# --- input


def test_a_request_with_input_is_judged_by_its_input_events(good):
    wanted = tuple(event for job in world.PLANNED for event in world.events_of(job))
    asked = replace(world.ASKED, numbers=None, input_dataset="/In/put-v1/RAW")
    reading = replace(good, asked=asked, planned=(), input_events=wanted, input_lumis=frozenset(e[:2] for e in wanted))
    assert failing(reading) == {}
    assert "missing" in failing(replace(reading, input_events=(*wanted, (1, 108, 99_999))))["every event once"]
    assert "no event is wanted" in failing(replace(reading, input_events=()))["input files"]
    assert failing(replace(reading, input_problems=("cannot be read",)))["input files"] == "cannot be read"
    assert failing(replace(reading, input_over_root={"/store/a.root": True})) == {}
    given_out = {"/store/a.root": True, "/store/b.root": False}
    assert failing(replace(reading, input_over_root=given_out)) == {
        "input read over root://": "the server gave no client /store/b.root"
    }


# --- bytes


def test_other_bytes_of_the_same_length_are_found(good):
    old = good.datasets[0].on_disk[0]
    content = bytearray(Path(old.path).read_bytes())
    content[-1] ^= 0xFF
    Path(old.path).write_bytes(content)
    changed = world.with_file(good.datasets[0], 0, storage.open_file(old.lfn, old.rse, Path(old.path)))
    problems = failing(doctored(good, changed))
    assert set(problems) == {"bytes as declared", "DBS as on disk"}
    assert old.adler32 in problems["bytes as declared"]


def test_a_file_that_is_gone_and_one_that_is_no_root_file_are_found(good):
    old = good.datasets[0].on_disk[0]
    Path(old.path).write_bytes(b"not a ROOT file")
    torn = storage.open_file(old.lfn, old.rse, Path(old.path))
    Path(old.path).unlink()
    gone = storage.open_file(old.lfn, old.rse, Path(old.path))
    for file in (torn, gone):
        assert "cannot be read" in failing(doctored(good, world.with_file(good.datasets[0], 0, file)))["bytes as declared"]


def test_a_dataset_that_jobs_of_wmcore_refuse_is_found(good):
    refused = otherwise(good, refused="cmsRun ended with 98: FileNameInconsistentWithGUID")
    assert set(failing(refused)) == {"read by a job of WMCore's"}


def test_a_wrong_adler32_in_rucio_is_found(good):
    assert set(failing(otherwise(good, rucio_files={"adler32": "00000001"}))) == {"bytes as declared"}


def test_a_file_without_an_available_replica_is_found(good):
    assert "no available replica" in failing(otherwise(good, rucio_files={"pfns": {}}))["bytes as declared"]


def test_a_file_on_disk_that_rucio_does_not_know_is_found(good):
    assert "unknown to Rucio" in failing(otherwise(good, unregistered=("/storage/x.root",)))["bytes as declared"]


# --- DBS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size_bytes", 1),
        ("adler32", "00000001"),
        ("events", 199),
        ("is_valid", False),
        ("lumis", {(1, 101): 50}),
        ("lumis", {(1, 101): 49, (1, 102): 50, (1, 103): 50, (1, 104): 50}),
    ],
)
def test_whatever_dbs_says_wrongly_of_a_file_is_found(good, field, value):
    assert set(failing(otherwise(good, dbs_files={field: value}))) == {"DBS as on disk"}


def test_a_file_missing_in_dbs_is_found(good):
    assert "in storage only" in failing(otherwise(good, dbs_files=good.datasets[0].dbs_files[1:]))["DBS as on disk"]


def test_a_file_in_dbs_that_is_nowhere_is_found(good):
    files = good.datasets[0].dbs_files
    more = otherwise(good, dbs_files=(*files, replace(files[0], lfn="/store/mc/other.root")))
    assert "in DBS only" in failing(more)["DBS as on disk"]


BLOCKS = "blocks closed, the same in DBS and Rucio"


@pytest.mark.parametrize(
    "change",
    [
        {"is_open": True},
        {"origin_site": ""},
        {"origin_site": "T2_US_Purdue"},
        {"file_count": 3},
        {"size_bytes": 1},
        {"name": "/Primary/Era-Proc-v1/GEN-SIM#other"},
    ],
)
def test_a_block_that_is_wrong_in_dbs_is_found(good, change):
    assert set(failing(otherwise(good, dbs_blocks=change))) == {BLOCKS}


def test_a_block_open_in_rucio_or_not_in_the_container_is_found(good):
    assert "open in Rucio" in failing(otherwise(good, rucio_blocks={"is_open": True}))[BLOCKS]
    assert "in DBS only" in failing(otherwise(good, rucio_blocks=(), rucio_files=()))[BLOCKS]


def test_a_file_in_another_block_in_rucio_is_found(good):
    assert BLOCKS in failing(otherwise(good, rucio_files={"block": "/Primary/Era-Proc-v1/GEN-SIM#other"}))


def test_a_dataset_that_dbs_does_not_have_is_found(good):
    assert "not in DBS" in failing(otherwise(good, in_dbs=False))[BLOCKS]


# --- rules


def rules_without(dataset: DatasetFacts, name: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in dataset.rules if rule.name != name)


def test_an_unprotected_file_is_found(good):
    dataset = good.datasets[0]
    bare = otherwise(good, rules=rules_without(dataset, dataset.on_disk[0].lfn))
    assert "0 rules, expected one" in failing(bare)["files protected"]


@pytest.mark.parametrize("change", [{"state": "STUCK"}, {"state": "REPLICATING"}, {"rse_expression": "T2_US_Purdue"}])
def test_a_file_rule_that_protects_nothing_is_found(good, change):
    dataset = good.datasets[0]
    lfn = dataset.on_disk[0].lfn
    rules = tuple(replace(rule, **change) if rule.name == lfn else rule for rule in dataset.rules)
    assert set(failing(otherwise(good, rules=rules))) == {"files protected"}


def test_a_second_rule_on_a_file_or_a_block_is_found(good):
    dataset = good.datasets[0]
    file_twice = otherwise(good, rules=(*dataset.rules, Rule("more", dataset.on_disk[0].lfn, "T2_US_Purdue", "OK", 1)))
    block_twice = otherwise(good, rules=(*dataset.rules, Rule("more", dataset.rucio_blocks[0].name, world.TAPE, "OK", 1)))
    assert "2 rules" in failing(file_twice)["files protected"]
    assert "2 rules" in failing(block_twice)["one tape rule per block"]


def test_a_block_without_a_tape_rule_or_with_one_on_disk_is_found(good):
    dataset = good.datasets[0]
    block = dataset.rucio_blocks[0].name
    none = rules_without(dataset, block)
    on_disk = otherwise(good, rules=(*none, Rule("r", block, "T2_CH_CERN", "OK", 1)))
    assert "0 rules" in failing(otherwise(good, rules=none))["one tape rule per block"]
    assert failing(on_disk).keys() == {"files protected", "one tape rule per block"}


def test_one_rule_of_the_block_protects_its_files_where_they_lie(good):
    files = [replace(file, pfns={"T2_CH_CERN": "/x"}) for file in good.datasets[0].rucio_files]
    here, elsewhere = (Rule("r", files[0].block, rse, "OK", 1) for rse in ("T2_CH_CERN", "T2_US_Purdue"))

    def found(*rules: Rule) -> list[str]:
        return list(verdicts.files_protected(files, rules, world.POOL.tape_rses))

    assert not found(here, Rule("tape", files[0].block, world.TAPE, "OK", 1))
    assert "protected at T2_US_Purdue" in found(elsewhere)[0]
    assert "2 rules" in found(here, Rule("own", files[0].lfn, "T2_CH_CERN", "OK", 1))[0]


def test_a_stuck_tape_rule_is_found(good):
    dataset = good.datasets[0]
    rules = tuple(replace(rule, state="STUCK") if rule.rule_id == "tape" else rule for rule in dataset.rules)
    assert "STUCK" in failing(otherwise(good, rules=rules))["one tape rule per block"]


def test_a_dataset_scattered_over_two_tapes_is_found(good):
    dataset = good.datasets[0]
    second = replace(dataset.rucio_blocks[0], name=f"{dataset.name}#block-2")
    scattered = replace(
        dataset,
        rucio_blocks=(*dataset.rucio_blocks, second),
        rules=(*dataset.rules, Rule("tape-2", second.name, "T1_DE_KIT_Tape", "REPLICATING", 1)),
    )
    assert list(verdicts.tape_as_wanted(scattered, world.POOL.tape_rses)) == ["scattered over 2: T1_DE_KIT_Tape, T1_US_FNAL_Tape"]


def test_a_rule_on_the_whole_dataset_is_found(good):
    dataset = good.datasets[0]
    whole = otherwise(good, rules=(*dataset.rules, Rule("r", dataset.name, "T2_CH_CERN", "OK", 1)))
    assert "whole dataset" in failing(whole)["one tape rule per block"]


# --- WMS2 itself


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ((), "jobs []"),
        ((CondorJob(7, "dag-1", 4, 0), CondorJob(8, "dag-1", 4, 0)), "jobs [7, 8]"),
        ((CondorJob(9, "dag-1", 4, 0),), "jobs [9]"),
        ((CondorJob(7, "dag-1", 2, None),), "still queued"),
    ],
)
def test_anything_but_one_ended_job_per_dag_is_found(good, jobs, says):
    assert says in failing(good, replace(world.POOL, jobs=jobs))["one DAGMan job per DAG"]


def test_a_dag_that_was_never_submitted_must_have_no_job(good):
    discarded = DagRow("dag-0", "removed", "", False)
    request = replace(good, dags=(discarded, *good.dags))
    assert failing(request) == {}
    ran = replace(world.POOL, jobs=(*world.POOL.jobs, CondorJob(6, "dag-0", 3, None)))
    assert "jobs [6]" in failing(request, ran)["one DAGMan job per DAG"]


def test_a_live_dag_after_the_end_is_found(good):
    assert "still running" in failing(replace(good, dags=(DagRow("dag-1", "running", "7", True),)))["one DAGMan job per DAG"]


def test_a_dagman_job_that_no_row_knows_is_found(good):
    orphan = replace(world.POOL, jobs=(*world.POOL.jobs, CondorJob(12, "dag-x", 4, 0)))
    assert failing(good, orphan) == {"no orphan DAGMan job": "DAGMan jobs that no DAG row knows, 1: 12"}


def test_unmerged_files_left_over_are_found(good):
    left = replace(world.POOL, unmerged=("/storage/T2_CH_CERN/store/unmerged/x.root",))
    assert set(failing(good, left)) == {"unmerged files gone"}


def test_a_constraint_missing_in_the_database_is_found(good):
    assert (
        "one_live_dag"
        in failing(good, replace(world.POOL, constraints=frozenset({"live_claims_disjoint"})))["constraints in the database"]
    )


def test_open_effects_open_units_and_other_statuses_are_found(good):
    check = "completed, no effect open, no unit open"
    assert failing(replace(good, open_effects=("rucio_tape:1 (dead)",)))[check] == "not done: rucio_tape:1 (dead)"
    assert failing(replace(good, units_not_done=("mg_000003",)))[check] == "not done: mg_000003"
    assert failing(replace(good, status="active"))[check] == "is active"


@pytest.mark.parametrize(
    "change",
    [{"done": 399}, {"planned": 1}, {"left": 1}, {"violation": "does not add up"}, {"all": 0, "done": 0}, {"excluded": 1}],
)
def test_a_ledger_that_does_not_add_up_is_found(good, change):
    assert set(failing(replace(good, ledger=replace(good.ledger, **change)))) == {"ledger"}
