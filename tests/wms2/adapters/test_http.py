"""What the HTTP wrapper makes of services that answer badly, late or not at all."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tests.support.calls import state
from tests.support.servers import Behaviour, RawServer, read_request
from wms2.adapters.http import Credentials, HttpService
from wms2.errors import CircuitOpen, ConfigurationError, ServiceRejected, ServiceUnavailable
from wms2.runtime.circuits import circuits

Calls = list[tuple[str, str, str]]

ANY = object


def service(url: str, timeout_seconds: float = 5.0) -> HttpService:
    return HttpService("dbs", url, timeout_seconds=timeout_seconds)


def test_a_get_that_fails_twice_is_repeated(httpserver: HTTPServer, calls: Calls) -> None:
    httpserver.expect_ordered_request("/x").respond_with_data("database gone", status=500)
    httpserver.expect_ordered_request("/x").respond_with_data("database gone", status=503)
    httpserver.expect_ordered_request("/x").respond_with_json({"answer": 1})
    assert service(httpserver.url_for("")).get_json(ANY, "/x", operation="look") == {"answer": 1}
    assert calls == [("dbs", "look", "unavailable"), ("dbs", "look", "unavailable"), ("dbs", "look", "ok")]


def test_a_write_is_sent_once_unless_the_caller_allows_more(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/x", method="POST").respond_with_data("oops", status=500)
    with pytest.raises(ServiceUnavailable, match=r"oops \(HTTP 500, POST .*/x\)"):
        service(httpserver.url_for("")).send_json("POST", "/x", operation="create", body={})
    assert len(httpserver.log) == 1
    circuits().clear()
    with pytest.raises(ServiceUnavailable):
        service(httpserver.url_for("")).send_json("POST", "/x", operation="create", body={}, tries=3)
    assert len(httpserver.log) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 412, 415])
def test_a_refusal_keeps_the_services_message_and_is_not_repeated(httpserver: HTTPServer, status: int, calls: Calls) -> None:
    httpserver.expect_request("/x").respond_with_data("no such parameter: foo\nstack trace", status=status)
    with pytest.raises(ServiceRejected, match="no such parameter: foo") as caught:
        service(httpserver.url_for("")).get_json(ANY, "/x", operation="look")
    assert (caught.value.service, caught.value.operation, caught.value.code) == ("dbs", "look", status)
    assert len(httpserver.log) == 1
    assert calls == [("dbs", "look", "rejected")]


@pytest.mark.parametrize("status", [408, 425, 429])
def test_not_now_is_not_a_refusal(httpserver: HTTPServer, status: int) -> None:
    httpserver.expect_request("/x").respond_with_data("later", status=status)
    with pytest.raises(ServiceUnavailable):
        service(httpserver.url_for("")).get_json(ANY, "/x", operation="look")


def test_a_redirect_is_refused_because_it_would_turn_a_put_into_a_get(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/x", method="PUT").respond_with_data(
        "", status=302, headers={"Location": "https://login.example/"}
    )
    with pytest.raises(ServiceRejected, match=r"redirected to https://login\.example/"):
        service(httpserver.url_for("")).send_json("PUT", "/x", operation="change", body={}, tries=3)
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("body", ["<html>Sign in</html>", "{", ""])
def test_an_answer_that_is_not_json_says_nothing(httpserver: HTTPServer, body: str) -> None:
    httpserver.expect_request("/x").respond_with_data(body, content_type="application/json")
    with pytest.raises(ServiceUnavailable, match="not JSON"):
        service(httpserver.url_for("")).get_json(ANY, "/x", operation="look")


def test_a_write_may_be_answered_with_nothing(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/x", method="PUT").respond_with_data("")
    assert service(httpserver.url_for("")).send_json("PUT", "/x", operation="change", body={}) is None


def test_the_content_type_is_exactly_json(httpserver: HTTPServer) -> None:
    seen: list[Request] = []

    def handle(request: Request) -> Response:
        seen.append(request)
        return Response("[]")

    httpserver.expect_request("/x").respond_with_handler(handle)
    service(httpserver.url_for("")).send_json("POST", "/x", operation="create", body=[{"a": 1}])
    assert seen[0].headers["Content-Type"] == "application/json"
    assert seen[0].get_data() == b'[{"a": 1}]'


def test_a_refused_connection_is_unavailable(closed_port: int, calls: Calls) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        service(f"http://127.0.0.1:{closed_port}").get_json(ANY, "/x", operation="look")
    assert caught.value.code == "connection"
    assert calls == [("dbs", "look", "unavailable")] * 3


def test_silence_is_a_timeout_and_named_so(raw_server: Callable[[Behaviour], RawServer], calls: Calls) -> None:
    server = raw_server(lambda connection: time.sleep(30))
    with pytest.raises(ServiceUnavailable, match="no answer within") as caught:
        service(server.url, timeout_seconds=0.2).send_json("POST", "/x", operation="create", body={})
    assert caught.value.code == "timeout"
    assert calls == [("dbs", "create", "timeout")]
    assert server.connections == 1


def test_an_answer_that_dribbles_is_cut_off_at_the_limit(raw_server: Callable[[Behaviour], RawServer]) -> None:
    def dribble(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            connection.sendall(b"1\r\n1\r\n")
            time.sleep(0.02)
        connection.sendall(b"0\r\n\r\n")

    server = raw_server(dribble)
    with pytest.raises(ServiceUnavailable) as caught:
        service(server.url, timeout_seconds=0.3).send_json("POST", "/x", operation="create", body={})
    assert caught.value.code == "timeout"


def test_a_connection_dropped_after_the_write_was_done_is_not_repeated(raw_server: Callable[[Behaviour], RawServer]) -> None:
    done: list[bytes] = []

    def act_and_drop(connection: socket.socket) -> None:
        done.append(read_request(connection))
        connection.close()

    server = raw_server(act_and_drop)
    with pytest.raises(ServiceUnavailable) as caught:
        service(server.url).send_json("POST", "/x", operation="create", body={"n": 1})
    assert caught.value.code == "connection"
    assert len(done) == 1 and server.connections == 1


def test_an_answer_shorter_than_announced_is_unavailable(raw_server: Callable[[Behaviour], RawServer]) -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1, 2]")
        connection.close()

    with pytest.raises(ServiceUnavailable):
        service(raw_server(cut).url).get_json(ANY, "/x", operation="look")


def test_streamed_lines_come_whole_wherever_chunks_end(httpserver: HTTPServer) -> None:
    sent = [b'{"a":"%b"}' % (b"x" * length) for length in (1, 70_000, 10, 200_000)]
    answer = sent[0] + b"\n\n" + b"\r\n".join(sent[1:])
    httpserver.expect_request("/x", headers={"Accept": "application/ndjson"}).respond_with_data(answer)
    lines = service(httpserver.url_for("")).stream_lines("/x", operation="rows", params=None, accept="application/ndjson")
    assert [line.strip() for group in lines for line in group] == sent


def test_a_stream_that_breaks_off_does_not_look_like_its_end(raw_server: Callable[[Behaviour], RawServer]) -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"a":1}\n\r\n')
        connection.close()

    lines = service(raw_server(cut).url).stream_lines("/x", operation="rows", params=None, accept="application/ndjson")
    with pytest.raises(ServiceUnavailable):
        list(lines)


def test_a_stream_without_a_recognisable_end_is_not_trusted(raw_server: Callable[[Behaviour], RawServer]) -> None:
    def endless(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"a":1}\n')
        connection.close()

    lines = service(raw_server(endless).url).stream_lines("/x", operation="rows", params=None, accept="application/ndjson")
    with pytest.raises(ServiceUnavailable, match="its end cannot be known"):
        list(lines)


def test_a_service_that_failed_three_times_is_left_alone(closed_port: int, calls: Calls) -> None:
    http = service(f"http://127.0.0.1:{closed_port}")
    with pytest.raises(ServiceUnavailable):
        http.get_json(ANY, "/x", operation="look")
    assert state(http.caller.breaker) == "open"
    with pytest.raises(CircuitOpen):
        http.send_json("POST", "/x", operation="create", body={})
    assert calls[-1] == ("dbs", "create", "circuit_open")


def test_missing_authorities_are_a_matter_of_configuration(httpserver: HTTPServer) -> None:
    http = HttpService("dbs", "https://127.0.0.1:1", timeout_seconds=1, credentials=Credentials(ca_path="/no/such/ca.pem"))
    with pytest.raises(ConfigurationError, match="WMS2_CA_PATH"):
        http.get_json(ANY, "/x", operation="look")


def test_a_url_that_is_none_is_a_matter_of_configuration() -> None:
    with pytest.raises(ConfigurationError, match="URL of dbs is wrong"):
        service("http://").get_json(ANY, "/x", operation="look")


def test_proxies_of_the_environment_are_ignored(
    httpserver: HTTPServer, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    httpserver.expect_request("/x").respond_with_json(1)
    assert service(httpserver.url_for("")).get_json(ANY, "/x", operation="look") == 1
