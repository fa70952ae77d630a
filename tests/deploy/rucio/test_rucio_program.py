"""How the Rucio server is set up and run by the stack, tried on a server of its own."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator

import pytest
import requests

from deploy.rucio import environment
from deploy.rucio.server import ACCOUNTS, Server
from deploy.stack import paths, process, tools
from deploy.stack.services import rucio
from deploy.stack.services.base import Place, Service
from deploy.stack.supervisor import Supervisor
from tests.support.rucio import ACCOUNT, APPROVED_TAPE, DISKS, TAPES, plain_client
from tests.support.servers import free_port

pytestmark = [pytest.mark.rucio, pytest.mark.slow]

HERE_IS = "tests/deploy/rucio/test_rucio_program.py"


@pytest.fixture(name="own", scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Service]]:
    """A server on SQLite, and the service that started it."""
    layout, directory = paths.layout(), tmp_path_factory.mktemp("stack")
    venv = tools.rucio_venv(layout)
    if not environment.environment(venv).is_complete():
        pytest.skip(f"the Rucio server is not installed in {venv}: run make setup")
    port = free_port()
    place = Place(layout, directory, {k: v for k, v in os.environ.items() if not k.startswith("WMS2_")})
    service = rucio.service(place, port, venv, "", 1094)
    said: list[str] = []
    with Supervisor(directory, said.append) as supervisor:
        supervisor.start([service])
        yield Server(directory / "rucio", venv, port, "", directory / "storage", 1094), service
    assert process.members(directory) == []
    assert not [line for line in said if "left" in line], "its workers ended by themselves"


@pytest.mark.deep(f"{HERE_IS}::test_passwords_and_client_configurations_are_private_and_tokens_are_apart")
def test_every_step_may_be_repeated_and_rses_and_logins_are_there(own: tuple[Server, Service]) -> None:
    server, service = own
    service.prepare()
    service.finish()
    client = plain_client(server.client_home(ACCOUNT))
    assert sorted(r["rse"] for r in client.list_rses()) == sorted((*DISKS, *TAPES, APPROVED_TAPE))


def test_passwords_and_client_configurations_are_private_and_tokens_are_apart(own: tuple[Server, Service]) -> None:
    server, service = own
    homes = [server.client_home(account) for account in ACCOUNTS]
    private = [server.passwords_file, server.config, *(home / "etc/rucio.cfg" for home in homes)]
    assert {path: path.stat().st_mode & 0o777 for path in private} == dict.fromkeys(private, 0o600)
    token_files = [line for home in homes for line in (home / "etc/rucio.cfg").read_text().splitlines() if "token_file" in line]
    assert len(set(token_files)) == len(ACCOUNTS)
    kept = server.passwords_file.read_text()
    service.prepare()
    assert server.passwords_file.read_text() == kept


@pytest.mark.deep(f"{HERE_IS}::test_passwords_and_client_configurations_are_private_and_tokens_are_apart")
def test_other_passwords_in_the_database_are_replaced(own: tuple[Server, Service]) -> None:
    server, service = own
    server.passwords_file.unlink()
    service.prepare()
    # a login of its own: the client would go on with a token of the old password
    section = configparser.ConfigParser()
    section.read(server.client_home(ACCOUNT) / "etc/rucio.cfg")
    login = {f"X-Rucio-{name}": section["client"][name.lower()] for name in ("Account", "Username", "Password")}
    assert requests.get(f"{server.url}/auth/userpass", headers=login, timeout=30).status_code == 200
    wrong = requests.get(f"{server.url}/auth/userpass", headers=login | {"X-Rucio-Password": "old"}, timeout=30)
    assert wrong.status_code == 401
