"""What one step leaves behind for another: late manifests, proved absences, changed priorities, registrations after the end.

And that the scripted world would find it if nothing had come of that: it fails as soon as a wake or a due time is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from outputs_app.models import BlockStatus, ProcessingBlock
from requests_app.lease import Evaluation
from requests_app.models import Request, RequestStatus
from requests_app.services import request_fail, request_hold, request_release, request_set_priority, request_stop
from requests_app.services.release import ReleaseMode
from requests_app.work import accounting
from sites_app.models import Site
from sites_app.services import site_ban_by_operator
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.faults import Mode
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import fresh
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


WORLD = {"ERROR_HOLD_THRESHOLD": "1"}
SWEEP_EVERY = 1


@once
def started(world: World, events: int = 100) -> Request:
    request = world.request(documents.generation(events))
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    return request


def cycles(world: World, number: int, seconds: float = 600) -> None:
    for _ in range(number):
        world.cycle()
        check(world)
        world.clock.advance(seconds)


def test_a_block_whose_registration_died_goes_to_tape_and_completes_once_that_is_tried_again(world: World) -> None:
    request = started(world)
    world.schedd.end(world.job_of(request), End.FINISHED)
    world.observe()
    world.evaluate(request)
    world.dbs.script.arm(Mode.DOWN, 5000)
    cycles(world, 20)
    statuses = {block.dataset.tier: block.status for block in ProcessingBlock.objects.select_related("dataset")}
    assert statuses == {"GEN-SIM": BlockStatus.FAILED, "AODSIM": BlockStatus.COMPLETE}, (
        "the second waits for its parents' dataset"
    )
    assert not any(block.tape_rule_id for block in ProcessingBlock.objects.all()), "nothing goes to tape that DBS does not know"

    world.heal()
    world.retry_effects()
    cycles(world, 5)
    assert fresh(request).status == S.COMPLETED, request.waiting_for


def test_a_priority_that_is_changed_back_reaches_the_queue_too(world: World) -> None:
    request = started(world, 400)
    job = world.job_of(request)
    first = job.priority
    request_set_priority(request=request, priority=5, **BY)
    world.cycle()
    assert job.priority == 5
    request_set_priority(request=fresh(request), priority=first, **BY)
    world.cycle()
    assert job.priority == first
    world.cycle()
    passed = DAG.objects.get().history.filter(event_type="priority_passed").order_by("id")
    assert [row.detail["priority"] for row in passed] == [5, first], "each is told once"


def test_a_submission_that_is_proved_absent_does_not_keep_a_request_that_cannot_be_submitted(world: World) -> None:
    request = world.request(documents.generation(100))
    world.crash_at = "submit.claimed"
    world.evaluate(request)
    assert (fresh(request).status, world.deaths) == (S.PLANNING, 1)
    assert DAG.objects.get().submit_intent_at is not None
    for site in Site.objects.order_by("name"):
        site_ban_by_operator(site=site, insist=True, **BY)
    world.clock.advance(conf().submit_timeout_seconds + conf().submit_unknown_grace_seconds + conf().lease_seconds + 1)

    world.evaluate(request, steps=1)

    assert fresh(request).status == S.QUEUED, request.waiting_for
    assert "a site" in request.last_error
    assert not DAG.objects.filter(status__in=LIVE_DAG).exists(), "its slot is free for others"


def test_what_is_registered_after_a_request_failed_is_in_its_manifest_too(world: World) -> None:
    request = started(world, 300)
    job = world.job_of(request)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.rucio.script.arm(Mode.DOWN, 500)
    cycles(world, 1, 60)
    request_fail(request=fresh(request), **BY)
    cycles(world, 4, 60)
    assert fresh(request).status == S.FAILED
    assert not rules_listed(request), "Rucio was silent when the manifest was written"

    world.heal()
    cycles(world, 4)
    assert world.rucio.rules
    assert rules_listed(request) == {rule for ids in world.rucio.rules.values() for rule in ids}


def rules_listed(request: Request) -> set[str]:
    manifest = json.loads((conf().state_dir / "invalidations" / f"{request.request_name}.json").read_text())
    return {rule["id"] for dataset in manifest["datasets"] for block in dataset["blocks"] for rule in block["rules"]}


@once
def unaccounted(world: World) -> tuple[Request, Path, str]:
    """A DAG that has ended, the manifest of its unit not there yet; its place and what will stand in it."""
    request = started(world)
    world.schedd.end(world.job_of(request), End.FINISHED)
    manifest = Path(DAG.objects.get().submit_dir) / "mg_000000" / layout.MANIFEST_FILE
    text = manifest.read_text()
    manifest.unlink()
    cycles(world, 2, 60)
    assert WorkUnit.objects.get().state == WorkUnitState.DONE_UNACCOUNTED
    return fresh(request), manifest, text


def test_a_stop_does_not_throw_away_a_unit_whose_manifest_came_late(world: World) -> None:
    request, manifest, text = unaccounted(world)
    request_stop(request=request, **BY)
    manifest.write_text(text)
    cycles(world, 4, 60)
    assert WorkUnit.objects.get().state == WorkUnitState.DONE, "nothing is done again"
    assert fresh(request).status == S.COMPLETED


def test_a_manifest_that_comes_while_its_request_is_held_counts_in_the_next_round(world: World) -> None:
    request, manifest, text = unaccounted(world)
    request_hold(request=request, **BY)
    cycles(world, 2, 60)
    assert fresh(request).status == S.HELD
    manifest.write_text(text)
    cycles(world, 1, 60)
    assert WorkUnit.objects.get().state == WorkUnitState.DONE
    request_release(request=fresh(request), mode=ReleaseMode.NEXT_ROUND, **BY)
    cycles(world, 4, 60)
    assert WorkUnit.objects.count() == 1, "nothing is done again"
    assert fresh(request).status == S.COMPLETED


def test_a_unit_that_is_given_up_while_its_manifest_is_looked_for_stays_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _, _ = unaccounted(world)
    request_hold(request=request, **BY)
    cycles(world, 2, 60)
    assert fresh(request).status == S.HELD

    read = accounting.unit_read

    def read_while_it_is_released(**looked_at: Any) -> Any:
        monkeypatch.setattr(accounting, "unit_read", read)
        request_release(request=fresh(request), mode=ReleaseMode.NEXT_ROUND, **BY)
        return read(**looked_at)

    monkeypatch.setattr(accounting, "unit_read", read_while_it_is_released)
    cycles(world, 1, 60)
    assert WorkUnit.objects.order_by("pk")[0].state == WorkUnitState.FAILED
    world.schedd.end(world.job_of(request), End.FINISHED)
    cycles(world, 4, 60)
    assert fresh(request).status == S.COMPLETED, fresh(request).waiting_for


# --- a wake or a due time that is lost is found

FOUND = r"was forgotten|nothing woke admission"


@contextmanager
def wakes_lost(why: str) -> Iterator[None]:
    """Wakes with these words (SQL's LIKE) are gone as soon as they are written, whoever writes them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN DELETE FROM wakes WHERE id = NEW.id AND why LIKE TG_ARGV[0]; RETURN NULL; END'"
        )
        cursor.execute(f"CREATE TRIGGER lost AFTER INSERT ON wakes FOR EACH ROW EXECUTE FUNCTION lost('{why}')")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER lost ON wakes")
            cursor.execute("DROP FUNCTION lost()")


@pytest.mark.parametrize("lost", ["created", "admission: %"])
def test_a_request_that_arrives_and_wakes_nobody_is_found(world: World, lost: str) -> None:
    with wakes_lost(lost), pytest.raises(AssertionError, match=FOUND):
        world.request(documents.generation(100))
        cycles(world, 3, 60)


def ends(world: World, request: Request) -> None:
    world.schedd.end(world.job_of(request), End.FINISHED)


def is_stopped(world: World, request: Request) -> None:
    request_stop(request=request, **BY)


@pytest.mark.parametrize(("happens", "lost"), [(ends, "%"), (ends, "effect %"), (is_stopped, "%")])
def test_what_happens_to_a_running_request_and_wakes_nobody_is_found(
    world: World, happens: Callable[[World, Request], None], lost: str
) -> None:
    request = started(world)
    with wakes_lost(lost), pytest.raises(AssertionError, match=FOUND):
        happens(world, request)
        cycles(world, 10, 60)


def test_a_lost_due_time_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluation, "again_at", lambda evaluation, moment: None)
    world.configcache.script.arm(Mode.DOWN)
    request = world.request(documents.generation(100))
    world.cycle()
    assert fresh(request).next_attempt_at is not None
    with pytest.raises(AssertionError, match="was forgotten"):
        cycles(world, 3)
