"""CMS's front end as tests need it: headers that it signs, and a real nginx that asks for client certificates."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.nginx.install import PACKAGES
from deploy.prefix import installed_version
from deploy.stack import tools
from deploy.stack.paths import layout
from tests.support.credentials import DAY_SECONDS, Authority
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
    certificate, key = authority.certificate("front-end", DAY_SECONDS, "server")
    words = {"certificate": certificate, "key": key, "authorities": authority.ca}
    sends = ROOT / "deploy/nginx/x509.conf"

    def server(port: int) -> str:
        return _SERVER.format(**words, port=port, behind=behind, address=address, sends=sends)

    with _running(directory, server) as url:
        yield url


@contextmanager
def documented_nginx(directory: Path, authority: Authority, web: str, stream: str) -> Iterator[str]:
    """Debian's nginx with the server that ``deploy/README.md`` shows, at these two addresses; its URL."""
    certificate, key = authority.certificate("front-end", DAY_SECONDS, "server")
    (shown,) = re.findall(r"```\n( *server \{.*?)```", (ROOT / "deploy/README.md").read_text(), re.DOTALL)
    sends = (ROOT / "deploy/nginx/stream.conf").read_text()
    own = directory / "stream.conf"
    own.write_text(_replaced(sends, {"http://127.0.0.1:8001": stream}))

    def server(port: int) -> str:
        ours = {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/wms2/tls/cert.pem": str(certificate),
            "/etc/wms2/tls/key.pem": str(key),
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
