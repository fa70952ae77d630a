"""Effects are claimed, called and recorded; refused, broken and unavailable ones are kept apart, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from outputs_app import executor, turns
from outputs_app.blocks import units_join_blocks
from outputs_app.effects import Handler
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, ProcessingBlock
from outputs_app.services import effect_retry
from outputs_app.values import Membership
from requests_app.models import Request, RequestStatus
from tests.support.faults import fault
from tests.support.locking import paused
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.services import until
from wms2 import clock
from wms2.conf import conf
from wms2.errors import LeaseLost, ServiceRejected, ServiceUnavailable

pytestmark = pytest.mark.django_db


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    unit = unit_row(dag_row(workflow))
    dataset = workflow.output_datasets.get()
    units_join_blocks(workflow_id=workflow.pk, memberships=[Membership(unit.pk, dataset.name, 0, 1)])
    return ProcessingBlock.objects.get()


@pytest.fixture(name="outside")
def _outside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Script what a kind of effect meets outside: the calls made are returned."""

    def script(*answers: Exception | None) -> list[str]:
        calls: list[str] = []
        left = list(answers)

        def call(effect: Effect) -> dict[str, str]:
            calls.append(effect.key)
            answer = left.pop(0) if left else None
            if answer is not None:
                raise answer
            return {"done": effect.key}

        handler = Handler(call, lambda effect, result: None)
        monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, handler))
        return calls

    return script


def effect(block: ProcessingBlock, key: str = "k1", **fields: object) -> Effect:
    request = Request.objects.get(workflow=block.workflow)
    return Effect.objects.create(
        request=request, block=block, kind=EffectKind.RUCIO_FILES, key=key, epoch=request.epoch, **fields
    )


def run() -> None:
    executor.effects_run_due(owner="test")


def test_what_is_due_is_done_once(block: ProcessingBlock, outside) -> None:
    calls = outside()
    row = effect(block)
    run()
    run()
    row.refresh_from_db()
    assert calls == ["k1"]
    assert (row.state, row.result, row.attempts) == (EffectState.DONE, {"done": "k1"}, 1)


def test_an_effect_waits_for_those_it_depends_on(block: ProcessingBlock, outside) -> None:
    calls = outside(ServiceUnavailable("dbs", "x", "down"))
    first, second = effect(block, "first"), effect(block, "second")
    second.depends_on.set([first])
    run()
    assert calls == ["first"]
    Effect.objects.update(next_attempt_at=timezone.now())
    run()
    assert calls == ["first", "first", "second"]


def test_unavailability_is_retried_on_the_schedule_and_given_up_after_days_with_the_block_failed(block, outside) -> None:
    outside(*[ServiceUnavailable("rucio", "register_files", "no answer")] * 3)
    row = effect(block)
    run()
    row.refresh_from_db()
    first_pause = (row.next_attempt_at - timezone.now()).total_seconds()
    assert row.state == EffectState.PENDING
    assert 0 < first_pause <= executor.conf().effect_backoff_seconds[0]
    assert "no answer" in row.last_error
    Effect.objects.update(next_attempt_at=timezone.now(), first_failed_at=timezone.now() - timedelta(days=4))
    run()
    row.refresh_from_db()
    block.refresh_from_db()
    assert row.state == EffectState.DEAD
    assert block.status == BlockStatus.FAILED
    assert block.failure_context["effect"] == "k1"


def test_a_refusal_is_not_retried_until_a_person_says_so(block, outside) -> None:
    calls = outside(ServiceRejected("rucio", "protect_files", "no such RSE", code="RSENotFound"))
    row = effect(block)
    run()
    Effect.objects.update(next_attempt_at=timezone.now())
    run()
    row.refresh_from_db()
    assert (row.state, len(calls)) == (EffectState.REFUSED, 1)
    effect_retry(effect=row)
    run()
    row.refresh_from_db()
    assert row.state == EffectState.DONE


def test_a_broken_effect_does_not_stop_the_others_and_is_told(block, outside) -> None:
    calls = outside(KeyError("lfn"))
    broken, fine = effect(block, "a"), effect(block, "b")
    run()
    broken.refresh_from_db()
    fine.refresh_from_db()
    assert calls == ["a", "b"]
    assert "KeyError" in broken.last_error
    assert (broken.state, fine.state) == (EffectState.PENDING, EffectState.DONE)


def test_a_silent_claim_is_taken_over_and_its_late_result_dropped(block, outside) -> None:
    calls = outside()
    effect(block)
    late = executor.effect_claim(owner="dead")
    assert late is not None
    assert executor.effect_claim(owner="other") is None
    Effect.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
    run()
    assert calls == ["k1"]
    executor._record_success(late, {"done": "by the dead one"})
    assert Effect.objects.get().result == {"done": "k1"}


def test_effects_of_one_block_run_one_at_a_time(block, outside) -> None:
    outside()
    effect(block, "a")
    effect(block, "b")
    assert executor.effect_claim(owner="one") is not None
    assert executor.effect_claim(owner="two") is None


@pytest.mark.django_db(transaction=True)
def test_effects_of_a_block_that_somebody_keeps_locked_do_not_stop_those_of_others(block, outside) -> None:
    calls = outside()
    effect(block, "a")
    other = ProcessingBlock.objects.create(
        workflow=block.workflow, dataset=block.dataset, block_index=1, dataset_name="/a/b/c", dbs_block_name="/a/b/c#1",
        sealed_at=timezone.now(),
    )  # fmt: skip
    effect(other, "b")
    Effect.objects.create(request=block.workflow.request, kind=EffectKind.RUCIO_RELEASE, key="c")
    with paused("SELECT 1 FROM processing_blocks WHERE id = %s FOR UPDATE", block.pk):
        run()
    assert calls == ["b", "c"]
    run()
    assert calls == ["b", "c", "a"]


def test_effects_of_a_cleaned_requests_older_epoch_never_run(block, outside) -> None:
    calls = outside()
    effect(block)
    Request.objects.update(epoch=2)
    run()
    assert calls == []


@pytest.mark.django_db(transaction=True)
@fault(
    "effect longer than its lease",
    done="the call of an effect lasts for several lives of its lease",
    spec="ADR 0046",
    afterwards="nobody else begins it, it is done once and recorded",
)
def test_an_effect_that_lasts_longer_than_its_lease_is_not_begun_again(block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_EFFECT_LEASE_SECONDS", "0.6")
    conf.cache_clear()
    others: list[Effect | None] = []

    def call(row: Effect) -> dict[str, str]:
        first = Effect.objects.get().claim_expires_at
        until(lambda: clock.now() > first + timedelta(seconds=0.6), "two lives of the lease are over")
        others.append(executor.effect_claim(owner="other"))
        return {"done": row.key}

    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, Handler(call, lambda effect, result: None)))
    effect(block)
    run()
    row = Effect.objects.get()
    assert others == [None]
    assert (row.state, row.attempts, row.claim_epoch) == (EffectState.DONE, 1, 1)


def test_an_effect_of_many_calls_gives_way_after_its_turn_and_goes_on_where_it_stood(block, monkeypatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    begun: list[int] = []

    def call(row: Effect) -> dict[str, int]:
        done = int(row.result.get("done", 0))
        begun.append(done)
        if done < 3:
            turns.Turn(row).told(done=done + 1)
        return {"done": done}

    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, Handler(call, lambda effect, result: None)))
    effect(block)
    run()
    row = Effect.objects.get()
    assert begun == [0, 1, 2, 3]
    assert (row.state, row.attempts, row.result, row.last_error) == (EffectState.DONE, 1, {"done": 3}, "")


def test_the_portion_of_a_claim_that_was_taken_over_is_not_recorded(block, outside) -> None:
    outside()
    effect(block)
    late = executor.effect_claim(owner="dead")
    assert late is not None
    Effect.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
    assert executor.effect_claim(owner="other") is not None
    with pytest.raises(LeaseLost, match="k1 is claimed by somebody else"):
        turns.Turn(late).told(done=1)
    assert Effect.objects.get().result == {}
