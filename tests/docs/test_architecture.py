"""``docs/architecture.md`` says where things are; here it is held to that, and the code to what the page says of its layers."""

from __future__ import annotations

import re

from tests.support.places import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text()
APPS = ("wms2", "sites_app", "dags_app", "outputs_app", "requests_app")
PATHS = sorted(set(re.findall(rf"`((?:{'|'.join((*APPS, 'deploy', 'tests'))})/[\w/.]*)`", TEXT)))
DOORS = [*sorted(path for app in APPS for path in ROOT.glob(f"{app}/api/*.py")), *ROOT.glob("*/*/api.py")]
DOORS.append(ROOT / "requests_app/pages/views.py")


def test_every_place_that_the_page_names_exists() -> None:
    assert len(PATHS) > 80
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_every_room_is_named_on_the_page() -> None:
    found = [path.parent for app in ("requests_app", "dags_app", "deploy") for path in (ROOT / app).glob("*/__init__.py")]
    rooms = {str(room.relative_to(ROOT)) for room in found if room.name not in ("migrations", "data", "api", "admin", "models")}
    assert rooms - {path.rstrip("/") for path in PATHS} == set()


def test_no_test_imports_another() -> None:
    """What several use is in ``tests/support``, or a helper without tests in their own folder."""
    imports = re.compile(r"^\s*(?:from|import) (tests\.[\w.]*(?:test_\w+|conftest))", re.M)
    assert [found for path in (ROOT / "tests").rglob("*.py") for found in imports.findall(path.read_text())] == []


def test_requests_app_has_no_loose_pile() -> None:
    assert len(list((ROOT / "requests_app").glob("*.py"))) <= 19


def test_views_query_no_models() -> None:
    """They ask selectors, so that pages, REST and metrics count alike; all rows of a model are nothing to be counted."""
    query = re.compile(r"\.objects\.(?!all\b|get_or_create)")
    assert len(DOORS) > 40
    assert [f"{path}: {line}" for path in DOORS for line in path.read_text().splitlines() if query.search(line)] == []
