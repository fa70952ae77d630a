"""Verdicts on failures: rules over evidence, bounded by what is possible. Rows of error-handling 2.4 and 2.5."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from dags_app.payload.contract import codes
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.contract.convert import read, to_json
from dags_app.payload.contract.reading import Value
from dags_app.payload.contract.rules import (
    Evidence,
    Rule,
    RuleBook,
    first_match,
    matches,
)
from dags_app.payload.post.classify import Situation, classify, policy
from tests.support.cases import in_one_test
from tests.support.payload_schemas import validate
from tests.support.payload_workbench import LIMITS, shipped_rules

BOOK = RuleBook(shipped_rules(), LIMITS)
BAD = ("/store/data/A.root",)


def at(**fields: Any) -> Situation:
    return Situation(**{"attempt": 0, "max_retries": 3, "memory_mb": 2000, "most_memory_mb": 3000, **fields})


def test_success_needs_no_rule() -> None:
    verdict = classify(None, BOOK, at())
    assert (verdict.category, verdict.action, verdict.exit_status, verdict.rule) == ("success", "done", 0, None)


@in_one_test(
    "evidence, category, status",
    [
        (Evidence(8001), "transient", 1),
        (Evidence(1), "transient", 1),
        (Evidence(8028, bad_files=BAD), "infrastructure", 1),
        (Evidence(8021, bad_files=BAD), "infrastructure", 1),
        (Evidence(8028, "no such file or directory", bad_files=BAD), "data", 42),
        (Evidence(8021, "the file is truncated", bad_files=BAD), "data", 42),
        (Evidence(8021, "the file is truncated"), "infrastructure", 1),
        (Evidence(codes.INPUT_SKIPPED, bad_files=BAD), "data", 42),
        (Evidence(8001, "adler32 checksum mismatch", bad_files=BAD), "data", 42),
        (Evidence(65), "permanent", 42),
        (Evidence(66), "permanent", 42),
        (Evidence(67), "permanent", 42),
        (Evidence(7002), "permanent", 42),
        (Evidence(codes.INVALID_DOCUMENT), "permanent", 42),
        (Evidence(8001, "the proxy has expired"), "permanent", 42),
        (Evidence(8020), "infrastructure", 1),
        (Evidence(60311), "infrastructure", 1),
        (Evidence(50513), "infrastructure", 1),
        (Evidence(codes.NOT_SUBMITTED), "infrastructure", 1),
        (Evidence(codes.HELD + 13, "held: Transfer input files failure"), "infrastructure", 1),
        (Evidence(codes.REMOVED, "removed: via condor_rm"), "transient", 1),
        (Evidence(50660), "transient", 1),
        (Evidence(codes.REPORT_LOST), "transient", 1),
        (Evidence(8021, "root://x//store/data/A.root: Operation expired", bad_files=BAD), "transient", 1),
        (Evidence(77777), "transient", 1),
    ],
)
def test_the_shipped_rules_know_what_a_failure_is(evidence: Evidence, category: str, status: int) -> None:
    verdict = classify(evidence, BOOK, at(other_site=True))
    assert (verdict.category, verdict.exit_status) == (category, status)
    assert str(evidence.code) in verdict.reason
    assert verdict.retryable == (status == 1)


def test_a_code_that_no_rule_knows_says_so() -> None:
    assert classify(Evidence(77777), BOOK, at()).rule is None


def test_bad_input_is_given_up_only_when_a_file_can_be_named() -> None:
    """Error-handling 2.4, data: with nothing to exclude, giving up would only lose the work."""
    verdict = classify(Evidence(8016, "corrupt event"), BOOK, at())
    assert (verdict.category, verdict.exit_status, verdict.bad_input_files) == ("data", 1, ())
    assert "none can be excluded" in verdict.reason


@pytest.mark.parametrize(
    ("situation", "action", "status", "leaves"),
    [
        (at(other_site=True), "retry", 1, False),
        (at(other_site=True, earlier_faults=1), "other_site", 42, True),
        (at(other_site=False, earlier_faults=1), "retry", 1, False),
        (at(other_site=True, attempt=3), "other_site", 42, True),
        (at(other_site=False, attempt=3), "retry", 1, False),
    ],
    ids=["first fault", "second fault", "no other site", "last attempt", "last attempt, no other site"],
)
def test_a_fault_of_the_site_gets_one_more_attempt_there_and_then_another_site(
    situation: Situation, action: str, status: int, leaves: bool
) -> None:
    verdict = classify(Evidence(60311, site="T1_US_FNAL"), BOOK, situation)
    assert (verdict.action, verdict.exit_status, verdict.leave_site) == (action, status, leaves)


@pytest.mark.parametrize(
    ("memory_mb", "next_mb", "status", "category"),
    [(1000, 1500, 1, "transient"), (2500, 3000, 1, "transient"), (3000, None, 42, "permanent"), (None, None, 1, "transient")],
)
def test_memory_is_raised_up_to_what_sites_offer_and_then_the_node_is_given_up(
    memory_mb: int | None, next_mb: int | None, status: int, category: str
) -> None:
    verdict = classify(Evidence(50660), BOOK, at(memory_mb=memory_mb))
    assert (verdict.memory_mb, verdict.exit_status, verdict.category) == (next_mb, status, category)


def test_at_the_window_a_node_is_tried_again_as_long_as_fewer_processes_side_by_side_are_left() -> None:
    verdict = classify(Evidence(50660), BOOK, at(memory_mb=3000, fewer_processes=True))
    assert (verdict.memory_mb, verdict.exit_status, verdict.action) == (None, 1, "retry")


def test_a_kill_gets_more_memory_while_there_is_some_and_is_retried_without() -> None:
    kill = Evidence(codes.SIGNAL_BASE + 9)
    assert classify(kill, BOOK, at()).memory_mb == 3000
    at_the_window = classify(kill, BOOK, at(memory_mb=3000))
    assert (at_the_window.memory_mb, at_the_window.exit_status) == (None, 1)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(0, 60), (1, 120), (2, 240), (3, 0)], ids=["first", "second", "third", "nothing follows the last"]
)
def test_the_cool_off_doubles_with_each_attempt(attempt: int, seconds: int) -> None:
    assert classify(Evidence(8001), BOOK, at(attempt=attempt)).cooloff_seconds == seconds


def test_a_rule_may_have_a_cool_off_of_its_own() -> None:
    rule = Rule("slow", "transient", "retry", codes=(5, 5), cooloff_seconds=10)
    assert classify(Evidence(5), replace(BOOK, rules=(rule,)), at(attempt=1)).cooloff_seconds == 20
    assert classify(Evidence(50660), BOOK, at(attempt=1)).cooloff_seconds == 0, "more memory needs no waiting"


def test_a_rule_may_abort_the_dag() -> None:
    rule = Rule("gone", "permanent", "abort_dag", message="dataset was deleted")
    verdict = classify(Evidence(8020, "the dataset was deleted"), replace(BOOK, rules=(rule, *BOOK.rules)), at())
    assert (verdict.exit_status, verdict.action, verdict.retryable) == (43, "abort_dag", False)


def test_the_first_rule_whose_conditions_all_hold_decides() -> None:
    rules = (
        Rule("a", "permanent", "permanent_failure", codes=(10, 20), step="^Reco$", site="^T2_"),
        Rule("b", "infrastructure", "other_site", codes=(10, 20), message="(?i)disk"),
        Rule("c", "transient", "retry", codes=(10, 20)),
    )
    found = [
        first_match(rules, Evidence(10, "Disk", "Reco", "T2_CH_CERN")),
        first_match(rules, Evidence(20, "a DISK", "Reco", "T1_US_FNAL")),
        first_match(rules, Evidence(15)),
        first_match(rules, Evidence(21)),
    ]
    assert [rule.name if rule else None for rule in found] == ["a", "b", "c", None]


def test_policy_tells_what_the_rules_want() -> None:
    assert policy(Evidence(60311), BOOK).action == "other_site"
    assert policy(Evidence(50660), BOOK).action == "more_memory"
    assert policy(None, BOOK).category == "success"


def test_the_shipped_rules_survive_their_document() -> None:
    document = to_json(BOOK)
    validate("rules", document)
    assert read(Value(document, "rules.json"), RuleBook) == BOOK
    names = [rule.name for rule in BOOK.rules]
    assert len(set(names)) == len(names) > 80


def test_each_code_that_cms_publishes_for_cmsrun_has_a_rule() -> None:
    published = [*range(7000, 7003), *range(8001, 8035), 8501, 50110, 50111, 50113, 50115, 50116, 50513, 50660, 50661, 50664]
    published += [
        50662,
        50665,
        50669,
        60302,
        60307,
        60311,
        60315,
        60321,
        60403,
        60450,
        60451,
        71101,
        71304,
        99303,
        99304,
        99400,
        99999,
    ]
    assert [code for code in published if first_match(BOOK.rules, Evidence(code)) is None] == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "x", "category": "transient", "action": "retry"}, "needs a condition"),
        ({"name": "x", "codes": [2, 1], "category": "transient", "action": "retry"}, "expected [first, last]"),
        ({"name": "x", "codes": [1, 1], "category": "odd", "action": "retry"}, "expected one of transient"),
        ({"name": "x", "codes": [1, 1], "category": "transient", "action": "more_memory"}, "needs a memory_factor"),
        ({"name": "x", "codes": [1, 1], "category": "transient", "action": "retry", "memory_factor": 9.0}, "at most 4"),
        ({"name": "x", "codes": [1, 1], "category": "permanent", "action": "retry"}, "not repeated"),
        ({"name": "x", "message": "(", "category": "transient", "action": "retry"}, "no regular expression"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_place(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(PayloadError) as refused:
        read(Value(fields, "rules.json: rules[3]"), Rule)
    assert problem in refused.value.message and "rules[3]" in refused.value.message


def test_every_shipped_rule_can_be_used() -> None:
    assert [rule.name for rule in BOOK.rules if rule.problem()] == []


def test_a_careless_expression_does_not_occupy_a_submit_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rule is passed over, and the next one decides."""
    monkeypatch.setattr("dags_app.payload.contract.rules.SEARCH_SECONDS", 0.1)
    careless = Rule("careless", "permanent", "abort_dag", message=r"(\w+\s?)+: fatal")
    failure = Evidence(8001, "Fatal exception while reading the file of the site that")
    assert classify(failure, replace(BOOK, rules=(careless, *BOOK.rules)), at()).rule == "cms-8001"
    monkeypatch.setattr("dags_app.payload.contract.rules.SEARCH_SECONDS", 1000.0)
    assert not matches(careless, failure), "it is not tried again"


def test_no_thread_without_a_time_limit_searches() -> None:
    """As of a web process."""
    reported: list[Exception] = []

    def search() -> None:
        try:
            matches(Rule("r", "transient", "retry", message="fatal"), Evidence(1, "fatal"))
        except RuntimeError as error:
            reported.append(error)

    thread = Thread(target=search)
    thread.start()
    thread.join()
    assert "main thread" in str(reported[0])
