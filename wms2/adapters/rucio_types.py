"""What the Rucio adapter takes and answers, and the shape of Rucio's own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from wms2.adapters.types import Text
from wms2.adapters.wire import Wire


def _aware(moment: datetime | None) -> datetime | None:
    """Rucio's times are UTC and say so nowhere."""
    return None if moment is None else moment.replace(tzinfo=UTC)


class RucioFile(NamedTuple):
    """A file to be registered; ``adler32`` is 8 hexadecimal digits."""

    lfn: str
    size_bytes: int
    adler32: str


class HeldFile(NamedTuple):
    """A file of a block as Rucio has it. ``copies``: RSE -> state; where the block is whole as it should be, those alone."""

    size_bytes: int | None
    adler32: str
    copies: Mapping[str, str]


class HeldBlock(NamedTuple):
    """A block as Rucio has it, with its files by LFN."""

    is_open: bool
    files: Mapping[str, HeldFile]


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
    """A replication rule, as made of Rucio's row.

    Args:
        account: whose it is. ``name``: LFN, block or container. ``did_type``: FILE, DATASET (a block) or CONTAINER.
        locks_ok: file copies that are there; ``locks_replicating`` on their way; ``locks_stuck`` failed.
        expires_at: when Rucio will remove it; set on a rule that was deleted and can still be revived.
        is_locked: cannot be deleted before it is unlocked; Rucio locks rules on tape by itself.
        error: Rucio's last message about a stuck rule, or "".
    """

    rule_id: Annotated[str, Field(alias="id")]
    account: str
    name: str
    did_type: str
    copies: int
    rse_expression: str
    state: RuleState
    locks_ok: Annotated[int, Field(alias="locks_ok_cnt")]
    locks_replicating: Annotated[int, Field(alias="locks_replicating_cnt")]
    locks_stuck: Annotated[int, Field(alias="locks_stuck_cnt")]
    is_locked: Annotated[bool, Field(alias="locked")]
    expires_at: Annotated[datetime | None, AfterValidator(_aware)]
    activity: Text
    comment: Annotated[Text, Field(alias="comments")]
    error: Text


class RuleId(Wire):
    """Of a rule that need only be there."""

    rule_id: str = Field(alias="id", min_length=1)
    did_type: Text = ""


class ContentRow(Wire):
    """A file in a block."""

    name: str
    bytes: int | None
    adler32: str | None


class BlockRow(Wire):
    name: str
    is_open: bool


class BlockReplicaRow(Wire):
    """How much of a block an RSE holds; counts are files."""

    rse: str
    length: int | None
    available_length: int | None


class FileReplicaRow(Wire):
    """Where a file is: RSE -> state of the copy."""

    name: str
    states: dict[str, str]


class LockRow(Wire):
    """What a rule keeps at one RSE: a file, or a block."""

    name: str
    rse: str
    rule_id: str
    state: str


class RseRow(Wire):
    rse: str
