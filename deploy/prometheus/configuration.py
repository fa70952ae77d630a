"""The configurations that ``deploy/run/prometheus`` ships, with the addresses and files of a machine in place of containers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError

SHIPPED = Path(__file__).resolve().parents[1] / "run/prometheus"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Host and port of each, and the token that Prometheus reads WMS2 with."""

    web: str
    prometheus: str
    alertmanager: str
    receiver: str
    token_file: Path


def write(directory: Path, addresses: Addresses, others: Mapping[str, str] | None = None) -> None:
    """Write all configurations and the rules; ``others`` are further replacements, which tests are quicker with.

    Raises:
        StackError: the shipped files lack what is to be replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    address = directory / "receiver_url"
    address.write_text(f"http://{addresses.receiver}/\n")
    replaced = {
        "web:8000": addresses.web,
        "alertmanager:9093": addresses.alertmanager,
        "/run/secrets/prometheus_token": str(addresses.token_file),
        "/run/secrets/alerts_webhook": str(address),
        **(others or {}),
    }
    texts = {name: (SHIPPED / name).read_text(encoding="utf-8") for name in ("prometheus.yml", "alertmanager.yml", "rules.yml")}
    for old in replaced:
        if not any(old in text for text in texts.values()):
            raise StackError(f"no file of {SHIPPED} has {old!r}, in place of which something else was to be written")
    for name, text in texts.items():
        for old, new in replaced.items():
            text = text.replace(old, new)
        (directory / name).write_text(text, encoding="utf-8")


def prometheus_arguments(prefix: Path, directory: Path, address: str) -> tuple[str | Path, ...]:
    """The command line of a Prometheus whose configuration and data are in this directory."""
    kept = ("--storage.tsdb.retention.time=35d", "--storage.tsdb.retention.size=1GB")
    files = (f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/prometheus")
    return (prefix / "bin/prometheus", *files, *kept, *_at(address))


def alertmanager_arguments(prefix: Path, directory: Path, address: str) -> tuple[str | Path, ...]:
    """The same of an Alertmanager, which is the only one: it listens for no others."""
    files = (f"--config.file={directory}/alertmanager.yml", f"--storage.path={directory}/alertmanager")
    return (prefix / "bin/alertmanager", *files, "--cluster.listen-address=", *_at(address))


def _at(address: str) -> tuple[str, str]:
    return f"--web.listen-address={address}", f"--web.external-url=http://{address}/"
