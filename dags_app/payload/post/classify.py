"""What kind of failure an attempt is, and what DAGMan is to do. Pure: rules over evidence, bounded by what is possible now.

The rules say what a failure is and what is wanted (error-handling 2.4); the situation says what can still be done: whether
another site is left, whether sites offer more memory, whether the node has faults at this site behind it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Optional

from ..contract import codes, rules
from ..contract.layout import SUCCESS_CATEGORY
from ..contract.rules import Evidence, Rule, RuleBook, first_match, searched

DONE = "done"
_EXCEPTION = re.compile(r"An exception of category '([^'\n]+)' occurred")
#: Where cmsRun was, by class and label; the innermost comes last.
_MODULE = re.compile(
    r"\[\d+\] (?:Calling|Constructing|Running)[^\n]*?(?:module:? |component )(?:class=)?(\w+)(?:/| label=)'([^'\n]*)'"
)
_STORAGE_SAID = re.compile(r"\[(?:ERROR|FATAL)\][^'\n]*")


@dataclass(frozen=True)
class Situation:
    """What is possible for a node when its POST script runs.

    ``earlier_faults``: attempts that a fault of the present site ended before this one; ``other_site``: whether the unit may
    land somewhere else; ``memory_mb`` what this attempt asked for and ``most_memory_mb`` what sites offer, None when unknown;
    ``fewer_processes``: the next attempt runs fewer cmsRun side by side, so the same memory may do.
    """

    attempt: int
    max_retries: int
    earlier_faults: int = 0
    other_site: bool = False
    memory_mb: int | None = None
    most_memory_mb: int | None = None
    fewer_processes: bool = False

    @property
    def is_last(self) -> bool:
        """Whether DAGMan has no retry left."""
        return self.attempt >= self.max_retries


@dataclass(frozen=True)
class Classification:
    """The verdict. ``exit_status`` is what the POST script ends with once a cool-off is over: 0 done, 1 retry, 42 permanent,
    43 abort. ``memory_mb`` is what the next attempt asks for, ``leave_site`` that the unit is to land elsewhere."""

    category: str
    retryable: bool
    action: str
    exit_status: int
    reason: str = ""
    code: int = codes.SUCCESS
    rule: Optional[str] = None
    bad_input_files: tuple[str, ...] = ()
    cooloff_seconds: int = 0
    memory_mb: Optional[int] = None
    leave_site: bool = False

    def left_out(self) -> tuple[str, ...]:
        """Of ``post.json``: what the script itself does about it."""
        return ("exit_status", "leave_site")


SUCCESS = Classification(SUCCESS_CATEGORY, False, DONE, codes.POST_DONE)


def classify(evidence: Evidence | None, book: RuleBook, situation: Situation) -> Classification:
    """The verdict on an attempt; ``evidence`` is None for a success. A failure that no rule knows is transient."""
    if evidence is None:
        return SUCCESS
    rule = first_match(book.rules, evidence)
    wanted = rule.action if rule else rules.RETRY
    stopped = Classification(
        category=rule.category if rule else rules.TRANSIENT,
        retryable=False,
        action=rules.STOP,
        exit_status=codes.POST_PERMANENT,
        reason=_reason(evidence, rule),
        code=evidence.code,
        rule=rule.name if rule else None,
        bad_input_files=evidence.bad_files,
    )
    memory_mb = _more_memory(rule, situation)
    left = replace(stopped, action=rules.OTHER_SITE, leave_site=True, memory_mb=memory_mb)
    if wanted == rules.ABORT_DAG:
        why = _reason(evidence, rule, "the rule aborts the DAG")
        return replace(stopped, action=wanted, exit_status=codes.POST_ABORT_DAG, reason=why)
    over_input = rule is not None and rule.category == rules.DATA
    if wanted == rules.STOP and over_input and evidence.bad_files and situation.other_site:
        return replace(left, reason=_reason(evidence, rule, "the unit is to read it elsewhere"))
    if wanted == rules.STOP and not (over_input and not evidence.bad_files):
        return stopped
    if wanted == rules.OTHER_SITE and situation.other_site and (situation.earlier_faults > 0 or situation.is_last):
        return replace(left, reason=_reason(evidence, rule, "the unit is to leave this site"))
    if wanted == rules.MORE_MEMORY and memory_mb is None and situation.memory_mb is not None and not situation.fewer_processes:
        why = f"it ran with {situation.memory_mb} MB, and sites offer no more for its cores"
        return replace(stopped, category=rules.PERMANENT, reason=_reason(evidence, rule, why))
    return replace(
        stopped,
        retryable=True,
        action=rules.MORE_MEMORY if memory_mb else rules.RETRY,
        exit_status=codes.POST_RETRY,
        reason=_reason(evidence, rule, _why_retry(rule, evidence, situation)),
        cooloff_seconds=_cooloff(rule, book, situation),
        memory_mb=memory_mb,
    )


def policy(evidence: Evidence | None, book: RuleBook) -> Classification:
    """What the rules want for a failure, whatever is possible at the moment: for trying rules, not for running DAGs."""
    unbounded = Situation(attempt=0, max_retries=1, earlier_faults=1, other_site=True, memory_mb=1, most_memory_mb=2**31)
    return classify(evidence, book, unbounded)


def _more_memory(rule: Rule | None, situation: Situation) -> int | None:
    """Memory of the next attempt, None when the rule asks for none or there is none."""
    if rule is None or rule.memory_factor is None or situation.memory_mb is None or situation.most_memory_mb is None:
        return None
    wanted = min(math.ceil(situation.memory_mb * rule.memory_factor), situation.most_memory_mb)
    return wanted if wanted > situation.memory_mb else None


def _cooloff(rule: Rule | None, book: RuleBook, situation: Situation) -> int:
    """Seconds before the retry: the rule's or the DAG's base, doubled with each attempt; none when nothing is retried."""
    if situation.is_last:
        return 0
    base = rule.cooloff_seconds if rule and rule.cooloff_seconds is not None else book.limits.cooloff_seconds
    return base * int(2 ** min(situation.attempt, 6))


def _why_retry(rule: Rule | None, evidence: Evidence, situation: Situation) -> str:
    if rule is None or situation.is_last:
        return ""
    if rule.action == rules.STOP and not evidence.bad_files:
        return "no input file of this job is named, so none can be excluded"
    if rule.action == rules.OTHER_SITE:
        return "once more at this site" if situation.other_site else "the unit has no other site"
    return ""


def _reason(evidence: Evidence, rule: Rule | None, why: str = "") -> str:
    where = f"exit code {evidence.code}" + (f" in {evidence.step}" if evidence.step else "")
    said = sense(evidence.message)
    colon = "" if said.startswith(_category(evidence.message)) and not evidence.step else ":"
    answer = _answer(evidence, rule)
    parts = (f"{where}{colon} {said}"[:700] if said else where, answer if answer not in said else "", why)
    return "; ".join(part for part in parts if part)[:1000]


def sense(message: str) -> str:
    """What a message says, in one line. Of cmsRun's exceptions: category, module, and the text that comes after where it was."""
    category = _category(message)
    if not category:
        return next((line.strip() for line in message.splitlines() if line.strip()), "")
    modules = [label or name for name, label in _MODULE.findall(message)]
    _, _, text = message.partition("Exception Message:")
    if not text.strip():
        _, _, text = message.partition("Additional Info:")
    lines = [line.strip() for line in text.partition("Additional Info:")[0].splitlines() if line.strip()]
    said = " ".join(lines)[:400]
    return f"{category}{f' in {modules[-1]}' if modules else ''}{f': {said}' if said else ''}"


def _category(message: str) -> str:
    found = _EXCEPTION.search(message)
    return found.group(1) if found else ""


def _answer(evidence: Evidence, rule: Rule | None) -> str:
    """The words that the rule went by, or what a storage said of a file that was not read."""
    found = searched(rule.message, evidence.message) if rule is not None and rule.message else None
    if found is None and evidence.code not in codes.UNREAD:
        return ""
    start = evidence.message.rfind("\n", 0, found.start()) + 1 if found else 0
    end = evidence.message.find("\n", found.end()) if found else -1
    line = evidence.message[start : end if end >= 0 else None]
    storage = _STORAGE_SAID.search(line)
    return storage.group(0).strip()[:250] if storage else line.strip()[:250] if found else ""
