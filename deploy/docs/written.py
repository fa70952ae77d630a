"""Writing a generated page of ``docs``. Owns no page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run(target: Path, page: Callable[[], str]) -> None:
    """Write the page."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.check_settings")  # pages hold defaults, whatever is configured
    import django

    django.setup()
    target.write_text(page())
    print(f"wrote {target.name}")
