"""Tells an empty Rucio what CMS's would know: the scope, the RSEs with their attributes, protocols, distances and account limits.

Runs in the server's environment as account root; only what is missing or different is sent, so it may be repeated.
$STORAGE_ROOT: the directory that holds one directory per RSE; $XROOTD_PORT: of the server behind the RSE that has one;
$WMS2_RUCIO_ACCOUNTS: accounts that get limits; $SCOPE.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import asdict, dataclass
from typing import Any

from rucio.client import Client
from rucio.common.exception import Duplicate

LIMIT_BYTES = 10**15
DISTANCE = 1


@dataclass(frozen=True, slots=True)
class Rse:
    """A storage element: its name and what rules and weights look at."""

    name: str
    rse_type: str
    tier: int
    country: str
    dm_weight: int
    cms_type: str = "real"
    requires_approval: bool = False
    wmcore_output_tape: bool = False
    xrootd_port: int = 0

    def attributes(self) -> dict[str, str | int]:
        own = {name: value for name, value in asdict(self).items() if name not in ("name", "xrootd_port")}
        return {**own, "lfn2pfn_algorithm": "keep_lfn"}

    def protocol(self, storage_root: str) -> dict[str, Any]:
        """PFN = prefix + LFN: ``file://localhost:0<storage_root>/<RSE>/store/...``, or ``root://127.0.0.1:<port>//store/...``."""
        local = {"read": 1, "write": 1, "delete": 1}
        door = {
            "scheme": "file",
            "hostname": "localhost",
            "port": 0,
            "prefix": f"{storage_root}/{self.name}/",
            "impl": "rucio.rse.protocols.posix.Default",
        }
        if self.xrootd_port:
            door |= {"scheme": "root", "hostname": "127.0.0.1", "port": self.xrootd_port, "prefix": "//"}
            door["impl"] = "rucio.rse.protocols.xrootd.Default"
        return {
            **door,
            "domains": {"lan": local, "wan": {**local, "third_party_copy_read": 1, "third_party_copy_write": 1}},
        }


RSES = (
    Rse("T1_US_FNAL_Disk", "DISK", 1, "US", 40),
    Rse("T2_CH_CERN", "DISK", 2, "CH", 30),
    Rse("T2_US_Purdue", "DISK", 2, "US", 20),
    Rse("T2_DE_DESY", "DISK", 2, "DE", 20, xrootd_port=int(os.environ["XROOTD_PORT"])),
    Rse("T1_US_FNAL_Tape", "TAPE", 1, "US", 40, wmcore_output_tape=True),
    Rse("T1_DE_KIT_Tape", "TAPE", 1, "DE", 10, wmcore_output_tape=True),
    Rse("T1_US_FNAL_Tape_Test", "TAPE", 1, "US", 40, cms_type="test", requires_approval=True),
)


def ensure_protocol(client: Client, rse: Rse, storage_root: str) -> None:
    wanted = rse.protocol(storage_root)
    present = client.get_rse(rse.name)["protocols"]  # get_protocols() raises when there are none
    if any(all(p[key] == wanted[key] for key in ("scheme", "port", "prefix")) for p in present):
        return
    for protocol in present:
        client.delete_protocols(rse.name, protocol["scheme"], protocol["hostname"], protocol["port"])
    client.add_protocol(rse.name, wanted)


def ensure_rse(client: Client, rse: Rse, storage_root: str) -> None:
    present = client.list_rse_attributes(rse.name)
    for key, value in rse.attributes().items():
        if key not in present:
            client.add_rse_attribute(rse.name, key, value)
        elif str(present[key]) != str(value):
            client.delete_rse_attribute(rse.name, key)
            client.add_rse_attribute(rse.name, key, value)
    ensure_protocol(client, rse, storage_root)


def ensure_limits(client: Client, account: str) -> None:
    limits = client.get_local_account_limits(account)
    for rse in RSES:
        if limits.get(rse.name) != LIMIT_BYTES:
            client.set_local_account_limit(account, rse.name, LIMIT_BYTES)


def seed(client: Client, *, scope: str, accounts: list[str], storage_root: str) -> None:
    if scope not in client.list_scopes():
        try:
            client.add_scope(client.account, scope)
        except Duplicate:
            pass  # two seeds at once
    present = {row["rse"] for row in client.list_rses()}
    for rse in RSES:
        if rse.name not in present:
            client.add_rse(rse.name, deterministic=True, rse_type=rse.rse_type, country_name=rse.country)
        ensure_rse(client, rse, storage_root)
    for account in accounts:
        ensure_limits(client, account)
    for source, destination in itertools.permutations(RSES, 2):
        if not client.get_distance(source.name, destination.name):
            client.add_distance(source.name, destination.name, {"distance": DISTANCE})


if __name__ == "__main__":
    seed(
        Client(),
        scope=os.environ["SCOPE"],
        accounts=os.environ["WMS2_RUCIO_ACCOUNTS"].split(","),
        storage_root=os.environ["STORAGE_ROOT"].rstrip("/"),
    )
