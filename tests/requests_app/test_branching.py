"""What tests of the life cycle begin with is put back as it was, and only where it would come about again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from outputs_app.effects import time_slices
from sites_app.models import Site
from tests.support.limits import set_limits
from tests.support.scripted import branching
from tests.support.scripted.branching import once
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import started
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
Worlds = Callable[[], AbstractContextManager[World]]
#: How often the scenario of these tests has run.
runs: list[int] = []


@pytest.fixture(name="another_world")
def _another_world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    """As the next test has it."""
    monkeypatch.setattr(branching, "_points", {})
    runs.clear()
    empty = branching.all_rows()

    @contextmanager
    def another() -> Iterator[World]:
        branching.put_rows(branching.all_rows(), empty)
        branching._write(world_root, {})
        with pytest.MonkeyPatch.context() as patch:
            world = World(world_root, patch)
            world.furnish()
            yield world

    return another


def everything(world: World) -> dict[str, object]:
    """By table, file, and the rest; without moments, which are later by what has passed meanwhile."""
    schedd, dbs, rucio = world.schedd, world.dbs, world.rucio
    asked = [(script.calls, script.answered) for script in world.scripts.values()]
    outside = (schedd.jobs, schedd.fences, dbs.registered, rucio.held, rucio.rules, world.sources, world.hints, world.cycles)
    # in no order: where rows lie in their table depends on what PostgreSQL has tidied up meanwhile
    rows = {table: sorted(branching._MOMENT.sub(b"", content).splitlines()) for table, content in branching.all_rows().items()}
    files = {name: (mode, content) for name, (mode, _, content) in branching._read(world.root).items()}
    return {**rows, **files, "outside": re.sub(r"datetime\.datetime\([^)]*\)", "", repr((asked, outside)))}


def differing(one: dict[str, object], other: dict[str, object]) -> dict[str, object]:
    """What is not the same in both."""
    return {name: (one.get(name), other.get(name)) for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@once
def counted(world: World, number: int) -> int:
    runs.append(number)
    return number


def test_it_is_put_back_as_it_was_and_what_a_test_does_to_it_is_gone(another_world: Worlds) -> None:
    with another_world() as world:
        request, job = started(world)
        then, age = everything(world), world.clock.now() - request.created_at
        written = world.clock.now().timestamp() - (job.directory / "workflow.dag").stat().st_mtime
        world.schedd.unit_done(job, "mg_000000")
        world.cycle()
        world.source("Another", 1)
        (job.directory / "workflow.dag").unlink()
        world.clock.advance(3600)
    with another_world() as world:
        again, job_again = started(world)
        again.refresh_from_db()
        assert abs((world.clock.now() - again.created_at - age).total_seconds()) < 10
        age_again = world.clock.now().timestamp() - (job_again.directory / "workflow.dag").stat().st_mtime
        assert abs(age_again - written) < 10
        assert not differing(everything(world), then)
        assert (again, again.status) == (request, request.status)
        assert job_again is world.job_of(again) and job_again is not job
        assert world.schedd.script.judge.__self__ is world  # type: ignore[attr-defined]
        world.cycle()
        check(world)


@pytest.mark.parametrize(
    "change",
    [
        lambda world: Site.objects.update(total_slots=7),
        lambda world: (world.root / "new").touch(),
        lambda world: world.source("Another", 1),
        lambda world: world.clock.advance(1),
        lambda world: set_limits(world.patch, max_active_dags=1),
        lambda world: world.patch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0),
        lambda world: world.patch.setattr(time_slices, "TIME_SLICE_SECONDS", lambda: 0),
        lambda world: setattr(world.schedd, "named", lambda *_: world.schedd),
        lambda world: counted(world, 2),
    ],
    ids=["row", "file", "outside", "clock", "setting", "patch", "code", "code outside", "another scenario"],
)
def test_where_anything_is_another_it_runs(another_world: Worlds, change: Callable[[World], object]) -> None:
    for changes in (False, False, True):
        with another_world() as world:
            if changes:
                change(world)
            assert counted(world, 1) == 1
    assert runs.count(1) == 2
