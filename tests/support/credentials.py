"""Certificates, proxies and tokens, made as tests run, and a server that wants to know who calls."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_CONF = """\
[ca]
default_ca = tests
[tests]
database = {0}/index.txt
new_certs_dir = {0}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
organizationName = optional
commonName = supplied
[server]
subjectAltName = IP:127.0.0.1, DNS:localhost
[user]
basicConstraints = CA:FALSE
[proxy]
proxyCertInfo = critical,language:id-ppl-inheritAll
[voms]
proxyCertInfo = critical,language:id-ppl-inheritAll
1.3.6.1.4.1.8005.100.100.5 = DER:{1}
"""
#: On a curve: a key of RSA takes a third of a second of processor.
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
DAY_SECONDS = 86_400.0


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(time.time() + seconds), UTC)


class Authority:
    """Signs certificates that end when a test wants them to."""

    def __init__(self, place: Path) -> None:
        self.place, self.ca = place, place / "ca.pem"
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.txt").touch()
        self._openssl("req", "-x509", *_NEW_KEY, "-nodes", "-days", "30", "-subj", "/CN=Tests CA",
                      "-keyout", place / "ca.key", "-out", self.ca)  # fmt: skip

    def certificate(self, name: str, seconds: float, kind: str = "user", *, subject: str = "") -> tuple[Path, Path]:
        """A certificate and its key, each in a file of its own."""
        return self._sign(name, subject or f"/O=Tests/CN={name}", seconds, kind, self.ca, self.place / "ca.key")

    def proxy(
        self, name: str, seconds: float, *, voms_seconds: float | None = None, of_seconds: float = 10 * DAY_SECONDS
    ) -> Path:
        """A proxy of a user's certificate: certificate, key and chain in one file, as ``voms-proxy-init`` leaves it."""
        user, user_key = self.certificate(name, of_seconds)
        ends = "voms" if voms_seconds is not None else "proxy"
        certificate, key = self._sign(f"{name}-proxy", f"/O=Tests/CN={name}/CN=77", seconds, ends, user, user_key, voms_seconds)
        path = self.place / f"{name}.proxy"
        write(path, certificate.read_text() + key.read_text() + user.read_text())
        return path

    def _sign(self, name: str, subject: str, seconds: float, kind: str, issuer: Path, issuer_key: Path,
              voms_seconds: float | None = None) -> tuple[Path, Path]:  # fmt: skip
        begins, ends, voms = (f"{moment(s):%Y%m%d%H%M%SZ}" for s in (-DAY_SECONDS, seconds, voms_seconds or 0))
        times = "".join(f"180f{text.encode().hex()}" for text in (begins, voms))
        conf = self.place / f"{name}.cnf"
        conf.write_text(_CONF.format(self.place, f"3022{times}"))
        request, key, path = (self.place / f"{name}.{end}" for end in ("csr", "key", "pem"))
        self._openssl("req", *_NEW_KEY, "-nodes", "-subj", subject, "-keyout", key, "-out", request)
        self._openssl("ca", "-config", conf, "-batch", "-notext", "-preserveDN", "-extensions", kind, "-startdate", begins,
                      "-enddate", ends, "-cert", issuer, "-keyfile", issuer_key, "-in", request, "-out", path)  # fmt: skip
        return path, key

    def _openssl(self, *words: object) -> None:
        done = subprocess.run([shutil.which("openssl") or "openssl", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def write(path: Path, text: str) -> None:
    """As who renews a credential should: by rename, for its owner alone."""
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.rename(path)


def token(path: Path, seconds: float | None, subject: str = "wms2") -> str:
    """A bearer token in a file; without ``seconds`` it never ends."""
    claims: dict[str, Any] = {"sub": subject} | ({} if seconds is None else {"exp": int(time.time() + seconds)})
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({"alg": "none"}, claims)]
    text = ".".join([*parts, "c2lnbmF0dXJl"])
    write(path, text + "\n")
    return text


class TlsServer:
    """Answers ``{}`` to whoever shows a certificate of the authority, or does not if ``wants`` is ssl.CERT_OPTIONAL.

    ``callers``: the common names of each call's certificate, and its ``Authorization``. A Rucio client can log in.
    """

    def __init__(self, authority: Authority, wants: ssl.VerifyMode = ssl.CERT_REQUIRED) -> None:
        self.callers: list[tuple[str, str]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.certificate("server", DAY_SECONDS, "server"))
        context.load_verify_locations(authority.ca)
        context.verify_mode = wants
        context.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
        callers = self.callers

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                subject = [pair for part in (self.connection.getpeercert() or {}).get("subject", ()) for pair in part]
                name = "/".join(value for kind, value in subject if kind == "commonName")
                callers.append((name, self.headers.get("Authorization", "")))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                if self.path.startswith("/auth"):
                    self.send_header("X-Rucio-Auth-Token", "tests-token")
                    expires = datetime.now(UTC) + timedelta(hours=1)
                    self.send_header("X-Rucio-Auth-Token-Expires", f"{expires:%a, %d %b %Y %H:%M:%S UTC}")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # who shows nothing is what some tests are about

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
