"""Which tests run side by side, which one after the other, and what must not run beside what. Owns the arguments of pytest.

What each process has for itself, and the order within a part, is ``tests/support/side_by_side.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_ON_THE_STACK = "pool or rucio or simulators"
_TOGETHER = ("--dist", "loadgroup", "--no-loadscope-reorder")
_SLOWEST = ("--durations", "10")
#: Tests on the pool wait more than they compute, so there are more processes than cores.
_SHARING, _BESIDE = ("-n", "5"), ("-n", "3")
_NOTHING_FOUND = 5  # pytest's exit code when no test was selected


def everything(source: Path) -> list[tuple[str, ...]]:
    """The parts of a run of all tests, which come one after the other.

    Those that share the stack; those that take its pool away, beside those that need none; those that take away the databases, or
    a storage element in Rucio.
    """
    sharing = f"({_ON_THE_STACK}) and not whole_pool and not alone"
    return [
        (*_SLOWEST, *_SHARING, *_TOGETHER, "-m", sharing, *_files(source, _ON_THE_STACK.replace(" or ", "|"))),
        (*_SLOWEST, *_BESIDE, *_TOGETHER, "-m", f"(whole_pool or not ({_ON_THE_STACK})) and not alone"),
        (*_SLOWEST, "-m", "alone", *_files(source, "alone")),
    ]


def catalogue(arguments: Sequence[str]) -> list[tuple[str, ...]]:
    """The parts of a run of the fault catalogue, narrowed by further arguments of pytest."""
    return [
        (*_SLOWEST, *_SHARING, *_TOGETHER, "-m", "fault and not whole_pool and not alone", *arguments),
        (*_SLOWEST, "-m", "fault and (whole_pool or alone)", *arguments),
    ]


def outcome(codes: Sequence[int]) -> int:
    """The exit code of parts: the first failure. That a part had nothing to do is one only when all had nothing to do."""
    return next((code for code in codes if code not in (0, _NOTHING_FOUND)), 0 if 0 in codes else _NOTHING_FOUND)


def _files(source: Path, marks: str) -> tuple[str, ...]:
    """Files with such marks: each process reads all that it is given, which costs more than the few tests are worth."""
    mark = re.compile(rf"\bmark\.({marks})\b")
    found = sorted(path for path in (source / "tests").rglob("test_*.py") if mark.search(path.read_text(encoding="utf-8")))
    return tuple(str(path.relative_to(source)) for path in found)
