"""``docs/architecture.md`` says where things are; here it is held to that, and the code to what the page says of its layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text()
APPS = ("wms2", "sites_app", "dags_app", "outputs_app", "requests_app")
PATHS = sorted(set(re.findall(rf"`((?:{'|'.join((*APPS, 'deploy', 'tests'))})/[\w/.]*)`", TEXT)))
DOORS = [*sorted(path for app in APPS for path in ROOT.glob(f"{app}/api/*.py")), ROOT / "requests_app/pages/views.py"]


@pytest.mark.parametrize("path", PATHS)
def test_every_place_that_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("app", ["requests_app", "dags_app", "deploy"])
def test_every_room_is_named_on_the_page(app: str) -> None:
    rooms = {path.parent for path in (ROOT / app).glob("*/__init__.py")} - {ROOT / app / name for name in ("migrations", "data")}
    reported = {str(room.relative_to(ROOT)) for room in rooms} - {path.rstrip("/") for path in PATHS}
    assert reported - {f"{app}/{name}" for name in ("api", "admin", "models")} == set()


def test_no_test_imports_another() -> None:
    """What several use is in ``tests/support``, or a helper without tests in their own folder."""
    imports = re.compile(r"^\s*(?:from|import) (tests\.[\w.]*(?:test_\w+|conftest))", re.M)
    assert [found for path in (ROOT / "tests").rglob("*.py") for found in imports.findall(path.read_text())] == []


def test_requests_app_has_no_loose_pile() -> None:
    assert len(list((ROOT / "requests_app").glob("*.py"))) <= 19


@pytest.mark.parametrize("path", DOORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_views_query_no_models(path: Path) -> None:
    """They ask selectors, so that pages, REST and metrics count alike; all rows of a model are nothing to be counted."""
    lines = [line for line in path.read_text().splitlines() if re.search(r"\.objects\.(?!all\b|get_or_create)", line)]
    assert lines == []
