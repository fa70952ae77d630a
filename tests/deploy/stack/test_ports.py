"""Ports are chosen once and never shared."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import ports
from deploy.stack.supervisor import Supervisor


@pytest.fixture
def occupied() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def _uncommon_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "DEFAULTS", {"demo": {"web": 28000, "flower": 28000}})


def test_a_port_in_use_is_passed_over(occupied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "DEFAULTS", {"demo": {"web": occupied}})
    assert ports.allocate("demo", tmp_path, tmp_path / "register.json")["web"] > occupied


def test_two_services_with_one_default_get_two_ports(tmp_path: Path) -> None:
    chosen = ports.allocate("demo", tmp_path, tmp_path / "register.json")
    assert len(set(chosen.values())) == 2


def test_a_stack_keeps_its_ports(tmp_path: Path) -> None:
    first = ports.allocate("demo", tmp_path, tmp_path / "register.json")
    assert ports.allocate("demo", tmp_path, tmp_path / "register.json") == first == ports.read(tmp_path)


def test_a_kept_port_that_another_program_took_is_given_up(occupied: int, tmp_path: Path) -> None:
    (tmp_path / ports.PORTS_FILE).write_text(json.dumps({"web": occupied}))
    assert ports.allocate("demo", tmp_path, tmp_path / "register.json")["web"] != occupied


def test_ports_of_a_running_stack_that_has_not_bound_them_yet_are_respected(tmp_path: Path) -> None:
    one, other, register = tmp_path / "one", tmp_path / "other", tmp_path / "register.json"
    other.mkdir()
    with Supervisor(one, lambda _: None):
        first = ports.allocate("demo", one, register)
        second = ports.allocate("demo", other, register)
    assert not set(first.values()) & set(second.values())


def test_ports_of_a_stack_that_ended_are_free_again(tmp_path: Path) -> None:
    one, other, register = tmp_path / "one", tmp_path / "other", tmp_path / "register.json"
    other.mkdir()
    with Supervisor(one, lambda _: None):
        first = ports.allocate("demo", one, register)
    assert ports.allocate("demo", other, register) == first
