"""Effects are claimed, called and recorded; refused, broken and unavailable ones are kept apart, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from outputs_app.effects import HANDLERS, Handler, executor, time_slices
from outputs_app.effects.handler import in_parallel
from outputs_app.effects.invalidation import former_run_out
from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
from outputs_app.services import effect_retry_now
from requests_app.admission.queue import ADMISSION
from requests_app.models import Request
from requests_app.services.invalidation import epoch_raise
from tests.support.calls import overdue, stopping
from tests.support.faults import fault
from tests.support.locking import paused
from tests.support.rows import new_block
from tests.support.statements import statements
from tests.support.waiting import until
from wms2.adapters.caller import retry_call
from wms2.conf import conf
from wms2.errors import AwaitsPerson, LeaseLost, ServiceRejected, ServiceUnavailable
from wms2.models import Wake
from wms2.runtime import clock, in_force

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _pauses_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a pause now and then is over before the run is that it began in."""
    monkeypatch.setattr(executor.random, "uniform", lambda low, high: high)


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    return new_block(units=1, done=0)


@pytest.fixture(name="handled")
def _handled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have every kind of effect done by this call."""

    def handle(call: Callable[[Effect], object], record: Callable[..., object] = lambda effect, result: None) -> None:
        monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, Handler(call, record)))

    return handle


@pytest.fixture(name="outside")
def _outside(handled) -> Callable[..., list[str]]:
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

        handled(call)
        return calls

    return script


def effect(block: ProcessingBlock, key: str = "k1", **fields: object) -> Effect:
    request = Request.objects.get(workflow=block.workflow)
    return Effect.objects.create(
        request=request, block=block, kind=EffectKind.RUCIO_FILES, key=key, epoch=request.epoch, **fields
    )


def other_block(block: ProcessingBlock, index: int) -> ProcessingBlock:
    return ProcessingBlock.objects.create(
        workflow=block.workflow, dataset=block.dataset, block_index=index, dataset_name="/a/b/c",
        dbs_block_name=f"/a/b/c#{index}", sealed_at=timezone.now(),
    )  # fmt: skip


def blocks_of(block: ProcessingBlock, number: int) -> list[ProcessingBlock]:
    return [block, *(other_block(block, index) for index in range(1, number))]


def run(*rows: Effect) -> None:
    executor.effects_run_due(owner="test")
    for row in rows:
        row.refresh_from_db()


def test_what_is_due_is_done_once(block: ProcessingBlock, outside) -> None:
    calls = outside()
    row = effect(block)
    run()
    run(row)
    assert calls == ["k1"]
    assert (row.state, row.result, row.attempts) == (EffectState.DONE, {"done": "k1"}, 1)


def test_an_effect_waits_for_those_it_depends_on(block: ProcessingBlock, outside) -> None:
    calls = outside(ServiceUnavailable("dbs", "x", "down"))
    first, second = effect(block, "first"), effect(block, "second")
    second.depends_on.set([first])
    run()
    assert calls == ["first"]
    Effect.objects.update(next_attempt_at=overdue())
    run()
    assert calls == ["first", "first", "second"]


def test_operators_shorten_the_pauses_while_it_runs(block, outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "_changed", lambda: {"effect_max_pause_seconds": 5})
    outside(*[ServiceUnavailable("rucio", "register_files", "no answer")] * 2)
    row = effect(block)
    for _ in range(2):
        Effect.objects.update(next_attempt_at=overdue())
        before = timezone.now()
        run(row)
        assert before < row.next_attempt_at <= timezone.now() + timedelta(seconds=5)


def test_a_clone_whose_answer_was_lost_is_looked_for_when_it_must_have_been_made(
    block, outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor.random, "uniform", lambda low, high: low)
    outside(ServiceUnavailable("reqmgr2", "clone", "timed out"))
    row = effect(block)
    Effect.objects.update(kind=EffectKind.REQMGR2_CLONE)
    run(row)
    assert row.next_attempt_at - timezone.now() > timedelta(seconds=3 * conf().service_timeout_seconds)


def test_unavailability_is_retried_on_the_schedule_and_given_up_after_days_with_the_block_failed(
    block, outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor.random, "uniform", lambda low, high: (low + high) / 2)
    outside(*[ServiceUnavailable("rucio", "register_files", "no answer")] * 3)
    row = effect(block)
    run(row)
    first_pause = (row.next_attempt_at - timezone.now()).total_seconds()
    assert row.state == EffectState.PENDING
    assert 0 < first_pause <= executor.conf().effect_backoff_seconds[0] / 2, "full jitter"
    assert "no answer" in row.last_error
    Effect.objects.update(next_attempt_at=overdue(), first_failed_at=timezone.now() - timedelta(days=4))
    run(row)
    block.refresh_from_db()
    assert row.state == EffectState.DEAD
    assert block.status == BlockStatus.FAILED
    assert block.failure_context["effect"] == "k1"


def test_a_refusal_is_not_retried_until_a_person_says_so(block, outside) -> None:
    calls = outside(ServiceRejected("rucio", "protect_files", "no such RSE", code="RSENotFound"))
    row = effect(block)
    run()
    Effect.objects.update(next_attempt_at=overdue())
    run(row)
    assert (row.state, len(calls)) == (EffectState.REFUSED, 1)
    effect_retry_now(effect=row, actor="olga", reason="it works again")
    run(row)
    assert row.state == EffectState.DONE


def test_a_broken_effect_does_not_stop_the_others_and_is_told(block, outside) -> None:
    calls = outside(KeyError("lfn"))
    broken, fine = effect(block, "a"), effect(block, "b")
    run(broken, fine)
    assert calls == ["a", "b"]
    assert "KeyError" in broken.last_error
    assert (broken.state, fine.state) == (EffectState.PENDING, EffectState.DONE)


def test_one_whose_failure_cannot_be_recorded_does_not_stop_the_others_and_is_told(block, outside) -> None:
    """Its request's own retry time is no number."""
    outside(ServiceUnavailable("dbs", "call", "no answer"))
    broken, fine = effect(block, "a"), effect(block, "b")
    Effect.objects.filter(pk=fine.pk).update(block=None)
    Request.objects.update(overrides={"effect_max_retry_seconds": "long"})
    run(broken, fine)
    assert (broken.state, fine.state) == (EffectState.CLAIMED, EffectState.DONE)
    assert "ValueError" in broken.last_error


def test_a_result_that_cannot_be_recorded_is_a_failure_and_does_not_stop_the_others(block, handled) -> None:
    calls: list[str] = []

    def record(effect: Effect, result: dict[str, str]) -> None:
        if effect.key == "a":
            Effect.objects.filter(pk=effect.pk).update(key="x" * 10_000)  # refused by the database, which rolls back

    handled(lambda effect: calls.append(effect.key) or {}, record)
    broken, fine = effect(block, "a"), effect(block, "b")
    run(broken, fine)
    assert calls == ["a", "b"]
    assert (broken.state, broken.attempts, fine.state) == (EffectState.PENDING, 1, EffectState.DONE)
    assert "DataError" in broken.last_error and broken.first_failed_at is not None


def test_effects_of_one_block_run_one_at_a_time_and_those_of_an_older_epoch_never(block, outside) -> None:
    outside()
    effect(block, "a")
    effect(block, "b")
    assert len(executor.effects_claim(owner="one", most=5)) == 1
    assert executor.effects_claim(owner="two", most=5) == []
    Effect.objects.update(claim_expires_at=overdue())
    Request.objects.update(epoch=2)
    assert executor.effects_claim(owner="two", most=5) == []


@pytest.mark.django_db(transaction=True)
def test_effects_of_a_block_that_somebody_keeps_locked_do_not_stop_those_of_others(block, outside) -> None:
    calls = outside()
    effect(block, "a")
    effect(other_block(block, 1), "b")
    Effect.objects.create(request=block.workflow.request, kind=EffectKind.RUCIO_RELEASE, key="c")
    with paused("SELECT 1 FROM processing_blocks WHERE id = %s FOR UPDATE", block.pk):
        run()
    assert calls == ["b", "c"]
    run()
    assert calls == ["b", "c", "a"]


@pytest.mark.django_db(transaction=True)
@fault(
    "effect longer than its lease",
    done="the call of an effect lasts for several lives of its lease",
    spec="ADR 0015",
    afterwards="nobody else begins it, it is done once and recorded",
)
def test_an_effect_that_lasts_longer_than_its_lease_is_not_begun_again(block, handled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_EFFECT_LEASE_SECONDS", "0.6")
    conf.cache_clear()
    others: list[Effect] = []

    def call(row: Effect) -> dict[str, str]:
        first = Effect.objects.get().claim_expires_at
        until(lambda: clock.now() > first + timedelta(seconds=0.6), "two lives of the lease are over")
        others.extend(executor.effects_claim(owner="other", most=5))
        return {"done": row.key}

    handled(call)
    effect(block)
    run()
    row = Effect.objects.get()
    assert others == []
    assert (row.state, row.attempts, row.claim_epoch) == (EffectState.DONE, 1, 1)


def test_an_effect_of_many_calls_gives_way_after_its_turn_and_goes_on_where_it_stood(block, handled, monkeypatch) -> None:
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)
    begun: list[int] = []

    def call(row: Effect) -> dict[str, int]:
        done = int(row.result.get("done", 0))
        begun.append(done)
        if done < 3:
            time_slices.TimeSlice(row).reported(done=done + 1)
        return {"done": done}

    handled(call)
    effect(block)
    run()
    row = Effect.objects.get()
    assert begun == [0, 1, 2, 3]
    assert (row.state, row.attempts, row.result, row.last_error) == (EffectState.DONE, 1, {"done": 3}, "")


def test_a_worker_that_was_stopped_makes_no_further_call_and_the_effect_is_done_again(block, handled, monkeypatch) -> None:
    stop, calls = stopping(monkeypatch), list[str]()

    def call(row: Effect) -> dict[str, int]:
        retry_call(lambda: calls.append("first"))
        stop(2 * conf().effect_lease_seconds)
        retry_call(lambda: calls.append("second"))
        return {}

    handled(call)
    effect(block)
    run()
    row = Effect.objects.get()
    assert (calls, row.state, row.claim_epoch) == (["first"], EffectState.CLAIMED, 1)
    Effect.objects.update(claim_expires_at=overdue())
    assert executor.effects_claim(owner="other", most=1)


def test_calls_in_parallel_are_made_under_the_claim_too(block, handled, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, made = stopping(monkeypatch), list[str]()

    def delete(rules: Sequence[str]) -> int:
        for rule in rules:
            retry_call(partial(made.append, rule))
        return len(rules)

    def call(row: Effect) -> dict[str, int]:
        stop(2 * conf().effect_lease_seconds)
        return {"deleted": in_parallel([f"rule{number}" for number in range(400)], delete)}

    handled(call)
    effect(block)
    run()
    assert (made, Effect.objects.get().state) == ([], EffectState.CLAIMED)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("write", ["renewed", "recorded", "told", "given back"])
def test_a_claim_that_has_run_out_writes_nothing_whether_another_worker_has_taken_it_or_not(
    write: str, taken: bool, block, outside
) -> None:
    calls = outside()
    effect(block)
    (late,) = executor.effects_claim(owner="paused", most=1)
    assert executor.effects_claim(owner="other", most=1) == []
    Effect.objects.update(claim_expires_at=overdue())
    if taken:
        assert executor.effects_claim(owner="other", most=1)
    before = Effect.objects.values().get()
    if write == "renewed":
        assert not executor._renew(late)
    elif write == "recorded":
        executor._record_success(late, {"done": "by the paused one"})
    elif write == "given back":
        executor._give_back([late])
    else:
        with pytest.raises(LeaseLost, match="k1 is claimed by another process"):
            time_slices.TimeSlice(late).reported(done=1)
    assert Effect.objects.values().get() == before
    Effect.objects.update(claim_expires_at=overdue())
    run()
    assert (calls, Effect.objects.get().result) == (["k1"], {"done": "k1"}), "it is taken over and done"


def raised(request: Request) -> None:
    with transaction.atomic():
        epoch_raise(request)


def test_a_new_epoch_ends_what_waits_and_what_has_run_out_and_leaves_what_runs(block, outside) -> None:
    outside()
    _, run_out, runs, report = (effect(each, name) for each, name in zip(blocks_of(block, 4), "wort", strict=True))
    Effect.objects.filter(pk=report.pk).update(kind=EffectKind.REQMGR2_STATUS)
    until = {run_out.pk: overdue(), runs.pk: timezone.now() + timedelta(minutes=1)}
    for pk, at in until.items():
        Effect.objects.filter(pk=pk).update(state=EffectState.CLAIMED, claim_epoch=1, claim_expires_at=at)
    request = Request.objects.get(workflow=block.workflow)
    raised(request)
    rows = {row.key: (row.state, row.claim_epoch, row.epoch) for row in Effect.objects.all()}
    assert rows == {
        "w": (EffectState.DISCARDED, 0, 1), "o": (EffectState.CLAIMED, 2, 1), "r": (EffectState.CLAIMED, 1, 1),
        "t": (EffectState.PENDING, 0, 2),
    }  # fmt: skip
    runs.refresh_from_db()
    assert not executor._renew(runs), "it goes on to the end of its call, and makes no other"
    of = {"request_id": request.pk, "request_epoch": request.epoch}
    assert not former_run_out(**of), "it is waited for"
    executor._record_failure(runs, ServiceUnavailable("rucio", "add", "no answer"))
    assert Effect.objects.get(pk=runs.pk).state == EffectState.DISCARDED, "nothing of a former epoch is tried again"
    assert not former_run_out(**of), "a call that began before its claim ran out may still be carried out"
    Effect.objects.filter(pk=run_out.pk).update(claim_expires_at=timezone.now() - timedelta(days=1))
    assert former_run_out(**of)
    assert set(Effect.objects.exclude(pk=report.pk).values_list("state", flat=True)) == {EffectState.DISCARDED}


@pytest.mark.parametrize("state", [EffectState.REFUSED, EffectState.DEAD])
def test_what_a_former_epoch_left_undone_holds_up_no_other_request(block, outside, state: EffectState) -> None:
    """It can be neither tried nor discarded any more, and a block of another request may wait for it."""
    calls = outside()
    left, child = effect(block, "left", state=state), effect(new_block(units=1, done=0), "child")
    child.depends_on.set([left])
    run(left)
    assert (left.state, calls) == (state, [])
    raised(left.request)
    run(left)
    assert (left.state, calls) == (EffectState.DISCARDED, ["child"])


def test_what_takes_outputs_back_waits_as_long_as_a_call_may_last(block: ProcessingBlock) -> None:
    """DBS has four times as long for a whole block as for other calls; its files would be valid behind its back."""
    row, limit = effect(block), timedelta(seconds=conf().service_timeout_seconds)
    of = {"request_id": row.request_id, "request_epoch": row.epoch + 1}
    for times, over in ((2, False), (5, True)):
        ended = timezone.now() - times * limit
        Effect.objects.update(kind=EffectKind.DBS_BLOCK, state=EffectState.CLAIMED, claim_expires_at=ended)
        assert former_run_out(**of) is over


@pytest.mark.django_db(transaction=True)
def test_workers_that_claim_at_the_same_moment_share_no_block(block, outside) -> None:
    outside()
    for index, each in enumerate(blocks_of(block, 6)):
        effect(each, f"{index}a")
        effect(each, f"{index}b")
    together = Barrier(3)

    def worker(name: str) -> list[object]:
        try:
            together.wait(timeout=30)
            return [row.block_id for row in executor.effects_claim(owner=name, most=4)]
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        claimed = [block_id for found in pool.map(worker, "abc") for block_id in found]
    assert len(claimed) == len(set(claimed)) == Effect.objects.filter(state=EffectState.CLAIMED).count()


def test_effects_of_many_blocks_are_claimed_by_as_many_statements_as_one(block, outside) -> None:
    outside()
    numbers = []
    for count in (1, 8):
        Effect.objects.all().delete()
        for index in range(count):
            effect(other_block(block, 10 * count + index), f"{count}:{index}")
        with CaptureQueriesContext(connection) as captured:
            assert len(executor.effects_claim(owner="one", most=10)) == count
        numbers.append(len(statements(captured)))
    assert numbers[0] == numbers[1]


def test_that_nothing_is_due_is_told_by_one_statement(block, outside) -> None:
    outside()
    effect(block, "later", next_attempt_at=timezone.now() + timedelta(minutes=1))
    effect(block, "runs", state=EffectState.CLAIMED, claim_expires_at=timezone.now() + timedelta(minutes=1))
    with CaptureQueriesContext(connection) as captured:
        assert executor.effects_claim(owner="one", most=10) == []
    assert len(statements(captured)) == 1


def test_what_is_not_begun_soon_after_its_claim_goes_back_and_is_done_all_the_same(block, outside, monkeypatch) -> None:
    monkeypatch.setattr(executor, "BEGIN_SECONDS", -1.0)
    calls = outside()
    for each, name in zip(blocks_of(block, 3), "abc", strict=True):
        effect(each, name)
    executor.effects_run_due(owner="test", limit=3)
    assert calls == ["a"]
    given_back = Effect.objects.filter(key__in="bc")
    assert set(given_back.values_list("state", "attempts", "claimed_by")) == {(EffectState.PENDING, 0, "")}
    run()
    assert calls == ["a", "b", "c"]
    assert set(Effect.objects.values_list("state", "attempts")) == {(EffectState.DONE, 1)}


TOLD = [ServiceUnavailable("rucio", "x", "down"), ServiceRejected("rucio", "x", "no"), AwaitsPerson("rucio", "x", "waits", "W")]


@pytest.mark.parametrize("answer", TOLD)
def test_the_life_cycle_is_woken_by_what_keeps_an_effect_from_being_done_and_by_its_end(block, outside, answer) -> None:
    outside(answer)
    row = effect(block)
    run()
    assert list(Wake.objects.exclude(request_id=ADMISSION).values_list("request_id", flat=True)) == [row.request_id]
    Wake.objects.all().delete()
    row.refresh_from_db()
    effect_retry_now(effect=row, actor="olga", reason="it is there again")
    assert Wake.objects.filter(request_id=row.request_id).exists()
    Wake.objects.all().delete()
    run()
    assert Wake.objects.filter(request_id=row.request_id).exists(), "the error that was shown is over"


@pytest.mark.parametrize(
    ("status", "kind", "woken"),
    [
        (BlockStatus.OPEN, EffectKind.RUCIO_FILES, False),
        (BlockStatus.COMPLETE, EffectKind.DBS_BLOCK, False),
        (BlockStatus.COMPLETE, EffectKind.RUCIO_TAPE, True),
        (BlockStatus.FAILED, EffectKind.RUCIO_FILES, True),
        (BlockStatus.ARCHIVED, EffectKind.DBS_BLOCK, True),
    ],
)
def test_the_life_cycle_is_woken_by_a_success_unless_more_is_to_come_of_the_block(block, outside, status, kind, woken) -> None:
    outside()
    ProcessingBlock.objects.update(status=status, tape_rule_id="rule" if status == BlockStatus.ARCHIVED else "")
    row = effect(block)
    Effect.objects.update(kind=kind)
    run()
    assert Effect.objects.get().state == EffectState.DONE
    assert Wake.objects.filter(request_id=row.request_id).exists() == woken


def test_what_is_owed_for_a_dataset_wakes_the_life_cycle_when_it_is_done(block, outside) -> None:
    outside()
    Effect.objects.create(request=block.workflow.request, kind=EffectKind.DBS_VALID, key="valid")
    run()
    assert Wake.objects.filter(request_id=block.workflow.request.pk).exists()


@pytest.mark.parametrize("named", ["all of a batch", "one, by an earlier release"])
def test_rules_are_stored_for_the_files_of_the_units_that_an_effect_names(named: str) -> None:
    block = new_block(units=3, done=3)
    files = list(OutputFile.objects.filter(block=block).order_by("unit_id"))
    OutputFile.objects.update(rule_id="")
    batch = named == "all of a batch"
    row = effect(block, unit_id=files[0].unit_id, payload={"units": [file.unit_id for file in files[:2]]} if batch else {})
    handled = files[:2] if batch else files[:1]
    HANDLERS[EffectKind.RUCIO_PROTECT].record(row, {"rules": {file.lfn: f"rule of {file.lfn}" for file in handled}})
    stored = {file.lfn: file.rule_id for file in OutputFile.objects.filter(block=block)}
    assert stored == {file.lfn: f"rule of {file.lfn}" if file in handled else "" for file in files}


def test_what_waits_under_a_former_epoch_is_discarded_where_a_claim_meets_it(block: ProcessingBlock) -> None:
    """Or it would be read by each claim, for ever."""
    request = Request.objects.get(workflow=block.workflow)
    past = timezone.now() - timedelta(days=1)
    for number in range(executor.MOST_READ + 1):
        effect(block, f"old{number}", next_attempt_at=past)
    kept = effect(block, "manifest", next_attempt_at=past)
    Effect.objects.filter(pk=kept.pk).update(kind=EffectKind.INVALIDATION_MANIFEST)
    Request.objects.filter(pk=request.pk).update(epoch=2)
    new = effect(block, "new")
    assert executor.effects_claim(owner="x", most=10) == [new]
    states = dict(Effect.objects.values_list("key", "state"))
    assert (states.pop(kept.key), states.pop(new.key)) == (EffectState.PENDING, EffectState.CLAIMED)
    assert set(states.values()) == {EffectState.DISCARDED}
