"""The shipped failure rules as rows: loaded, kept up to date, and never over an operator's decision."""

from __future__ import annotations

import json

import pytest

from dags_app.failure_rules import failure_rules_load, rules_in_force, rules_shipped, shipped_rules
from dags_app.models import FailureRule
from dags_app.payload.contract.convert import read, to_json
from dags_app.payload.contract.reading import Value
from dags_app.payload.contract.rules import Evidence, RuleBook, first_match
from tests.support.limits import set_limits

pytestmark = pytest.mark.django_db


def test_the_rows_are_the_shipped_set_and_loading_again_changes_nothing() -> None:
    assert failure_rules_load() == (len(shipped_rules()), 0)
    assert failure_rules_load() == (0, 0)
    assert rules_in_force().rules == rules_shipped().rules


def test_an_operators_rule_is_left_alone_and_an_old_shipped_one_is_brought_up_to_date() -> None:
    failure_rules_load()
    FailureRule.objects.filter(name="cms-8021").update(action="retry", source="operator")
    FailureRule.objects.filter(name="cms-8028").update(action="retry")
    FailureRule.objects.create(
        order=1, name="ours", first_code=1, category="transient", action="retry", source="operator", note="x"
    )
    FailureRule.objects.create(order=2, name="gone", first_code=1, category="transient", action="retry", source="shipped")
    assert failure_rules_load() == (1, 1)
    assert FailureRule.objects.get(name="cms-8021").action == "retry"
    assert FailureRule.objects.get(name="cms-8028").action == "other_site"
    assert set(FailureRule.objects.filter(name__in=("ours", "gone")).values_list("name", flat=True)) == {"ours"}


def test_a_rule_that_is_switched_off_is_passed_over() -> None:
    failure_rules_load()
    FailureRule.objects.filter(name="cms-8021").update(enabled=False, source="operator")
    assert first_match(rules_in_force().rules, Evidence(8021)) is None


def test_an_empty_table_gets_the_shipped_set_before_a_dag_is_planned() -> None:
    assert rules_in_force().rules == rules_shipped().rules
    assert FailureRule.objects.count() == len(shipped_rules())


def test_what_goes_into_a_dag_directory_is_read_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, error_same_units=9, cooloff_base_seconds=7)
    book = rules_in_force()
    assert (book.limits.same_error_units, book.limits.cooloff_seconds) == (9, 7)
    assert read(Value(json.loads(json.dumps(to_json(book))), "rules.json"), RuleBook) == book
