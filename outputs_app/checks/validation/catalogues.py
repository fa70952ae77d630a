"""What DBS, Rucio and our rows say of one block, asked in a few calls each; ``rules`` judges it. Rows are only read."""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, groupby
from typing import Any

from outputs_app.checks.reconciliation.compare import in_dbs, in_rucio
from outputs_app.checks.reconciliation.rows import blocks_expected, rules_by_id
from outputs_app.checks.validation import rules
from outputs_app.checks.validation.rules import Declared, FileFinding, Lumi, LumiFile, Lumis
from outputs_app.effects.invalidation import taken_back
from outputs_app.models import BlockValidation, FindingKind, OutputFile, ProcessingBlock, Validity
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo
from wms2.runtime.json_columns import numbered
from wms2.runtime.sql import sql_rows

#: Splittings of input by which a lumi goes whole, with all its files, to one unit (ADR 0007).
_BY_LUMI = ("LumiBased", "EventAwareLumiBased")
#: Files of other blocks that are read at a time.
_AT_ONCE = 2000
#: Blocks of the dataset of which it is not known yet which lumis their files have: run -> the first and the last.
_SPANS = """
UPDATE block_validations validation SET spans = found.spans FROM (
  SELECT block_id, jsonb_object_agg(run, jsonb_build_array(first, last)) AS spans FROM (
    SELECT file.block_id, runs.key AS run, min((lumi->>0)::bigint) AS first, max((lumi->>0)::bigint) AS last
    FROM block_validations unknown JOIN processing_blocks block ON block.id = unknown.block_id
    JOIN output_files file ON file.block_id = block.id, jsonb_each(file.lumis) runs,
      jsonb_array_elements(CASE WHEN runs.key ~ '^[0-9]+$' THEN runs.value ELSE '[]' END) lumi
    WHERE block.dataset_name = %s AND unknown.spans = '{}' GROUP BY 1, 2) each
  GROUP BY 1) found
WHERE validation.block_id = found.block_id AND validation.spans = '{}'
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at one of them brought, with what is wrong; ``files`` and ``events`` as it has them, where it counts them."""

    findings: Sequence[FileFinding]
    reported: dict[str, Any]


class BlockComparison:
    """A block while it is compared. What our rows say is read once."""

    def __init__(self, block: ProcessingBlock, generation: int, comment: str) -> None:
        self._block, self._generation, self._comment = block, generation, comment
        (self._expected,) = blocks_expected([block])
        self._files = {lfn: file for lfn, file in self._expected.files.items() if file.is_valid}
        self._parents = {lfn: tuple(file.parents) for lfn, file in self._files.items()}

    def dbs(self) -> Seen:
        """Every valid file in DBS, with our counts and lumis, and with its parents; none besides; none empty."""
        outputs, name = factory.dbs().outputs, self._block.dbs_block_name
        known = outputs.block(name)
        files = list(outputs.files(name, valid_only=False, operation="validate")) if known is not None else []
        there = {file.lfn for file in files}
        expected_block = self._expected
        theirs = _by_file((row.lfn, (row.run, row.lumi)) for row in (outputs.file_lumis(name) if there else ()))
        findings = [
            *rules.of_differences(in_dbs(expected_block, known, files)),
            *rules.lumis_differ(self._lumis, {lfn: theirs.get(lfn, frozenset()) for lfn in there}),
            *self._parents_gone(),
            *self._closed(there),
        ]
        counted = [file for file in files if file.is_valid and file.lfn in self._files]
        reported = {
            "files": len(counted),
            "events": sum(file.events for file in counted),
            "lumis": sum(map(len, theirs.values())),
        }
        return Seen(findings, reported)

    def _parents_gone(self) -> Iterator[FileFinding]:
        """Files made from what DBS does not have as valid now. What WMS2 takes back itself is not, whatever DBS says yet."""
        parents = {parent for each in self._parents.values() for parent in each}
        written = list(OutputFile.objects.filter(lfn__in=parents).values_list("lfn", "block__dbs_block_name"))
        read = list(self._block.workflow.input_files.filter(lfn__in=parents).values_list("lfn", "block_name"))
        known = {lfn for lfn, *_ in (*written, *read)}
        valid = valid_in_dbs(parents, known, {block for _, block in written}, {block for _, block in read})
        valid -= taken_back(valid)
        yield from rules.parents_lost(
            self._parents, lambda lfn: valid, FindingKind.PARENT_MISSING, "{} of its parents are not valid"
        )

    def _closed(self, there: set[str]) -> Iterator[FileFinding]:
        """Parents have events, and are named in DBS. Files of a dataset that names its parents there name none of theirs."""
        parents = {parent for each in self._parents.values() for parent in each}
        made_of: dict[str, int] = dict(self._block.workflow.input_files.filter(lfn__in=parents).values_list("lfn", "events"))
        made_of |= OutputFile.objects.filter(lfn__in=parents).values_list("lfn", "events")
        events = {lfn: file.events for lfn, file in self._files.items()}
        yield from rules.empty(events, self._parents, made_of, self._declared)
        named = {lfn: each for lfn, each in self._parents.items() if each and lfn in there}
        if named and not self._block.dataset.registration.get("parents"):
            rows_there = factory.dbs().outputs.file_parents(self._block.dbs_block_name)
            theirs = _by_file((row.lfn, row.parent_lfn) for row in rows_there)
            words = "DBS does not name {} of its parents"
            yield from rules.parents_lost(named, lambda lfn: theirs.get(lfn, ()), FindingKind.CATALOGUE_DIFFERS, words)

    def rucio(self) -> Seen:
        """The block with its files, a copy of each where it is kept, and the rule that keeps it."""
        block, expected_block = self._block, self._expected
        rule = known_rules(self._comment, self._generation, int(time.monotonic() / 60))
        places = {expected_block.place_of(file) for file in self._files.values()} - {""}
        held = factory.rucio().blocks_held({block.dbs_block_name: places}).get(block.dbs_block_name)
        later = block.tape_rule_id or block.dataset.disk_rule_id
        findings = [*rules.of_differences(in_rucio(expected_block, held, rule)), *rules.protected(expected_block, later, rule)]
        return Seen(findings, {"files": len(held.files) if held is not None else 0})

    def lumis(self) -> Seen:
        """No lumi twice in the dataset: over all valid files, of whichever request, and in blocks that are none of ours."""
        name = self._block.dataset_name
        sql_rows(_SPANS, [name])
        mine = [
            LumiFile(file.pk, lfn, self._lumis[lfn], file.unit_id, True, self._parents[lfn], file.events, _counts(file.lumis))
            for lfn, file in self._files.items()
        ]
        spans = rules.spans(self._lumis.values())
        others = BlockValidation.objects.filter(block__dataset_name=name).exclude(pk=self._block.pk)
        known = {each: (pk, theirs) for each, pk, theirs in others.values_list("block__dbs_block_name", "pk", "spans")}
        near = [pk for pk, theirs in known.values() if rules.meet(spans, theirs)]
        there = {block.block_name: block.file_count for block in factory.dbs().outputs.blocks(name)}
        there.pop(self._block.dbs_block_name, None)
        strange = [block for block in sorted(there.keys() - known.keys()) if rules.meet(spans, spans_in_dbs(block, there[block]))]
        unseen = ProcessingBlock.objects.filter(dbs_block_name__in=strange)  # ours, and not validated
        ours = dict(unseen.values_list("dbs_block_name", "pk"))
        near += ours.values()
        strange = [block for block in strange if block not in ours]
        foreign = chain(self._others(near, there, ours), *map(self._strange, strange))
        findings = rules.doubled(mine, foreign, self._declared, Inputs(self._block.workflow))
        return Seen(list(findings), {"blocks": len(there.keys() | known.keys()), "compared": len(near) + len(strange)})

    def _others(self, near: Sequence[uuid.UUID], there: Mapping[str, int], unseen: Collection[str]) -> Iterator[LumiFile]:
        """Valid files of blocks of ours, of this request or another, as our rows or DBS have them (``there``: its blocks, with
        their numbers of files; ``unseen``: never compared by name). What is valid for DBS alone, of a request that was
        cleaned say, has no owner."""
        rows = OutputFile.objects.filter(block__in=near).order_by("block", "id").select_related("block")
        for block, files in groupby(rows.iterator(_AT_ONCE), key=lambda file: file.block.dbs_block_name):
            known, invalid = set(), list[LumiFile]()
            for file in files:
                known.add(file.lfn)
                lumis, parents = _lumis(file.lumis), tuple(file.parents)
                if file.validity == Validity.VALID:
                    own = file.block.workflow_id == self._block.workflow_id
                    yield LumiFile(file.pk, file.lfn, lumis, file.unit_id, own, parents, file.events, _counts(file.lumis))
                else:
                    invalid.append(LumiFile(0, file.lfn, lumis, parents=parents))
            if block in there and (invalid or there[block] != len(known) or block in unseen):
                valid = set(factory.dbs().outputs.valid_lfns(block, "validate"))
                yield from (late for late in invalid if late.lfn in valid)
                if valid - known:
                    yield from (late for late in self._strange(block) if late.lfn not in known)

    def _strange(self, block: str) -> Iterator[LumiFile]:
        """Valid files in DBS, by DBS alone."""
        valid = set(factory.dbs().outputs.valid_lfns(block, "validate"))
        found = _by_file((row.lfn, (row.run, row.lumi)) for row in factory.dbs().outputs.file_lumis(block))
        links = factory.dbs().outputs.file_parents(block) if not self._declared.by_lumi else ()
        parents_of = _by_file((row.lfn, row.parent_lfn) for row in links)
        for lfn in found.keys() & valid:
            yield LumiFile(0, lfn, found[lfn], parents=tuple(parents_of.get(lfn, ())))

    @cached_property
    def _lumis(self) -> dict[str, Lumis]:
        return {lfn: _lumis(file.lumis) for lfn, file in self._files.items()}

    @cached_property
    def _declared(self) -> Declared:
        spec = self._block.workflow.spec
        return Declared(
            by_lumi=spec.get("generation") is not None or spec.get("splitting", {}).get("algorithm") in _BY_LUMI,
            by_file=spec.get("splitting", {}).get("algorithm") == "FileBased",
            in_shares=len(spec.get("tasks", ())) > 1,
            filtered=any(step.get("filter_efficiency", 1.0) < 1.0 for step in spec.get("steps", ())),
            eventless=self._block.dataset_name
            in {each["dataset"] for each in spec.get("outputs", ()) if each.get("merge") == "dqmio"},
        )


class Inputs:
    """From which input the outputs of a workflow were made: by the parents that files name, else by what their unit has claimed.

    Asked only of files that share a lumi with another; what was looked up is kept.
    """

    def __init__(self, workflow: Any) -> None:
        self._files = workflow.input_files
        self._lumis, self._by_run = frozenset[Lumi](), defaultdict[str, list[int]](list)
        self._held: dict[str, tuple[int, str]] = {}  # input file -> its events and its block
        self._sources: dict[tuple[int, str], dict[str, Lumis]] = {}
        self._in_block: dict[str, dict[tuple[str, Lumi], int | None]] = {}

    def ask_of(self, lumis: Set[Lumi]) -> None:
        """As ``rules.Made``."""
        self._lumis, self._by_run = frozenset(lumis), defaultdict[str, list[int]](list)
        for run, lumi in sorted(lumis):
            self._by_run[str(run)].append(lumi)

    def sources(self, file: LumiFile) -> Mapping[str, Lumis]:
        """As ``rules.Made``."""
        key = file.pk, file.lfn
        if key not in self._sources:
            rows = self._files.filter(lfn__in=file.parents)
            if file.is_own and not rows.exists():  # made from outputs of an earlier task
                rows = self._files.filter(claims__unit=file.unit, claims__live=True).distinct()
            found = self._sources[key] = {}
            for lfn, stored, events, block in rows.values_list("lfn", "lumis", "events", "block_name"):
                found[lfn] = self._among(stored)
                self._held[lfn] = events, block
        return self._sources[key]

    def events(self, lfn: str, lumi: Lumi | None = None) -> int | None:
        """As ``rules.Made``: of a file as it was imported, of a lumi as DBS has it."""
        events, block = self._held[lfn]
        if lumi is None:
            return events
        if block not in self._in_block:
            rows = factory.dbs().file_lumis(block)
            asked = (row for row in rows if (row.run, row.lumi) in self._lumis)
            self._in_block[block] = {(row.lfn, (row.run, row.lumi)): row.events for row in asked}
        return self._in_block[block].get((lfn, lumi))

    def files_with(self, lumi: Lumi) -> int:
        """As ``rules.Made``."""
        return self._with[lumi]

    @cached_property
    def _with(self) -> Counter[Lumi]:
        rows = self._files.values_list("lumis", flat=True).iterator(chunk_size=_AT_ONCE)
        return Counter(lumi for stored in rows for lumi in self._among(stored))

    def _among(self, stored: dict[str, list[list[int]]]) -> Lumis:
        """Of the lumis that are asked for those of an input file; stored as intervals by run."""
        found: set[Lumi] = set()
        for run in stored.keys() & self._by_run.keys():
            asked = self._by_run[run]
            for first, last in stored[run]:
                found.update((int(run), lumi) for lumi in asked[bisect_left(asked, first) : bisect_right(asked, last)])
        return frozenset(found)


def _counts(stored: dict[str, list[list[int | None]]]) -> dict[Lumi, int | None]:
    return {(run, lumi): events for run, pairs in numbered(stored) for lumi, events in pairs if lumi is not None}


def valid_in_dbs(lfns: set[str], known: Collection[str], written_in: Iterable[str], read_in: Iterable[str]) -> set[str]:
    """Those of the files that DBS has as valid now, in datasets that are live: what our rows say of them may be old.

    Args:
        known: those in these blocks: ``written_in`` by WMS2, of which the writer is asked, or ``read_in`` as input. Others are
            asked for one by one.
    """
    dbs = factory.dbs()
    found = {lfn for block in sorted(written_in) for lfn in dbs.outputs.valid_lfns(block, "validate")}
    found |= {lfn for block in sorted(read_in) for lfn in dbs.valid_lfns(block, "validate")}
    for lfn in sorted(lfns.difference(known)):
        found |= {file.lfn for file in dbs.known_as(lfn, "validate") if file.is_valid}
    return lfns & found


def _lumis(stored: dict[str, list[list[int]]]) -> Lumis:
    return frozenset((run, lumi) for run, pairs in numbered(stored) for lumi, _ in pairs)


def _by_file(rows: Any) -> dict[str, frozenset[Any]]:
    found: dict[str, set[Any]] = defaultdict(set)
    for lfn, value in rows:
        found[lfn].add(value)
    return {lfn: frozenset(values) for lfn, values in found.items()}


@lru_cache(maxsize=1)
def known_rules(comment: str, generation: int, minute: int) -> Callable[[str], RuleInfo | None]:
    """Rules of a request, for all its blocks that are compared together; asked anew for what is validated again."""
    return rules_by_id(comment)


@lru_cache(maxsize=10_000)
def spans_in_dbs(block_name: str, files: int) -> dict[str, list[int]]:
    """Of a block whose spans no row has; which lumis its files have does not change, others may come while it is open."""
    return rules.spans([frozenset((row.run, row.lumi) for row in factory.dbs().outputs.file_lumis(block_name))])
