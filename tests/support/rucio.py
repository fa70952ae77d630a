"""The Rucio server of the test stack, asked with rucio-clients alone, and names that no other test uses."""

from __future__ import annotations

import configparser
import os
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rucio.client import Client

from deploy.rucio.server import HERE, Server
from deploy.stack import tools
from deploy.stack.paths import layout
from wms2.adapters.rucio import RucioAdapter
from wms2.adapters.rucio_types import RucioFile

SCOPE = "cms"
ACCOUNT = "wms2"
BEHIND_A_SERVER = "T2_DE_DESY"
DISKS = ("T1_US_FNAL_Disk", "T2_CH_CERN", BEHIND_A_SERVER, "T2_US_Purdue")
TAPES = ("T1_DE_KIT_Tape", "T1_US_FNAL_Tape")
#: Of CMS's kind ``test``: no expression for production gives it, and its rules want somebody's approval.
APPROVED_TAPE = "T1_US_FNAL_Tape_Test"


def rucio_home() -> Path:
    """RUCIO_HOME of account wms2 on the test stack's server; skips when no server is named."""
    value = os.environ.get("WMS2_RUCIO_HOME", "")
    if not value:
        pytest.skip("WMS2_RUCIO_HOME is not set: no Rucio server to test against")
    return Path(value)


def home_at(home: Path, url: str, directory: Path) -> Path:
    """Another RUCIO_HOME with the same account, whose server is at ``url``."""
    parser = configparser.ConfigParser()
    parser.read(home / "etc/rucio.cfg")
    parser["client"].update({"rucio_host": url, "auth_host": url, "auth_token_file_path": str(directory / "token")})
    (directory / "etc").mkdir(parents=True)
    with (directory / "etc/rucio.cfg").open("w") as stream:
        parser.write(stream)
    return directory


def server_url(home: Path) -> str:
    parser = configparser.ConfigParser()
    parser.read(home / "etc/rucio.cfg")
    return parser["client"]["rucio_host"]


def plain_client(home: Path) -> Any:
    """rucio-clients as anybody would use it."""
    parser = configparser.ConfigParser()
    parser.read(home / "etc/rucio.cfg")
    section = parser["client"]
    return Client(
        rucio_host=section["rucio_host"],
        auth_host=section["auth_host"],
        account=section["account"],
        auth_type="userpass",
        creds={"username": section["username"], "password": section["password"]},
        timeout=60,
    )


@dataclass
class Names:
    """A dataset of its own for each test, with CMS names as WMS2 gives them."""

    run: str = field(default_factory=lambda: uuid.uuid4().hex[:10])

    @property
    def dataset(self) -> str:
        return f"/Primary{self.run}/Run2026A-Test_of_Rucio-v1/GEN-SIM"

    def block(self) -> str:
        return f"{self.dataset}#{uuid.uuid4()}"

    def files(self, count: int) -> list[RucioFile]:
        base = f"/store/mc/Run2026A/Primary{self.run}/GEN-SIM/Test_of_Rucio-v1/00000"
        return [RucioFile(f"{base}/{uuid.uuid4()}.root", 10**9 + n, f"{n + 1:08x}") for n in range(count)]


def did(name: str) -> dict[str, str]:
    return {"scope": SCOPE, "name": name}


def entries(files: list[RucioFile]) -> list[dict[str, Any]]:
    """Files as Rucio's interface takes them."""
    return [{**did(f.lfn), "bytes": f.size_bytes, "adler32": f.adler32} for f in files]


def evaluate(*names: str) -> None:
    """Rucio's judge-evaluator looks at these blocks, in the environment of the stack's server."""
    server = Server(rucio_home().parent, tools.rucio_venv(layout()), 0, "", Path(), 0)
    argv = [server.python, HERE / "inside/evaluate.py", *names]
    subprocess.run(argv, env=server.environment(os.environ), check=True, timeout=300)


def settle(client: Any, rule_ids: Sequence[str], rse_expression: str = "rse_type=TAPE") -> int:
    """Plays FTS: the files that these rules want at these RSEs are declared to have arrived; how many. None is copied.

    The requests that Rucio made stay listed, since no daemon finishes them: look at rules, never at requests.
    """
    receiving = {row["rse"] for row in client.list_rses(rse_expression)}
    locks = [lock for rule_id in rule_ids for lock in client.list_replica_locks(rule_id)]
    arrived = [lock for lock in locks if lock["state"] == "REPLICATING" and lock["rse"] in receiving]
    for lock in arrived:
        client.update_replicas_states(lock["rse"], [{"scope": lock["scope"], "name": lock["name"], "state": "A"}])
    return len(arrived)


def block_of(rucio: RucioAdapter, names: Names, rse: str, files: list[RucioFile]) -> str:
    block = names.block()
    rucio.ensure_block(names.dataset, block)
    rucio.register_files(rse, block, files)
    return block


def content(client: Any, name: str) -> list[str]:
    return sorted(row["name"] for row in client.list_content(SCOPE, name))


def lfns_of(files: list[RucioFile]) -> list[str]:
    return sorted(f.lfn for f in files)
