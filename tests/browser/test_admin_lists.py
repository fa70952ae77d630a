"""What shift needs of a list of the admin is in sight on a laptop, without moving the list sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dags_app.models import WorkUnit, WorkUnitState
from outputs_app.models import ProcessingBlock
from sites_app.models import Schedd
from tests.support import scene
from tests.support.browser import Window

LISTS = (
    ("dags_app/dag", "Schedd"),
    ("dags_app/workunit", "Problem"),
    ("sites_app/schedd", "Last error"),
    ("outputs_app/processingblock", "Rucio last error"),
    ("outputs_app/effect", "Last error"),
    ("requests_app/lease", "Heartbeat"),
    ("sites_app/site", "Gets no new work"),
)
#: Column -> its right edge, below the list's own edge.
EDGES = """() => {
  const edge = document.querySelector("#changelist .results").getBoundingClientRect().right;
  const heads = [...document.querySelectorAll("#result_list thead th")];
  return heads.map((th) => [th.innerText.trim().toUpperCase(), th.getBoundingClientRect().right - edge]);
}"""


@pytest.fixture
def trouble(transactional_db: Any, tmp_path: Path) -> scene.Scene:
    """A busy afternoon with long words for what is wrong."""
    built = scene.build(tmp_path)
    long = "https://dbs.example.org/DBSWriter: HTTP 503 Service Unavailable, after 3 attempts"
    WorkUnit.objects.filter(workflow=built.active.workflow).update(problem=long, state=WorkUnitState.DONE_UNACCOUNTED)
    Schedd.objects.update(unreachable_since=timezone.now(), last_error=long)
    ProcessingBlock.objects.update(rucio_last_error=long)
    return built


def test_what_shift_needs_is_in_sight(desk: Window, trouble: scene.Scene, subtests: pytest.Subtests) -> None:
    for model, column in LISTS:
        with subtests.test(model):
            desk.go(f"/admin/{model}/")
            edges = dict(desk.page.evaluate(EDGES))
            assert edges[column.upper()] <= 0
