"""Addresses that operators name: what is asked, and what never is."""

from __future__ import annotations

import base64

import pytest
from pytest_httpserver import HTTPServer

from tests.support.cases import in_one_test
from wms2.adapters.webhooks import Webhooks, address_problem, signed
from wms2.errors import ConfigurationError, ServiceRejected, ServiceUnavailable

HOSTS = ("chat.example.org", "am.example.org:9093")


@in_one_test(
    "url",
    [
        "https://chat.example.org/hooks", "https://CHAT.example.org:443/", "https://am.example.org:9093", "http://127.0.0.1:9/x",
        "http://localhost/", "http://[::1]:8080/",
    ],
)  # fmt: skip
def test_addresses_that_are_allowed(url: str) -> None:
    assert address_problem(url, hosts=HOSTS, plain=True) == ""


@in_one_test(
    "url",
    [
        "https://evil.example.org/", "https://chat.example.org:8443/", "https://am.example.org/", "http://chat.example.org/",
        "https://chat.example.org@evil.example.org/", "https://evil.example.org#@chat.example.org", "https://169.254.169.254/",
        "file:///etc/passwd", "https://", "https://chat.example.org:x/", "http://127.0.0.1.evil.example.org/", "http://10.0.0.1/",
        "https://chat.example.org/a b", "https://chat.example.org\\@evil.example.org/", "gopher://127.0.0.1/", "",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(url: str) -> None:
    assert address_problem(url, hosts=HOSTS, plain=True) != ""


def test_http_at_this_machine_is_for_development() -> None:
    assert address_problem("http://127.0.0.1:9/", hosts=(), plain=False) == "begins with https://"
    with pytest.raises(ConfigurationError):
        Webhooks("webhook", "http://127.0.0.1:9/", hosts=(), plain=False)


def test_the_signature_is_that_of_the_published_example_once_for_each_key() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [key, b"another"])
    first, second = headers["webhook-signature"].split(" ")
    assert first == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" and second.startswith("v1,") and second != first


def test_a_redirect_is_not_followed_and_no_key_stands_in_an_error(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hooks/secret").respond_with_data("", status=302, headers={"Location": "http://127.0.0.1:1/"})
    hooks = Webhooks("mattermost", httpserver.url_for("/hooks"), hosts=(), plain=True)
    with pytest.raises(ServiceRejected) as refused:
        hooks.post("/secret", b"{}", {}, operation="message")
    away = Webhooks("mattermost", "http://127.0.0.1:1/hooks", hosts=(), plain=True)
    with pytest.raises(ServiceUnavailable) as silent:
        away.post("/secret", b"{}", {}, operation="message")
    assert "secret" not in f"{refused.value}{silent.value}{silent.value.__cause__}"
