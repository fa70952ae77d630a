"""A file system that hangs keeps whoever reads it, and no row: others go on with the request meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connections, transaction

from dags_app.payload.contract.layout import FAILURES_FILE
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort, request_fail, request_release, request_restart
from requests_app.services.release import ReleaseMode
from tests.support.scripted import documents
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
RESCUE = "workflow.dag.rescue001"


def release(mode: ReleaseMode) -> Callable[..., object]:
    return lambda **given: request_release(mode=mode, **given)


@pytest.mark.parametrize(
    ("file", "action"),
    [
        (FAILURES_FILE, request_abort),
        (FAILURES_FILE, request_fail),
        (FAILURES_FILE, request_restart),
        (FAILURES_FILE, release(ReleaseMode.NEXT_ROUND)),
        (RESCUE, release(ReleaseMode.RESCUE)),
    ],
)
def test_a_verb_that_waits_for_a_file_keeps_no_row_locked(
    world_root: Path, monkeypatch: pytest.MonkeyPatch, file: str, action: Callable[..., object]
) -> None:
    world = World(world_root, monkeypatch)
    world.furnish()
    request = world.request(documents.generation(300))
    world.cycle()
    job = world.job_of(request)
    world.schedd.unit_done(job, "mg_000000")
    for unit in ("mg_000001", "mg_000002"):
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(4):
        world.cycle()
    request.refresh_from_db()
    assert request.status == S.HELD
    text = (job.directory / file).read_text() if (job.directory / file).exists() else ""
    (job.directory / file).unlink(missing_ok=True)
    os.mkfifo(job.directory / file)

    asked = threading.Thread(target=_ask, args=(action, request))
    asked.start()
    pipes: list[int] = []
    until(lambda: _opened(job.directory / file, pipes), "the verb reads the file", seconds=30)
    try:
        with transaction.atomic():
            assert Request.objects.select_for_update(nowait=True).get(pk=request.pk).status == S.HELD
    finally:
        (job.directory / file).unlink()
        (job.directory / file).write_text(text)  # for whoever reads it next
        os.write(pipes[0], text.encode())
        os.close(pipes[0])
    asked.join(30)
    request.refresh_from_db()
    assert request.status in (S.ABORTED, S.FAILED, S.QUEUED)


def _ask(action: Callable[..., object], request: Request) -> None:
    try:
        action(request=Request.objects.get(pk=request.pk), actor="olga", reason="because")
    finally:
        connections["default"].close()


def _opened(pipe: Path, pipes: list[int]) -> bool:
    """Whether somebody waits for the pipe's first byte; its end to write to is kept open then."""
    try:
        pipes.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        assert error.errno == errno.ENXIO
        return False
    return True
