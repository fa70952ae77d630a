"""The program that sets up and runs the Rucio server, tried on a server of its own that it may empty and stop."""

from __future__ import annotations

import configparser
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from rucio.common import exception

from deploy.rucio import configuration, environment
from deploy.rucio.settings import HERE, Settings, from_environment
from deploy.stack import paths, tools
from tests.support.rucio import ACCOUNT, APPROVED_TAPE, DISKS, SCOPE, TAPES, Names, did, entries, plain_client

pytestmark = [pytest.mark.rucio, pytest.mark.slow]


HERE_IS = "tests/deploy/rucio/test_rucio_program.py"


def program(environment_variables: dict[str, str], command: str) -> subprocess.CompletedProcess[str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith("WMS2_")}
    words = [sys.executable, "-I", str(HERE / "server.py"), command]
    return subprocess.run(words, env=base | environment_variables, capture_output=True, text=True, timeout=300, cwd="/")


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory, unused_port: int) -> Iterator[dict[str, str]]:
    """A server on SQLite that this module may empty and stop; its environment is the stack's."""
    venv = tools.rucio_venv(paths.layout())
    state = tmp_path_factory.mktemp("rucio")
    variables = {"STATE": str(state), "VENV": str(venv), "PORT": str(unused_port), "STORAGE_ROOT": str(state / "storage")}
    if not environment.is_finished(from_environment(variables)):
        pytest.skip(f"the Rucio server is not installed in {venv}: run make setup")
    for command in ("setup", "start", "seed"):
        done = program(variables, command)
        assert done.returncode == 0, done.stderr
    yield variables
    program(variables, "stop")


@pytest.fixture(scope="module")
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def settings_of(variables: dict[str, str]) -> Settings:
    return from_environment(variables)


@pytest.mark.deep(f"{HERE_IS}::test_passwords_and_client_configurations_are_private_and_tokens_are_apart")
def test_every_command_may_be_repeated(own_server: dict[str, str]) -> None:
    for command in ("setup", "start", "seed", "reset", "settle", "status", "env"):
        done = program(own_server, command)
        assert done.returncode == 0, (command, done.stderr)


def test_passwords_and_client_configurations_are_private_and_tokens_are_apart(own_server: dict[str, str]) -> None:
    settings = settings_of(own_server)
    homes = [settings.client_home(account) for account in configuration.ACCOUNTS]
    private = [settings.passwords_file, settings.server_config, *(home / "etc/rucio.cfg" for home in homes)]
    assert {path: path.stat().st_mode & 0o777 for path in private} == dict.fromkeys(private, 0o600)
    token_files = [line for home in homes for line in (home / "etc/rucio.cfg").read_text().splitlines() if "token_file" in line]
    assert len(set(token_files)) == len(configuration.ACCOUNTS)
    kept = settings.passwords_file.read_text()
    assert program(own_server, "setup").returncode == 0
    assert settings.passwords_file.read_text() == kept


def test_reset_removes_what_clients_registered_and_keeps_the_rses_and_the_login(own_server: dict[str, str]) -> None:
    own = plain_client(settings_of(own_server).client_home(ACCOUNT))
    names = Names()
    block, files = names.block(), names.files(2)
    own.add_dataset(SCOPE, block)
    own.attach_dids(SCOPE, block, entries(files), "T2_CH_CERN")
    own.add_replication_rule([did(block)], 1, "T1_DE_KIT_Tape", account=ACCOUNT)
    assert program(own_server, "reset").returncode == 0
    assert list(own.list_replication_rules(filters={"account": ACCOUNT})) == []
    assert list(own.list_replicas([did(f.lfn) for f in files])) == []
    with pytest.raises(exception.DataIdentifierNotFound):
        own.get_did(SCOPE, block)
    assert sorted(r["rse"] for r in own.list_rses()) == sorted((*DISKS, *TAPES, APPROVED_TAPE))
    own.add_dataset(SCOPE, block)
    own.attach_dids(SCOPE, block, entries(files), "T2_CH_CERN")
    assert own.add_replication_rule([did(block)], 1, "T1_DE_KIT_Tape", account=ACCOUNT)


@pytest.mark.deep(f"{HERE_IS}::test_passwords_and_client_configurations_are_private_and_tokens_are_apart")
def test_other_passwords_in_the_database_are_replaced_by_setup(own_server: dict[str, str]) -> None:
    settings = settings_of(own_server)
    settings.passwords_file.unlink()
    assert program(own_server, "setup").returncode == 0
    # a login of its own: the client would go on with a token of the old password
    section = configparser.ConfigParser()
    section.read(settings.client_home(ACCOUNT) / "etc/rucio.cfg")
    login = {f"X-Rucio-{name}": section["client"][name.lower()] for name in ("Account", "Username", "Password")}
    assert requests.get(f"{settings.url}/auth/userpass", headers=login, timeout=30).status_code == 200
    wrong = requests.get(f"{settings.url}/auth/userpass", headers=login | {"X-Rucio-Password": "old"}, timeout=30)
    assert wrong.status_code == 401


@pytest.mark.deep(f"{HERE_IS}::test_stop_leaves_no_process_and_status_says_so")
def test_a_second_server_on_the_same_port_is_refused(own_server: dict[str, str], tmp_path: Path) -> None:
    other = own_server | {"STATE": str(tmp_path / "other")}
    assert program(other, "setup").returncode == 0
    done = program(other, "start")
    assert done.returncode == 1
    assert "another server answers" in done.stderr


def test_stop_leaves_no_process_and_status_says_so(own_server: dict[str, str]) -> None:
    state = own_server["STATE"].encode()
    assert program(own_server, "stop").returncode == 0
    assert program(own_server, "stop").returncode == 0
    assert [line for line in command_lines() if b"gunicorn" in line and state in line] == []
    assert program(own_server, "status").returncode == 1
    refused = program(own_server, "seed")
    assert refused.returncode == 1
    assert "run start first" in refused.stderr
    assert program(own_server, "start").returncode == 0


def command_lines() -> list[bytes]:
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((process / "cmdline").read_bytes())
        except OSError:
            continue  # ended meanwhile
    return lines
