"""Guessing is braked: by name and address, by address, over the forms and over REST; a silent broker locks nobody out."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from requests_app.monitoring.health import health_warnings
from tests.support.calls import Clock
from tests.support.html import text
from tests.support.problems import problem
from wms2.checks import check_configuration
from wms2.conf import conf
from wms2.models import AuditEntry
from wms2.runtime.shared_counts import Broker, SharedCounts
from wms2.web import login_throttle
from wms2.web.login_throttle import FAILURES_PER_ADDRESS, FAILURES_PER_NAME, WINDOW_SECONDS, address_of, proxy_not_counted

pytestmark = pytest.mark.django_db
FORMS = ("/login/", "/admin/login/")


@pytest.fixture
def moment(settings: Any) -> Clock:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.create_user("rita", password="opensesame", is_staff=True)
    User.objects.create_user("stan", password="opensesame", is_staff=True)
    clock = Clock()
    login_throttle.attempts = SharedCounts(clock=clock)
    return clock


def sign_in(form: str, password: str, name: str = "rita", address: str = "10.0.0.1") -> Any:
    return Client(REMOTE_ADDR=address).post(form, {"username": name, "password": password})


@pytest.mark.parametrize("form", FORMS)
def test_twelve_wrong_passwords_are_slowed_down_and_the_right_one_waits_with_them(form: str, moment: Clock) -> None:
    codes = [sign_in(form, f"guess {number}").status_code for number in range(12)]
    most = FAILURES_PER_NAME
    assert codes == [200] * most + [429] * (12 - most)

    moment.now += 100.5
    waits = sign_in(form, "opensesame")
    assert waits.status_code == 429
    assert waits["Retry-After"] == str(int(WINDOW_SECONDS) - 100)
    assert f"Try again in {waits['Retry-After']} s" in text(waits.content.decode())
    assert "correct" not in text(waits.content.decode())
    moment.now += int(waits["Retry-After"])
    assert sign_in(form, "opensesame").status_code == 302


def test_others_are_not_kept_waiting(moment: Clock) -> None:
    for _ in range(12):
        sign_in("/login/", "guess")
    assert sign_in("/login/", "opensesame", name="stan").status_code == 302
    assert sign_in("/login/", "opensesame", address="10.0.0.2").status_code == 302


def test_who_gets_it_right_in_time_begins_anew(moment: Clock) -> None:
    for _ in range(3):
        for _ in range(FAILURES_PER_NAME - 1):
            assert sign_in("/login/", "guess").status_code == 200
        assert sign_in("/login/", "opensesame").status_code == 302


def test_one_address_that_tries_many_names_is_slowed_down(moment: Clock) -> None:
    most = FAILURES_PER_ADDRESS
    codes = [sign_in("/login/", "guess", name=f"name{number}").status_code for number in range(most + 3)]
    assert codes == [200] * most + [429] * 3
    assert sign_in("/login/", "opensesame", name="stan").status_code == 429
    assert sign_in("/login/", "opensesame", name="stan", address="10.0.0.2").status_code == 302


@pytest.mark.deep("tests/wms2/test_login_throttle.py::test_each_wait_is_audited_and_logged_once")
def test_of_ten_thousand_guesses_few_are_judged_and_the_audit_stays_short(moment: Clock) -> None:
    judged = right = 0
    for number in range(10_000):
        address = f"10.0.1.{number % 50}"
        moment.now += 0.1  # ten a second, from fifty addresses, at two names
        if number % 2:
            answer = sign_in("/login/", f"guess {number}", name=("rita", "stan")[number // 2 % 2], address=address)
        else:
            answer = APIClient(REMOTE_ADDR=address).get(
                "/api/v1/status", HTTP_AUTHORIZATION=f"Bearer wms2_{number:08}_{number:043}"
            )
        judged += answer.status_code in (200, 401)
        right += answer.status_code not in (200, 401, 429)
    windows = 10_000 * 0.1 // WINDOW_SECONDS + 1
    assert not right
    assert judged <= windows * 50 * (2 * FAILURES_PER_NAME + FAILURES_PER_ADDRESS)
    assert AuditEntry.objects.count() <= windows * 50 * 3, "a wait of each name and each kind, once in its window and address"
    assert sign_in("/login/", "opensesame", address="10.0.2.1").status_code == 302, "from elsewhere the user comes in"


def test_each_wait_is_audited_and_logged_once(moment: Clock) -> None:
    for _ in range(12):
        sign_in("/login/", "guess")
    entry = AuditEntry.objects.get(action="sign_in_braked")
    assert (entry.target, entry.outcome, entry.evidence["address"]) == ("rita", "refused", "10.0.0.1")
    assert "guess" not in str(entry.evidence)


def test_wrong_tokens_are_slowed_down_by_address_and_right_ones_never(moment: Clock) -> None:
    wrong = APIClient(REMOTE_ADDR="10.0.0.1")
    wrong.credentials(HTTP_AUTHORIZATION="Token of-nobody")
    for _ in range(FAILURES_PER_ADDRESS):
        problem(wrong.get("/api/v1/status"), 401, "authentication_failed")
    moment.now += 10
    waits = wrong.get("/api/v1/status")
    problem(waits, 429, "too_many_failures")
    assert waits["Retry-After"] == str(int(WINDOW_SECONDS) - 10)
    right = APIClient(REMOTE_ADDR="10.0.0.1")
    right.credentials(HTTP_AUTHORIZATION=f"Token {Token.objects.create(user=User.objects.get(username='rita')).key}")
    assert right.get("/api/v1/status").status_code == 200
    assert sign_in("/login/", "opensesame").status_code == 302


def test_all_processes_count_together_in_the_broker(moment: Clock) -> None:
    prefix = f"test:{uuid.uuid4()}"
    for _ in range(FAILURES_PER_NAME):
        # as if each time another process
        login_throttle.attempts = SharedCounts(Broker(os.environ["WMS2_BROKER_URL"], prefix, "failed sign-ins"))
        assert sign_in("/login/", "guess").status_code == 200
    login_throttle.attempts = SharedCounts(Broker(os.environ["WMS2_BROKER_URL"], prefix, "failed sign-ins"))
    waits = sign_in("/login/", "opensesame")
    assert waits.status_code == 429
    assert 0 < int(waits["Retry-After"]) <= WINDOW_SECONDS


def test_a_silent_broker_locks_nobody_out_and_each_process_still_brakes(moment: Clock) -> None:
    login_throttle.attempts = SharedCounts(Broker("redis://127.0.0.1:1/0", "test", "failed sign-ins", moment), moment)
    assert sign_in("/login/", "opensesame").status_code == 302
    assert [sign_in("/login/", "guess").status_code for _ in range(7)][-1] == 429


def test_behind_a_proxy_the_address_is_what_that_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "_proxies_not_counted", set())
    request = RequestFactory().get("/", REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="6.6.6.6, 10.0.0.9")
    far = RequestFactory().get("/", REMOTE_ADDR="188.184.1.1", HTTP_X_FORWARDED_FOR="6.6.6.6")
    assert (address_of(far), proxy_not_counted()) == ("188.184.1.1", ""), "no proxy of ours: anybody may send the header"
    assert address_of(request) == "127.0.0.1"  # nobody in front: what the header says is anybody's word
    assert "a proxy at 127.0.0.1 and WMS2_PROXIES_IN_FRONT is 0" in health_warnings()["proxies_in_front"]
    monkeypatch.setenv("WMS2_PROXIES_IN_FRONT", "1")
    conf.cache_clear()
    assert (address_of(request), proxy_not_counted()) == ("10.0.0.9", "")


def test_production_without_a_known_proxy_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ENVIRONMENT": "production",
        "CONFIGCACHE_URL": "https://a.example/couchdb",
        "REQMGR2_URL": "https://a.example",
    }.items():
        monkeypatch.setenv(f"WMS2_{name}", value)
    for proxies, warned in (("0", True), ("1", False)):
        monkeypatch.setenv("WMS2_PROXIES_IN_FRONT", proxies)
        conf.cache_clear()
        assert ("wms2.W001" in {message.id for message in check_configuration()}) is warned
