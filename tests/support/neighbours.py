"""WMCore's services that act on our outputs in Rucio, with their own accounts, as far as it concerns us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rucio.common.exception import DataIdentifierNotFound

from tests.support.rucio import SCOPE, TAPES, did, plain_client, rucio_home


def root() -> Any:
    """Rucio's administrator, who may act for each account."""
    return plain_client(rucio_home().parent / "admin")


def account(client: Any, name: str) -> str:
    """One of WMCore's accounts, made if it is not there."""
    if name not in {row["account"] for row in client.list_accounts()}:
        client.add_account(name, "SERVICE", f"{name}@localhost")
    for rse in TAPES:
        client.set_local_account_limit(name, rse, 10**15)
    return name


@dataclass(frozen=True, slots=True)
class MSOutput:
    """Of a request that is closed out or announced: one rule on each container, at one RSE; without one in Rucio its document
    says zero copies, and it does not come back to it."""

    client: Any
    account: str = "wmcore_output"

    def place(self, container: str, rse: str) -> str:
        """The rule's id; empty where Rucio does not know the container yet."""
        try:
            self.client.get_did(SCOPE, container)
        except DataIdentifierNotFound:
            return ""
        rules: list[str] = self.client.add_replication_rule(
            [did(container)], 1, rse, account=account(self.client, self.account), grouping="ALL", activity="Production Output"
        )
        return rules[0]


@dataclass(frozen=True, slots=True)
class RuleCleaner:
    """Of a request that is announced, rejected or aborted: every rule of its account on the containers and their blocks is to end
    now, whoever made it; rules on files are not looked at."""

    client: Any
    account: str = "wma_prod"

    def clean(self, container: str) -> list[str]:
        """Ids of the rules that end."""
        names = [container, *(row["name"] for row in self.client.list_content(SCOPE, container))]
        ended = []
        for name in names:
            for rule in list(self.client.list_did_rules(SCOPE, name)):
                if rule["account"] == self.account:
                    self.client.update_replication_rule(rule["id"], {"lifetime": 0, "locked": False})
                    ended.append(rule["id"])
        return ended
