"""Environments where Python came with and without pip. What is run is looked at, not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import debian, virtualenv

LOCK = Path("/locks/pip.txt")
PYTHON = "/usr/bin/python3.11"


def commands(tmp_path: Path) -> list[list[str]]:
    ran: list[list[str]] = []
    own = virtualenv.create(tmp_path / "env", python=PYTHON, pip_lock=LOCK, run=lambda argv: ran.append(list(argv)))
    assert own == [f"{tmp_path}/env/bin/python", "-m", "pip"]
    return ran


@pytest.fixture
def _no_ensurepip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtualenv, "has", lambda program, module: False)


def test_pythons_own_pip_installs_the_locked_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtualenv, "has", lambda program, module: True)
    make, install = commands(tmp_path)
    assert make == [PYTHON, "-m", "venv", f"{tmp_path}/env"]
    assert install[:3] == [f"{tmp_path}/env/bin/python", "-m", "pip"]
    assert "--require-hashes" in install and install[-1] == str(LOCK)


@pytest.mark.usefixtures("_no_ensurepip")
def test_another_pip_of_the_machine_does_where_python_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtualenv, "installed_pip", lambda python: ["/usr/bin/pip3"])
    make, install = commands(tmp_path)
    assert "--without-pip" in make
    assert install[:3] == ["/usr/bin/pip3", "--python", f"{tmp_path}/env/bin/python"]


@pytest.mark.usefixtures("_no_ensurepip")
def test_debians_wheel_does_where_the_machine_has_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def wheel(python: str, directory: Path) -> Iterator[list[str]]:
        yield [python, f"{directory}/pip.whl/pip"]

    monkeypatch.setattr(virtualenv, "installed_pip", lambda python: None)
    monkeypatch.setattr(virtualenv, "debian_pip", wheel)
    _, install = commands(tmp_path)
    assert install[:4] == [PYTHON, f"{tmp_path}/env/pip.whl/pip", "--python", f"{tmp_path}/env/bin/python"]


def test_a_pip_too_old_for_another_environment_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def versions(command: Sequence[str]) -> tuple[int, ...]:
        return {"/old": (20, 3), "/new": (23, 0)}.get(command[0], (0,))

    monkeypatch.setattr(virtualenv, "_pip_version", versions)
    monkeypatch.setattr(virtualenv, "which", lambda name: "/new" if name == "python3.12" else None)
    assert virtualenv.installed_pip("/old") == ["/new", "-m", "pip"]
    monkeypatch.setattr(virtualenv, "which", lambda name: None)
    assert virtualenv.installed_pip("/old") is None


def test_a_mirror_of_the_persons_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(debian.MIRROR_VARIABLE, "http://mirror.invalid/debian")
    assert debian.mirror() == "http://mirror.invalid/debian"
