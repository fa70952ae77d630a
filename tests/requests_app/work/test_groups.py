"""Groups: requests that complete together; whoever comes last takes the others on."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from dags_app.models import WorkUnit
from dags_app.planning.specs import ExclusionKind
from outputs_app.models import OutputFile
from requests_app.lease import evaluating
from requests_app.models import InputFile, Request, RequestGroup, RequestStatus, RequestTransition
from requests_app.services import group_dissolve, input_files_restore, request_abort, request_group
from requests_app.states import transition
from requests_app.work.groups import Child, group_status, related_move, siblings_missing
from tests.support.locking import aside, paused
from tests.support.rows import input_spec, new_block, request_row, workflow_row
from wms2.errors import DocumentRefused, InvalidTransition, StaleState
from wms2.models import AuditEntry, Wake

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "one sample"}


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wms2.runtime.notify._send", lambda name, args: None)


def together(*statuses: RequestStatus) -> list[Request]:
    """Children of one group."""
    rows = [request_row(status) for status in statuses]
    group = RequestGroup.objects.create(name="sample", created_by="olga")
    Request.objects.filter(pk__in=[row.pk for row in rows]).update(in_group=group)
    return rows


ELSEWHERE = "another evaluation"


def arrives(row: Request) -> str:
    """It has enough events: what the life cycle does of it then."""
    with evaluating(row.pk, owner="test") as evaluation:
        if evaluation is None:  # the other has its row, to take it on; it stays due
            return ELSEWHERE
        with evaluation.fenced():
            missing = siblings_missing(evaluation.request)
            if missing:
                evaluation.note(waiting_for=missing)
            else:
                evaluation.transition(S.REMOVING_FILES, "enough")
    return missing


def statuses(*rows: Request) -> list[str]:
    return [Request.objects.get(pk=row.pk).status for row in rows]


def status_detail() -> str:
    return group_status(RequestGroup.objects.get(name="sample")).status


def test_the_first_waits_for_the_second_and_both_go_on_in_one_transaction() -> None:
    first, second = together(S.VALIDATED_OUTPUTS, S.ACTIVE)
    assert arrives(first) == f"the others of its group sample: {second}"
    assert (statuses(first), status_detail()) == (["validated_outputs"], "waiting")
    Request.objects.filter(pk=second.pk).update(status=S.VALIDATED_OUTPUTS)
    assert arrives(second) == ""
    assert statuses(first, second) == ["removing_files", "removing_files"]
    moved = RequestTransition.objects.get(request=first, to_status=S.REMOVING_FILES)
    assert (moved.reason, moved.evidence["last"]) == (f"all of group sample are there, {second} as the last", str(second))
    assert status_detail() == "completing"


def test_one_that_is_short_goes_back_and_the_other_waits_for_it() -> None:
    first, second = together(S.VALIDATED_OUTPUTS, S.VALIDATED_OUTPUTS)
    assert arrives(first).endswith(f"sample: {second}")
    second.refresh_from_db()
    transition(second, S.QUEUED, actor="lifecycle", reason="short")
    assert arrives(first).endswith(f"sample: {second}")
    Request.objects.filter(pk=second.pk).update(status=S.VALIDATED_OUTPUTS)
    assert arrives(second) == ""
    assert statuses(first, second) == ["removing_files", "removing_files"]


def test_one_that_was_there_and_went_back_is_missing_until_it_is_there_again() -> None:
    first, second = together(S.VALIDATED_OUTPUTS, S.VALIDATED_OUTPUTS)
    Request.objects.filter(pk=second.pk).update(status=S.ACTIVE)
    arrives(first)
    first.refresh_from_db()
    transition(first, S.QUEUED, actor="lifecycle", reason="files were lost")
    Request.objects.update(status=S.VALIDATED_OUTPUTS)
    assert arrives(second).endswith(f"sample: {first}")


def test_what_ended_with_nothing_in_dbs_is_skipped_with_a_warning() -> None:
    first, gone = together(S.VALIDATED_OUTPUTS, S.ABORTED)
    assert arrives(first) == ""
    (warning,) = Request.objects.get(pk=first.pk).warnings
    assert warning == f"group sample completes without what has ended with no events in DBS: {gone} is Aborted"


def test_what_ended_with_events_in_dbs_is_waited_for_until_an_operator_takes_it_out() -> None:
    block = new_block(dbs_block_closed=True)
    (first,), failed = together(S.VALIDATED_OUTPUTS), block.workflow.request
    Request.objects.filter(pk=failed.pk).update(status=S.FAILED, in_group=RequestGroup.objects.get())
    failed.refresh_from_db()
    OutputFile.objects.create(
        lfn="/store/a.root", dataset=block.dataset, block=block, unit=WorkUnit.objects.first(), rse="T2_CH_CERN",
        size_bytes=1, adler32="0", events=70, lumis={},
    )  # fmt: skip
    assert f"{failed} is Failed with 71 events in DBS: take it out of the group, or clean it" in arrives(first)
    assert status_detail() == "held"
    Wake.objects.all().delete()
    request_group(request=failed, **BY)
    assert first.pk in Wake.objects.values_list("request_id", flat=True)
    assert arrives(first) == ""


def test_one_whose_input_is_let_in_again_is_not_taken_on() -> None:
    """Its own evaluation, which would send it back to work, may come later than the last one of the group."""
    first, second = together(S.VALIDATED_OUTPUTS, S.VALIDATED_OUTPUTS)
    file = InputFile.objects.create(
        workflow=workflow_row(first, input_spec()), lfn="/store/in.root", block_name="/a#1", size_bytes=1, events=10,
        excluded_at=timezone.now(), excluded_reason="unreadable", excluded_kind=ExclusionKind.LOST,
    )  # fmt: skip
    arrives(first)
    input_files_restore(request=Request.objects.get(pk=first.pk), lfns=[file.lfn], **BY)
    assert arrives(second).endswith(f"sample: {first}")
    assert statuses(first, second) == ["validated_outputs", "validated_outputs"]


def test_whoever_waits_is_woken_when_another_ends() -> None:
    first, second = together(S.VALIDATED_OUTPUTS, S.HELD)
    arrives(first)
    Wake.objects.all().delete()
    request_abort(request=second, **BY)
    assert first.pk in Wake.objects.values_list("request_id", flat=True)
    assert arrives(first) == ""


def test_two_that_arrive_at_the_same_moment_complete_both_and_once() -> None:
    rows = together(S.VALIDATED_OUTPUTS, S.VALIDATED_OUTPUTS)
    gate, reported, still_due = threading.Barrier(2), [], []

    def come(row: Request) -> None:
        try:
            gate.wait()
            if arrives(row) == ELSEWHERE:
                still_due.append(row.pk)
        except StaleState:
            pass  # the other has taken it on
        except Exception as error:  # noqa: BLE001  (the test tells)
            reported.append(error)

    for thread in [aside(partial(come, row)) for row in rows]:
        thread.join()
    assert reported == []
    woken = Wake.objects.values_list("request_id", flat=True)  # whoever found the group's row taken
    for row in Request.objects.filter(pk__in=[*woken, *still_due], status=S.VALIDATED_OUTPUTS):
        arrives(row)
    assert statuses(*rows) == ["removing_files", "removing_files"]
    assert RequestTransition.objects.filter(to_status=S.REMOVING_FILES).count() == 2


def test_a_group_that_is_being_changed_is_not_waited_for() -> None:
    (only,) = together(S.VALIDATED_OUTPUTS)
    holds, goes = threading.Event(), threading.Event()

    def change() -> None:
        with transaction.atomic():
            list(RequestGroup.objects.select_for_update(no_key=True))
            holds.set()
            goes.wait(30)

    thread = aside(change)
    holds.wait(30)
    try:
        assert arrives(only) == "its group, which is being changed just now"
        with pytest.raises(StaleState, match="being changed"):
            request_group(request=only, **BY)
    finally:
        goes.set()
        thread.join()
    assert only.pk in Wake.objects.values_list("request_id", flat=True)
    assert arrives(only) == ""


def test_groups_are_made_changed_and_dissolved_by_verbs_with_their_reasons() -> None:
    first, second, done = request_row(S.VALIDATED_OUTPUTS), request_row(S.ACTIVE), request_row(S.COMPLETED)
    for row in (first, second):
        request_group(request=row, in_group="pair", **BY)
    group = RequestGroup.objects.get(name="pair")
    assert (group.note, group.created_by, group_status(group).status) == ("one sample", "olga", "active")
    with pytest.raises(InvalidTransition, match="with no other any more"):
        request_group(request=done, in_group="pair", **BY)
    with pytest.raises(InvalidTransition, match="with no other any more"):
        request_group(request=request_row(S.FAILED), in_group="pair", **BY)
    arrives(first)
    group_dissolve(group=group, **BY)
    assert group_status(group).status == "empty"
    assert AuditEntry.objects.get(action="group_dissolve").target == "pair"
    assert arrives(first) == ""
    request_group(request=second, in_group="late", **BY)
    request_group(request=request_row(), in_group="late", **BY)
    Request.objects.filter(pk=second.pk).update(status=S.REMOVING_FILES)
    with pytest.raises(DocumentRefused, match="complete already"):
        request_group(request=request_row(), in_group="late", **BY)


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([S.COMPLETED, S.ARCHIVED, S.ABORTED], "completed"),
        ([S.ABORTED, S.CLEANED], "ended"),
        ([S.ACTIVE, S.WAITING_INTEGRITY], "held"),
        ([S.ACTIVE, S.QUEUED], "active"),
    ],
)
def test_where_a_group_stands_follows_from_its_children(children: list[RequestStatus], expected: str) -> None:
    rows = together(*children)
    assert status_detail() == expected
    assert [Child(row).skipped for row in rows].count(True) == sum(each in (S.ABORTED, S.CLEANED) for each in children)


@pytest.mark.parametrize("late", [False, True])
def test_another_version_of_a_child_is_waited_for_or_told_that_it_is_late(late: bool) -> None:
    old, sibling = together(S.FAILED, S.COMPLETED if late else S.VALIDATED_OUTPUTS)
    new = request_row(S.NEW)
    with transaction.atomic():
        related_move(old, new)
    group = RequestGroup.objects.get()
    old, new = (Request.objects.get(pk=row.pk) for row in (old, new))
    if late:
        assert (old.in_group, new.in_group) == (group, None)
        assert new.warnings == ["group sample completes already without it: it completes by itself"]
    else:
        assert (old.in_group, new.in_group, new.warnings) == (None, group, [])
        assert "1 of them" in (missing := arrives(sibling)) or str(new) in missing


def test_nothing_takes_a_childs_place_while_its_group_is_being_changed() -> None:
    """It may be completing at this moment."""
    old, _ = together(S.FAILED, S.VALIDATED_OUTPUTS)
    new = request_row(S.NEW)
    with (
        paused("SELECT FROM request_groups FOR NO KEY UPDATE"),
        pytest.raises(StaleState, match="being changed"),
        transaction.atomic(),
    ):
        related_move(old, new)
    assert Request.objects.get(pk=new.pk).in_group is None
