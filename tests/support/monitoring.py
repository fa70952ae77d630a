"""A real Prometheus and Alertmanager, each for a block of a test, configured as ``deploy/run/prometheus`` ships them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.prefix import installed_version
from deploy.prometheus import configuration
from deploy.prometheus.configuration import Addresses
from deploy.prometheus.install import PACKAGES, program, start_directory
from deploy.run import healthy
from deploy.stack import tools
from deploy.stack.paths import layout
from tests.support.servers import free_ports
from tests.support.waiting import until

#: As fast as they can be; the shipped ones wait for what begins together.
QUICK = {
    "scrape_interval: 30s": "scrape_interval: 1s",
    "evaluation_interval: 30s": "evaluation_interval: 1s",
    "group_wait: 30s": "group_wait: 0s",
    "group_interval: 5m": "group_interval: 1s",
}
#: No alert waits to see whether it lasts.
AT_ONCE = {f"\n        for: {lasts}\n": "\n" for lasts in ("2m", "1m", "5m", "10m", "15m", "30m", "1h", "12h", "1d")}


def prefix() -> Path:
    """Where the programs are. Skips where they were not installed."""
    found = tools.prefix(PACKAGES, layout())
    if not installed_version(found):
        pytest.skip(f"no Prometheus in {found}: `make setup` installs it")
    return found


def run(name: str, *arguments: str | Path) -> str:
    """What promtool or amtool prints; AssertionError with it when it fails."""
    argv = [str(word) for word in (program(prefix(), name), *arguments)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    printed = ended.stdout + ended.stderr
    assert ended.returncode == 0, printed
    return printed


def configured(directory: Path, *, web: str = "127.0.0.1:9", receiver: str = "127.0.0.1:9", token: str = "-") -> Addresses:
    """The shipped configurations in a directory, quick, for servers that are started on the ports that it names."""
    directory.mkdir(parents=True, exist_ok=True)
    token_file = directory / "token"
    token_file.write_text(token)
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    addresses = Addresses(web, first, second, receiver, token_file)
    configuration.write(directory, addresses, {**QUICK, **AT_ONCE})
    return addresses


@contextmanager
def prometheus(directory: Path, addresses: Addresses) -> Iterator[str]:
    """Prometheus with the configuration in this directory; its URL."""
    argv = configuration.prometheus_arguments(prefix(), directory, addresses.prometheus)
    with _server(argv, directory / "prometheus.log", addresses.prometheus) as url:
        yield url


@contextmanager
def alertmanager(directory: Path, addresses: Addresses | None = None) -> Iterator[str]:
    """Alertmanager with the configuration in this directory, by default one whose notifications reach nothing; its URL."""
    where = addresses or configured(directory)
    argv = configuration.alertmanager_arguments(prefix(), directory, where.alertmanager)
    with _server(argv, directory / "alertmanager.log", where.alertmanager) as url:
        yield url


@contextmanager
def _server(argv: Sequence[str | Path], log: Path, address: str) -> Iterator[str]:
    url = f"http://{address}"
    with log.open("wb") as said:
        running = subprocess.Popen([str(word) for word in argv], stdout=said, stderr=said, cwd=start_directory(prefix()))
        try:
            until(
                lambda: running.poll() is not None or healthy.problem(f"{url}/-/ready") is None, lambda: log.read_text()[-3000:]
            )
            assert running.poll() is None, log.read_text()[-3000:]
            yield url
        finally:
            running.terminate()
            running.wait(60)


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """The series that an expression returns now; AssertionError when Prometheus does not understand it."""
    answer = requests.get(f"{url}/api/v1/query", params={"query": expression}, timeout=30).json()
    assert answer["status"] == "success", f"{expression}: {answer}"
    result = answer["data"]["result"]
    return [{"metric": {}, "value": result}] if answer["data"]["resultType"] == "scalar" else list(result)


def as_panels_do(expression: str) -> str:
    """With a number for what Grafana fills in."""
    return expression.replace("$__rate_interval", "1m")


def whatever_its_outcome(expression: str) -> str:
    """Conditions answer 0 or 1 in place of nothing or the value, so that an alert that does not fire returns series too."""
    parts = re.split(r"(\{[^}]*\})", expression)  # comparisons within braces are of labels
    return "".join(part if part.startswith("{") else re.sub(r"(==|>=|<=|>|<)(?! bool) ", r"\1 bool ", part) for part in parts)
