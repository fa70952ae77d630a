"""DBS, Rucio and ConfigCache as WMS2's adapters show them, kept in memory, failing as scripted.

They keep the guards of the real ones (a closed block takes no files, a file is in one block) and can be asked what they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from tests.support.scripted.documents import CONFIGS
from tests.support.scripted.faults import Script
from wms2.adapters.dbs_payloads import stored_otherwise
from wms2.adapters.rucio import AVAILABLE
from wms2.adapters.rucio_types import HeldBlock, HeldFile, LockRow, RucioFile, RuleState
from wms2.adapters.types import (
    BlockInfo,
    BlockSpec,
    ConfigDocument,
    DatasetInfo,
    DbsFile,
    DbsFileInfo,
    FileLumi,
    FileParent,
    OutputConfig,
)
from wms2.conf import conf
from wms2.errors import NotFoundInService, ServiceRejected
from wms2.runtime import clock


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a scripted input dataset; ten events a lumi, in run 1, unless its lumis are ``held``; ``counts`` of events."""

    lfn: str
    events: int
    first_lumi: int
    held: tuple[tuple[int, int], ...] | None = None
    parents: tuple[str, ...] = ()
    counts: tuple[int | None, ...] | None = None

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Its (run, lumi)."""
        return list(self.held) if self.held is not None else [(1, lumi) for lumi in self.lumis]

    @property
    def lumis(self) -> list[int]:
        """Its luminosity sections, one at least."""
        return list(range(self.first_lumi, self.first_lumi + max(1, -(-self.events // 10))))


@dataclass
class Source:
    """An input dataset: block -> its files; block -> RSEs that have it; parent file -> RSEs that hold it.

    ``lost``: file -> RSEs that have its block and not the file. ``invalid``: files that DBS has as INVALID.
    """

    blocks: dict[str, list[SourceFile]] = field(default_factory=dict)
    locations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lost: dict[str, tuple[str, ...]] = field(default_factory=dict)
    access_type: str = "VALID"
    invalid: set[str] = field(default_factory=set)

    def rses(self, block: str) -> dict[str, bool]:
        """RSEs of a block, and whether they have all of it."""
        gone = {rse for file in self.blocks[block] for rse in self.lost.get(file.lfn, ())}
        return {rse: rse not in gone for rse in self.locations.get(block, ())}

    def replicas(self) -> Iterator[tuple[str, set[str]]]:
        """RSEs of each file of the dataset, and of its parents."""
        yield from ((lfn, set(rses)) for lfn, rses in self.parents.items())
        for block, files in self.blocks.items():
            for file in files:
                yield file.lfn, set(self.locations.get(block, ())) - set(self.lost.get(file.lfn, ()))

    def files(self) -> Iterator[SourceFile]:
        """All files."""
        for files in self.blocks.values():
            yield from files


@dataclass
class _Block:
    dataset: str
    files: dict[str, DbsFile] = field(default_factory=dict)
    origin: str = ""


class ScriptedDbs:
    """Reads of ``sources``; registration into ``registered``."""

    def __init__(self, script: Script, sources: dict[str, Source]) -> None:
        self.script, self.sources = script, sources
        self.datasets: set[str] = set()
        self.registered: dict[str, _Block] = {}
        self.invalid: set[str] = set()
        self.access: dict[str, str] = {}
        self.configs: dict[OutputConfig, OutputConfig] = {}
        self.foreign_files: dict[str, str] = {}  # a valid file that others have put into our datasets

    # --- inputs

    def dataset(self, name: str) -> DatasetInfo | None:
        def act() -> DatasetInfo | None:
            return DatasetInfo(name, self.sources[name].access_type, "data") if name in self.sources else None

        return self.script.call("dataset", act)

    def blocks(self, dataset: str) -> Iterator[BlockInfo]:
        rows = [BlockInfo(name, False, len(files), 1, "") for name, files in self.sources[dataset].blocks.items()]
        return iter(self.script.call("blocks", lambda: rows))

    def files(self, name: str, valid_only: bool = True) -> Iterator[DbsFileInfo]:
        def act() -> list[DbsFileInfo]:
            source = self.sources[name.partition("#")[0]]
            rows = [
                DbsFileInfo(f.lfn, block, 1000 + f.events, f.lfn not in source.invalid, f.events, "0000000a")
                for block in ([name] if "#" in name else source.blocks)
                for f in self._source_block(block)
            ]
            live = source.access_type in ("VALID", "PRODUCTION")
            return [row for row in rows if not valid_only or (row.is_valid and live)]

        return iter(self.script.call("files", act))

    def valid_lfns(self, name: str, operation: str = "") -> Iterator[str]:
        return (file.lfn for file in self.files(name))

    def known_as(self, lfn: str, operation: str) -> Iterator[DbsFileInfo]:
        return iter(file for name in self.sources for file in self.files(name, False) if file.lfn == lfn)

    def file_lumis(self, block_name: str) -> Iterator[FileLumi]:
        rows = [
            FileLumi(f.lfn, run, lumi, count)
            for f in self._source_block(block_name)
            for (run, lumi), count in zip(f.pairs, f.counts or [None] * len(f.pairs), strict=True)
        ]
        return iter(self.script.call("file_lumis", lambda: rows))

    def file_parents(self, block_name: str) -> Iterator[FileParent]:
        rows = [FileParent(f.lfn, parent) for f in self._source_block(block_name) for parent in f.parents]
        return iter(self.script.call("file_parents", lambda: rows))

    def _config_of_file(self, sent: OutputConfig) -> OutputConfig:
        """The server finds it by all but the release: of those that differ in it alone, the one that was there first."""
        return self.configs.setdefault(replace(sent, release_version=""), sent)

    def configs_of_dataset(self, name: str) -> list[OutputConfig]:
        held = (block for block in self.registered.values() if block.dataset == name)
        return list({file.output_config for block in held for file in block.files.values()})

    def _source_block(self, name: str) -> list[SourceFile]:
        return self.sources[name.partition("#")[0]].blocks[name]

    # --- outputs

    def register_block(self, block: BlockSpec) -> tuple[str, ...]:
        def act() -> tuple[str, ...]:
            known = self.registered.get(block.block_name)
            if known is not None and known.files != {file.lfn: file._replace(is_valid=True) for file in block.files}:
                raise ServiceRejected("dbs", "register_block", f"{block.block_name} is registered with other files")
            for file in block.files:
                others = {name: held.files for name, held in self.registered.items() if name != block.block_name}
                elsewhere = [name for name, files in others.items() if file.lfn in files]
                if elsewhere:
                    raise ServiceRejected("dbs", "register_block", f"{file.lfn} is in {elsewhere}")
            if self.access.get(block.dataset.dataset, "PRODUCTION") not in ("PRODUCTION", "VALID"):
                raise ServiceRejected("dbs", "register_block", f"{block.dataset.dataset} exists as {self.access}")
            self.datasets.add(block.dataset.dataset)
            sent = {file.lfn: file._replace(is_valid=True) for file in block.files}
            self.registered[block.block_name] = _Block(block.dataset.dataset, sent, block.origin_site)
            return stored_otherwise(block, [self._config_of_file(block.files[0].output_config)])

        return self.script.call("register_block", act, block.block_name)

    def block_files(self, block_name: str) -> list[DbsFileInfo]:
        return self.script.call("block_files", lambda: self.files_of(block_name), block_name)

    def files_of(self, block_name: str) -> list[DbsFileInfo]:
        block = self.registered.get(block_name, _Block(""))
        return [
            DbsFileInfo(f.lfn, block_name, f.size_bytes, f.lfn not in self.invalid, f.events, f.adler32)
            for f in block.files.values()
        ]

    @property
    def outputs(self) -> ScriptedOutputs:
        """How validation and comparisons read what was registered."""
        return ScriptedOutputs(self)

    def invalidate_files(self, lfns: Iterable[str]) -> int:
        wanted = list(lfns)

        def act() -> int:
            self.invalid.update(wanted)
            return len(wanted)

        return self.script.call("invalidate_files", act, ",".join(wanted))

    def valid_file(self, dataset: str) -> str:
        def act() -> str:
            held = {lfn for block in self.registered.values() if block.dataset == dataset for lfn in block.files}
            return min(held - self.invalid, default=self.foreign_files.get(dataset, ""))

        return self.script.call("valid_file", act)

    def turn_dataset(self, dataset: str, before: str, after: str) -> str:
        def act() -> str:
            if dataset in self.datasets and self.access.get(dataset, "PRODUCTION") == before:
                self.access[dataset] = after
            return self.access.get(dataset, "PRODUCTION") if dataset in self.datasets else ""

        return self.script.call("turn_dataset", act, dataset)

    def set_dataset_access_type(self, dataset: str, access_type: str) -> None:
        def act() -> None:
            if dataset not in self.datasets:
                raise NotFoundInService("dbs", "set_dataset_access_type", f"{dataset} does not exist")
            self.access[dataset] = access_type

        self.script.call("set_dataset_access_type", act, dataset)


@dataclass(frozen=True, slots=True)
class ScriptedOutputs:
    """What DBS tells of outputs."""

    dbs: ScriptedDbs

    def block(self, name: str) -> BlockInfo | None:
        held = self.dbs.registered.get(name)
        sizes = [file.size_bytes for file in held.files.values()] if held is not None else []
        reported = BlockInfo(name, False, len(sizes), sum(sizes), "") if held is not None else None
        return self.dbs.script.call("output_block", lambda: reported)

    def blocks(self, dataset: str) -> list[BlockInfo]:
        names = [name for name, held in self.dbs.registered.items() if held.dataset == dataset]
        return [block for name in names if (block := self.block(name)) is not None]

    def file_lumis(self, name: str) -> list[FileLumi]:
        files = self.dbs.registered[name].files.values()
        rows = [FileLumi(f.lfn, run, lumi, n) for f in files for run, pairs in f.lumis.items() for lumi, n in pairs]
        return self.dbs.script.call("output_lumis", lambda: rows)

    def file_parents(self, name: str) -> list[FileParent]:
        rows = [FileParent(f.lfn, parent) for f in self.dbs.registered[name].files.values() for parent in f.parents]
        return self.dbs.script.call("output_parents", lambda: rows)

    def files(self, name: str, *, valid_only: bool = True, operation: str) -> list[DbsFileInfo]:
        files = self.dbs.files_of(name)
        return self.dbs.script.call("output_files", lambda: [file for file in files if file.is_valid or not valid_only])

    def valid_lfns(self, name: str, operation: str) -> list[str]:
        return [file.lfn for file in self.files(name, operation=operation)]


@dataclass
class _RucioBlock:
    files: dict[str, RucioFile] = field(default_factory=dict)
    open: bool = True


@dataclass
class OthersRule:
    """A rule of another account on a block or container at one RSE. ``locks``: files of it that are there."""

    rule_id: str
    account: str
    name: str
    rse: str
    locks: set[str] = field(default_factory=set)
    ends: bool = False


class ScriptedRucio:
    """Blocks with files, and rules of ours: (name, RSE) -> ids; and of ``others``."""

    def __init__(self, script: Script, sources: dict[str, Source]) -> None:
        self.script, self.sources = script, sources
        self.containers: dict[str, set[str]] = {}
        self.held: dict[str, _RucioBlock] = {}
        self.replicas: dict[str, set[str]] = {}
        self.rules: dict[tuple[str, str], list[str]] = {}
        self.others: dict[str, OthersRule] = {}
        self.ruled: set[tuple[str, str]] = set()  # copies of files that have had a rule: without one they may go
        self.made = 0

    def block_locations(self, blocks: Sequence[str]) -> dict[str, dict[str, bool]]:
        def act() -> dict[str, dict[str, bool]]:
            return {b: self._whole(b) if b in self.held else self.sources[b.partition("#")[0]].rses(b) for b in blocks}

        return self.script.call("block_locations", act)

    def _whole(self, block: str) -> dict[str, bool]:
        """RSEs that have files of a block of ours -> whether all of them."""
        copies = [self.replicas[lfn] for lfn in self.held[block].files]
        return {rse: all(rse in there for there in copies) for rse in set().union(*copies)}

    def file_replicas(self, lfns: Sequence[str]) -> dict[str, list[str]]:
        def act() -> dict[str, list[str]]:
            known = dict(pair for source in self.sources.values() for pair in source.replicas())
            return {lfn: sorted(known.get(lfn, self.replicas.get(lfn, ()))) for lfn in lfns}

        return self.script.call("file_replicas", act)

    def ensure_container(self, dataset: str, project: str = "") -> None:
        self.script.call("ensure_container", lambda: self.containers.setdefault(dataset, set()))

    def ensure_block(self, dataset: str, block: str, project: str = "") -> None:
        def act() -> None:
            self.containers.setdefault(dataset, set()).add(block)
            self.held.setdefault(block, _RucioBlock())

        self.script.call("ensure_block", act, block)

    def register_files(self, rse: str, block: str, files: Sequence[RucioFile]) -> None:
        def act() -> None:
            held = self.held[block]
            new = [f for f in files if f.lfn not in held.files]
            if new and not held.open:
                raise ServiceRejected("rucio", "register_files", f"{block} is closed", "UnsupportedOperation")
            for file in files:
                self.replicas.setdefault(file.lfn, set()).add(rse)
                held.files[file.lfn] = file

        self.script.call("register_files", act, ",".join(sorted(f.lfn for f in files)))

    def protect_files(self, rse: str, lfns: Sequence[str], comment: str, activity: str = "") -> dict[str, str]:
        def act() -> dict[str, str]:
            missing = [lfn for lfn in lfns if rse not in self.replicas.get(lfn, set())]
            if missing:
                raise ServiceRejected("rucio", "protect_files", f"{missing[0]} is not at {rse}", "DataIdentifierNotFound")
            return {lfn: self._rule(lfn, rse) for lfn in lfns}

        return self.script.call("protect_files", act, ",".join(sorted(lfns)))

    def detach_files(self, block: str, lfns: Iterable[str]) -> int:
        wanted = list(lfns)
        held = self.held.get(block, _RucioBlock())
        return self.script.call("detach_files", lambda: sum(held.files.pop(lfn, None) is not None for lfn in wanted))

    def close_block(self, block: str) -> None:
        def act() -> None:
            if block not in self.held:
                raise NotFoundInService("rucio", "close_block", f"{block} does not exist")
            self.held[block].open = False

        self.script.call("close_block", act, block)

    def choose_tape_rse(self, expression: str, key: str) -> str:
        return self.script.call("choose_tape_rse", lambda: "T1_US_FNAL_Tape")

    def rses(self, expression: str) -> set[str]:
        return self.script.call("rses", lambda: {"T1_US_FNAL_Tape"})

    def tapes(self) -> set[str]:
        return self.rses("rse_type=TAPE")

    def tape_rules_over(self, block: str, container: str) -> list[Any]:
        def act() -> list[Any]:
            names = (block, container)
            ours = [
                self._reported(ids[0], *key) for key, ids in self.rules.items() if key[0] in names and key[1].endswith("_Tape")
            ]
            others = [rule for rule in self.others.values() if rule.name in names and rule.rse.endswith("_Tape")]
            return ours + [self._told_of(rule) for rule in others if not rule.ends]

        return self.script.call("tape_rules_over", act)

    def block_rules_ok(self, comment: str) -> set[str]:
        return {rule.rule_id for rule in self.rules_with_comment(comment)}

    def blocks_kept(self, blocks: Sequence[str]) -> dict[str, list[LockRow]]:
        """Of a source a rule of another account keeps every whole copy."""

        def act() -> dict[str, list[LockRow]]:
            kept: dict[str, list[LockRow]] = {block: [] for block in blocks}
            for block in blocks:
                dataset = block.partition("#")[0]
                whole = self.sources[dataset].rses(block).items() if dataset in self.sources else ()
                rules = [
                    (rse, ids[0])
                    for (name, rse), ids in self.rules.items()
                    if dataset in self.sources and name in (block, dataset)
                ]
                found = [*((rse, "another's") for rse, complete in whole if complete), *rules]
                kept[block] += [LockRow(name=block, rse=rse, rule_id=rule, state="OK") for rse, rule in found]
            held = {(name, rse): ids for (name, rse), ids in self.rules.items() if name in kept and name in self.held}
            ours = [(name, rse, ids[0], set(self.held[name].files)) for (name, rse), ids in held.items()]
            for name, rse, rule_id, locks in [*ours, *((r.name, r.rse, r.rule_id, r.locks) for r in self.others.values())]:
                for block in kept.keys() & self.blocks_under(name):
                    if self.held[block].files.keys() <= locks:
                        kept[block].append(LockRow(name=block, rse=rse, rule_id=rule_id, state="OK"))
            return kept

        return self.script.call("blocks_kept", act)

    def files_kept(self, block: str, rule: Any, among: Collection[str] | None = None) -> set[str]:
        def act() -> set[str]:
            others = self.others.get(rule.rule_id)
            inside = set(self.held[block].files) if block in self.blocks_under(rule.name) else set()
            return inside & others.locks if others else inside

        return self.script.call("files_kept", act)

    def blocks_under(self, name: str) -> set[str]:
        """The blocks of a container, or the block itself."""
        return {name} & self.held.keys() if "#" in name else self.containers.get(name, set()) & self.held.keys()

    def kept_by(self, name: str) -> set[str]:
        """Files that a rule on this file, block or container keeps; Rucio evaluates at once what was detached."""
        if "#" not in name and name not in self.containers:
            return {name}
        return {lfn for block in self.blocks_under(name) for lfn in self.held[block].files}

    def kept_at(self, rse: str) -> set[str]:
        """Files that rules of ours keep there."""
        return {lfn for name, place in self.rules if place == rse for lfn in self.kept_by(name)}

    # --- what others do: neighbours with accounts of their own, Rucio's daemons

    def rule_of_others(self, account: str, name: str, rse: str) -> str:
        """A rule is found again by account, name and expression; its files are there once they were transferred."""
        known = [rule.rule_id for rule in self.others.values() if (rule.account, rule.name, rule.rse) == (account, name, rse)]
        rule_id = known[0] if known else f"{account}-{len(self.others)}"
        self.others.setdefault(rule_id, OthersRule(rule_id, account, name, rse))
        return rule_id

    def transfer(self) -> None:
        """What rules of others want arrives, where there is a copy to take it from."""
        for rule in self.others.values():
            for lfn in (lfn for block in self.blocks_under(rule.name) for lfn in self.held[block].files):
                if self.replicas.get(lfn) and not rule.ends:
                    rule.locks.add(lfn)
                    self.replicas[lfn].add(rule.rse)
                    self.ruled.add((lfn, rule.rse))

    def clean(self) -> list[tuple[str, str]]:
        """Rules that end are gone, and copies that had a rule and have none are deleted at once; which copies."""
        for rule_id in [rule_id for rule_id, rule in self.others.items() if rule.ends]:
            del self.others[rule_id]
        kept = {(lfn, rule.rse) for rule in self.others.values() for lfn in rule.locks}
        kept |= {(lfn, rse) for name, rse in self.rules for lfn in self.kept_by(name)}
        self.ruled |= kept
        gone = [(lfn, rse) for lfn, rses in self.replicas.items() for rse in rses if (lfn, rse) in self.ruled - kept]
        for lfn, rse in gone:
            self.replicas[lfn].discard(rse)
        return gone

    def tape_rule(self, block: str, rse: str, comment: str, activity: str = "") -> str:
        return self.script.call("tape_rule", lambda: self._rule(block, rse), block)

    def block_rule(self, block: str, rse: str, comment: str, activity: str = "") -> str:
        def act() -> str:
            assert self._whole(block).get(rse), f"{block} is copied to {rse}"
            return self._rule(block, rse)

        return self.script.call("block_rule", act, block)

    def rules_with_comment(self, comment: str) -> list[Any]:
        def act() -> list[Any]:
            return [self._reported(ids[0], name, rse) for (name, rse), ids in self.rules.items()]

        return self.script.call("rules_with_comment", act)

    def rule(self, rule_id: str) -> Any:
        def act() -> Any:
            for (name, rse), ids in self.rules.items():
                if ids[0] == rule_id:
                    return self._reported(rule_id, name, rse)
            if rule_id in self.others:
                return self._told_of(self.others[rule_id])
            raise NotFoundInService("rucio", "rule", f"{rule_id} does not exist")

        return self.script.call("rule", act)

    def _reported(self, rule_id: str, name: str, rse: str) -> Any:
        return SimpleNamespace(
            rule_id=rule_id,
            account=conf().rucio_account,
            name=name,
            rse_expression=rse,
            state=RuleState.OK,
            error="",
            expires_at=None,
            locks_stuck=0,
        )

    def _told_of(self, rule: OthersRule) -> Any:
        state = RuleState.OK if all(rule.locks >= self.held[b].files.keys() for b in self.blocks_under(rule.name)) else None
        ends_at = clock.now() if rule.ends else None
        reported = vars(self._reported(rule.rule_id, rule.name, rule.rse))
        changed = {"account": rule.account, "state": state or RuleState.REPLICATING, "expires_at": ends_at}
        return SimpleNamespace(**{**reported, **changed})

    def blocks_held(self, places: Mapping[str, Collection[str]]) -> dict[str, HeldBlock]:
        def held(block: _RucioBlock) -> HeldBlock:
            copies = {lfn: dict.fromkeys(self.replicas[lfn], AVAILABLE) for lfn in block.files}
            files = {lfn: HeldFile(file.size_bytes, file.adler32, copies[lfn]) for lfn, file in block.files.items()}
            return HeldBlock(block.open, files)

        return self.script.call("blocks_held", lambda: {name: held(self.held[name]) for name in places if name in self.held})

    def delete_rule(self, rule_id: str, purge: bool = False) -> bool:
        def act() -> bool:
            known = [key for key, ids in self.rules.items() if ids == [rule_id]]
            for key in known:
                del self.rules[key]
            return bool(known)

        return self.script.call("delete_rule", act, rule_id)

    def _rule(self, name: str, rse: str) -> str:
        self.made += (name, rse) not in self.rules
        return self.rules.setdefault((name, rse), [f"rule-{self.made}"])[0]


class ScriptedConfigCache:
    """The documents of ``documents.CONFIGS``."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def problem(self, base_url: str) -> str | None:
        return None

    def config(self, base_url: str, database: str, config_id: str) -> ConfigDocument:
        return self.script.call("config", lambda: CONFIGS[config_id])
