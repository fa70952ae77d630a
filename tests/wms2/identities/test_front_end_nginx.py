"""Client certificates at a real nginx in front of WMS2, and what a client sends through it or past it; over real connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.auth.models import Group, User
from requests.adapters import HTTPAdapter

from requests_app.models import RequestStatus
from tests.support.credentials import DAY_SECONDS, Authority
from tests.support.front_end import KEY, OPERATOR, RITA, configure, nginx, signed
from tests.support.rows import request_row
from wms2.identities.grants import OPERATORS
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)
#: From where nginx, and CMS's front end, speak to WMS2; clients that go past them come from 127.0.0.1.
NGINX, CMS = "127.0.0.5", "127.0.0.6"
USERS = "/DC=ch/DC=cern/OU=Organic Units/OU=Users"
LIST = "/api/v1/requests"
FORGED = {"X-SSL-Client-S-DN": "CN=olga,OU=Users,OU=Organic Units,DC=cern,DC=ch", "X-SSL-Client-Verify": "SUCCESS"}
PROXIES = {"X-Forwarded-For": NGINX, "X-Real-IP": NGINX, "Forwarded": f"for={NGINX}"}


class _From(HTTPAdapter):
    """Connections that leave from an address of the loopback network."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, source_address=(self._address, 0))


@pytest.fixture
def place(live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """WMS2, nginx and an authority; olga is an operator in the database."""
    (tmp_path / "hmac").write_bytes(KEY)
    configure(
        monkeypatch, front_end_addresses=CMS, front_end_key=tmp_path / "hmac", x509_front_end_addresses=NGINX,
        x509_login_base=USERS, role_names={"production-operator": "operator"},
    )  # fmt: skip
    User.objects.create_user("olga").groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    authority = Authority(tmp_path / "authority")
    with nginx(tmp_path, authority, live_server.url, NGINX) as url:
        yield url, authority, live_server.url


def test_a_client_is_who_its_verified_certificate_says_and_sends_nothing_about_it_itself(place: Any, tmp_path: Path) -> None:
    url, ours, behind = place
    rita, olga = (ours.certificate(name, DAY_SECONDS, subject=f"{USERS}/CN={name}/CN=7/CN=A Name") for name in ("rita", "olga"))
    stranger = Authority(tmp_path / "strangers").certificate("stranger", DAY_SECONDS, subject=f"{USERS}/CN=olga/CN=7")
    odd = ours.certificate("odd", DAY_SECONDS, subject="/DC=ch/CN=olga\\/CN=7")

    def get(certificate: Any, path: str = LIST, base: str = url, **headers: str) -> requests.Response:
        return requests.get(
            base + path, cert=certificate, verify=str(ours.ca), headers=headers, timeout=20, allow_redirects=False
        )

    def hold(certificate: Any, **headers: str) -> int:
        address = f"{url}{LIST}/{request_row(RequestStatus.QUEUED).request_name}/hold"
        answer = requests.post(address, json={"reason": "r"}, cert=certificate, verify=str(ours.ca), headers=headers, timeout=20)
        return answer.status_code

    assert hold(olga) == 202
    assert AuditEntry.objects.get(action="request_hold").actor == "olga"
    assert ">rita<" in get(rita, "/").text
    for forged in ({}, FORGED, {name.lower(): value for name, value in FORGED.items()}, PROXIES, signed(RITA | OPERATOR)):
        assert hold(rita, **forged) == 403, forged  # a reader, whatever she says
        assert get(None, **forged).status_code == 401, forged
    assert AuditEntry.objects.get(action="front_end_ignored").target == NGINX  # cms-* headers through the other front end
    assert hold(olga, Origin="https://elsewhere.example") == 403, "a browser without CSRF token"
    assert get(stranger).status_code == 400, "nginx lets no other authority's in"
    assert "know no login of" in get(odd).json()["detail"]

    assert get(None, base=behind, **FORGED, **PROXIES).status_code == 401, "past nginx"
    ignored = AuditEntry.objects.get(action="front_end_ignored", target="127.0.0.1")
    assert (ignored.outcome, "x-ssl-client-s-dn" in ignored.reason) == ("refused", True)


def test_signed_headers_count_from_the_address_of_the_front_end_alone(place: Any) -> None:
    _, _, behind = place
    session = requests.Session()
    session.mount(behind, _From(CMS))
    headers = signed(RITA | OPERATOR | {"cms-authn-name": "Rita R"})
    assert session.get(behind + LIST, headers=headers, timeout=20).status_code == 200
    assert ">rita<" in session.get(behind + "/", headers=headers, timeout=20).text
    assert not session.cookies.get("sessionid")
    more = headers | {"cms-authz-admin": "group:reqmgr"}
    assert session.get(behind + LIST, headers=more, timeout=20).json()["code"] == "front_end_refused"
    assert session.get(behind + LIST, headers={"cms_authn_login": "rita"}, timeout=20).status_code == 401
    assert requests.get(behind + LIST, headers=headers | PROXIES, timeout=20).status_code == 401
    refused = AuditEntry.objects.filter(action__startswith="front_end").values_list("action", "target")
    assert set(refused) == {("front_end_refused", CMS), ("front_end_ignored", "127.0.0.1")}
