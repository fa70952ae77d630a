"""``make planted``: faults that are planted into a copy of the checkout one after the other, and the tests that must find each.

A patch of ``tests/planted`` says above its diff what is wrong with it, and which tests find it:

    fault: one sentence
    tests: tests/path/test_file.py::test_name      (once or several times)
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError
from deploy.stack.mirror import SKIPPED_DIRECTORIES
from deploy.stack.services.base import Place
from deploy.stack.steps import run_for_code, say

FOLDER = "tests/planted"
_TEST_SECONDS = 300.0
_PASSED, _FAILED = 0, 1  # pytest's exit codes


@dataclass(frozen=True, slots=True)
class Patch:
    """One fault."""

    path: Path
    fault: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests made of it; ``problem`` is empty where they found it."""

    patch: Patch
    problem: str
    seconds: float


def read(path: Path) -> Patch:
    """A patch with its head.

    Raises:
        StackError: the head says no fault or no tests.
    """
    head = path.read_text(encoding="utf-8").partition("diff --git ")[0]
    lines = [line.partition(":") for line in head.splitlines()]
    faults, tests = ([text.strip() for key, _, text in lines if key == name] for name in ("fault", "tests"))
    if len(faults) != 1 or not tests:
        raise StackError(f"{path}: above the diff there must be one line 'fault: …' and at least one 'tests: …'")
    return Patch(path, faults[0], tuple(tests))


def run_all(place: Place) -> list[Outcome]:
    """Plant each fault into a copy of the checkout, and run its tests there; the services of ``place`` run."""
    patches = [read(path) for path in sorted((place.layout.source / FOLDER).glob("*.patch"))]
    if not patches:
        raise StackError(f"there is no patch in {FOLDER}")
    copy = place.directory / "planted"
    shutil.copytree(place.layout.source, copy, ignore=lambda _, names: set(names) & SKIPPED_DIRECTORIES)
    return [_outcome(place, copy, patch) for patch in patches]


def _outcome(place: Place, copy: Path, patch: Patch) -> Outcome:
    begun = time.monotonic()
    name = patch.path.stem
    _apply(copy, patch)
    try:
        argv = (place.layout.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *patch.tests)
        where = {"output": place.log(f"planted-{name}"), "errors": None, "environment": place.environment, "cwd": copy}
        code = run_for_code(argv, seconds=_TEST_SECONDS, **where)  # type: ignore[arg-type]
    finally:
        _apply(copy, patch, "--reverse")
    problem = "" if code == _FAILED else "NOT FOUND: its tests pass" if code == _PASSED else f"pytest ended with code {code}"
    say(f"planted {name}: {problem or 'found'}")
    return Outcome(patch, problem, time.monotonic() - begun)


def _apply(copy: Path, patch: Patch, *options: str) -> None:
    argv = ("git", "apply", *options, str(patch.path))
    done = subprocess.run(argv, cwd=copy, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise StackError(f"{patch.path} does not fit the code any more: {done.stderr.strip()}")


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each fault: what became of it, seconds, what it is."""
    for outcome in outcomes:
        yield f"{outcome.patch.path.stem:<20} {outcome.problem or 'found':<28} {outcome.seconds:5.0f} s  {outcome.patch.fault}"
