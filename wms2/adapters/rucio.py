"""Rucio: containers, blocks, replicas, rules and locations. docs/design/services.md, Rucio.

A CMS dataset is a Rucio container, a CMS block a Rucio dataset, an LFN a file, all in one scope. Every method may be repeated
after any crash and gives the same result. Errors of all methods: ``ServiceUnavailable`` when there is no usable answer (what was
changed is unknown, repeat), ``ServiceRejected`` when Rucio refused (``code`` is Rucio's exception class).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from rucio.common.exception import (
    DataIdentifierAlreadyExists,
    DuplicateContent,
    FileAlreadyExists,
    FileConsistencyMismatch,
    UnsupportedOperation,
)

from wms2.adapters.rucio_rules import RucioRules
from wms2.adapters.rucio_session import SERVICE, RucioSession
from wms2.adapters.rucio_types import (
    BlockReplicaRow,
    BlockRow,
    ContentRow,
    FileReplicaRow,
    HeldBlock,
    HeldFile,
    LockRow,
    RseRow,
    RucioFile,
    RuleInfo,
)
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

AVAILABLE = "AVAILABLE"
TAPE = "rse_type=TAPE"
"""Every RSE on tape."""
_LOCK_OK = "OK"
_FILES_PER_CALL = 500  # Rucio's schema allows 1,000; a server on SQLite fails with as many
_RACES = 3
_WEIGHT = "dm_weight"

T = TypeVar("T")
Entries = list[dict[str, Any]]


class RucioAdapter(RucioRules):
    """One Rucio, one account, whose rules are meant, one scope (``cms``, or a test scope). The rest as ``RucioSession``."""

    def __init__(self, home: Path, account: str, scope: str, timeout_seconds: float) -> None:
        super().__init__(RucioSession(home, account, timeout_seconds), scope)

    def ping(self) -> str:
        """The server's version, after logging in."""
        return str(self._session.call("ping", lambda client: client.ping()["version"]))

    # --- containers, blocks, files

    def ensure_container(self, dataset: str, project: str = "") -> None:
        """The dataset's container exists. A new one says in its metadata which project it is of, if that is given."""
        add = methodcaller("add_container", self.scope, dataset, meta={"project": project} if project else None)
        self._session.call_unless(DataIdentifierAlreadyExists, "ensure_container", add)

    def ensure_block(self, dataset: str, block: str, project: str = "") -> None:
        """Container and block exist and the block is in the container. An existing block stays open or closed as it is."""
        self.ensure_container(dataset, project)
        add = methodcaller("add_dataset", self.scope, block, meta={"project": project} if project else None)
        self._session.call_unless(DataIdentifierAlreadyExists, "ensure_block", add)
        attach = methodcaller("attach_dids", self.scope, dataset, [self._did(block)])
        self._session.call_unless(DuplicateContent, "ensure_block", attach)

    def register_files(self, rse: str, block: str, files: Sequence[RucioFile]) -> None:
        """The files have replicas at the RSE and are in the block, with these sizes and checksums.

        Raises:
            ServiceRejected: a file is known with another size or checksum (``FileConsistencyMismatch``, names the file); the
                block is closed and a file is not in it (``UnsupportedOperation``); the RSE, block or scope is unknown; a name is
                not allowed.
        """
        wanted = list(dict.fromkeys(files))
        # Accepted again, also with another size: Rucio keeps the first. Attaching compares.
        for entries in map(self._entries, _batches(wanted)):
            self._session.call("register_files", methodcaller("add_replicas", rse, entries))
        for _ in range(_RACES):
            missing = self._missing(block, wanted)
            calls = [methodcaller("attach_dids", self.scope, block, self._entries(batch)) for batch in _batches(missing)]
            if all(self._session.call_unless(FileAlreadyExists, "register_files", call) for call in calls):
                return
            # Some were attached meanwhile, by an earlier try whose answer was lost or by another worker: look again.
        raise ServiceUnavailable(SERVICE, "register_files", f"block {block} keeps changing")

    def detach_files(self, block: str, lfns: Collection[str]) -> None:
        """The files are in the block no more, also in a closed one: no rule on it keeps them."""
        try:
            inside = self._content("detach_files", block)
        except NotFoundInService:
            return
        for batch in _batches([self._did(lfn) for lfn in sorted(lfns) if lfn in inside]):
            self._session.call("detach_files", methodcaller("detach_dids", self.scope, block, batch))

    def _entries(self, files: Sequence[RucioFile]) -> Entries:
        return [{**self._did(file.lfn), "bytes": file.size_bytes, "adler32": file.adler32} for file in files]

    def _missing(self, block: str, files: Sequence[RucioFile]) -> list[RucioFile]:
        """The files that are not in the block; those that are must be the same."""
        inside = self._content("register_files", block)
        for file in files:
            if file.lfn in inside:
                _compare(file, inside[file.lfn])
        return [file for file in files if file.lfn not in inside]

    def _content(self, operation: str, block: str) -> dict[str, ContentRow]:
        rows = self._session.rows(list[ContentRow], operation, lambda client: client.list_content(self.scope, block))
        return {row.name: row for row in rows}

    def blocks_held(self, blocks: Mapping[str, Collection[str]]) -> dict[str, HeldBlock]:
        """What Rucio has of these blocks, those that it does not know left out.

        Two calls a block and one for all; copies are listed, in one more call, only of blocks that are not whole where they
        should be: for that Rucio makes up addresses of each.

        Args:
            blocks: name -> RSEs at which files of it should be; none: anywhere.
        """
        operation, dids = "blocks_held", [self._did(block) for block in blocks]
        known = self._session.rows(list[BlockRow], operation, methodcaller("get_metadata_bulk", dids))
        is_open = {row.name: row.is_open for row in known}
        content = {block: self._content(operation, block) for block in blocks if block in is_open}
        whole = {block: {rse for rse, all_ in self._locations(block).items() if all_} for block in content}
        unclear = [block for block in content if not whole[block] or not whole[block].issuperset(blocks[block])]
        rows = self._replicas(unclear, operation, all_states=True) if unclear else ()
        copies = {row.name: row.states for row in rows}
        held: dict[str, HeldBlock] = {}
        for block, files in content.items():
            usual = {} if block in unclear else dict.fromkeys(whole[block], AVAILABLE)
            there = {lfn: HeldFile(row.bytes, row.adler32 or "", copies.get(lfn, usual)) for lfn, row in files.items()}
            held[block] = HeldBlock(is_open[block], there)
        return held

    def blocks_in(self, container: str, scope: str) -> set[str]:
        """Blocks of a container of another scope. Raises NotFoundInService: there is none."""
        rows = self._session.rows(list[ContentRow], "blocks_in", lambda client: client.list_content(scope, container))
        return {row.name for row in rows}

    def close_block(self, block: str) -> None:
        """The block takes no more files. A closed one stays closed. Raises NotFoundInService: there is no such block."""
        closed = self._session.call_unless(UnsupportedOperation, "close_block", lambda client: client.close(self.scope, block))
        if not closed and self._session.call("close_block", lambda client: client.get_did(self.scope, block)["open"]):
            raise ServiceRejected(SERVICE, "close_block", f"{block} cannot be closed", UnsupportedOperation.__name__)

    # --- RSEs and locations

    def choose_tape_rse(self, expression: str, key: str) -> str:
        """One RSE of those the expression gives, the likelier the larger its ``dm_weight``.

        The same key gives the same RSE while RSEs and weights stay, and another RSE in the set moves only the keys it wins
        (weighted rendezvous hashing). RSEs without a positive weight are taken only if there are no others.

        Raises:
            ServiceRejected: the expression is wrong or gives no RSE.
        """
        rses = sorted(self.rses(expression))
        if not rses:
            raise ServiceRejected(SERVICE, "choose_tape_rse", f"{expression!r} gives no RSE", "InvalidRSEExpression")
        weights = {rse: self._weight(rse) for rse in rses}
        if not any(weights.values()):
            weights = dict.fromkeys(rses, 1.0)

        def score(rse: str) -> float:
            digest = hashlib.sha256(f"{key}\0{rse}".encode()).digest()
            uniform = (int.from_bytes(digest[:8]) + 1) / (2**64 + 1)  # in (0, 1)
            return -weights[rse] / math.log(uniform)

        return max((rse for rse in rses if weights[rse] > 0), key=score)

    def rses(self, expression: str) -> set[str]:
        """Names. Raises ServiceRejected: the expression is wrong."""
        return {row.rse for row in self._session.rows(list[RseRow], "rses", lambda client: client.list_rses(expression))}

    def tape_rules_over(self, block: str, container: str) -> list[RuleInfo]:
        """Rules of anybody that stay, and keep the block on tape alone: its own, then its container's; not yet OK perhaps."""
        calls = [methodcaller("list_did_rules", self.scope, name) for name in (block, container)]
        rules = [rule for call in calls for rule in self._session.rows(list[RuleInfo], "tape_rules_over", call)]
        found = [rule for rule in rules if rule.expires_at is None]
        tapes = self.tapes() if found else set()
        return [rule for rule in found if (rses := self._rses_now(rule.rse_expression)) and rses <= tapes]

    def tapes(self) -> set[str]:
        """All RSEs on tape; none where there is none."""
        return self._rses_now(TAPE)

    def _rses_now(self, expression: str) -> set[str]:
        """None where the expression of a rule gives no RSE any more."""
        try:
            return self.rses(expression)
        except ServiceRejected:
            return set()

    def blocks_kept(self, blocks: Sequence[str]) -> dict[str, list[LockRow]]:
        """Where rules of anybody on these blocks, or on their containers, have all their files. One call for 500."""
        kept: dict[str, list[LockRow]] = {block: [] for block in blocks}
        for batch in _batches(blocks):
            dids = [{**self._did(block), "type": "dataset"} for block in batch]
            for lock in self._session.rows(list[LockRow], "blocks_kept", methodcaller("get_locks_for_dids", dids)):
                if lock.state == _LOCK_OK:
                    kept[lock.name].append(lock)
        return kept

    def _weight(self, rse: str) -> float:
        text = str(self._attributes("choose_tape_rse", rse).get(_WEIGHT, 0))
        try:
            return max(0.0, float(text))
        except ValueError as error:
            raise ServiceRejected(SERVICE, "choose_tape_rse", f"{_WEIGHT} of {rse} is {text!r}, not a number", _WEIGHT) from error

    def block_locations(self, blocks: Sequence[str]) -> dict[str, dict[str, bool]]:
        """Where the blocks are: block -> RSE -> whether every file of the block is there, counted file by file.

        A block Rucio does not know, or without replicas, has an empty dict. One call per block.
        """
        return {block: self._locations(block) for block in blocks}

    def _locations(self, block: str) -> dict[str, bool]:
        # Without deep=True Rucio reads a table that a daemon fills now and then.
        listed = methodcaller("list_dataset_replicas", self.scope, block, deep=True)
        rows = self._session.rows(list[BlockReplicaRow], "block_locations", listed)
        return {row.rse: bool(row.length) and row.available_length == row.length for row in rows}

    def files_kept(self, block: str, rule: RuleInfo, among: Collection[str] | None = None) -> set[str]:
        """LFNs of the block's files that a rule on it, or on its container, keeps; with ``among`` at one of these RSEs.

        Names, never numbers: a rule is OK over what Rucio has in the block, which may have lost files, and have others.

        A container's rule may have 100,000 locks: what it keeps of one block are the available copies where its lock is OK.
        """
        operation = "files_kept"
        if rule.did_type == "DATASET":
            rows = self._session.rows(list[LockRow], operation, lambda client: client.list_replica_locks(rule.rule_id))
            return {lock.name for lock in rows if lock.state == _LOCK_OK and (among is None or lock.rse in among)}
        locks = self._session.rows(list[LockRow], operation, lambda client: client.get_dataset_locks(self.scope, block))
        rses = {lock.rse for lock in locks if lock.rule_id == rule.rule_id and lock.state == _LOCK_OK}
        rses = rses if among is None else rses.intersection(among)
        copies = self._replicas([block], operation) if rses else []
        return {row.name for row in copies if any(row.states.get(rse) == AVAILABLE for rse in rses)}

    def file_replicas(self, lfns: Sequence[str]) -> dict[str, list[str]]:
        """RSEs that hold an available copy of each file, sorted; an unknown file has an empty list."""
        locations: dict[str, list[str]] = {lfn: [] for lfn in lfns}
        for batch in _batches(list(locations)):
            for row in self._replicas(batch, "file_replicas"):
                locations[row.name] = sorted(rse for rse, state in row.states.items() if state == AVAILABLE)
        return locations

    def _replicas(self, names: Sequence[str], operation: str, **asked: Any) -> list[FileReplicaRow]:
        """Of files, or of the files of blocks; of these only files that have any."""
        dids = [self._did(name) for name in names]
        # By default Rucio sorts replicas by the client's distance, looking up where that is.
        listed = methodcaller("list_replicas", dids, sort="random", **asked)
        return self._session.rows(list[FileReplicaRow], operation, listed)

    # --- helpers

    def _did(self, name: str) -> dict[str, str]:
        return {"scope": self.scope, "name": name}


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _FILES_PER_CALL] for start in range(0, len(items), _FILES_PER_CALL)]


def _compare(file: RucioFile, row: ContentRow) -> None:
    """A file in the block must be the one to be registered; Rucio compares only when attaching."""
    facts = (("bytes", file.size_bytes, row.bytes), ("adler32", file.adler32.lower(), (row.adler32 or "").lower()))
    for what, wanted, has in facts:
        if has not in (None, "", wanted):
            detail = f"{what} mismatch for {file.lfn!r}: {wanted} to be registered, {has} in Rucio"
            raise ServiceRejected(SERVICE, "register_files", detail, FileConsistencyMismatch.__name__)
