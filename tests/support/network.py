"""The test stack's services behind fault proxies, as a worker process is told to find them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.fault_proxy import Armed, Fault, FaultProxy
from tests.support.rucio import home_at, rucio_home, server_url

CATALOGUE_URLS = (
    "WMS2_REQMGR2_URL",
    "WMS2_CONFIGCACHE_URL",
    "WMS2_DBS_READER_URL",
    "WMS2_DBS_WRITER_URL",
    "WMS2_CRIC_URL",
)


@dataclass(frozen=True)
class Network:
    """One proxy before ReqMgr2, ConfigCache, DBS and CRIC, which the simulators serve at one port, and one before Rucio."""

    catalogues: FaultProxy
    rucio: FaultProxy
    environment: dict[str, str]

    def disarm(self) -> None:
        """All is well again."""
        self.catalogues.disarm()
        self.rucio.disarm()


@contextmanager
def network(directory: Path) -> Iterator[Network]:
    """Proxies for the length of the block; ``environment`` is for a worker."""
    base = urlsplit(os.environ["WMS2_REQMGR2_URL"])
    home = rucio_home()
    with FaultProxy(f"{base.scheme}://{base.netloc}") as catalogues, FaultProxy(server_url(home)) as rucio:
        environment = {name: _moved(os.environ[name], catalogues.url) for name in CATALOGUE_URLS}
        environment["WMS2_RUCIO_HOME"] = str(home_at(home, rucio.url, directory / "rucio"))
        yield Network(catalogues, rucio, environment)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of call, by what tells it apart in a request."""

    method: str
    path: str
    body: str = ""


def arm_each(proxy: FaultProxy, kinds: Sequence[Kind], faults: Sequence[Fault]) -> list[Armed]:
    """Each kind of call goes wrong once in each way, in this order, and then passes."""
    return [
        proxy.arm(fault, method=kind.method, path=kind.path, body=kind.body, times=1)
        for kind in kinds
        for fault in reversed(faults)  # the newest comes first
    ]


def _moved(url: str, base: str) -> str:
    parts = urlsplit(url)
    return base + parts.path
