"""Failure rules as rows, as values, and as the document that goes into a DAG directory; the set that WMS2 ships; and trials of
rules on recorded failures: which would decide each, and what would change.

Changing a rule with an audit entry is ``dags_app.services.failure_rules``'s; matching is the payload's.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # the tree of an expression
from typing import Any, NamedTuple

from django.db import transaction

from dags_app.models import FailureRule, FailureSample
from dags_app.payload.contract.convert import read
from dags_app.payload.contract.reading import Value
from dags_app.payload.contract.rules import Evidence, Limits, LogLimits, Rule, RuleBook
from dags_app.payload.post.classify import Classification
from dags_app.rule_trial import tried as tried_by
from wms2.conf import limits as conf_limits
from wms2.runtime.in_force import in_force

#: Packed logs of attempts that a DAG keeps, written into it when it is planned.
_PACKED_LOGS = LogLimits(per_unit=20, per_dag=1000, bytes_per_dag=2 * 10**9, share_of_successes=0.0)

SHIPPED_FILE = Path(__file__).parent / "data/failure_rules.json"
SHIPPED_SCHEMA = "wms2.shipped_rules/1"
#: Recorded failures that one trial looks at: the newest.
MOST_SAMPLES = 300
#: Of processor time on one of them: a part of what a submit host spends on it.
_PROBE_SECONDS = 1.0
#: Messages on which an expression that goes back and forth shows it.
PROBES = (
    "Fatal exception while reading the file of the site that", "a" * 60 + "!", "a " * 40 + "!", "0" * 60 + "!", "1 2 3 " * 12,
    "/store/data/Run2026A/" * 20, "=" * 200, "Error: " * 300, "\n" * 4000 + "x", " " * 8000, "x" * 8000, "9" * 8000,
)  # fmt: skip
#: Shipped rules by which a file may be lost, or its servers down: what a redirector does not know, and skips without a word.
NOT_SURE = frozenset({"file-on-no-server", "wms2-95003"})
#: Shipped rule of jobs that waited too long for their site: nothing has failed there (ADR 0005).
NEVER_RAN = "held-idle"
_PATTERNS = ("message", "step", "site")
#: Fields of a rule that are columns as they are.
_ALIKE = tuple(field.name for field in fields(Rule) if field.name not in (*_PATTERNS, "codes"))
_SHIPPED = (*_ALIKE, *_PATTERNS, "first_code", "last_code", "order", "note")


def shipped_rules() -> tuple[FailureRule, ...]:
    """The shipped set in order, as rows that are not saved; a condition that is None is empty text there."""
    document = Value(json.loads(SHIPPED_FILE.read_text(encoding="utf-8")), SHIPPED_FILE.name)
    if document["schema"].text() != SHIPPED_SCHEMA:
        raise ValueError(f"{SHIPPED_FILE}: expected schema {SHIPPED_SCHEMA}")
    found = []
    for item in document["rules"].items():
        rule = read(item, Rule)
        columns = {name: getattr(rule, name) for name in _ALIKE} | {name: getattr(rule, name) or "" for name in _PATTERNS}
        columns["first_code"], columns["last_code"] = rule.codes or (None, None)
        source = FailureRule.Source.SHIPPED
        found.append(FailureRule(source=source, order=item["order"].integer(), note=item["note"].text(), **columns))
    return tuple(sorted(found, key=lambda row: row.order))


def failure_rules_load() -> tuple[int, int]:
    """Bring the shipped set into the rows; (new or changed, left alone because an operator has changed them).

    A shipped rule that a later release no longer has is removed; an operator's never.
    """
    changed, kept = 0, 0
    new: list[FailureRule] = []
    with transaction.atomic():
        rows = {row.name: row for row in FailureRule.objects.select_for_update()}
        shipped = shipped_rules()
        for one in shipped:
            row = rows.get(one.name)
            columns = {name: getattr(one, name) for name in _SHIPPED}
            if row is None:
                new.append(one)
            elif row.source == FailureRule.Source.OPERATOR:
                kept += 1
            elif any(getattr(row, name) != value for name, value in columns.items()):
                changed += 1
                FailureRule.objects.filter(pk=row.pk).update(**columns)
        FailureRule.objects.bulk_create(new)
        gone = FailureRule.objects.filter(source=FailureRule.Source.SHIPPED).exclude(name__in=[one.name for one in shipped])
        gone.delete()
    return changed + len(new), kept


def rule_of(row: FailureRule) -> Rule:
    """A row as the value that the payload matches with."""
    found = {name: getattr(row, name) for name in _ALIKE} | {name: getattr(row, name) or None for name in _PATTERNS}
    codes = None if row.first_code is None else (row.first_code, row.first_code if row.last_code is None else row.last_code)
    return Rule(**found, codes=codes)


def rules_in_force() -> RuleBook:
    """Enabled rules in order, with the limits in force. An empty table gets the shipped set first."""
    if not FailureRule.objects.exists():
        failure_rules_load()
    return RuleBook(tuple(rule_of(row) for row in FailureRule.objects.filter(enabled=True)), _limits(in_force()))


def rules_shipped() -> RuleBook:
    """The shipped set with the default limits."""
    return RuleBook(tuple(map(rule_of, shipped_rules())), _limits(conf_limits.Limits()))


def _limits(limits: conf_limits.Limits) -> Limits:
    """Those that a DAG's rules carry."""
    return Limits(limits.cooloff_base_seconds, limits.max_memory_per_core_mb, limits.error_same_units, _PACKED_LOGS)


class Trial(NamedTuple):
    """One recorded failure: how it was classified then, and how it would be now."""

    sample: FailureSample
    verdict: Classification

    @property
    def changed(self) -> bool:
        """Whether another rule or another class would come out."""
        group = self.sample.group
        return (group.rule, group.category) != (self.verdict.rule or "", self.verdict.category)


class Trials(tuple[Trial, ...]):
    """``given_up``: expressions that took too long, whose rules held for nothing, as they would on a submit host."""

    given_up: tuple[str, ...] = ()


def rules_try(*, tried: FailureRule | None = None) -> Trials:
    """The newest recorded failures under the rules in force, with ``tried`` among them as if it were enabled.

    With ``tried`` only failures that it would decide, or that it decided then, are listed.

    Raises:
        ConfigurationError: it takes too long.
    """
    book = rules_in_force()
    if tried is not None:
        book = _with(book, tried)
    samples = FailureSample.objects.select_related("group", "group__workflow__request", "dag").order_by("-id")
    lean = samples.defer("group__workflow__spec", "group__workflow__psets", "group__workflow__request__request_data")
    rows = list(lean[:MOST_SAMPLES])
    done = tried_by(book, [_evidence(sample) for sample in rows])
    trials = map(Trial, rows, done.verdicts)
    found = Trials(each for each in trials if tried is None or tried.name in (each.verdict.rule, each.sample.group.rule))
    found.given_up = done.given_up
    return found


def pattern_refused(text: str) -> str:
    """Why an expression may not stand in a rule; empty if it may. Whether it is one was asked before."""
    if _is_newer(_parser.parse(text)):
        return f"{text!r} has an atomic group or a possessive quantifier, which submit hosts with Python before 3.11 do not know"
    limits = Limits(0, 0, 0)
    rule = Rule("tried", "transient", "retry", message=text)
    if tried_by(RuleBook((rule,), limits), [Evidence(1, each) for each in PROBES], _PROBE_SECONDS).given_up:
        return f"{text!r} takes too long on messages that do not match: have nothing repeated inside of what is repeated"
    return ""


def _is_newer(found: Any) -> bool:
    """Whether a parsed expression has in any place what only later versions know."""
    if isinstance(found, _parser.SubPattern | list | tuple):
        return any(_is_newer(each) for each in found)
    return str(found) in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT")


def _evidence(sample: FailureSample) -> Evidence:
    """What the POST script knew, from what was kept of it."""
    group = sample.group
    return Evidence(group.code, sample.message, group.step, group.site, tuple(sample.bad_files))


def _with(book: RuleBook, tried: FailureRule) -> RuleBook:
    rows = FailureRule.objects.filter(enabled=True).exclude(pk=tried.pk)
    ordered = sorted([*rows, tried], key=lambda row: (row.order, row.pk or 0))
    return replace(book, rules=tuple(rule_of(row) for row in ordered))
