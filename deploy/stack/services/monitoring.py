"""Prometheus, Alertmanager and the receiver of alerts beside the demo, with what ``deploy/run`` ships (MONITORING=1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deploy.prometheus import configuration
from deploy.prometheus.install import start_directory
from deploy.run import healthy
from deploy.stack.services.base import Place, Service

VARIABLE = "MONITORING"
#: Who reads the metrics: a user without a role.
READER = "prometheus"
RECEIVED = "alerts.jsonl"


def wanted() -> bool:
    """Whether the person asked for it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def directory_of(place: Place) -> Path:
    """Configurations, data, the token, and what was received."""
    return place.directory / "monitoring"


def token_file(place: Place) -> Path:
    """The token that WMS2 is scraped with."""
    return directory_of(place) / "token"


def services(place: Place, prefix: Path, ports: Mapping[str, int]) -> list[Service]:
    """The three, configured and described: they do not need each other to start."""
    directory = directory_of(place)
    web, prometheus, alertmanager, receiver = (
        f"127.0.0.1:{ports[name]}" for name in ("web", "prometheus", "alertmanager", "receiver")
    )
    configuration.write(directory, configuration.Addresses(web, prometheus, alertmanager, receiver, token_file(place)))
    program = (place.layout.python, "-m", "deploy.prometheus.receiver")
    words = ("--port", str(ports["receiver"]), "--file", directory / RECEIVED)
    both = [
        place.service(
            "prometheus", *configuration.prometheus_arguments(prefix, directory, prometheus),
            problem=lambda: healthy.problem(f"http://{prometheus}/-/ready"),
        ),
        place.service(
            "alertmanager", *configuration.alertmanager_arguments(prefix, directory, alertmanager),
            problem=lambda: healthy.problem(f"http://{alertmanager}/-/ready"),
        ),
    ]  # fmt: skip
    return [
        *(replace(each, cwd=start_directory(prefix)) for each in both),
        place.service("receiver", *program, *words, problem=lambda: healthy.problem(f"http://{receiver}/")),
    ]


def announced(ports: Mapping[str, int]) -> list[tuple[str, str]]:
    """What the demo says of them: name, and address with what it shows."""
    shows = {
        "prometheus": "metrics of WMS2, and the alerts that are pending or fire",
        "alertmanager": "alerts that fire, silences: for amtool, Debian's has no pages",
        "receiver": "the notifications that Alertmanager sent",
    }
    return [(name, f"http://127.0.0.1:{ports[name]}/   {what}") for name, what in shows.items()]
