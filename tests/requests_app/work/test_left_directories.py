"""What planning has left in the submit root when a process dies is taken away by whoever goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dags_app.models import DAG
from dags_app.payload.contract import layout
from dags_app.planning.writer import AGAIN
from requests_app.models import Request, RequestStatus
from tests.support.scripted import documents
from tests.support.scripted.world import World
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_twin_of_a_recorded_directory_goes_when_its_planner_died_before_that(world: World) -> None:
    """One planner dies before the rows, what it rests on changes, and the next one dies after the rows: the twin stays."""
    request = world.request(documents.generation(100))
    place = conf().submit_root / request.request_name
    world.crash_at = "plan.called"
    world.evaluate(request)
    (first,) = place.iterdir()
    (first / layout.SUMS).write_text("of other files\n")
    (place / f".{first.name}.0123456789ab.tmp").mkdir()
    world.crash_at = "plan.recorded"
    world.evaluate(request)
    kept = Path(DAG.objects.get().submit_dir)
    assert kept.parent.name.startswith(AGAIN)
    assert first.is_dir()
    world.cycle()
    assert Request.objects.get().status == RequestStatus.ACTIVE
    assert kept.is_dir()
    assert list(place.iterdir()) == [kept.parent]
