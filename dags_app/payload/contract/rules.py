"""Failure rules: which failures they match, and their document ``rules.json``. Pure matching; owns schema ``wms2.rules/1``.

A DAG carries the rules that were in force when it was planned; WMS2 reads the same document for the rules it ships, and uses
the same matching to try rules on recorded failures. What is done about a match is ``classify``'s.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from re import Match
from types import FrameType
from typing import Annotated, Callable, ClassVar, Optional

from .convert import Json, one_of, read
from .layout import RULES_SCHEMA
from .reading import Value, load_document

#: Classes of error-handling 2.4. A success is never a rule's.
TRANSIENT, PERMANENT, DATA, INFRASTRUCTURE = "transient", "permanent", "data", "infrastructure"
CATEGORIES = (TRANSIENT, PERMANENT, DATA, INFRASTRUCTURE)

#: What a rule asks for. ``classify`` may do less: there may be no other site, no memory left, no retry left.
RETRY, OTHER_SITE, MORE_MEMORY, STOP, ABORT_DAG = "retry", "other_site", "more_memory", "permanent_failure", "abort_dag"
ACTIONS = (RETRY, OTHER_SITE, MORE_MEMORY, STOP, ABORT_DAG)

#: Messages are searched no further than this, so that a careless expression cannot occupy a submit host.
SEARCHED_CHARACTERS = 8000
#: Nor for longer than this, in seconds of processor time: a hundred times what a good expression takes.
SEARCH_SECONDS = 2.0


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


#: An expression with this comment in it is not searched for in names of hosts and of files below ``/store/``: a dataset or a
#: server may be called like an error.
WORDS_ALONE = "(?#words)"
_NAME = re.compile(
    r"""(?<![^\s'"<>|;,:=(\[])(?:\w{1,10}://[\w.-]*(?::\d+)?)?/(?:[^\s'"<>|;,:=(\[]*?/)?store/[^\s'"<>|;,:)]*"""
    r"""|(?<![\w.-])[\w-]+(?:\.[\w-]+)+:\d{2,5}\b"""
)
_OF_NAME = re.compile(r"\w+://|/store/|\.root\b|\w")

#: Expressions that this process has given up on; they are not tried again, so that each costs its time once.
GIVEN_UP: set[str] = set()


def pattern_problem(text: str) -> str:
    """Why a text is no regular expression; empty when it is one."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{text[:200]!r} is no regular expression: {error}"
    return ""


def searched(pattern: str, text: str, how: Callable[..., Optional[Match[str]]] = re.search) -> Optional[Match[str]]:
    """Where an expression that others wrote is found in a text; nowhere, if that takes too long."""
    if pattern in GIVEN_UP:
        return None
    try:
        with _time_limit():
            text = text[:SEARCHED_CHARACTERS]
            return how(pattern, without_names(text) if WORDS_ALONE in pattern else text)
    except _TooLong:
        GIVEN_UP.add(pattern)
        return None


@lru_cache(maxsize=4)
def without_names(text: str) -> str:
    """A text of the same length, with ``x`` for the characters of its names; schemes, ``/store/`` and ``.root`` stay."""
    return _NAME.sub(lambda name: _OF_NAME.sub(lambda part: part[0] if len(part[0]) > 1 else "x", name[0]), text)


def _read_pattern(value: Value) -> str:
    problem = pattern_problem(value.text())
    if problem:
        raise value.refuse(problem)
    return value.text()


def _read_codes(value: Value) -> tuple[int, ...]:
    found = tuple(item.integer() for item in value.items())
    if len(found) != 2 or found[0] > found[1]:
        raise value.refuse("expected [first, last]")
    return found


_Pattern = Optional[Annotated[str, Json(read=_read_pattern)]]


@dataclass(frozen=True)
class Rule:
    """One rule. A condition that is None holds for everything, and is not written; patterns are searched for, not matched from
    the start. ``codes``: the first and the last exit code.

    ``cooloff_seconds``: before the first retry, doubled with each attempt; None: the DAG's base. ``memory_factor``: the memory
    of the next attempt over that of this one.
    """

    name: str
    category: Annotated[str, one_of(*CATEGORIES)]
    action: Annotated[str, one_of(*ACTIONS)]
    codes: Optional[Annotated[tuple[int, ...], Json(read=_read_codes)]] = None
    message: _Pattern = None
    step: _Pattern = None
    site: _Pattern = None
    cooloff_seconds: Optional[int] = None
    memory_factor: Optional[float] = None

    def left_out(self) -> list[str]:
        """Fields that are not written."""
        return [each.name for each in fields(self) if getattr(self, each.name) is None]

    def problem(self) -> str:
        """What is wrong with a rule whose fields have the right types; empty when it can be used."""
        if all(condition is None for condition in (self.codes, self.message, self.step, self.site)):
            return "a rule needs a condition: an exit code, or a pattern for message, step or site"
        if self.action == MORE_MEMORY and self.memory_factor is None:
            return f"the action {MORE_MEMORY} needs a memory_factor"
        if self.memory_factor is not None and not 1 < self.memory_factor <= 4:
            return "memory_factor must be above 1 and at most 4"
        if self.cooloff_seconds is not None and not 0 <= self.cooloff_seconds <= 86400:
            return "cooloff_seconds must be between 0 and 86400"
        if self.category == PERMANENT and self.action not in (STOP, ABORT_DAG):
            return f"a permanent failure is not repeated: its action is {STOP} or {ABORT_DAG}"
        return ""


@dataclass(frozen=True)
class LogLimits:
    """How many attempts' packed logs a work unit and the DAG keep, and how much they may take in all.

    ``share_of_successes``: of the nodes that did well, those whose logs are kept.
    """

    per_unit: int = 20
    per_dag: int = 1000
    bytes_per_dag: int = 2 * 10**9
    share_of_successes: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Numbers that hold for all rules of a DAG.

    ``cooloff_seconds``: the time of one deferral of a POST script. ``same_error_units``: so many work units that failed with one
    error, and nothing else in the DAG, abort it; 0: never.
    """

    cooloff_seconds: int
    max_memory_per_core_mb: int
    same_error_units: int
    logs: LogLimits = LogLimits()


@dataclass(frozen=True)
class RuleBook:
    """Enabled rules in the order in which they are tried, and the limits."""

    SCHEMA: ClassVar[str] = RULES_SCHEMA

    rules: tuple[Rule, ...]
    limits: Limits


def matches(rule: Rule, evidence: Evidence) -> bool:
    """Whether every condition of a rule holds."""
    return (
        (rule.codes is None or rule.codes[0] <= evidence.code <= rule.codes[1])
        and _found(rule.message, evidence.message)
        and _found(rule.step, evidence.step)
        and _found(rule.site, evidence.site)
    )


def first_match(rules: Iterable[Rule], evidence: Evidence) -> Rule | None:
    """The first rule that matches. One that blames an input file gives way where no input file of the job is named: what could
    not be read then is pile-up, or a file that the unit itself has made.
    """
    found = [rule for rule in rules if matches(rule, evidence)]
    named = (rule for rule in found if rule.category != DATA or evidence.bad_files)
    return next(named, found[0] if found else None)


def _found(pattern: str | None, text: str) -> bool:
    """A rule whose expression takes too long holds for nothing, and the next ones decide."""
    return pattern is None or searched(pattern, text) is not None


class _TooLong(Exception):
    """An expression takes too long."""


@contextmanager
def _time_limit() -> Iterator[None]:
    """Inside, an expression is given up after ``SEARCH_SECONDS`` of processor time. Signals come to the main thread alone: what
    searches in another, as of a web process, would have no limit, and is a defect.
    """

    def stop(number: int, frame: Optional[FrameType]) -> None:
        raise _TooLong

    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("expressions are searched for in a main thread alone, where a time limit holds (dags_app.rule_trial)")
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def load_rules(path: Path) -> RuleBook:
    """Read a DAG's ``rules.json``; PayloadError names what is wrong in it."""
    return read(load_document(path, RULES_SCHEMA), RuleBook)
