"""What the Rucio adapter takes and answers, and the shape of Rucio's own rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import TypeAdapter

from wms2.adapters.wire import Wire


@dataclass(frozen=True, slots=True)
class RucioFile:
    """A file to be registered; ``adler32`` is 8 hexadecimal digits."""

    lfn: str
    size_bytes: int
    adler32: str


class RuleState(StrEnum):
    """The state of a replication rule, in Rucio's words."""

    OK = "OK"
    REPLICATING = "REPLICATING"
    STUCK = "STUCK"
    SUSPENDED = "SUSPENDED"
    WAITING_APPROVAL = "WAITING_APPROVAL"
    INJECT = "INJECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo:
    """A replication rule.

    Args:
        name: LFN, block or container. ``did_type``: FILE, DATASET (a block) or CONTAINER.
        locks_ok: file copies that are there; ``locks_replicating`` on their way; ``locks_stuck`` failed.
        expires_at: when Rucio will remove it; set on a rule that was deleted and can still be revived.
        is_locked: cannot be deleted before it is unlocked; Rucio locks rules on tape by itself.
        error: Rucio's last message about a stuck rule, or "".
    """

    rule_id: str
    name: str
    did_type: str
    rse_expression: str
    state: RuleState
    locks_ok: int
    locks_replicating: int
    locks_stuck: int
    is_locked: bool
    expires_at: datetime | None
    activity: str
    comment: str
    error: str


class RuleRow(Wire):
    id: str
    name: str
    did_type: str
    account: str
    copies: int
    rse_expression: str
    state: RuleState
    locks_ok_cnt: int
    locks_replicating_cnt: int
    locks_stuck_cnt: int
    locked: bool
    expires_at: datetime | None
    activity: str | None
    comments: str | None
    error: str | None

    def info(self) -> RuleInfo:
        return RuleInfo(
            rule_id=self.id,
            name=self.name,
            did_type=self.did_type,
            rse_expression=self.rse_expression,
            state=self.state,
            locks_ok=self.locks_ok_cnt,
            locks_replicating=self.locks_replicating_cnt,
            locks_stuck=self.locks_stuck_cnt,
            is_locked=self.locked,
            # Rucio's times are UTC and say so nowhere.
            expires_at=None if self.expires_at is None else self.expires_at.replace(tzinfo=UTC),
            activity=self.activity or "",
            comment=self.comments or "",
            error=self.error or "",
        )


class ContentRow(Wire):
    """A file in a block."""

    name: str
    bytes: int | None
    adler32: str | None


class BlockReplicaRow(Wire):
    """How much of a block an RSE holds; counts are files."""

    rse: str
    length: int | None
    available_length: int | None


class FileReplicaRow(Wire):
    """Where a file is: RSE -> state of the copy."""

    name: str
    states: dict[str, str]


class RseRow(Wire):
    rse: str


RULE = TypeAdapter(RuleRow)
RULES = TypeAdapter(list[RuleRow])
CONTENT = TypeAdapter(list[ContentRow])
BLOCK_REPLICAS = TypeAdapter(list[BlockReplicaRow])
FILE_REPLICAS = TypeAdapter(list[FileReplicaRow])
RSES = TypeAdapter(list[RseRow])
