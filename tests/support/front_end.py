"""CMS's front end as tests need it: headers that it signs, and a real nginx that asks for client certificates."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.nginx.install import PACKAGES
from deploy.prefix import installed_version
from deploy.stack import tools
from deploy.stack.paths import layout
from tests.support.places import ROOT
from tests.support.servers import free_port, listens
from tests.support.waiting import until
from wms2.conf import conf

KEY = b"0123456789abcdefghij"
PEER = "10.1.2.3"
#: Whom the front end speaks of, and the roles that it says.
RITA = {
    "cms-authn-dn": "/DC=ch/DC=cern/OU=Organic Units/OU=Users/CN=rita/CN=1/CN=Rita Reader",
    "cms-authn-login": "rita",
    "cms-authn-method": "X509Cert",
    "cms-authn-name": "Rita Reader",
}
OPERATOR = {"cms-authz-production-operator": "group:dataops"}
SECONDS = 20.0


def configure(monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
    """Settings in force from now on, objects as JSON."""
    for name, value in settings.items():
        monkeypatch.setenv(f"WMS2_{name.upper()}", json.dumps(value) if isinstance(value, dict) else str(value))
    conf.cache_clear()


def signed(headers: Mapping[str, str], key: bytes = KEY, status: str = "OK") -> dict[str, str]:
    """As cmsweb sends them."""
    numbers, said = "", ""
    for name in sorted(headers):
        numbers += f"h{len(name):x}v{len(headers[name].encode()):x}"
        said += name + headers[name]
    made = hmac.new(key, f"{numbers}#{said}".encode(), hashlib.sha1)
    return {"cms-auth-status": status, **headers, "cms-authn-hmac": made.hexdigest()}


def wsgi(headers: Mapping[str, str]) -> dict[str, Any]:
    """The same as the server of the web hands them on."""
    return {f"HTTP_{name.upper().replace('-', '_')}": value.encode().decode("latin-1") for name, value in headers.items()}


class Authority:
    """A certificate authority of the test in a directory, with elliptic keys."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self._name = directory, _dn(f"DC=ch/DC=cern/CN={name}")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key, ca=True)))

    def issue(self, name: str, dn: str) -> tuple[str, str]:
        """Files of a certificate and its key, for ``requests``; also good for a server on the loopback interface."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = (self.directory / f"{name}.cert.pem", self.directory / f"{name}.key.pem")
        files[0].write_bytes(_pem(self._sign(_dn(dn), key, ca=False)))
        plain = serialization.NoEncryption()
        encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        files[1].write_bytes(encoded)
        return str(files[0]), str(files[1])

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        address = x509.DNSName("localhost")
        building = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        )
        return building.sign(self._key, hashes.SHA256())


def _dn(text: str) -> x509.Name:
    kinds = {"DC": NameOID.DOMAIN_COMPONENT, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "CN": NameOID.COMMON_NAME}
    return x509.Name([x509.NameAttribute(kinds[part[:2]], part[3:].replace("|", "/")) for part in text.split("/")])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


#: One process that works in the foreground.
_NGINX = """
daemon off; master_process off; pid {here}/pid; error_log {here}/error.log info;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;
    uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
    {server}
}}
"""
#: It speaks to WMS2 from an address of its own.
_SERVER = """
server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    ssl_client_certificate {authorities}; ssl_verify_client optional;
    location / {{
        proxy_pass {behind};
        proxy_bind {address};
        include {sends};
    }}
}}
"""


@contextmanager
def nginx(directory: Path, authority: Authority, behind: str, address: str) -> Iterator[str]:
    """Debian's nginx with the configuration that ``deploy/nginx`` ships; its URL. Skips where it was not installed."""
    certificate, key = authority.issue("front-end", "DC=ch/DC=cern/CN=localhost")
    words = {"certificate": certificate, "key": key, "authorities": authority.file}
    sends = ROOT / "deploy/nginx/x509.conf"

    def server(port: int) -> str:
        return _SERVER.format(**words, port=port, behind=behind, address=address, sends=sends)

    with _running(directory, server) as url:
        yield url


@contextmanager
def documented_nginx(directory: Path, authority: Authority, web: str, stream: str) -> Iterator[str]:
    """Debian's nginx with the server that ``deploy/README.md`` shows, at these two addresses; its URL."""
    certificate, key = authority.issue("front-end", "DC=ch/DC=cern/CN=localhost")
    (shown,) = re.findall(r"```\n( *server \{.*?)```", (ROOT / "deploy/README.md").read_text(), re.DOTALL)
    sends = (ROOT / "deploy/nginx/stream.conf").read_text()
    own = directory / "stream.conf"
    own.write_text(_replaced(sends, {"http://127.0.0.1:8001": stream}))

    def server(port: int) -> str:
        ours = {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/wms2/tls/cert.pem": certificate,
            "/etc/wms2/tls/key.pem": key,
            "/opt/wms2/app/deploy/nginx/stream.conf": str(own),
            "http://127.0.0.1:8000": web,
        }
        return _replaced(shown, ours)

    with _running(directory, server) as url:
        yield url


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for what, by in values.items():
        assert text.count(what) == 1, what
        text = text.replace(what, by)
    return text


@contextmanager
def _running(directory: Path, server: Callable[[int], str]) -> Iterator[str]:
    prefix = tools.prefix(PACKAGES, layout())
    if not installed_version(prefix):
        pytest.skip(f"no nginx in {prefix}: `make setup` installs it")
    port = free_port()
    settings = directory / "nginx.conf"
    settings.write_text(_NGINX.format(here=directory, server=server(port)))
    log = directory / "error.log"
    argv = (prefix / "sbin/nginx", "-p", directory, "-e", log, "-c", settings)
    running = subprocess.Popen([str(word) for word in argv])
    try:
        until(lambda: running.poll() is not None or listens(port), lambda: log.read_text()[-2000:], seconds=SECONDS)
        assert running.poll() is None, f"nginx does not answer: {log.read_text()[-2000:]}"
        yield f"https://localhost:{port}"
    finally:
        running.terminate()
        running.wait(SECONDS)
