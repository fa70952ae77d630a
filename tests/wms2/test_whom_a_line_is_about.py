"""Lines of the log say which request and which DAG they are about, over HTTP, in evaluations, effects and the cycle."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from dags_app.models import DAGStatus
from dags_app.services import watch
from outputs_app.effects import Handler, executor
from outputs_app.models import Effect, EffectKind
from requests_app.lifecycle import evaluator
from requests_app.models import RequestStatus
from tests.support.rows import dag_row, request_row, schedd_row, unit_row, workflow_row
from wms2.adapters import factory
from wms2.adapters.types import QueueAnswer, ScheddAd
from wms2.errors import ServiceRejected
from wms2.settings.logs import logging_config

pytestmark = pytest.mark.django_db


class Lines(logging.Handler):
    """What is written, as a reader of the JSON lines gets it."""

    def __init__(self) -> None:
        super().__init__()
        formatters = logging_config("INFO", json_lines=True)["formatters"]["structured"]
        self.setFormatter(structlog.stdlib.ProcessorFormatter(
            processors=formatters["processors"], foreign_pre_chain=formatters["foreign_pre_chain"],
        ))  # fmt: skip
        self.found: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(json.loads(self.format(record)))

    def of(self, event: str) -> dict[str, Any]:
        (line,) = (line for line in self.found if line["event"] == event)
        return line


@pytest.fixture
def lines() -> Any:
    handler = Lines()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


@pytest.fixture
def reader() -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {Token.objects.create(user=User.objects.create_user('rita')).key}")
    return client


def test_an_http_request_is_one_line_with_what_its_address_names(reader: APIClient, lines: Lines) -> None:
    request = request_row()
    reader.get(f"/api/v1/requests/{request.request_name}")
    line = lines.of("http")
    assert line["request_name"] == request.request_name
    assert (line["method"], line["status"], line["user"]) == ("GET", 200, "rita")
    assert "dag_id" not in line
    assert structlog.contextvars.get_contextvars() == {}, "the next request of this thread begins without it"


def test_one_about_a_dag_has_its_id_also_when_it_is_refused(reader: APIClient, lines: Lines) -> None:
    dag = dag_row(workflow_row())
    APIClient().get(f"/api/v1/dags/{dag.pk}")
    line = lines.of("http")
    assert (line["dag_id"], line["status"], line["user"]) == (str(dag.pk), 401, "")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/api/v1/metrics"])
def test_what_supervisors_ask_all_the_time_is_not_logged(reader: APIClient, lines: Lines, path: str) -> None:
    reader.get(path)
    assert [line for line in lines.found if line["event"] == "http"] == []


def test_whatever_an_evaluation_says_names_its_request_and_live_dag(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING)

    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(evaluator, "evaluate", broken)
    evaluator.evaluate_one(dag.workflow.request.pk)
    line = lines.of("evaluation failed")
    assert (line["request_name"], line["dag_id"]) == (dag.workflow.request.request_name, str(dag.pk))


def test_whatever_an_effect_says_names_its_request_and_the_dag_of_its_unit(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    unit = unit_row(dag_row(workflow_row(request_row(RequestStatus.ACTIVE))))
    request = unit.workflow.request
    Effect.objects.create(request=request, unit=unit, kind=EffectKind.DBS_BLOCK, key="k", epoch=request.epoch)

    def refused(_: Effect) -> dict[str, str]:
        logging.getLogger("somebody.below").warning("about to be refused")
        raise ServiceRejected("dbs", "insert", "no")

    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, Handler(refused, lambda effect, result: None)))
    executor.effects_run_due(owner="test")
    for event in ("about to be refused", "effect refused, an operator must look"):
        line = lines.of(event)
        assert (line["request_name"], line["dag_id"]) == (request.request_name, str(unit.dag_id))


def test_what_the_cycle_sees_of_a_dag_names_its_request(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    schedd = schedd_row()
    dag = dag_row(
        workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd, schedd_name=schedd.name,
        dagman_cluster_id="17",
    )  # fmt: skip

    class Empty:
        def watch(self, instance: str) -> QueueAnswer:
            return QueueAnswer(ScheddAd(schedd.name, "25.14.1", 1), [], [])

    monkeypatch.setattr(factory, "htcondor", lambda *_: Empty())
    for _ in range(2):
        (check_request,) = watch.checks_of([schedd])
        watch.schedd_observe(check=check_request, answer=check_request.ask("i"), fenced=transaction.atomic)
    line = lines.of("DAGMan job no longer in the queue; how it ended is looked for")
    assert (line["request_name"], line["dag_id"]) == (dag.workflow.request.request_name, str(dag.pk))


def test_a_refused_request_is_one_line_and_a_plain_403_has_no_traceback(lines: Lines, client: Any) -> None:
    client.force_login(User.objects.create_user("nobody"))
    answers = [client.get("/api/v1/requests/none"), client.get("/nowhere")]
    assert [answer.status_code for answer in answers] == [404, 404]
    reported = [line for line in lines.found if line.get("status") == 404 or line["logger"] == "django.request"]
    assert [(line["event"], line["path"]) for line in reported] == [("http", "/api/v1/requests/none"), ("http", "/nowhere")]
    logging.getLogger("django.request").warning("Forbidden (Permission denied): %s", "/admin/", exc_info=True)
    assert all(line["logger"] != "django.request" for line in lines.found)


def test_what_is_refused_before_any_view_is_one_line_too(lines: Lines) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/login/", {"username": "a", "password": "b"}).status_code == 403
    assert client.get("/livez", headers={"host": "elsewhere.example"}).status_code == 400
    reported = [(line["event"], line["path"], line.get("host"), "exception" in line) for line in lines.found]
    assert reported == [("http", "/login/", None, False), ("http", "/livez", "elsewhere.example", False)]
