"""Effects are claimed, called and recorded; refused, broken and unavailable ones are kept apart, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from outputs_app import executor
from outputs_app.effects import Handler
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, ProcessingBlock
from outputs_app.services import effect_retry, units_join_blocks
from outputs_app.values import Membership
from requests_app.models import Request, RequestStatus
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from wms2.errors import ServiceRejected, ServiceUnavailable

pytestmark = pytest.mark.django_db


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    unit = unit_row(dag_row(workflow))
    dataset = workflow.output_datasets.get()
    units_join_blocks(
        request_id=workflow.request.pk, workflow_id=workflow.pk, memberships=[Membership(unit.pk, dataset.name, 0, 1)]
    )
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


def test_effects_of_a_cleaned_requests_older_epoch_never_run(block, outside) -> None:
    calls = outside()
    effect(block)
    Request.objects.update(epoch=2)
    run()
    assert calls == []
