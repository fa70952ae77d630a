"""Rules, board and alerts with a real Prometheus and Alertmanager; what the latter does with alerts that are posted to it."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from django.contrib.auth.models import User
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from deploy.prometheus.configuration import SHIPPED
from deploy.prometheus.receiver import Receiver
from deploy.simulators.httpd import SimulatorServer
from deploy.stack.paths import layout
from deploy.stack.services.base import Place
from deploy.stack.services.django import Wms2
from tests.support.exposed import METRIC, something_of_each
from tests.support.monitoring import alertmanager, as_panels_do, configured, prometheus, query, run, whatever_its_outcome
from tests.support.monitoring_rules import ALL, RULES
from tests.support.stack import database_url
from tests.support.waiting import until
from wms2.identities.tokens import NewToken, token_make

#: Labelled counters, which have no series until they count -> what they count. A query over one of these may return nothing.
LATER = {
    "wms2_transitions_total": "changes of a request's status",
    "wms2_alerts_total": "alerts of requests",
    "wms2_locks_refused_total": "steps that met a locked row",
    "wms2_jobs_ended_total": "jobs that ended",
    "wms2_lifecycle_cycles_total": "cycles",
    "wms2_evaluations_total": "evaluations of requests",
    "wms2_effects_total": "attempts at registrations",
    "wms2_external_call_seconds_count": "calls to services",
    "wms2_external_call_seconds_bucket": "calls to services",
    "wms2_external_call_seconds_sum": "calls to services",
    "django_db_errors_total": "errors of the database",
    "wms2_sign_ins_braked_total": "passwords and tokens that were not checked",
    "wms2_denials_total": "calls that were denied",
    "wms2_rows_expired_total": "rows that were removed",
    "wms2_dags_packed_total": "directories that were packed",
    "wms2_leftovers_removed_total": "files that were removed",
    "wms2_site_jobs_total": "jobs at sites",
    "wms2_validations_total": "validations",
    "wms2_worker_pool_wait_seconds_bucket": "tasks that a worker took",
    "wms2_calls_shed_total": "calls that were refused with 503",
    "wms2_rate_limited_total": "calls that were refused with 429",
    "wms2_rows_broken_total": "rows that failed in a pass",
    "wms2_alert_messages_total": "messages about alerts",
    "wms2_streams_total": "streams that ended",
}
#: Other queries that may return nothing -> why.
ABSENT = {"alert Wms2NoCycle": "asks for what is absent, and a cycle has run", "alert Wms2ApiErrors": "no answer was 5xx"}


def test_promtool_and_amtool_accept_what_is_shipped_and_each_alert_rings_for_what_it_should(tmp_path: Path) -> None:
    configured(tmp_path)
    assert "SUCCESS" in run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert "SUCCESS" in run("amtool", "check-config", SHIPPED / "alertmanager.yml")
    (tmp_path / "by_mail.yml").write_text(by_mail((SHIPPED / "alertmanager.yml").read_text()))
    assert "SUCCESS" in run("amtool", "check-config", tmp_path / "by_mail.yml")
    tests = sorted((SHIPPED / "tests").glob("*.yml"))
    run("promtool", "test", "rules", *tests)
    named = {name for file in tests for name in re.findall(r'alertname="(\w+)"', file.read_text())}
    assert {rule["alert"] for rule in RULES} <= named


def by_mail(text: str) -> str:
    """The configuration with the receiver that its comment offers in place of the webhook."""
    offered = re.findall(r"^#( {5}.*)$", text, re.M)
    (webhook,) = re.findall(r"^ +webhook_configs:\n(?: {6,}.*\n)+", text, re.M)
    changed = text.replace(webhook, "\n".join(line[1:] for line in offered) + "\n")
    (receiver,) = yaml.safe_load(changed)["receivers"]
    assert receiver["email_configs"][0]["to"]
    return changed


@pytest.mark.django_db(transaction=True)
def test_every_query_of_board_and_rules_is_understood_and_answered(
    live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    something_of_each(monkeypatch)
    last, _ = token_make(owner=User.objects.create_user("prometheus"), new=NewToken("metrics"), actor="test")
    demo = Place(layout(), tmp_path, {**os.environ, "WMS2_DATABASE_URL": database_url()})
    Wms2(demo, 0, 0, 0).reader_token("prometheus", tmp_path / "made")
    last.refresh_from_db()
    assert last.revoked_at
    token = (tmp_path / "made").read_text()
    addresses = configured(tmp_path, web=live_server.url.removeprefix("http://"), token=token)
    with prometheus(tmp_path, addresses) as url:
        # rates need two samples of each series, conditions what the rules record
        until(
            lambda: query(url, "count_over_time(wms2:available[1h]) > 2"),
            lambda: requests.get(f"{url}/api/v1/targets", timeout=9).text,
        )
        asked = {expression: where for where, expression, _ in ALL}
        explained = {each for each, where in asked.items() if where in ABSENT or spoken_of(each) & set(LATER)}

        def unanswered(asked: Iterable[str]) -> set[str]:
            return {each for each in asked if not query(url, whatever_its_outcome(as_panels_do(each)))}

        empty = unanswered(asked) - explained

        def answered() -> bool:
            """All by now: after a scrape that came too late series are stale until the next."""
            empty.intersection_update(unanswered(empty))
            return not empty

        until(answered, lambda: {asked[each]: each for each in empty})


def test_every_query_that_may_return_nothing_is_one_that_is_asked() -> None:
    assert set(LATER) <= set().union(*(spoken_of(expression) for _, expression, _ in ALL))
    assert set(ABSENT) <= {where for where, _, _ in ALL}


def spoken_of(expression: str) -> set[str]:
    """The metrics in an expression."""
    return {name for name, _ in METRIC.findall(expression)}


@contextmanager
def receiving(file: Path) -> Iterator[str]:
    """The demo's receiver; its address."""
    server = SimulatorServer(("127.0.0.1", 0), Receiver(file).handle)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_an_alert_of_prometheus_reaches_the_receiver_by_alertmanager_and_so_does_its_end(
    tmp_path: Path, httpserver: HTTPServer
) -> None:
    answers = {"status": 503}

    def metrics(request: Request) -> Response:
        assert request.headers["Authorization"] == "Token abc"
        return Response("wms2_lifecycle_cycle_age_seconds 5\n", status=answers["status"], content_type="text/plain")

    httpserver.expect_request("/api/v1/metrics").respond_with_handler(metrics)
    received = tmp_path / "alerts.jsonl"

    def states() -> list[str]:
        lines = received.read_text().splitlines() if received.exists() else []
        alerts = [alert for line in lines for alert in json.loads(line)["alerts"]]
        return [alert["status"] for alert in alerts if alert["labels"]["alertname"] == "Wms2Down"]

    with receiving(received) as receiver:
        web = f"{httpserver.host}:{httpserver.port}"
        addresses = configured(tmp_path, web=web, receiver=receiver, token="abc")
        with alertmanager(tmp_path, addresses) as there, prometheus(tmp_path, addresses) as url:
            until(lambda: "firing" in states(), lambda: requests.get(f"{url}/api/v1/alerts", timeout=9).text)
            (listed,) = requests.get(f"{there}/api/v2/alerts", params={"filter": "alertname=Wms2Down"}, timeout=9).json()
            assert listed["annotations"]["runbook_url"].endswith("#wms2down")
            answers["status"] = 200
            until(lambda: "resolved" in states(), received.read_text)
        shown = requests.get(f"http://{receiver}/", timeout=9).text
    assert re.search(r"resolved\s+Wms2Down\s+The web server of", shown)


def test_alertmanager_lists_what_is_posted_under_its_labels_silences_it_and_lets_it_end(tmp_path: Path) -> None:
    """What services that push alerts rest on (docs/design/services.md)."""
    now = datetime.now(UTC)
    labels = {"alertname": "stuck_queued", "request": "r1"}
    with alertmanager(tmp_path) as url:
        api = f"{url}/api/v2"

        def post(text: str, ends: timedelta) -> requests.Response:
            alert = {"labels": labels, "annotations": {"summary": text}, "endsAt": (now + ends).isoformat()}
            return requests.post(f"{api}/alerts", json=[alert], timeout=9)

        def listed(**parameters: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = requests.get(f"{api}/alerts", params=parameters, timeout=9).json()
            return found

        assert post("first", timedelta(hours=1)).status_code == 200
        assert post("second", timedelta(hours=1)).status_code == 200
        (alert,) = until(lambda: [each for each in listed() if each["annotations"] == {"summary": "second"}])
        assert (alert["labels"], alert["status"]["state"]) == (labels, "active")

        matcher = {"name": "request", "value": "r1", "isRegex": False, "isEqual": True}
        ends = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
        silence = {"matchers": [matcher], **ends, "createdBy": "olga", "comment": "known"}
        answer = requests.post(f"{api}/silences", json=silence, timeout=9)
        assert answer.status_code == 200, answer.text
        made = answer.json()["silenceID"]
        (alert,) = until(lambda: listed(active="false", silenced="true"))
        assert (alert["status"]["state"], alert["status"]["silencedBy"]) == ("suppressed", [made])
        assert requests.delete(f"{api}/silence/{made}", timeout=9).status_code == 200
        until(lambda: listed(silenced="false"))

        assert post("second", timedelta(seconds=-1)).status_code == 200
        until(lambda: not listed())
        nameless = requests.post(f"{api}/alerts", json=[{"labels": {}}], timeout=9)
        assert nameless.status_code == 400
