"""Tasks of the schedule that fail are rows until they work; a silent service ends no task in a traceback."""

from __future__ import annotations

from typing import Any

import pytest

from sites_app import tasks
from wms2.errors import ServiceUnavailable
from wms2.models import FailingTask
from wms2.work.failing import task_discard

pytestmark = pytest.mark.django_db


def script(monkeypatch: pytest.MonkeyPatch, *ends: Exception | None) -> None:
    left = list(ends)

    def sync() -> None:
        end = left.pop(0)
        if end is not None:
            raise end

    monkeypatch.setattr(tasks, "sites_sync", sync)


def test_failures_in_a_row_are_counted_with_the_last_error_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ServiceUnavailable("cric", "sites", "no answer")
    script(monkeypatch, silent, ValueError("what is this?"), None)
    tasks.sync_sites()
    with pytest.raises(ValueError, match="what is this"):
        tasks.sync_sites()
    row = FailingTask.objects.get()
    assert (row.name, row.failures, row.last_error) == (tasks.sync_sites.name, 2, "ValueError: what is this?")
    assert row.since <= row.last_at
    assert (row.next_at - row.last_at).total_seconds() == 3600

    tasks.sync_sites()
    assert not FailingTask.objects.exists()


def test_a_discarded_one_is_new_again_once_it_has_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ServiceUnavailable("cric", "sites", "no answer")
    script(monkeypatch, silent, silent, None, silent)
    tasks.sync_sites()
    task_discard(task=FailingTask.objects.get(), actor="olga", reason="CRIC is down today")
    tasks.sync_sites()
    assert FailingTask.objects.get().discarded == "olga: CRIC is down today"
    tasks.sync_sites()
    tasks.sync_sites()
    assert FailingTask.objects.get().discarded == ""


def test_what_is_not_in_the_schedule_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from requests_app import tasks as requests

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(requests.evaluator, "evaluate_due", broken)
    with pytest.raises(ValueError, match="broken"):
        requests.evaluate_due()
    assert not FailingTask.objects.exists()
