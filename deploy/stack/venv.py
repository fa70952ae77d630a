"""The checkout's Python environment, ``.venv``, made from the hash-locked requirements."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.stack.paths import Layout
from deploy.virtualenv import Environment, digest


def interpreter() -> str:
    """The Python that environments are made from: the one running the stack, not an environment's link to it."""
    return str(Path(sys.executable).resolve())


def ensure(layout: Layout) -> None:
    """Make the environment unless it is complete, from these locks and with this interpreter."""
    pip_lock, lock = (layout.source / f"requirements/{name}.txt" for name in ("pip", "dev"))
    made_from = f"{digest(pip_lock, lock)} {interpreter()} {sys.version.split()[0]}\n"
    environment = Environment("python environment", layout.venv, pip_lock, lock, ".complete", made_from)
    state = layout.state_root
    environment.ensure(python=interpreter(), log=state / "logs/venv.log", locked_by=state / "venv.lock")
