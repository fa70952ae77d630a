"""The verification from its first line to its table. Import only after ``django.setup()``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from deploy.demo import rows
from deploy.demo.gathering import gather
from deploy.demo.story import story
from deploy.demo.verdicts import Verdict, judge
from deploy.demo.waiting import End, wait
from wms2.conf import conf

_BEGUN = time.monotonic()


def say(message: str) -> None:
    """One line with the seconds since the start."""
    sys.stdout.write(f"  check {time.monotonic() - _BEGUN:6.1f} s  {message}\n")
    sys.stdout.flush()


def run(limit_seconds: float) -> int:
    """Wait, gather, judge, print; 0 when everything is as it should be."""
    settings = conf()
    waited = wait(rows.status_details, say, limit_seconds=limit_seconds)
    if waited.end is not End.COMPLETED:
        say(f"NOT VERIFIED: {waited.end.value}" + (f" ({limit_seconds:g} s)" if waited.end is End.TIMEOUT else ""))
        for name in waited.unfinished:
            for line in story(name, settings.state_dir):
                print(line, flush=True)
        return 1
    verdicts = judge(*gather(settings, say))
    print("\n".join(table(verdicts)), flush=True)
    bad = sum(not verdict.good for verdict in verdicts)
    say(f"NOT VERIFIED: {bad} of {len(verdicts)} checks failed" if bad else f"verified: all {len(verdicts)} checks hold")
    return 1 if bad else 0


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Grouped by subject: mark, check, what was looked at, and below it each problem."""
    before = ""
    for verdict in verdicts:
        if verdict.subject != before:
            yield f"\n{verdict.subject}"
            before = verdict.subject
        yield f"  {'ok  ' if verdict.good else 'FAIL'}  {verdict.check:<42} {verdict.looked_at}"
        yield from (f"          {problem}" for problem in verdict.problems)
    yield ""
