"""Where the servers of the contract tests are, whether they may be written to, and names that nothing else uses.

Servers are named by ``make contract DBS_URL=… RUCIO_URL=… REQMGR2_URL=…``; without any of them the test stack's are taken.
docs/development.md names the other variables. A host that is not plainly one for tests is taken for production, and nothing is
sent there unless a variable says so in words.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from wms2.adapters.http import Credentials
from wms2.adapters.types import BlockSpec, DatasetSpec, DbsFile, OutputConfig
from wms2.runtime.credentials import Credential

PREFIX = "WMS2_CONTRACT_"
SERVERS = ("DBS_URL", "RUCIO_URL", "REQMGR2_URL")
ON_PRODUCTION = "I know that this writes to production"
_FOR_TESTS = re.compile(r"(^|[-.\d])(test|testbed|tst|dev|devel|int|integration|preprod|localhost|local|example)\d*([-.\d]|$)")
#: Of one run: nothing else has it, and whoever finds something of it outside knows whence it came.
RUN = time.strftime("%Y%m%d%H%M", time.gmtime()) + uuid.uuid4().hex[:6]
ERA = f"WMS2Contract{RUN}"


def given(name: str, default: str = "") -> str:
    """A variable of ``make contract``."""
    return os.environ.get(PREFIX + name, "") or default


def is_production(url: str) -> bool:
    """Whether nothing in the host's name says that it is for tests."""
    host = (urlsplit(url).hostname or "").lower()
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return _FOR_TESTS.search(host) is None


def server(name: str, on_stack: str) -> str:
    """The URL of a service; skips where there is none, and refuses production.

    Args:
        name: one of ``SERVERS``.
        on_stack: the variable with the test stack's own.
    """
    url = given(name)
    if not url and not any(given(each) for each in SERVERS):
        url = os.environ.get(on_stack, "")
    if not url:
        pytest.skip(f"no {name} is given")
    if is_production(url) and given("ON_PRODUCTION") != ON_PRODUCTION:
        pytest.fail(f"{url} is taken for production: nothing is sent there unless ON_PRODUCTION={ON_PRODUCTION!r}", pytrace=False)
    return url.rstrip("/")


def certificate() -> tuple[str, str] | None:
    """Certificate and key of whoever runs the tests; a proxy is both in one."""
    proxy = given("X509_USER_PROXY")
    cert = given("X509_USER_CERT", proxy)
    return (cert, given("X509_USER_KEY", proxy)) if cert else None


def credentials() -> Credentials:
    """The same for the adapters."""
    held = certificate()
    ours = Credential("contract", "X509_USER_CERT", held[0], held[1] if held[1] != held[0] else "") if held else None
    return Credentials(ours, None, given("X509_CERT_DIR"))


def as_us() -> dict[str, Any]:
    """The same for plain calls."""
    return {"cert": certificate(), "verify": given("X509_CERT_DIR") or True, "timeout": 120}


def config(label: str = "RAWSIMoutput", release: str = "CMSSW_14_0_0") -> OutputConfig:
    return OutputConfig("cmsRun", release, uuid.uuid5(uuid.NAMESPACE_URL, release).hex, f"{label}{RUN}", "140X_mcRun3_v1")


@dataclass
class Area:
    """Names of one test: a dataset of its own below the test area, in this run's era."""

    word: str = field(default_factory=lambda: f"Test{uuid.uuid4().hex[:8]}")
    tier: str = "GEN-SIM"

    @property
    def primary(self) -> str:
        return f"WMS2Contract{RUN}"

    @property
    def dataset(self) -> str:
        return f"/{self.primary}/{ERA}-{self.word}-v1/{self.tier}"

    def block_name(self) -> str:
        return f"{self.dataset}#{uuid.uuid4()}"

    def lfn(self) -> str:
        return f"/store/backfill/1/{ERA}/{self.primary}/{self.tier}/{self.word}-v1/00000/{uuid.uuid4()}.root"

    def file(self, number: int = 0, parents: tuple[str, ...] = (), made: OutputConfig | None = None) -> DbsFile:
        lumis = {1: [(10 * number + 1, 10), (10 * number + 2, 20)]}
        return DbsFile(self.lfn(), 1000 + number, f"{number + 1:08x}", 30, lumis, made or config(), parents)

    def block(self, files: int = 2, **changes: object) -> BlockSpec:
        """A block to be registered."""
        made = config()
        spec = DatasetSpec(self.dataset, "mc", ERA, 1, given("PHYSICS_GROUP", "DataOps"), (made,), "WMS2-CONTRACT")
        some = tuple(self.file(number, made=made) for number in range(files))
        values: dict[str, object] = {"block_name": self.block_name(), "origin_site": "T2_CH_CERN", "dataset": spec, "files": some}
        return BlockSpec(**values | changes)  # type: ignore[arg-type]
