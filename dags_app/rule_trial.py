"""Failure rules tried on failures, in a process of its own: ``python -m dags_app.rule_trial``, JSON on stdin and stdout.

An expression may take longer than a page may, and only a main thread can end it. The matching is the payload's, with its limit: a
trial by another engine would show of rules what submit hosts, which have Python's alone, do not do. Knows no row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from dags_app.payload.contract import rules
from dags_app.payload.contract.convert import read, to_json
from dags_app.payload.contract.reading import Value
from dags_app.payload.contract.rules import Evidence, RuleBook
from dags_app.payload.post.classify import Classification, policy
from wms2.errors import ConfigurationError

#: Of a whole trial; a good one of 300 failures takes one.
TRIAL_SECONDS = 20.0
_ROOT = Path(__file__).resolve().parents[1]


class Tried(NamedTuple):
    """A verdict for each failure, and the expressions that took too long: their rules held for nothing."""

    verdicts: tuple[Classification, ...]
    given_up: tuple[str, ...]


def tried(book: RuleBook, failures: Sequence[Evidence], search_seconds: float = rules.SEARCH_SECONDS) -> Tried:
    """What the rules make of these failures; an expression that takes so long on one is given up.

    Raises:
        ConfigurationError: all of it takes too long, or breaks.
    """
    asked = json.dumps({"book": to_json(book), "failures": [asdict(each) for each in failures], "seconds": search_seconds})
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=asked, capture_output=True, text=True, check=False, cwd=_ROOT,
            timeout=TRIAL_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        what = f"the rules were tried for {TRIAL_SECONDS:g} s and given up: simplify their expressions"
        raise ConfigurationError(what) from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        last = done.stderr.strip().rpartition("\n")[2][:500] or f"exit status {done.returncode}"
        raise ConfigurationError(f"the rules could not be tried: {last}") from error
    verdicts = [each | {"bad_input_files": tuple(each["bad_input_files"])} for each in answer["verdicts"]]
    return Tried(tuple(Classification(**each) for each in verdicts), tuple(answer["given_up"]))


def main() -> None:
    """Answer the question on stdin."""
    asked = json.load(sys.stdin)
    rules.SEARCH_SECONDS = asked["seconds"]
    book = read(Value(asked["book"], "book"), RuleBook)
    failures = [Evidence(**each | {"bad_files": tuple(each["bad_files"])}) for each in asked["failures"]]
    verdicts = [asdict(policy(each, book)) for each in failures]
    json.dump({"verdicts": verdicts, "given_up": sorted(rules.GIVEN_UP)}, sys.stdout)


if __name__ == "__main__":
    main()
