"""Where things lie: the checkout, recorded files, the folder of real documents."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

#: The checkout.
ROOT = Path(__file__).resolve().parents[2]
#: What DAGMan of two series of HTCondor wrote.
RECORDED_DAGS = ROOT / "tests/dags_app/planning/recorded"
#: Documents that CMS's own systems wrote; not part of the repository, and maybe not there.
REAL_INPUTS = Path(os.environ.get("WMS2_REAL_INPUTS") or ROOT.parent / "shared/real-inputs")


def real_inputs() -> Path:
    """The folder of real documents; skips where it is absent."""
    if not REAL_INPUTS.is_dir():
        pytest.skip(f"no real documents at {REAL_INPUTS} (WMS2_REAL_INPUTS names their folder)")
    return REAL_INPUTS


def missing_tests(named: Iterable[tuple[str, str]]) -> list[str]:
    """Of pairs of a file and a test those that name no test."""
    return [f"{file}::{test}" for file, test in named if f"\ndef {test}(" not in _text(ROOT / file)]


@cache
def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""
