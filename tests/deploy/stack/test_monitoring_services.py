"""The demo's Prometheus, Alertmanager and receiver, started and stopped as the demo does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import requests

from deploy.prometheus import configuration
from deploy.run import healthy
from deploy.stack import process
from deploy.stack.errors import StackError
from deploy.stack.paths import layout
from deploy.stack.services import monitoring
from deploy.stack.services.base import Place
from deploy.stack.supervisor import Supervisor
from tests.support.monitoring import prefix
from tests.support.servers import free_ports
from tests.support.waiting import until


def test_they_serve_where_the_demo_says_scrape_its_web_and_leave_no_process(tmp_path: Path) -> None:
    names = ("web", "prometheus", "alertmanager", "receiver")
    directory, ports = tmp_path / "demo", dict(zip(names, free_ports(len(names)), strict=True))
    place = Place(layout(), directory, {**os.environ, process.MARKER: str(directory)})
    (directory / "logs").mkdir(parents=True)
    monitoring.token_file(place).parent.mkdir()
    monitoring.token_file(place).write_text("abc")
    with Supervisor(directory, print) as supervisor:
        supervisor.start(monitoring.services(place, prefix(), ports))
        addresses = {name: said.split()[0] for name, said in monitoring.announced(ports)}
        assert {name: healthy.problem(url) for name, url in addresses.items()} == dict.fromkeys(addresses)
        asked = f"{addresses['prometheus']}api/v1"
        (target,) = until(lambda: requests.get(f"{asked}/targets", timeout=9).json()["data"]["activeTargets"])
        assert target["scrapeUrl"] == f"http://127.0.0.1:{ports['web']}/api/v1/metrics"
        (named,) = until(lambda: requests.get(f"{asked}/alertmanagers", timeout=9).json()["data"]["activeAlertmanagers"])
        assert named["url"].startswith(addresses["alertmanager"])
    assert process.members(directory) == []


def test_what_is_to_be_replaced_and_is_not_there_is_named(tmp_path: Path) -> None:
    addresses = configuration.Addresses("a:1", "a:2", "a:3", "a:4", tmp_path / "token")
    with pytest.raises(StackError, match="'scrape_interval: 7s'"):
        configuration.write(tmp_path, addresses, {"scrape_interval: 7s": "scrape_interval: 1s"})
