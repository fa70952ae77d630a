"""Small file operations on a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dags_app.payload.files import append_line

APPEND = """
import resource, signal, sys
from pathlib import Path
from dags_app.payload.files import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    append_line(Path(sys.argv[1]), sys.argv[3])
except OSError as error:
    sys.exit(str(error))
"""


def append_with_room_for(path: Path, size: int, line: str) -> str:
    """Append in a process whose files may not grow above ``size`` bytes; what it complains about."""
    argv = [sys.executable, "-c", APPEND, str(path), str(size), line]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stderr


def test_a_line_that_finds_room_only_in_part_is_an_error_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "the first")
    assert "5 of 11 bytes written" in append_with_room_for(path, 15, "the second")
    append_line(path, "the third")
    append_line(path, "the fourth")
    assert path.read_text().splitlines() == ["the first", "the s", "the third", "the fourth"]


def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        append_line(Path("/dev/full"), "a line")
