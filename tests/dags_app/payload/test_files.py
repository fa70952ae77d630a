"""Small file operations on a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dags_app.payload.contract.files import append_line, write_atomic

PROGRAM = """
import resource, signal, sys
from pathlib import Path
from dags_app.payload.contract import files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    getattr(files, sys.argv[1])(Path(sys.argv[2]), sys.argv[4])
except OSError as error:
    sys.exit(str(error))
"""


def with_room_for(size: int, function: str, path: Path, text: str) -> str:
    """Write in a process whose files may not grow above ``size`` bytes; what it complains about."""
    argv = [sys.executable, "-c", PROGRAM, function, str(path), str(size), text]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stderr


def test_a_line_that_finds_room_only_in_part_is_an_error_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "the first")
    assert "5 of 11 bytes written" in with_room_for(15, "append_line", path, "the second")
    append_line(path, "the third")
    append_line(path, "the fourth")
    assert path.read_text().splitlines() == ["the first", "the s", "the third", "the fourth"]


def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        append_line(Path("/dev/full"), "a line")


def test_a_file_that_finds_no_room_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "verdict"
    write_atomic(path, "old")
    assert "File too large" in with_room_for(5, "write_atomic", path, "the new text")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
