"""Writing a generated page of ``docs``, or saying whether it is up to date. Owns no page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run(target: Path, page: Callable[[], str], arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` only say whether it is what would be written; an exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.check_settings")  # pages hold defaults, whatever is configured
    import django

    django.setup()
    text = page()
    if "--check" in arguments:
        current = target.is_file() and target.read_text() == text
        print(f"{target.name} is {'up to date' if current else f'out of date: run python -m deploy.docs.{target.stem}'}")
        return 0 if current else 1
    target.write_text(text)
    print(f"wrote {target.name}")
    return 0
