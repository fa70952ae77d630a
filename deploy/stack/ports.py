"""Loopback ports of a stack, chosen once and kept, so that checkouts on one machine do not collide."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from deploy.stack import supervisor

# Where the search for a free port begins. The demo's web and flower ports are the usual ones; those of each next kind are 100 on.
_DEMO = {
    "web": 8000, "stream": 8050, "flower": 5555, "htcondor": 19618, "second": 19638, "rucio": 18500, "simulators": 18550,
    "xrootd": 11094,
}  # fmt: skip
_MORE = {
    "demo": {"sso": 18610, "prometheus": 9090, "alertmanager": 9093, "receiver": 9094},
    "check": {"sso": 18760},
}
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    kind: {name: port + 100 * step for name, port in _DEMO.items()} | _MORE.get(kind, {})
    for step, kind in enumerate(("demo", "test", "check", "bench", "apart"))
}
PORTS_FILE = "ports.json"
SEARCHED = 100


def is_free(port: int) -> bool:
    """Whether a server could bind to the loopback port now (connections of past servers do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def read(kind_directory: Path) -> dict[str, int]:
    """The ports the stack was given; empty before its first start."""
    try:
        return {str(k): int(v) for k, v in json.loads((kind_directory / PORTS_FILE).read_text()).items()}
    except FileNotFoundError:
        return {}


def _claims(register: Path, own: Path) -> dict[int, str]:
    """Ports that other running stacks of this user may be about to bind."""
    try:
        entries = json.loads(register.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {int(port): owner for port, owner in entries.items() if owner != str(own) and supervisor.holder(Path(owner))}


def _first_free(wanted: int, taken: set[int]) -> int:
    found = next((port for port in range(wanted, wanted + SEARCHED) if port not in taken and is_free(port)), None)
    if found is None:
        raise OSError(f"no free port between {wanted} and {wanted + SEARCHED} on 127.0.0.1")
    return found


def allocate(kind: str, kind_directory: Path, register: Path) -> dict[str, int]:
    """Give the stack its ports: last time's where free, else the next free ones. ``register`` is shared by all stacks."""
    register.parent.mkdir(parents=True, exist_ok=True)
    with register.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = _claims(register, kind_directory)
        taken = set(others)
        chosen: dict[str, int] = {}
        before = read(kind_directory)
        for name, default in DEFAULTS[kind].items():
            last = before.get(name)
            port = last if last and last not in taken and is_free(last) else _first_free(default, taken)
            chosen[name] = port
            taken.add(port)
        (kind_directory / PORTS_FILE).write_text(json.dumps(chosen, indent=2) + "\n")
        register.write_text(json.dumps(others | dict.fromkeys(map(str, chosen.values()), str(kind_directory)), indent=2) + "\n")
    return chosen
