"""Which tests `make test` runs and which only `make test-long`, and why.

A test that costs more than five CPU seconds has one of two marks. ``deep(quick)`` leaves it to the long run, and names the
test that fails in the quick one when what both guard is broken in the simplest way. ``dear(why)`` keeps it in the quick run: it
guards data, or is the only one of its kind.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest


def problem(item: pytest.Item, root: Path) -> str | None:
    """What is wrong with the marks of a test."""
    for name in ("deep", "dear"):
        mark = item.get_closest_marker(name)
        if mark is not None and (len(mark.args) != 1 or mark.kwargs):
            return f"{item.nodeid}: {name}() takes one argument, see tests/support/marks.py"
    deep = item.get_closest_marker("deep")
    return None if deep is None or _is_there(root, deep.args[0]) else f"{item.nodeid}: there is no test {deep.args[0]}"


@cache
def _is_there(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return (
        path.is_file() and re.search(rf"^def {re.escape(name.partition('[')[0])}\(", path.read_text(), re.MULTILINE) is not None
    )
