"""Failure rules: which failures they match, and their document ``rules.json``. Pure matching; owns schema ``wms2.rules/1``.

A DAG carries the rules that were in force when it was planned; WMS2 reads the same document for the rules it ships, and uses
the same matching to try rules on recorded failures. What is done about a match is ``classify``'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .reading import Value, check_schema, load_document

RULES_SCHEMA = "wms2.rules/1"
RULES_FILE = "rules.json"

#: Classes of error-handling 2.4. A success is never a rule's.
TRANSIENT, PERMANENT, DATA, INFRASTRUCTURE = "transient", "permanent", "data", "infrastructure"
CATEGORIES = (TRANSIENT, PERMANENT, DATA, INFRASTRUCTURE)

#: What a rule asks for. ``classify`` may do less: there may be no other site, no memory left, no retry left.
RETRY, OTHER_SITE, MORE_MEMORY, STOP, ABORT_DAG = "retry", "other_site", "more_memory", "permanent_failure", "abort_dag"
ACTIONS = (RETRY, OTHER_SITE, MORE_MEMORY, STOP, ABORT_DAG)

#: Messages are searched no further than this, so that a careless expression cannot occupy a submit host.
SEARCHED_CHARACTERS = 8000


@dataclass(frozen=True)
class Evidence:
    """What is known of a failed attempt. ``code`` is a whole code (8021, not 85); texts are empty where nothing is known.

    ``bad_files``: input files that the failure names.
    """

    code: int
    message: str = ""
    step: str = ""
    site: str = ""
    bad_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One rule. A condition that is None holds for everything; patterns are searched for, not matched from the start.

    ``cooloff_seconds``: before the first retry, doubled with each attempt; None: the DAG's base. ``memory_factor``: the memory
    of the next attempt over that of this one.
    """

    name: str
    category: str
    action: str
    first_code: int | None = None
    last_code: int | None = None
    message: str | None = None
    step: str | None = None
    site: str | None = None
    cooloff_seconds: int | None = None
    memory_factor: float | None = None


@dataclass(frozen=True)
class Limits:
    """Numbers that hold for all rules of a DAG.

    ``cooloff_seconds``: the time of one deferral of a POST script. ``same_error_units``: so many work units that failed with one
    error, and nothing else in the DAG, abort it; 0: never.
    """

    cooloff_seconds: int
    max_memory_per_core_mb: int
    same_error_units: int


@dataclass(frozen=True)
class RuleBook:
    """Enabled rules in the order in which they are tried, and the limits."""

    rules: tuple[Rule, ...]
    limits: Limits


def matches(rule: Rule, evidence: Evidence) -> bool:
    """Whether every condition of a rule holds."""
    if rule.first_code is not None and not rule.first_code <= evidence.code <= _last(rule):
        return False
    return (
        _found(rule.message, evidence.message)
        and (rule.step is None or _found(rule.step, evidence.step))
        and (rule.site is None or _found(rule.site, evidence.site))
    )


def first_match(rules: Iterable[Rule], evidence: Evidence) -> Rule | None:
    """The first rule that matches."""
    return next((rule for rule in rules if matches(rule, evidence)), None)


def _last(rule: Rule) -> int:
    return rule.last_code if rule.last_code is not None else rule.first_code or 0


def _found(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text[:SEARCHED_CHARACTERS]) is not None


def load_rules(path: Path) -> RuleBook:
    """Read a DAG's ``rules.json``; PayloadError names what is wrong in it."""
    return rules_from(load_document(path, RULES_SCHEMA))


def rules_from(document: Value) -> RuleBook:
    """The rules of a document."""
    check_schema(document, RULES_SCHEMA)
    limits = document["limits"]
    return RuleBook(
        rules=tuple(rule_from(item) for item in document["rules"].items()),
        limits=Limits(
            cooloff_seconds=limits["cooloff_seconds"].integer(),
            max_memory_per_core_mb=limits["max_memory_per_core_mb"].integer(),
            same_error_units=limits["same_error_units"].integer(),
        ),
    )


def rule_from(item: Value) -> Rule:
    """One rule of a document."""
    codes = item.get("codes")
    bounds = [value.integer() for value in codes.items()] if codes else []
    if codes and (len(bounds) != 2 or bounds[0] > bounds[1]):
        raise codes.refuse("expected [first, last]")
    cooloff, factor = item.get("cooloff_seconds"), item.get("memory_factor")
    rule = Rule(
        name=item["name"].text(),
        category=_one_of(item["category"], CATEGORIES),
        action=_one_of(item["action"], ACTIONS),
        first_code=bounds[0] if bounds else None,
        last_code=bounds[1] if bounds else None,
        message=_pattern(item, "message"),
        step=_pattern(item, "step"),
        site=_pattern(item, "site"),
        cooloff_seconds=cooloff.integer() if cooloff else None,
        memory_factor=factor.number() if factor else None,
    )
    problem = rule_problem(rule)
    if problem:
        raise item.refuse(problem)
    return rule


def rule_problem(rule: Rule) -> str:
    """What is wrong with a rule whose fields have the right types; empty when it can be used."""
    if all(condition is None for condition in (rule.first_code, rule.message, rule.step, rule.site)):
        return "a rule needs a condition: an exit code, or a pattern for message, step or site"
    if rule.action == MORE_MEMORY and rule.memory_factor is None:
        return f"the action {MORE_MEMORY} needs a memory_factor"
    if rule.memory_factor is not None and not 1 < rule.memory_factor <= 4:
        return "memory_factor must be above 1 and at most 4"
    if rule.cooloff_seconds is not None and not 0 <= rule.cooloff_seconds <= 86400:
        return "cooloff_seconds must be between 0 and 86400"
    if rule.category == PERMANENT and rule.action not in (STOP, ABORT_DAG):
        return f"a permanent failure is not repeated: its action is {STOP} or {ABORT_DAG}"
    return ""


def _one_of(value: Value, known: tuple[str, ...]) -> str:
    found = value.text()
    if found not in known:
        raise value.refuse(f"expected one of {', '.join(known)}, found {found!r}")
    return found


def _pattern(item: Value, name: str) -> str | None:
    value = item.get(name)
    if value is None:
        return None
    problem = pattern_problem(value.text())
    if problem:
        raise value.refuse(problem)
    return value.text()


def pattern_problem(text: str) -> str:
    """Why a text is no regular expression; empty when it is one."""
    try:
        re.compile(text)
    except re.error as error:
        return f"{text!r} is no regular expression: {error}"
    return ""


def rules_document(rules: Iterable[Rule], limits: Limits) -> dict[str, Any]:
    """The document of these rules, in this order."""
    return {
        "schema": RULES_SCHEMA,
        "limits": {
            "cooloff_seconds": limits.cooloff_seconds,
            "max_memory_per_core_mb": limits.max_memory_per_core_mb,
            "same_error_units": limits.same_error_units,
        },
        "rules": [rule_document(rule) for rule in rules],
    }


def rule_document(rule: Rule) -> dict[str, Any]:
    """One rule as JSON; conditions that hold for everything are left out."""
    codes = None if rule.first_code is None else [rule.first_code, _last(rule)]
    fields: dict[str, Any] = {
        "name": rule.name,
        "codes": codes,
        "message": rule.message,
        "step": rule.step,
        "site": rule.site,
        "category": rule.category,
        "action": rule.action,
        "cooloff_seconds": rule.cooloff_seconds,
        "memory_factor": rule.memory_factor,
    }
    return {name: value for name, value in fields.items() if value is not None}
