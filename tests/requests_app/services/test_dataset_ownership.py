"""Whose the output datasets are: one request or one family writes into a name; taking one's outputs back hurts no other's."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from outputs_app.blocks.ownership import lumis_take
from outputs_app.models import DatasetOwner, Effect, EffectKind, EffectState, OutputDataset, OutputFile, OwnedDataset, Validity
from requests_app.models import HoldCode, Request, RequestStatus, Workflow
from requests_app.services import request_abort, request_fail, request_invalidate, request_release, request_restart
from requests_app.services.intake import Received, request_receive
from requests_app.services.invalidation import superseded_take_back
from tests.support.rows import request_row
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.progress import DAY_SECONDS, fresh, held, run_on, started
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import DocumentRefused, InvalidTransition, StaleState
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def again(request: Request, name: str) -> dict[str, Any]:
    """The same document under a second name."""
    return {**request.request_data, "RequestName": name, "RequestStatus": "new"}


def received(document: dict[str, Any], **more: Any) -> Request:
    return request_receive(received=Received(document=document, request_name=None, **more), actor="olga")


def names_of(request: Request) -> set[str]:
    return set(OutputDataset.objects.filter(workflow__request=request).values_list("name", flat=True))


def owners(name: str) -> set[str]:
    return set(DatasetOwner.objects.filter(dataset__name=name).values_list("request__request_name", flat=True))


def valid_lfns(request: Request) -> set[str]:
    rows = OutputFile.objects.filter(dataset__workflow__request=request, validity=Validity.VALID)
    return set(rows.values_list("lfn", flat=True))


def lumis_of(request: Request, name: str) -> list[int]:
    rows = OutputFile.objects.filter(dataset__workflow__request=request, dataset__name=name)
    return sorted(lumi for file in rows for pairs in file.lumis.values() for lumi, _ in pairs)


def cycles(world: World, count: int = 4) -> None:
    for _ in range(count):
        world.clock.advance(60)
        world.cycle()


# --- refused


def test_the_same_document_under_a_second_name_is_refused_and_told_whose_the_datasets_are(world: World) -> None:
    first = received(documents.generation(300))
    with pytest.raises(DocumentRefused, match=f"belongs to {first.request_name}, which is Submitted.*ProcessingVersion"):
        received(again(first, "tester_second"))
    assert not Request.objects.filter(request_name="tester_second").exists()
    assert OwnedDataset.objects.count() == 2


def test_a_new_request_that_nobody_has_submitted_owns_its_datasets_too(world: World) -> None:
    first = received(documents.generation(300), submit=False)
    with pytest.raises(DocumentRefused, match="which is New"):
        received(again(first, "tester_second"))
    request_abort(request=first, **BY)
    assert received(again(first, "tester_second")).status == S.SUBMITTED


def test_a_request_whose_datasets_are_known_only_later_is_held_until_they_are_free(world: World) -> None:
    first, _ = started(world)
    second = world.request(again(first, "tester_second"))
    world.cycle()
    assert (fresh(second).status, second.hold_code) == (S.HELD, HoldCode.REFUSED)
    assert f"belongs to {first.request_name}, which is Active" in second.hold_reason
    request_abort(request=fresh(first), **BY)
    cycles(world)
    assert fresh(first).status == S.ABORTED
    request_release(request=fresh(second), **BY)
    assert run_on(world, second) == S.COMPLETED
    assert min(lumis_of(second, min(names_of(second)))) == 1, "nothing of anybody's is in it: numbers begin anew"


def test_datasets_belong_to_a_failed_request_until_its_outputs_are_taken_back(world: World) -> None:
    first = held(world)
    request_fail(request=first, **BY)
    with pytest.raises(DocumentRefused, match=f"belongs to {first.request_name}, which is Failed and has 1 valid file"):
        received(again(first, "tester_second"))
    request_invalidate(request=fresh(first), **BY)
    cycles(world)
    assert received(again(first, "tester_second")).status == S.SUBMITTED


def test_a_restart_into_datasets_of_somebody_else_is_refused_and_nothing_is_changed(world: World) -> None:
    first = held(world)
    stranger = received(again(first, "tester_stranger") | {"ProcessingVersion": 2})
    with pytest.raises(DocumentRefused, match=f"belongs to {stranger.request_name}"):
        request_restart(request=first, **BY)
    assert (fresh(first).status, first.superseded_by_request) == (S.HELD, "")


def test_the_database_lets_nobody_of_another_family_in(world: World) -> None:
    first = received(documents.generation(300))
    stranger = request_row()
    dataset = OwnedDataset.objects.order_by("name")[0]
    with pytest.raises(IntegrityError, match="dataset_owner_of_the_family"):
        DatasetOwner.objects.create(dataset=dataset, request=stranger, family=stranger.family)
    with pytest.raises(IntegrityError, match="owned_dataset_once"):
        OwnedDataset.objects.create(name=dataset.name, family=stranger.family)
    assert owners(dataset.name) == {first.request_name}


# --- families


def registered(world: World) -> None:
    """A day later blocks that wait for units are registered without them."""
    world.clock.advance(86_400)
    for _ in range(3):
        world.cycle()


@once
def partly_registered(world: World) -> Request:
    """Held, what is done of it registered."""
    request = held(world)
    registered(world)
    return request


@once
def taken_back(world: World) -> Request:
    """One that has failed and whose registered outputs were invalidated."""
    request = partly_registered(world)
    request_fail(request=fresh(request), **BY)
    request_invalidate(request=fresh(request), **BY)
    cycles(world)
    return request


def test_a_clone_that_keeps_its_version_goes_on_numbering_and_survives_the_clean_up_of_the_old_outputs(world: World) -> None:
    old = partly_registered(world)
    new = request_restart(request=old, request_name="tester_clone", document=again(old, "tester_clone"), **BY)
    assert run_on(world, new) == S.COMPLETED
    assert names_of(old) == names_of(new)
    for name in names_of(new):
        assert owners(name) == {old.request_name, new.request_name}
        assert min(lumis_of(new, name)) > max(lumis_of(old, name)) > 0
    world.clock.advance(30 * DAY_SECONDS)
    assert superseded_take_back(transaction.atomic) == 1
    gone = valid_lfns(old)
    cycles(world)
    assert not valid_lfns(old)
    assert gone <= world.dbs.invalid
    assert valid_lfns(new)
    assert not valid_lfns(new) & world.dbs.invalid
    assert world.dbs.access == dict.fromkeys(names_of(new), "VALID"), "they hold valid files, so they stay"


def test_an_operator_declares_that_a_request_writes_into_the_datasets_of_another(world: World) -> None:
    first = held(world)
    request_fail(request=first, **BY)
    with pytest.raises(DocumentRefused, match="family_reason"):
        received(again(first, "tester_second"), family_of=first.request_name)
    with pytest.raises(DocumentRefused, match="no request tester_nobody"):
        received(again(first, "tester_second"), family_of="tester_nobody", family_reason="a recovery")
    second = received(again(first, "tester_second"), family_of=first.request_name, family_reason="a recovery of what failed")
    entry = AuditEntry.objects.get(action="request_import", target=second.request_name)
    assert entry.evidence["family_of"] == first.request_name
    assert entry.reason == "a recovery of what failed"
    assert run_on(world, second) == S.COMPLETED
    request_invalidate(request=fresh(first), **BY)
    cycles(world)
    assert not valid_lfns(first)
    assert valid_lfns(second)
    assert world.dbs.access == dict.fromkeys(names_of(second), "VALID")
    name = min(names_of(second))
    assert owners(name) == {second.request_name}


def test_a_dataset_becomes_invalid_when_the_last_valid_file_of_anybody_is_taken_back(world: World) -> None:
    old = partly_registered(world)
    new = request_restart(request=old, request_name="tester_clone", document=again(old, "tester_clone"), **BY)
    for _ in range(3):
        world.cycle()
    world.schedd.unit_done(world.job_of(new), "mg_000000")
    world.observe()
    world.evaluate(new)
    registered(world)
    request_fail(request=fresh(new), **BY)
    cycles(world)
    request_invalidate(request=fresh(old), **BY)
    cycles(world)
    assert world.dbs.access == {}
    request_invalidate(request=fresh(new), **BY)
    cycles(world)
    assert world.dbs.access == dict.fromkeys(names_of(new), "INVALID")
    assert not DatasetOwner.objects.exists()


def test_a_name_whose_files_are_all_invalid_is_written_again_and_its_dataset_revived(world: World) -> None:
    first = taken_back(world)
    assert world.dbs.access == dict.fromkeys(names_of(first), "INVALID")
    second = received(again(first, "tester_second"))
    assert run_on(world, second) == S.COMPLETED
    assert world.dbs.access == dict.fromkeys(names_of(second), "VALID")
    assert valid_lfns(second)


@pytest.mark.parametrize("completed", [False, True])
def test_a_call_that_comes_late_does_not_leave_the_next_requests_dataset_invalid(
    world: World, monkeypatch: pytest.MonkeyPatch, completed: bool
) -> None:
    """Its worker was paused in it; another has taken the effect over, and the name was written anew."""
    first = partly_registered(world)
    request_fail(request=fresh(first), **BY)
    call, second = world.dbs.set_dataset_access_type, list[Request]()

    def late(name: str, access_type: str) -> None:
        monkeypatch.setattr(world.dbs, "set_dataset_access_type", call)
        world.clock.advance(2 * conf().effect_lease_seconds)
        cycles(world)
        with world.process():  # another one
            second.append(received(again(first, "tester_second")))
        if completed:
            assert run_on(world, second[0]) == S.COMPLETED
        else:
            for _ in range(3):
                world.cycle()
            world.schedd.unit_done(world.job_of(second[0]), "mg_000000")
            world.observe()
            world.evaluate(second[0])
            registered(world)
        with world.process():  # it was begun before
            call(name, access_type)

    monkeypatch.setattr(world.dbs, "set_dataset_access_type", late)
    request_invalidate(request=fresh(first), **BY)
    cycles(world)
    assert valid_lfns(second[0])
    assert set(world.dbs.access.values()) <= {"VALID" if completed else "PRODUCTION"}, world.dbs.access


def test_a_dataset_that_somebody_else_makes_invalid_while_it_is_written_stays_so(world: World) -> None:
    first = taken_back(world)
    second = received(again(first, "tester_second"))
    for _ in range(3):
        world.cycle()
    world.schedd.unit_done(world.job_of(second), "mg_000000")
    world.observe()
    world.evaluate(second)
    registered(world)
    assert "INVALID" not in world.dbs.access.values(), "its first blocks are registered"
    world.dbs.access = dict.fromkeys(names_of(second), "INVALID")
    run_on(world, second)
    refused = Effect.objects.filter(request=second, kind=EffectKind.DBS_BLOCK, state=EffectState.REFUSED)
    assert refused.exists()
    assert set(world.dbs.access.values()) == {"INVALID"}


def test_valid_files_that_only_dbs_knows_keep_a_dataset(world: World) -> None:
    request = partly_registered(world)
    request_fail(request=fresh(request), **BY)
    name = min(names_of(request))
    world.dbs.foreign_files[name] = "/store/mc/foreign.root"
    request_invalidate(request=fresh(request), **BY)
    cycles(world)
    assert set(world.dbs.access) == names_of(request) - {name}


def test_a_restart_that_keeps_its_version_may_not_process_an_input_twice_into_one_dataset(world: World) -> None:
    source = world.source("Twice", 100, 100, 100)
    first = world.request(documents.reprocessing(source, files_per_job=1))
    world.cycle()
    world.schedd.unit_done(world.job_of(first), "mg_000000")
    world.observe()
    world.evaluate(first)
    with pytest.raises(InvalidTransition, match="ProcessingVersion"):
        request_restart(request=fresh(first), request_name="tester_clone", document=again(first, "tester_clone"), **BY)
    assert fresh(first).status == S.ACTIVE
    assert request_restart(request=first, **BY).request_name == f"{first.request_name}_v2"


def test_a_lumi_that_is_valid_in_the_dataset_is_not_registered_a_second_time(world: World) -> None:
    source = world.source("Overlap", 100, 100, 100)
    first = world.request(documents.reprocessing(source, lumis_per_job=10))
    assert run_on(world, first) == S.COMPLETED
    second = received(again(first, "tester_second"), family_of=first.request_name, family_reason="thought to be missing")
    assert run_on(world, second) == S.HELD
    assert second.hold_code == HoldCode.LEDGER
    assert "1:1 is valid already in /store/" in second.hold_reason
    assert f"of {first.request_name}; 10 lumis" in second.hold_reason
    assert not valid_lfns(second)


# --- numbers


def test_two_of_a_family_that_plan_at_once_do_not_take_the_same_lumis(world: World) -> None:
    first, _ = started(world)
    second = received(again(first, "tester_second"), family_of=first.request_name, family_reason="more statistics")
    workflow = Workflow.objects.get(request=first)
    with transaction.atomic(), pytest.raises(StaleState, match="lumis"):
        lumis_take(request_id=second.pk, first=1, after=11)
    cycles(world, 2)
    assert fresh(second).status == S.ACTIVE
    begin = Workflow.objects.get(request=second)
    assert begin.next_first_lumi > workflow.next_first_lumi
    assert begin.next_first_event == workflow.next_first_event, "event numbers are its own: lumis tell the events apart"
