"""Which tests run side by side and what must not run beside what. Owns the arguments of pytest.

What each process has for itself, which of them takes which tests, and in which order, is ``tests/support``'s
(``side_by_side.py``, ``scheduling.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

#: Tests on the pool wait more than they compute: five processes take them, three further ones with less priority all others.
_TOGETHER = ("-n", "8", "--dist", "loadgroup")
_NOTHING_FOUND = 5  # pytest's exit code when no test was selected
#: The marks of what ``make test`` runs, and of what is left to ``make test-long``.
_DEEP = {False: "not deep", True: "deep"}

#: Each process reads all tests; what they compile to is made once, before the first of them starts.
COMPILE = ("pytest", "-qq", "--collect-only", "-p", "no:cacheprovider")
#: The database that each process gets a copy of.
TEMPLATE = ("tests.support.databases",)


def together(*, deep: bool = False) -> dict[str, tuple[str, ...]]:
    """What shares a stack, of the quick run or of the long one: the name of the part, and pytest's arguments."""
    return {"side by side": (*_TOGETHER, "-m", f"not alone and {_DEEP[deep]}")}


def apart(source: Path, *, deep: bool = False) -> dict[str, tuple[str, ...]]:
    """What takes a server away from all others, one after the other on a stack of its own."""
    return {"alone": ("-m", f"alone and {_DEEP[deep]}", *_files(source, "alone"))}


def catalogue(arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The parts of a run of the fault catalogue, narrowed by further arguments of pytest."""
    return {
        "side by side": (*_TOGETHER, "-m", "fault and not alone", *arguments),
        "alone": ("-m", "fault and alone", *arguments),
    }


def outcome(codes: Sequence[int]) -> int:
    """The exit code of parts: the first failure. That a part had nothing to do is one only when all had nothing to do."""
    return next((code for code in codes if code not in (0, _NOTHING_FOUND)), 0 if 0 in codes else _NOTHING_FOUND)


def _files(source: Path, marks: str) -> tuple[str, ...]:
    """Files with such marks: each process reads all that it is given, which costs more than the few tests are worth."""
    mark = re.compile(rf"\bmark\.({marks})\b")
    found = sorted(path for path in (source / "tests").rglob("test_*.py") if mark.search(path.read_text(encoding="utf-8")))
    return tuple(str(path.relative_to(source)) for path in found)
