"""The XRootD server of a mock site: its configuration, its certificate, and how it is started and asked.

One port of the loopback interface speaks root:// and davs://. There is no login. The files lie in another directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from deploy import debian

CONFIGURATION = Path(__file__).with_name("server.cfg")
#: The certificate is its own authority.
SUBJECT = ("-subj", "/CN=WMS2 mock storage", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
CERTIFICATE = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", *SUBJECT)
OPENSSL_SETTINGS = "[req]\ndistinguished_name = name\n[name]\n"
#: For a client that is to say at once that there is no answer; by itself it tries for minutes.
IMPATIENT = {"XRD_CONNECTIONWINDOW": "2", "XRD_CONNECTIONRETRY": "1", "XRD_REQUESTTIMEOUT": "10"}


@dataclass(frozen=True, slots=True)
class Server:
    """A server with its files in ``directory``, whose paths below ``/store`` lie in ``storage``. ``prefix`` has the programs."""

    prefix: Path
    directory: Path
    storage: Path
    port: int

    @property
    def url(self) -> str:
        """What clients name it; a path follows, with a slash of its own."""
        return f"root://127.0.0.1:{self.port}/"

    @property
    def davs_url(self) -> str:
        """The same door for clients of davs, which must trust ``authorities``; a path follows."""
        return f"davs://127.0.0.1:{self.port}"

    @property
    def authorities(self) -> Path:
        """What clients of davs find in X509_CERT_DIR."""
        return self.directory / "authorities"

    @property
    def away(self) -> Path:
        """As long as this file exists, a server that was ended does not come back."""
        return self.directory / "away"

    @property
    def argv(self) -> tuple[str | Path, ...]:
        """The server in the foreground."""
        begin = (sys.executable, Path(__file__).with_name("loopback.py"), str(self.port), self.away)
        return (*begin, self.prefix / "sbin/xrootd", "-I", "v4", "-c", self.directory / "server.cfg")

    def prepare(self) -> None:
        """Write the configuration; make the storage and, once, the certificate."""
        (self.storage / "store").mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "server.cfg").write_text(CONFIGURATION.read_text().format(server=self))
        if not list(self.authorities.glob("*.0")):
            self._make_certificate()

    def _make_certificate(self) -> None:
        openssl, settings = self.prefix / "sbin/openssl", self.directory / "openssl.cnf"
        key, certificate = self.directory / "key.pem", self.authorities / "storage.pem"
        self.authorities.mkdir(exist_ok=True)
        settings.write_text(OPENSSL_SETTINGS)
        debian.run([openssl, *CERTIFICATE, "-config", settings, "-keyout", key, "-out", certificate])
        debian.run([openssl, "rehash", self.authorities])

    def problem(self) -> str | None:
        """None when it lists its files, else what is wrong."""
        if self.away.exists():
            return f"{self.away} keeps it away: remove that file"
        asked = [str(self.prefix / "bin/xrdfs"), self.url, "ls", "/store"]
        listing = subprocess.run(asked, env={**os.environ, **IMPATIENT}, capture_output=True, text=True, check=False, timeout=60)
        return None if listing.returncode == 0 else f"it does not list its files: {listing.stderr.strip()}"
