"""Plays FTS: what Rucio wants transferred is declared to have arrived, which turns its rules OK. No file is copied.

Needs rucio-clients (WMS2's environment or the server's). As a program: ``python transfers.py [RSE_EXPRESSION]`` with
RUCIO_HOME, or ``server.py settle``. The requests Rucio made stay listed, since no daemon finishes them: look at rules,
never at requests.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rucio.client import Client

TAPE = "rse_type=TAPE"
REPLICATING_RULES = "R"
AVAILABLE = "A"
BATCH = 1000


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it: rules that were REPLICATING, and file copies declared to have arrived for them."""

    rules: int
    files: int


def settle(client: Any, rse_expression: str = TAPE, rule_ids: Collection[str] | None = None) -> Settled:
    """Let every pending copy of replicating rules at the matching RSEs arrive.

    Args:
        client: a ``rucio.client.Client`` of an account that may set replica states.
        rse_expression: destinations that receive; others stay REPLICATING.
        rule_ids: only these rules; None for all.
    """
    receiving = {row["rse"] for row in client.list_rses(rse_expression)}
    rules = files = 0
    for rule in list(client.list_replication_rules(filters={"state": REPLICATING_RULES})):
        if rule_ids is not None and rule["id"] not in rule_ids:
            continue
        pending: dict[str, list[dict[str, str]]] = {}
        for lock in client.list_replica_locks(rule["id"]):
            if lock["state"] == "REPLICATING" and lock["rse"] in receiving:
                arrived = {"scope": lock["scope"], "name": lock["name"], "state": AVAILABLE}
                pending.setdefault(lock["rse"], []).append(arrived)
        for rse, copies in pending.items():
            for start in range(0, len(copies), BATCH):
                client.update_replicas_states(rse, copies[start : start + BATCH])
            files += len(copies)
        rules += bool(pending)
    return Settled(rules, files)


def main(arguments: list[str]) -> int:
    settled = settle(Client(), *arguments[:1])
    print(f"{settled.rules} rules, {settled.files} files arrived")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
