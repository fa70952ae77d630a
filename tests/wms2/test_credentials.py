"""When credentials end, what is wrong with them, and that renewed ones are used with nothing restarted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from tests.support.credentials import DAY_SECONDS, Authority, TlsServer, moment, token, write
from wms2.adapters import factory
from wms2.adapters.http import Credentials, HttpService
from wms2.adapters.rucio_session import RucioSession
from wms2.checks import check_configuration
from wms2.conf import conf, from_environment
from wms2.errors import ConfigurationError, ServiceUnavailable
from wms2.runtime.circuits import circuits
from wms2.runtime.credentials import Credential, CredentialUnusable, Seen, see

HOUR_SECONDS = 3600.0
ANY = object


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[TlsServer]:
    running = TlsServer(authority)
    yield running
    running.close()


def certificate(path: Path | str, key: Path | str = "") -> Credential:
    return Credential("services", "WMS2_X509_CERT", str(path), str(key))


def bearer(path: Path) -> Credential:
    return Credential("services_token", "WMS2_SERVICE_TOKEN", str(path), is_token=True)


def service(url: str, authority: Authority, **who: Credential) -> HttpService:
    reported = Credentials(**who, ca_path=str(authority.ca))
    return HttpService("dbs", url, timeout_seconds=5, credentials=reported)


# --- when they end


def test_a_certificate_ends_when_it_says(authority: Authority) -> None:
    ends = moment(5 * DAY_SECONDS)
    path, key = authority.certificate("robot", 5 * DAY_SECONDS)
    assert abs(certificate(path, key).ends_at() - ends) < timedelta(seconds=5)


def test_a_proxy_ends_with_the_first_of_its_chain(authority: Authority) -> None:
    short = authority.proxy("short", HOUR_SECONDS)
    of_short = authority.proxy("of_short", 2 * DAY_SECONDS, of_seconds=HOUR_SECONDS)
    for path in (short, of_short):
        assert abs(certificate(path).ends_at() - moment(HOUR_SECONDS)) < timedelta(seconds=10)


def test_a_proxy_ends_with_its_voms_attributes(authority: Authority) -> None:
    path = authority.proxy("voms", 2 * DAY_SECONDS, voms_seconds=HOUR_SECONDS)
    assert abs(certificate(path).ends_at() - moment(HOUR_SECONDS)) < timedelta(seconds=10)


def test_a_token_ends_when_it_says_or_never(tmp_path: Path) -> None:
    token(tmp_path / "some", HOUR_SECONDS)
    token(tmp_path / "ever", None)
    assert abs(bearer(tmp_path / "some").ends_at() - moment(HOUR_SECONDS)) < timedelta(seconds=5)
    assert bearer(tmp_path / "ever").ends_at() is None
    assert see([bearer(tmp_path / "ever")])[0].left_seconds(datetime.now(UTC)) == float("inf")


def test_what_was_seen_is_kept_without_what_the_file_holds(tmp_path: Path) -> None:
    secret = token(tmp_path / "token", HOUR_SECONDS)
    seen = see([bearer(tmp_path / "token"), bearer(tmp_path / "none")])
    assert [Seen.from_dict(each.as_dict()) for each in seen] == seen
    assert secret not in str(seen) and seen[1].left_seconds(datetime.now(UTC)) == 0


# --- what is wrong with them


def wrong_ones(place: Path, authority: Authority) -> dict[str, Credential]:
    path, key = authority.certificate("one", DAY_SECONDS)
    _, other = authority.certificate("other", DAY_SECONDS)
    for name, text in (("empty", ""), ("garbage", "not this\n"), ("half", path.read_text()[:200]), ("two.parts", "a.b\n")):
        write(place / name, text)
    (place / "shut").touch(mode=0o000)
    token(place / "far", 1e18)
    return {
        f"No such file or directory: {place}/missing": certificate(place / "missing"),
        f"No such file or directory: {place}/no.key": certificate(path, place / "no.key"),
        f"Permission denied: {path} or {place}/shut": certificate(path, place / "shut"),
        "garbage: it is no certificate with its key in PEM": certificate(place / "garbage"),
        f"{place}/far": bearer(place / "far"),
        "Permission denied": bearer(place / "shut"),
        "it is empty": bearer(place / "empty"),
        "no certificate": certificate(place / "half", key),
        "with its key in PEM": certificate(path, other),
        "no JSON web token": bearer(place / "two.parts"),
    }


def test_a_wrong_file_is_named_with_what_to_do(authority: Authority, tmp_path: Path) -> None:
    for why, wrong in wrong_ones(tmp_path, authority).items():
        with pytest.raises(CredentialUnusable) as caught:
            wrong.require()
        reported = str(caught.value)
        assert why in reported and (wrong.path in reported or wrong.key in reported), reported
        assert reported.startswith(wrong.setting) and "Renew the file" in reported


def test_one_that_ends_within_the_margin_will_not_do(tmp_path: Path) -> None:
    token(tmp_path / "token", HOUR_SECONDS)
    bearer(tmp_path / "token").require(HOUR_SECONDS / 2)
    with pytest.raises(CredentialUnusable, match=r"it ends at \d{4}-.* UTC, within the margin of 7200 s"):
        bearer(tmp_path / "token").require(2 * HOUR_SECONDS)


# --- services


def test_a_renewed_certificate_is_shown_from_the_next_call_on(authority: Authority, server: TlsServer, tmp_path: Path) -> None:
    path, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    asked = service(server.url, authority, certificate=certificate(path, key))
    for name in ("before", "after"):
        for target, source in zip((path, key), authority.certificate(name, DAY_SECONDS), strict=True):
            write(target, source.read_text())
        asked.get_json(ANY, "/x", operation="look")
        asked.get_json(ANY, "/x", operation="look")
    assert [name for name, _ in server.callers] == ["before", "before", "after", "after"]


def test_a_proxy_will_do_for_services(authority: Authority, server: TlsServer) -> None:
    service(server.url, authority, certificate=certificate(authority.proxy("robot", DAY_SECONDS))).get_json(
        ANY, "/x", operation="look"
    )
    assert server.callers == [("robot/77", "")]


def test_without_a_certificate_the_service_is_unavailable(authority: Authority, server: TlsServer) -> None:
    with pytest.raises(ServiceUnavailable):
        service(server.url, authority).get_json(ANY, "/x", operation="look")
    assert server.callers == []


def test_one_that_has_ended_is_named_and_not_sent(authority: Authority, server: TlsServer) -> None:
    path, key = authority.certificate("late", -HOUR_SECONDS)
    asked = service(server.url, authority, certificate=certificate(path, key))
    with pytest.raises(ServiceUnavailable, match=r"WMS2_X509_CERT: .*late.pem: it ends at .* UTC\. Renew the file") as caught:
        asked.get_json(ANY, "/x", operation="look")
    assert (caught.value.code, server.callers) == ("credential", [])
    circuits().clear()
    for target, source in zip((path, key), authority.certificate("late", DAY_SECONDS), strict=True):
        write(target, source.read_text())
    asked.get_json(ANY, "/x", operation="look")
    assert server.callers == [("late", "")]


def test_a_token_goes_with_each_call_as_it_is_then(authority: Authority, tmp_path: Path) -> None:
    open_to_all = TlsServer(authority, ssl.CERT_OPTIONAL)
    asked = service(open_to_all.url, authority, token=bearer(tmp_path / "token"))
    sent = []
    for subject in ("before", "after"):
        sent.append(f"Bearer {token(tmp_path / 'token', HOUR_SECONDS, subject)}")
        asked.get_json(ANY, "/x", operation="look")
    open_to_all.close()
    assert [authorization for _, authorization in open_to_all.callers] == sent


def test_a_token_is_never_sent_in_the_clear(authority: Authority, httpserver: HTTPServer, tmp_path: Path) -> None:
    token(tmp_path / "token", HOUR_SECONDS)
    httpserver.expect_request("/x").respond_with_json({})
    service(httpserver.url_for(""), authority, token=bearer(tmp_path / "token")).get_json(ANY, "/x", operation="look")
    assert "Authorization" not in httpserver.log[0][0].headers


def test_rucio_is_asked_with_the_renewed_proxy(authority: Authority, tmp_path: Path) -> None:
    proxy, server = tmp_path / "proxy", TlsServer(authority, ssl.CERT_OPTIONAL)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/rucio.cfg").write_text(
        f"[client]\nrucio_host = {server.url}\nauth_host = {server.url}\nauth_type = x509_proxy\naccount = wms2\n"
        f"client_x509_proxy = {proxy}\nca_cert = {authority.ca}\nauth_token_file_path = {tmp_path}/token\n"
    )
    session, clients = RucioSession(tmp_path, "wms2", 5.0), []
    with pytest.raises(ServiceUnavailable, match=f"x509_proxy of rucio.cfg: No such file or directory: {proxy}"):
        session.call("whoami", lambda client: client.whoami())
    circuits().clear()
    for name in ("before", "after"):
        write(proxy, authority.proxy(name, DAY_SECONDS).read_text())
        (tmp_path / "token").unlink(missing_ok=True)  # as when it has run out
        for _ in range(2):
            session.call("whoami", lambda client: clients.append(client) or client.whoami())
    server.close()
    assert [name for name, _ in server.callers if name] == ["before/77", "after/77"], "it logs in with the one that is there"
    assert clients[0] is clients[1] is not clients[2] is clients[3]


# --- settings


REQUIRED = {
    "INSTANCE": "tests", "ENVIRONMENT": "test", "STATE_DIR": "/x", "SUBMIT_ROOT": "/x", "REQMGR2_URL": "https://x",
    "DBS_READER_URL": "https://x", "DBS_WRITER_URL": "https://x", "CRIC_URL": "https://x", "RUCIO_HOME": "/x",
    "RUCIO_ACCOUNT": "x", "SCHEDD_NAME": "x", "COLLECTOR": "x",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"JOB_CREDENTIAL": "proxy"}, "WMS2_JOB_CREDENTIAL_PATH"),
        ({"JOB_CREDENTIAL_PATH": "/x/proxy"}, "WMS2_JOB_CREDENTIAL_PATH"),
        ({"JOB_CREDENTIAL": "proxy", "JOB_CREDENTIAL_PATH": "/x/a b"}, "WMS2_JOB_CREDENTIAL_PATH"),
        ({"JOB_CREDENTIAL": "password", "JOB_CREDENTIAL_PATH": "/x"}, "WMS2_JOB_CREDENTIAL"),
        ({"SERVICE_TOKEN": "/x/token", "CRIC_URL": "http://x"}, "WMS2_CRIC_URL, which is not https"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], why: str) -> None:
    from_environment({f"WMS2_{name}": value for name, value in REQUIRED.items()})
    with pytest.raises(ConfigurationError, match=why):
        from_environment({f"WMS2_{name}": value for name, value in {**REQUIRED, **settings}.items()})


def test_manage_check_tells_what_is_missing_wrong_or_ends_soon(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token(tmp_path / "soon", HOUR_SECONDS)
    monkeypatch.setenv("WMS2_X509_CERT", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("WMS2_JOB_CREDENTIAL", "token")
    monkeypatch.setenv("WMS2_JOB_CREDENTIAL_PATH", str(tmp_path / "soon"))
    conf.cache_clear()
    reported = [str(each.msg) for each in check_configuration() if each.id == "wms2.W002"]
    assert any("WMS2_X509_CERT: No such file" in each for each in reported)
    assert any("WMS2_JOB_CREDENTIAL_PATH" in each and "within the margin of 172800 s" in each for each in reported)
    token(tmp_path / "soon", 5 * DAY_SECONDS)
    monkeypatch.delenv("WMS2_X509_CERT")
    conf.cache_clear()
    assert [each for each in check_configuration() if each.id == "wms2.W002"] == []
    assert "jobs_token" in {each.name for each in factory.all_credentials()}
    monkeypatch.undo()
    conf.cache_clear()
