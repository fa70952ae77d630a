"""What differs between a block as our rows have it and as DBS and Rucio hold it. Pure.

Owns the judgement alone: nothing is in flight where it is asked, and every answer is whole. How rules are doing is the census's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from outputs_app.models import BlockStatus, DriftKind, OutputFile, ProcessingBlock
from wms2.adapters.rucio import AVAILABLE
from wms2.adapters.rucio_types import HeldBlock, HeldFile, RuleInfo
from wms2.adapters.types import BlockInfo, DbsFileInfo

K = DriftKind
MOST_WORDS = 500
#: What is expected of a file that was taken back.
INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference, as it stands now."""

    kind: DriftKind
    name: str
    expected: str
    found: str
    rule_id: str = ""
    request_id: uuid.UUID | None = None
    dataset_id: int | None = None
    block_id: uuid.UUID | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What distinguishes it from other open differences."""
        return self.kind, self.name, self.rule_id


class ExpectedBlock(NamedTuple):
    """A block of ours for which nothing is under way, with its files; a file has no rule before its protection, and after that
    was released."""

    row: ProcessingBlock
    files: Mapping[str, OutputFile]

    def place_of(self, file: OutputFile) -> str:
        """The RSE at which a rule of ours keeps the file; empty once it is released."""
        return file.rse if file.rule_id else self.row.origin_rse if self.row.source_rule_id else ""

    def differs(self, kind: DriftKind, expected: str, found: str, name: str = "", rule_id: str = "") -> Finding:
        """A finding in this block, about the block itself unless another name is given."""
        row = self.row
        place = (row.workflow.request.pk, row.dataset_id, row.pk)
        return Finding(kind, name or row.dbs_block_name, expected[:MOST_WORDS], found[:MOST_WORDS], rule_id, *place)


def in_dbs(block: ExpectedBlock, known: BlockInfo | None, files: Iterable[DbsFileInfo]) -> Iterator[Finding]:
    """Of a registered block. ``files``: all that DBS has in it, valid or not."""
    mine = block.files
    if known is None:
        yield block.differs(K.DBS_BLOCK_MISSING, f"{len(mine)} files, closed", "no such block")
        return
    if known.is_open:
        yield block.differs(K.DBS_BLOCK_OPEN, "closed", "open")
    there = {file.lfn: file for file in files}
    for lfn, file in mine.items():
        has = there.get(lfn)
        if not file.is_valid:  # what was taken back may be there no more, or never have been
            if has is not None and has.is_valid:
                yield block.differs(K.DBS_FILE_DIFFERS, INVALID, "valid", lfn)
            continue
        if has is None:
            yield block.differs(K.DBS_FILE_MISSING, _words(file), "no such file in the block", lfn)
            continue
        if not has.is_valid:
            yield block.differs(K.DBS_FILE_INVALID, "valid", "invalid", lfn)
        if _words(has) != _words(file):
            yield block.differs(K.DBS_FILE_DIFFERS, _words(file), _words(has), lfn)
    for lfn in there.keys() - mine.keys():
        yield block.differs(K.DBS_FILE_EXTRA, "no such file", _words(there[lfn]), lfn)
    wanted = (len(mine), sum(file.size_bytes for file in mine.values()))
    if there.keys() == mine.keys() and (known.file_count, known.size_bytes) != wanted:
        found = f"{known.file_count} files, {known.size_bytes} bytes"
        yield block.differs(K.DBS_BLOCK_COUNTS, f"{wanted[0]} files, {wanted[1]} bytes", found)


def valid_still(block: ExpectedBlock, files: Iterable[DbsFileInfo]) -> Iterator[Finding]:
    """Of a block that was taken back: files that DBS shows as valid all the same."""
    for file in files:
        mine = block.files.get(file.lfn)
        if file.is_valid and mine is None:
            yield block.differs(K.DBS_FILE_EXTRA, "no such file", _words(file), file.lfn)
        elif file.is_valid and mine is not None and not mine.is_valid:
            yield block.differs(K.DBS_FILE_DIFFERS, INVALID, "valid", file.lfn)


def _words(file: OutputFile | DbsFileInfo) -> str:
    return f"{file.size_bytes} bytes, adler32 {file.adler32}, {file.events} events"


def in_rucio(block: ExpectedBlock, held: HeldBlock | None, rule: Callable[[str], RuleInfo | None]) -> Iterator[Finding]:
    """Contents, replicas and rules. ``rule``: one by its id, None when it is gone."""
    if held is None:
        yield block.differs(K.RUCIO_BLOCK_MISSING, f"{len(block.files)} files", "no such block")
        return
    row = block.row
    if row.status in (BlockStatus.COMPLETE, BlockStatus.ARCHIVED):  # it takes no more files
        if held.is_open:
            yield block.differs(K.RUCIO_BLOCK_OPEN, "closed", "open")
        for lfn in held.files.keys() - block.files.keys():
            yield block.differs(K.RUCIO_FILE_EXTRA, "no such file", f"{held.files[lfn].size_bytes} bytes", lfn)
    for lfn, file in block.files.items():
        if not file.is_valid:
            continue
        has = held.files.get(lfn)
        if has is None:
            yield block.differs(K.RUCIO_FILE_MISSING, "in the block", "not in the block", lfn)
        else:
            yield from _replica(block, file, has)
        if file.rule_id:
            yield from _rule(block, lfn, file.rule_id, file.rse, rule(file.rule_id))
    for rule_id, rse in ((row.tape_rule_id, row.dataset.tape_rse), (row.source_rule_id, row.origin_rse)):
        if rule_id:
            yield from _rule(block, row.dbs_block_name, rule_id, rse, rule(rule_id))


def _replica(block: ExpectedBlock, file: OutputFile, has: HeldFile) -> Iterator[Finding]:
    """Where its rule keeps it; once that is released, anywhere."""
    # Rucio need not say either (``wms2.adapters.rucio``)
    size, adler32 = has.size_bytes or file.size_bytes, has.adler32.lower() or file.adler32.lower()
    if (size, adler32) != (file.size_bytes, file.adler32.lower()):
        found = f"{size} bytes, adler32 {adler32}"
        yield block.differs(K.RUCIO_FILE_DIFFERS, f"{file.size_bytes} bytes, adler32 {file.adler32}", found, file.lfn)
    place = block.place_of(file)
    state = has.copies.get(place) if place else (AVAILABLE if AVAILABLE in has.copies.values() else None)
    if state == AVAILABLE:
        return
    kind = K.REPLICA_MISSING if state is None else K.REPLICA_UNAVAILABLE
    elsewhere = ", ".join(f"{state} at {rse}" for rse, state in sorted(has.copies.items())) or "none at all"
    yield block.differs(kind, f"at {place}" if place else "a copy that is available", elsewhere, file.lfn)


def _rule(block: ExpectedBlock, name: str, rule_id: str, rse: str, rule: RuleInfo | None) -> Iterator[Finding]:
    if rule is None or rule.expires_at is not None:
        found = "gone" if rule is None else f"deleted, gone at {rule.expires_at:%F %T}"
        yield block.differs(K.RULE_GONE, f"rule {rule_id} at {rse}", found, name, rule_id)
        return
    if rse and rule.rse_expression != rse:
        yield block.differs(K.RULE_ELSEWHERE, rse, rule.rse_expression, name, rule_id)
