"""What kind of outcome an attempt is, and what DAGMan is to do. Pure: one function over the facts of the attempt.

Classes for now: no job at all, codes that no repetition can change, and everything else. error-handling 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import codes
from .formats import SUCCESS_CATEGORY

#: Codes that come from the request or from WMS2's own documents: the same job would end the same way again.
PERMANENT_CODES = frozenset({codes.CONFIG_NOT_FOUND, codes.CONFIG_UNREADABLE, codes.CONFIG_INVALID, codes.INVALID_DOCUMENT})


@dataclass(frozen=True)
class AttemptFacts:
    """What is known of an attempt when its POST script runs.

    ``return_value`` is DAGMan's $RETURN (8 bits, negative for a signal or when no job ran); ``submitted`` whether there was
    a job at all; ``report_code`` the report's full exit code, None without a report of this very job; ``problem`` what is
    wrong although the job ended well.
    """

    return_value: int
    submitted: bool
    report_code: int | None
    removed: bool
    attempt: int
    max_retries: int
    problem: str = ""


@dataclass(frozen=True)
class Classification:
    """The verdict. ``exit_status`` is the POST script's own: 0 done, 1 retry, 42 permanent, 43 abort, 44 call again."""

    category: str
    retryable: bool
    action: str
    exit_status: int
    reason: str
    bad_input_files: tuple[str, ...] = ()


def classify(facts: AttemptFacts) -> Classification:
    """The verdict on an attempt. Success needs a process that ended with 0, a whole report that says 0, and no problem."""
    if facts.report_code == codes.SUCCESS and facts.return_value == 0 and not facts.problem:
        return Classification(SUCCESS_CATEGORY, False, "done", codes.POST_DONE, "")
    if not facts.submitted:
        reason = f"no job was submitted (DAGMan says {facts.return_value}): see the DAG's dagman.out"
        return Classification("infrastructure", True, "retry", codes.POST_RETRY, reason)
    if facts.report_code in PERMANENT_CODES:
        return Classification("permanent", False, "permanent_failure", codes.POST_PERMANENT, f"exit code {facts.report_code}")
    return Classification("transient", True, "retry", codes.POST_RETRY, _reason(facts))


def _reason(facts: AttemptFacts) -> str:
    if facts.problem:
        return facts.problem
    if facts.removed:
        return "the job was removed from the queue"
    if facts.report_code is None:
        return f"no report of this job; it ended with {facts.return_value}"
    return f"exit code {facts.report_code or facts.return_value}"
