"""Copying a checkout for a user who cannot read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.stack import mirror


def tree(root: Path) -> dict[str, str]:
    return {
        str(entry): str((root / entry).readlink()) if (root / entry).is_symlink() else (root / entry).read_text()
        for entry in mirror.entries(root)
        if (root / entry).is_symlink() or (root / entry).is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "app/empty").mkdir(parents=True)
    (root / "app/code.py").write_text("x = 1\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("app/code.py")
    for skipped in (".git", ".venv", "app/__pycache__"):
        (root / skipped).mkdir()
        (root / skipped / "file").write_text("no")
    return root


def test_the_copy_holds_what_the_checkout_holds_and_nothing_private(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    mirror.unpack(mirror.pack(source), copy)
    assert tree(copy) == {"app/code.py": "x = 1\n", "run": "#!/bin/sh\n", "link": "app/code.py"}
    assert (copy / "run").stat().st_mode & 0o777 == 0o755
    assert (copy / "app/empty").is_dir()
    assert not (copy / ".git").exists()


def test_copying_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert mirror.unpack(mirror.pack(source), copy) > 0
    assert mirror.unpack(mirror.pack(source), copy) == 0


def test_a_change_reaches_the_copy_and_its_environment_stays(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    mirror.unpack(mirror.pack(source), copy)
    (copy / ".venv").mkdir()
    (copy / ".venv/marker").write_text("installed")
    (source / "app/code.py").write_text("x = 2\n")
    (source / "run").unlink()
    (source / "link").unlink()
    (source / "link").mkdir()
    mirror.unpack(mirror.pack(source), copy)
    assert tree(copy) == {"app/code.py": "x = 2\n"}
    assert (copy / "link").is_dir() and not (copy / "link").is_symlink()
    assert (copy / ".venv/marker").read_text() == "installed"
