"""Replication rules: one per file or block, found again after a crash, revived when dying, deleted.

See docs/design/services.md, Rules. Rucio's key of a rule is (DID, account, text of the RSE expression, copies), so one spelling
of an RSE is used throughout: its name. A call for many files is refused whole when one of them has its rule. A deleted rule
lives on for an hour and keeps its key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, TypeVar

from rucio.common.exception import DuplicateRule, RuleNotFound, UnsupportedOperation

from wms2.adapters.rucio_session import SERVICE, RucioSession
from wms2.adapters.rucio_types import RseRow, RuleId, RuleInfo, RuleState
from wms2.adapters.wire import Rows, adapter, parse, readable
from wms2.errors import AwaitsPerson, ServiceRejected, ServiceUnavailable

T = TypeVar("T")
PRODUCTION_OUTPUT = "Production Output"
"""The activity CMS gives rules on outputs; it decides the transfer share."""

ACTIVITIES = frozenset(
    {"Data Brokering", "Data Consolidation", "Data rebalancing", "Debug", "Express", "Functional Test", "Group Subscriptions"}
    | {"Production Input", "Production Output", "Analysis Input", "Analysis Output", "Staging", "T0 Export", "T0 Tape"}
    | {"Upload/Download (Job)", "Upload/Download (User)", "User AutoApprove", "User Subscriptions", "Data Challenge"}
)
"""What CMS's Rucio takes as the activity of a rule."""

_APPROVAL = "requires_approval"
_ADMIN = "admin"
_SERVICE_ACCOUNT = "SERVICE"
_TRUE = ("true", "1", "yes")
# A file rule takes Rucio 10 ms, on a busy machine 70 (measured); more of them would come near the time limit of a call.
_FILES_PER_CALL = 100
_RACES = 3
_RULE_ID = re.compile(r"[0-9a-f]{32}")
_ROWS_PARSED = 1000
# In a list's filters Rucio wants its own letters: stuck, suspended, waiting for approval; a dataset (a block), a container.
_IN_TROUBLE, _ON_BLOCKS = "SUW", "DC"


@dataclass(frozen=True, slots=True)
class RuleRequest:
    """What all rules of one call share.

    Args:
        locked: how a revived rule must be: Rucio locks new ones on tape by itself.
        ignore_availability: also where the RSE is blocked for writing, for what lies there already.
        ask_approval: a person at the RSE must agree to a new rule; it is WAITING_APPROVAL until then.
        lifetime_seconds: of a rule that ends by itself; a repeat begins it anew.
    """

    operation: str
    rse: str
    comment: str
    activity: str
    grouping: str
    locked: bool
    ignore_availability: bool = False
    ask_approval: bool = False
    copies: int = 1
    lifetime_seconds: int | None = None


class RucioRules:
    """The rules of one account in one scope."""

    def __init__(self, session: RucioSession, scope: str) -> None:
        self._session, self.scope = session, scope

    def protect_files(self, rse: str, lfns: Sequence[str], comment: str, activity: str = PRODUCTION_OUTPUT) -> dict[str, str]:
        """Each file has a rule of its own at the RSE where it lies, so that nothing is transferred and nothing deletes it.

        Made also while the RSE is blocked for writing: nothing is written.

        Args:
            rse: a plain RSE name; the same spelling each time, or Rucio makes a second rule.
            comment: stored with new rules; ``rules_with_comment`` finds them.

        Returns:
            LFN -> rule id. Rules found keep their comment; dying ones are revived.

        Raises:
            ServiceRejected: a file, the RSE or the activity is unknown to Rucio, or the account's limit there is used up.
                Files of earlier batches of 100 have their rules by then.
        """
        request = RuleRequest("protect_files", rse, comment, activity, grouping="NONE", locked=False, ignore_availability=True)
        return self._ensure(lfns, request)

    def tape_rule(self, block: str, rse: str, comment: str, activity: str = PRODUCTION_OUTPUT) -> str:
        """The block has a rule at one tape RSE; returns its id. It is locked and REPLICATING until all files are on tape.

        Where the RSE has the attribute ``requires_approval``, the rule asks for it.

        Arguments and errors as ``protect_files``, and

        Raises:
            AwaitsPerson: the rule is there, and waits for the approval of the RSE's manager. A rule that is denied
                disappears; the next call asks again.
            ServiceUnavailable: also while the RSE is blocked for writing.
        """
        asks = self._asks_approval("tape_rule", rse)
        request = RuleRequest("tape_rule", rse, comment, activity, grouping="ALL", locked=True, ask_approval=asks)
        rule_id = self._ensure([block], request)[block]
        if asks and self.rule(rule_id).state is RuleState.WAITING_APPROVAL:
            raise AwaitsPerson(SERVICE, "tape_rule", f"rule {rule_id} waits for approval at {rse}", "WAITING_APPROVAL")
        return rule_id

    def block_rule(self, block: str, rse: str, comment: str, activity: str = PRODUCTION_OUTPUT) -> str:
        """The block has a rule where all its files lie; returns its id. One that lies elsewhere too is copied: ask before.

        Arguments and errors as ``protect_files``.
        """
        request = RuleRequest("block_rule", rse, comment, activity, grouping="ALL", locked=False, ignore_availability=True)
        return self._ensure([block], request)[block]

    def disk_rule(
        self, container: str, expression: str, comment: str, activity: str, *, copies: int, lifetime_seconds: int | None
    ) -> str:
        """The container has copies on disk, at RSEs of the expression, by one rule, also for blocks that it gets later; returns
        its id. ``lifetime_seconds`` None: for ever. Raises ServiceRejected: the expression is wrong or gives too few RSEs, or the
        account's limit there is used up."""
        request = RuleRequest(
            "disk_rule", expression, comment, activity, grouping="ALL", locked=False, copies=copies,
            lifetime_seconds=lifetime_seconds,
        )  # fmt: skip
        return self._ensure([container], request)[container]

    def rule(self, rule_id: str) -> RuleInfo:
        """One rule. Raises NotFoundInService: unknown, or gone."""
        _check_id("rule", rule_id)
        row = self._session.call("rule", lambda client: client.get_replication_rule(rule_id))
        return parse(RuleInfo, row, service=SERVICE, operation="rule")

    def rules_with_comment(self, comment: str) -> list[RuleInfo]:
        """All rules of the account with exactly this comment, in one call; for reconciliation."""
        return self._list("rules_with_comment", {"account": self._session.account, "comments": comment})

    def block_rules_ok(self, comment: str) -> set[str]:
        """Ids of the rules on blocks with exactly this comment whose files are all there, and that stay; in one call."""
        filters = {"account": self._session.account, "comments": comment, "state": "O", "did_type": "D"}
        return {row.rule_id for row in self._list("block_rules_ok", filters) if row.expires_at is None}

    def rules_in_trouble(self) -> Rows[RuleInfo]:
        """The account's rules that are STUCK, SUSPENDED or WAITING_APPROVAL; one call for each state."""
        account = self._session.account
        return self._each("rules_in_trouble", [{"account": account, "state": state} for state in _IN_TROUBLE], RuleInfo)

    def rules_on_blocks(self) -> Rows[RuleId]:
        """The account's rules on blocks and containers, in one call each."""
        account = self._session.account
        return self._each("rules_on_blocks", [{"account": account, "did_type": did_type} for did_type in _ON_BLOCKS], RuleId)

    def rules_made_since(self, moment: datetime) -> Rows[RuleInfo]:
        """The account's rules that were made at this moment or later, in one call."""
        after = moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
        return self._each("rules_made_since", [{"account": self._session.account, "created_after": after}], RuleInfo)

    def delete_rule(self, rule_id: str, purge: bool = False) -> bool:
        """Delete a rule, unlocking it if needed; False when it was gone already.

        Rucio keeps it for an hour with ``expires_at`` set; until then ``protect_files`` and ``tape_rule`` revive it. With its
        last rule a replica may go: when its room is needed, with ``purge`` as soon as Rucio's daemons come by.
        """
        _check_id("delete_rule", rule_id)

        def delete(client: Any) -> None:
            try:
                client.delete_replication_rule(rule_id, purge_replicas=purge)
            except UnsupportedOperation:
                client.update_replication_rule(rule_id, {"locked": False})
                client.delete_replication_rule(rule_id, purge_replicas=purge)

        return self._session.call_unless(RuleNotFound, "delete_rule", delete)

    def account_problems(self) -> list[str]:
        """What keeps the account from registering and protecting outputs by CMS's permissions; empty when nothing does."""
        operation, account = "account_problems", self._session.account
        kind = self._session.call(operation, lambda client: str(client.get_account(account)["account_type"]))
        listed = self._session.call(operation, lambda client: list(client.list_account_attributes(account)))
        rows = [row for each in listed for row in (each if isinstance(each, list) else [each])]
        found = []
        if kind != _SERVICE_ACCOUNT:
            found.append(
                f"account {account} is of type {kind}, which may not make all rules: have it made of type {_SERVICE_ACCOUNT}"
            )
        if not any(row["key"] == _ADMIN and _is_true(row["value"]) for row in rows):
            found.append(f"account {account} has no attribute {_ADMIN}: Rucio refuses it replicas, blocks and closing them")
        return found

    def rses_asking_approval(self, expression: str) -> list[str]:
        """RSEs of the expression where a rule needs a person's approval. Raises ServiceRejected: the expression is wrong."""
        operation = "rses_asking_approval"
        rows = self._session.rows(list[RseRow], operation, lambda client: client.list_rses(expression))
        return sorted(row.rse for row in rows if self._asks_approval(operation, row.rse))

    def _asks_approval(self, operation: str, rse: str) -> bool:
        return _is_true(self._attributes(operation, rse).get(_APPROVAL, False))

    def _attributes(self, operation: str, rse: str) -> dict[str, Any]:
        return self._session.call(operation, lambda client: dict(client.list_rse_attributes(rse)))

    def _ensure(self, names: Sequence[str], request: RuleRequest) -> dict[str, str]:
        """One live rule per DID, made or found; returns name -> rule id. Errors as ``protect_files``."""
        wanted = list(dict.fromkeys(names))
        rules: dict[str, str] = {}
        for start in range(0, len(wanted), _FILES_PER_CALL):
            rules |= self._ensure_batch(wanted[start : start + _FILES_PER_CALL], request)
        return rules

    def _ensure_batch(self, names: list[str], request: RuleRequest) -> dict[str, str]:
        found: dict[str, str] = {}
        missing = names
        for _ in range(_RACES):
            added = self._add(missing, request)
            if added is not None:
                return found | added
            found |= self._find_live(missing, request)
            missing = [name for name in names if name not in found]
            if not missing:
                return found
        raise ServiceUnavailable(SERVICE, request.operation, f"rules at {request.rse} come and go, of {missing[0]}")

    def _add(self, names: list[str], request: RuleRequest) -> dict[str, str] | None:
        """New rules, or None when one of the DIDs has its rule: nothing was made then."""
        ids: list[str] = []

        def add(client: Any) -> None:
            ids[:] = client.add_replication_rule(
                [{"scope": self.scope, "name": name} for name in names],
                request.copies,
                request.rse,
                lifetime=request.lifetime_seconds,
                grouping=request.grouping,
                account=self._session.account,
                activity=request.activity,
                comment=request.comment,
                ignore_availability=request.ignore_availability,
                ask_approval=request.ask_approval,
            )

        if not self._session.call_unless(DuplicateRule, request.operation, add):
            return None
        if len(ids) != len(names):
            raise ServiceUnavailable(SERVICE, request.operation, f"{len(ids)} rule ids for {len(names)} names, first {names[0]}")
        return dict(zip(names, ids, strict=True))  # in the order of the names (measured)

    def _find_live(self, names: list[str], request: RuleRequest) -> dict[str, str]:
        """The rules these DIDs have already; a dying one is revived."""
        found = {}
        for name in names:
            filters = {"scope": self.scope, "name": name, "account": self._session.account, "rse_expression": request.rse}
            for row in self._list(request.operation, filters):
                if row.copies == request.copies and (row.expires_at is None or self._revive(row.rule_id, request)):
                    found[name] = row.rule_id
        return found

    def _revive(self, rule_id: str, request: RuleRequest) -> bool:
        """Whether it was still there."""
        options = {"lifetime": request.lifetime_seconds, "locked": request.locked}
        return self._session.call_unless(
            RuleNotFound, request.operation, lambda client: client.update_replication_rule(rule_id, options)
        )

    def _each(self, operation: str, asked: Sequence[dict[str, str]], shape: type[T]) -> Rows[T]:
        """Of several lists, each row by itself: the account may be used by others too."""

        def read(client: Any) -> Rows[T]:
            rows = chain.from_iterable(client.list_replication_rules(filters=filters) for filters in asked)
            return readable(rows, adapter(shape).validate_python, service=SERVICE, operation=operation)

        return self._session.call(operation, read)

    def _list(self, operation: str, filters: dict[str, str]) -> list[RuleInfo]:
        def read(client: Any) -> list[RuleInfo]:
            rows, found = client.list_replication_rules(filters=filters), list[RuleInfo]()
            while some := list(islice(rows, _ROWS_PARSED)):  # a request may have 100,000, and Rucio's rows are large
                parsed = parse(list[RuleInfo], some, service=SERVICE, operation=operation)
                found += parsed
            return found

        return self._session.call(operation, read)


def _is_true(value: object) -> bool:
    """Rucio keeps attributes as text or as what the text means, depending on who set them."""
    return str(value).lower() in _TRUE


def _check_id(operation: str, rule_id: str) -> None:
    # Rucio answers a malformed id with an error that looks like other faults.
    if not _RULE_ID.fullmatch(rule_id):
        raise ServiceRejected(SERVICE, operation, f"{rule_id!r} is not a rule id (32 hexadecimal digits)", "malformed_rule_id")
