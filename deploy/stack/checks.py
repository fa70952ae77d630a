"""``make check``: static checks. They need the Python environment only; no service is started or asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.stack import environment
from deploy.stack.paths import Layout
from deploy.stack.steps import say

# Fixed values where nothing is configured; contacts nothing (wms2/check_settings.py).
STATIC_SETTINGS = {"DJANGO_SETTINGS_MODULE": "wms2.check_settings"}
#: What is older than the stated minimum is said by name.
_VERMIN = ("--no-tips", "--violations", "--quiet")


def commands(cache: Path, source: Path) -> Mapping[str, tuple[str, ...]]:
    """The checks by name. Caches lie in the state directory: the checkout may belong to another user."""
    faults = [str(path.relative_to(source)) for path in sorted((source / "tests/planted").glob("*.patch"))]
    return {
        "ruff": ("ruff", "check", "--cache-dir", str(cache / "ruff"), "."),
        "format": ("ruff", "format", "--check", "--cache-dir", str(cache / "ruff"), "."),
        "mypy": ("mypy", "--cache-dir", str(cache / "mypy"), "."),
        "payload's Python": ("vermin", "-t=3.9-", *_VERMIN, "--exclude-regex", "/(programs/|build[.]py$)", "dags_app/payload"),
        "programs' Python": ("vermin", "-t=2.7-", "-t=3.1-", *_VERMIN, "dags_app/payload/programs"),
        "imports": ("lint-imports", "--cache-dir", str(cache / "imports")),
        # It warns that no database answers to compare applied migrations with.
        "migrations": ("python", "-W", "ignore::RuntimeWarning", "manage.py", "makemigrations", "--check", "--dry-run"),
        "planted faults": (shutil.which("git") or "git", "apply", "--check", *faults),
        "plain words": ("python", "-m", "deploy.stack.plain_words"),
        "size": ("python", "-m", "deploy.stack.house"),
        "OpenAPI": ("python", "-m", "deploy.stack.openapi"),
        "deployment": ("python", "manage.py", "check", "--deploy", "--fail-level", "WARNING"),
    }


def run_all(layout: Layout) -> int:
    """Run every check, even after one failed; 0 when all passed."""
    base = environment.base(os.environ, f"{layout.venv}/bin:/usr/local/bin:/usr/bin:/bin", layout.bytecode) | STATIC_SETTINGS
    failed = []
    for name, argv in commands(layout.state_root / "cache", layout.source).items():
        say(f"check {name}: {' '.join(argv)}")
        begun = time.monotonic()
        program = str(layout.venv / "bin" / argv[0])
        result = subprocess.run([program, *argv[1:]], env=base, cwd=layout.source, stdin=subprocess.DEVNULL, check=False)
        say(f"check {name}: {'passed' if result.returncode == 0 else 'FAILED'} in {time.monotonic() - begun:.0f} s")
        if result.returncode != 0:
            failed.append(name)
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0
