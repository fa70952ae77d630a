"""Who comes by while the live engine works: somebody who reads, an operator who acts, and requests that arrive."""

from __future__ import annotations

import http.client
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import requests
from django.utils import timezone

from bench import api_load
from bench.dag_shapes import wait_for

#: Between two questions of the client.
PAUSE_SECONDS = 0.1
#: Between two operations of the operator, and between two looks whether the life cycle has seen one.
VERB_SECONDS = 2.0
CHECK_SECONDS = 0.02
#: Until an operation that nobody has acted on ends the bench.
PATIENCE_SECONDS = 60


def ask(port: int, login: Mapping[str, str], paths: Mapping[str, Sequence[str]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each answer, one question after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    found: dict[str, list[float]] = {name: [] for name in paths}
    ends_at, turn = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        turn += 1
        for name, choices in paths.items():
            time.sleep(PAUSE_SECONDS)
            found[name].append(api_load._answered(connection, choices[turn % len(choices)], login))
    return found


def act(port: int, login: Mapping[str, str], seconds: float) -> list[tuple[float, float]]:
    """Hold the requests that are last in the queue and release them; of each operation the seconds from when it was sent
    until its answer, and until the life cycle has looked at the request with what was asked.
    """
    from django.db import connection

    from requests_app.models import Request, RequestStatus

    last = Request.objects.filter(status=RequestStatus.QUEUED).order_by("priority", "-queued_at", "id")
    rows = last.values_list("pk", "request_name")[: int(seconds / VERB_SECONDS) + 1]
    found: list[tuple[float, float]] = []
    ends_at = time.monotonic() + seconds
    try:
        for pk, path in [(pk, f"/api/v1/requests/{name}/{verb}") for pk, name in rows for verb in ("hold", "release")]:
            if time.monotonic() > ends_at:
                break
            found.append(_acted(pk, f"http://127.0.0.1:{port}{path}", login))
            time.sleep(VERB_SECONDS)
    finally:
        connection.close()  # of this thread
    return found


def _acted(pk: uuid.UUID, url: str, login: Mapping[str, str]) -> tuple[float, float]:
    from requests_app.models import EvaluationLease

    sent, begun = timezone.now(), time.monotonic()
    answer = requests.post(url, json={"reason": "bench"}, headers=dict(login), timeout=PATIENCE_SECONDS)
    answered = time.monotonic() - begun
    if answer.status_code != HTTPStatus.ACCEPTED:
        raise SystemExit(f"{url} was answered {answer.status_code}: {answer.text}")
    wait_for(EvaluationLease.objects.filter(request=pk, evaluated_at__gt=sent).exists, PATIENCE_SECONDS, CHECK_SECONDS)
    return answered, time.monotonic() - begun


def admit_while(answers: Future[Any], size: Mapping[str, int]) -> dict[Any, float]:
    """So many an hour; when each was, and 0.0 for how long it takes."""
    from requests_app.models import Limit, Request, RequestStatus
    from requests_app.states import record_creation
    from tests.support.rows import generation_spec, output_spec, request_row, workflow_row

    admitted: dict[Any, float] = {}
    begun = time.monotonic()
    while not answers.done():
        if time.monotonic() - begun >= len(admitted) * 3600 / size["ADMITTED"]:
            tag = uuid.uuid4().hex[:8]
            request = request_row(RequestStatus.QUEUED, request_name=f"bench_admitted_{tag}", priority=900_000)
            workflow_row(request, generation_spec(request.request_name, outputs=(output_spec(tag),), events=100_000))
            Limit.objects.filter(name="max_active_dags").update(value=size["ACTIVE"] + len(admitted) + 1)
            record_creation(request, actor="bench", reason="bench")  # with the lease without which only a cycle looks at it
            admitted[request.pk] = 0.0
        time.sleep(1)
        for pk in [pk for pk, seconds in admitted.items() if not seconds]:
            row = Request.objects.get(pk=pk)
            if row.status == RequestStatus.ACTIVE:
                admitted[pk] = (row.status_since - row.created_at).total_seconds()
    return admitted
