"""What the Rucio adapter makes of a server or a configuration that is wrong; with answers a real server was seen to give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from tests.support.rucio import did
from wms2.adapters.rucio import RucioAdapter
from wms2.adapters.rucio_session import read_config
from wms2.errors import ConfigurationError, NotFoundInService, ServiceError, ServiceRejected, ServiceUnavailable

Calls = list[tuple[str, str, str]]
CONFIG = """\
[client]
rucio_host = {url}
auth_host = {url}
auth_type = userpass
username = wms2
password = a password
account = wms2
auth_token_file_path = {home}/token
"""


def adapter_for(url: str, home: Path) -> RucioAdapter:
    (home / "etc").mkdir(exist_ok=True)
    (home / "etc/rucio.cfg").write_text(CONFIG.format(url=url.rstrip("/"), home=home))
    return RucioAdapter(home, "wms2", "cms", 5.0)


def failing_server(httpserver: HTTPServer, status: int, exception_class: str = "", message: str = "") -> None:
    """Logs in well; everything else fails like this."""
    httpserver.expect_request("/auth/userpass").respond_with_data("", headers={"X-Rucio-Auth-Token": "wms2-wms2-unknown-1"})
    body = {"ExceptionClass": exception_class, "ExceptionMessage": message} if exception_class else {}
    httpserver.expect_request("/ping").respond_with_json(body, status=status)


@pytest.mark.parametrize(
    ("status", "exception_class", "expected"),
    [
        (500, "DatabaseException", ServiceUnavailable),
        (500, "RucioException", ServiceUnavailable),
        (500, "", ServiceUnavailable),
        (503, "", ServiceUnavailable),
        (429, "", ServiceUnavailable),
        (400, "RucioException", ServiceRejected),
        (404, "RuleNotFound", NotFoundInService),
        (404, "DataIdentifierNotFound", NotFoundInService),
        (409, "DuplicateRule", ServiceRejected),
        (401, "AccessDenied", ServiceRejected),
    ],
)
def test_the_class_and_the_status_say_whether_to_try_again(
    httpserver: HTTPServer, tmp_path: Path, calls: Calls, status: int, exception_class: str, expected: type[ServiceError]
) -> None:
    failing_server(httpserver, status, exception_class, "An unknown exception occurred.\nDetails: what happened\nand more")
    with pytest.raises(expected) as caught:
        adapter_for(httpserver.url_for(""), tmp_path).ping()
    assert type(caught.value) is expected
    assert caught.value.code == (exception_class or "RucioException")
    assert caught.value.__cause__ is not None
    assert "\n" not in caught.value.detail
    assert len(calls) == (3 if expected is ServiceUnavailable else 1)


def test_the_message_is_the_specific_part_of_rucios(httpserver: HTTPServer, tmp_path: Path) -> None:
    failing_server(httpserver, 404, "RuleNotFound", "No rule with the id 00 found")
    with pytest.raises(NotFoundInService) as caught:
        adapter_for(httpserver.url_for(""), tmp_path).ping()
    assert caught.value.detail == "No rule with the id 00 found"


@pytest.mark.parametrize(
    ("status", "exception_class", "expected"),
    [(500, "DatabaseException", ServiceUnavailable), (401, "CannotAuthenticate", ServiceRejected)],
)
def test_a_login_fails_for_good_only_when_it_was_refused(
    httpserver: HTTPServer, tmp_path: Path, status: int, exception_class: str, expected: type[ServiceError]
) -> None:
    """rucio-clients says CannotAuthenticate in both cases."""
    headers = {"ExceptionClass": exception_class, "ExceptionMessage": "no"}
    httpserver.expect_request("/auth/userpass").respond_with_data("", status=status, headers=headers)
    with pytest.raises(expected) as caught:
        adapter_for(httpserver.url_for(""), tmp_path).ping()
    assert type(caught.value) is expected
    assert "a password" not in str(caught.value) + repr(caught.value.__cause__)


def test_an_answer_that_is_not_json_says_nothing(httpserver: HTTPServer, tmp_path: Path) -> None:
    httpserver.expect_request("/auth/userpass").respond_with_data("", headers={"X-Rucio-Auth-Token": "t"})
    httpserver.expect_request("/ping").respond_with_data("<html>maintenance</html>", content_type="application/json")
    with pytest.raises(ServiceUnavailable):
        adapter_for(httpserver.url_for(""), tmp_path).ping()


def test_an_answer_of_another_shape_says_nothing(httpserver: HTTPServer, tmp_path: Path) -> None:
    httpserver.expect_request("/auth/userpass").respond_with_data("", headers={"X-Rucio-Auth-Token": "t"})
    row = did("/store/mc/a.root") | {"states": ["T2_CH_CERN"]}
    httpserver.expect_request("/replicas/list").respond_with_data(json.dumps(row), content_type="application/x-json-stream")
    with pytest.raises(ServiceUnavailable, match="states"):
        adapter_for(httpserver.url_for(""), tmp_path).file_replicas(["/store/mc/a.root"])


def test_a_server_that_is_down_is_unavailable(tmp_path: Path, closed_port: int, calls: Calls) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        adapter_for(f"http://127.0.0.1:{closed_port}", tmp_path).rules_with_comment("any")
    assert (caught.value.service, caught.value.operation) == ("rucio", "rules_with_comment")
    assert calls == [("rucio", "rules_with_comment", "unavailable")] * 3


def test_the_circuit_opens_after_repeated_failures(tmp_path: Path, closed_port: int, calls: Calls) -> None:
    adapter = adapter_for(f"http://127.0.0.1:{closed_port}", tmp_path)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            adapter.ping()
    assert calls[-1] == ("rucio", "ping", "circuit_open")


# --- configuration


def test_a_missing_configuration_stops_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"WMS2_RUCIO_HOME: there is no readable {tmp_path}/etc/rucio.cfg"):
        RucioAdapter(tmp_path, "wms2", "cms", 5.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("auth_host", "auth_hots", "lacks 'auth_host'"),
        ("password = a password", "", "lacks 'password'"),
        ("auth_type = userpass", "auth_type = gss", "auth_type 'gss' is not supported"),
        ("[client]", "[clients]", "lacks 'client'"),
        ("[client]", "", "File contains no section headers"),
    ],
)
def test_a_wrong_configuration_stops_with_the_option(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/rucio.cfg").write_text(CONFIG.format(url="http://127.0.0.1:1", home=tmp_path).replace(old, new))
    with pytest.raises(ConfigurationError, match=message):
        RucioAdapter(tmp_path, "wms2", "cms", 5.0)


@pytest.mark.parametrize(
    ("auth_type", "options", "credentials"),
    [
        ("x509", "client_cert = /a/cert\nclient_key = /a/key", {"client_cert": "/a/cert", "client_key": "/a/key"}),
        ("x509_proxy", "client_x509_proxy = /a/proxy", {"client_proxy": "/a/proxy"}),
    ],
)
def test_certificates_and_proxies_are_taken_from_the_configuration(
    tmp_path: Path, auth_type: str, options: str, credentials: dict[str, str]
) -> None:
    (tmp_path / "etc").mkdir()
    text = CONFIG.format(url="https://rucio.example", home=tmp_path).replace("auth_type = userpass", f"auth_type = {auth_type}")
    (tmp_path / "etc/rucio.cfg").write_text(f"{text}{options}\nca_cert = /a/ca\n")
    config = read_config(tmp_path, "wms2")
    assert (config.auth_type, config.credentials, config.ca_cert) == (auth_type, credentials, "/a/ca")


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    adapter_for("http://127.0.0.1:1", tmp_path)
    assert "a password" not in repr(read_config(tmp_path, "wms2"))
