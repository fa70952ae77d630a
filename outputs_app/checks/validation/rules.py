"""What is wrong with the files of a registered block. Pure.

What reconciliation judges of DBS and Rucio is judged by its own comparison; here is what else a block must be before it counts.
Sizes and checksums in Rucio are what WMS2 registered and prove nothing: those of the storage count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

from outputs_app.checks.reconciliation.compare import MOST_WORDS, ExpectedBlock, Finding
from outputs_app.models import DriftKind, FindingKind
from wms2.adapters.rucio_types import RuleInfo, RuleState

K, P = DriftKind, FindingKind
Lumi = tuple[int, int]
#: (run, lumi) of a file.
Lumis = frozenset[Lumi]
#: Run -> first and last lumi of many files.
Spans = Mapping[str, Sequence[int]]
#: What each difference, as reconciliation words it, means for the file or the block.
MEANS: dict[DriftKind, FindingKind] = {
    kind: prognosis
    for prognosis, kinds in {
        P.NOT_IN_CATALOGUE: (K.DBS_BLOCK_MISSING, K.DBS_FILE_MISSING, K.RUCIO_BLOCK_MISSING, K.RUCIO_FILE_MISSING),
        P.CATALOGUE_DIFFERS: (
            K.DBS_BLOCK_OPEN, K.DBS_BLOCK_COUNTS, K.DBS_FILE_INVALID, K.DBS_FILE_DIFFERS,
            K.RUCIO_BLOCK_OPEN, K.RUCIO_FILE_DIFFERS,
        ),
        P.UNKNOWN_FILE: (K.DBS_FILE_EXTRA, K.RUCIO_FILE_EXTRA),
        P.MISSING_REPLICA: (K.REPLICA_MISSING, K.REPLICA_UNAVAILABLE),
        P.UNPROTECTED: (K.RULE_GONE, K.RULE_ELSEWHERE),
    }.items()
    for kind in kinds
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileFinding:
    """What is wrong with one file, or with the block itself, by its name."""

    name: str
    prognosis: FindingKind
    expected: str
    found: str


class Declared(NamedTuple):
    """What the request says of its work. ``by_lumi``: a lumi goes whole to one unit; ``by_file``: a file of its input does;
    neither: a file is divided by events. ``in_shares``: what goes to one unit may be divided over the unit's merged files;
    ``filtered``: a step keeps only some of its events, so a file may be left with none; ``eventless``: the dataset is DQMIO,
    which holds none.
    """

    by_lumi: bool
    in_shares: bool
    filtered: bool
    eventless: bool = False
    by_file: bool = False


@dataclass(frozen=True, slots=True)
class LumiFile:
    """A valid file of the dataset, of any writer. ``is_own``: of the block's request; a younger has a higher ``pk``.

    ``counts``: events of its lumis, where they are known; ``events``: all of it; ``parents`` as it names them, if it does.
    """

    pk: int
    lfn: str
    lumis: Lumis
    unit: int = 0
    is_own: bool = False
    parents: tuple[str, ...] = ()
    events: int = 0
    counts: Mapping[Lumi, int | None] = field(default_factory=dict, compare=False)


class Made(Protocol):
    """What is known, from catalogues and claims, of the input from which output files were made."""

    def ask_of(self, lumis: Set[Lumi]) -> None:
        """These lumis are asked for from now on."""

    def sources(self, file: LumiFile) -> Mapping[str, Lumis]:
        """Input files it was made from, with those of the lumis that they hold; none: it is not known."""

    def events(self, lfn: str, lumi: Lumi | None = None) -> int | None:
        """Of an input file, or of one lumi of it; None: not known."""

    def files_with(self, lumi: Lumi) -> int:
        """Files of the whole input that hold the lumi."""


def of_differences(findings: Iterable[Finding]) -> Iterator[FileFinding]:
    """The same, as prognoses."""
    for finding in findings:
        yield FileFinding(finding.name, MEANS[finding.kind], finding.expected, finding.found)


def protected(block: ExpectedBlock, later: str, rule: Callable[[str], RuleInfo | None]) -> Iterator[FileFinding]:
    """Rules that are there and not OK: those of the files, or what has replaced them. ``later``: the rule that keeps them once
    the source rules have ended; empty: none is known, and nothing is said of it."""
    rules: dict[str, str] = {}
    for lfn, file in block.files.items():
        rule_id = file.rule_id or block.row.source_rule_id or later
        if file.is_valid and rule_id:
            rules.setdefault(rule_id, lfn if file.rule_id else block.row.dbs_block_name)
    for rule_id, name in rules.items():
        known = rule(rule_id)
        if known is not None and known.state is not RuleState.OK:
            words = f"rule {rule_id} at {known.rse_expression} is {known.state}: {known.error}".rstrip(": ")
            yield FileFinding(name, P.UNPROTECTED, "OK", words[:MOST_WORDS])


def lumis_differ(ours: Mapping[str, Lumis], theirs: Mapping[str, Lumis]) -> Iterator[FileFinding]:
    """Of files that both have."""
    for lfn in ours.keys() & theirs.keys():
        mine, found = ours[lfn], theirs[lfn]
        if mine != found:
            less, more = (_first(each) for each in (mine - found, found - mine))
            words = f"{len(found)} lumis" + (f"; without {less}" if less else "") + (f"; with {more}" if more else "")
            yield FileFinding(lfn, P.CATALOGUE_DIFFERS, f"{len(mine)} lumis", words)


def _first(lumis: Lumis) -> str:
    return ":".join(map(str, min(lumis))) if lumis else ""


def parents_lost(
    parents: Mapping[str, Collection[str]], found: Callable[[str], Collection[str]], prognosis: FindingKind, words: str
) -> Iterator[FileFinding]:
    """Files with parents that are not among the ones found for the file; ``words`` with their number."""
    for lfn, each in parents.items():
        if lost := set(each) - set(found(lfn)):
            yield FileFinding(lfn, prognosis, f"made from {min(lost)}", words.format(len(lost)))


def empty(
    events: Mapping[str, int], parents: Mapping[str, Collection[str]], read: Mapping[str, int], declared: Declared
) -> Iterator[FileFinding]:
    """Files without events, unless a filter was declared, or what they were made from (``read``: events) has none either."""
    for lfn, number in events.items():
        made_of_nothing = bool(parents[lfn]) and not any(read.get(parent, 1) for parent in parents[lfn])
        if not number and not declared.filtered and not declared.eventless and not made_of_nothing:
            yield FileFinding(lfn, P.ZERO_EVENTS, "events", "none, and no filter was declared")


def spans(files: Iterable[Lumis]) -> dict[str, list[int]]:
    """Which lumis they have at most: run -> the first and the last."""
    found: dict[str, list[int]] = {}
    for run, lumi in (each for lumis in files for each in lumis):
        span = found.setdefault(str(run), [lumi, lumi])
        span[:] = min(span[0], lumi), max(span[1], lumi)
    return found


def meet(mine: Spans, others: Spans) -> bool:
    """Whether there may be a lumi in both."""
    return any(run in others and span[0] <= others[run][1] and others[run][0] <= span[1] for run, span in mine.items())


def doubled(mine: Sequence[LumiFile], others: Iterable[LumiFile], declared: Declared, made: Made) -> Iterator[FileFinding]:
    """Lumis that two valid files have and may not have; of two files of the request the younger is named.

    A lumi that is dealt whole is in no other request's files, and in those of one unit; in one of these, if no later task has
    divided it. What is dealt by file or by events may rightly share one, as ``made`` shows: see ``_is_doubled``.
    """
    holders: dict[tuple[int, int], list[LumiFile]] = defaultdict(list)
    for file in mine:
        for lumi in file.lumis:
            holders[lumi].append(file)
    twice: dict[tuple[LumiFile, LumiFile], set[Lumi]] = defaultdict(set)
    own: dict[Lumi, list[LumiFile]] = defaultdict(list)
    for other in chain(others, mine):
        for lumi in other.lumis & holders.keys():
            if other.is_own:
                own[lumi].append(other)
            for file in holders[lumi]:
                if not other.is_own or (other.pk < file.pk and (file.unit != other.unit or not declared.in_shares)):
                    twice[file, other].add(lumi)
    if twice and not declared.by_lumi:
        made.ask_of(set().union(*twice.values()))
    for (file, other), shared in twice.items():
        lumis = {lumi for lumi in shared if declared.by_lumi or _is_doubled(file, other, lumi, own[lumi], declared, made)}
        if lumis:
            found = f"{len(lumis)} are in {other.lfn} too, first {_first(frozenset(lumis))}"
            yield FileFinding(file.lfn, P.DUPLICATE_LUMI, "no lumi twice", found[:MOST_WORDS])


def _is_doubled(file: LumiFile, other: LumiFile, lumi: Lumi, own: Sequence[LumiFile], declared: Declared, made: Made) -> bool:
    """Of work that is not dealt by lumi: whether a lumi in two files must have been read twice.

    An input file is dealt whole to one unit, or to one request where it is divided by events: two files made from one that has
    the lumi have it twice. From different ones they have a share each. Where that is not known, it is twice if only one input
    file has the lumi. Files of one request that are divided by events may share it (``own``), and have no more events together
    than what they were made from: of the lumi, or, where lumis are not counted, of the files; the one that goes beyond is named.
    """
    one, two = made.sources(file), made.sources(other)
    of_one, of_two = ({lfn for lfn, held in each.items() if lumi in held} for each in (one, two))
    if declared.by_file or not other.is_own:
        return bool(of_one & of_two) if of_one and of_two else made.files_with(lumi) <= 1
    if not of_one or not of_two:
        return False
    beside = [each for each in own if each.pk <= file.pk and any(lumi in made.sources(each).get(lfn, ()) for lfn in of_one)]
    return _has_more(lumi, (file, other), made) or _has_more(lumi, beside, made)


def _has_more(lumi: Lumi, files: Sequence[LumiFile], made: Made) -> bool:
    """Whether the files have more events of the lumi, or in all, than what they were made from."""
    held = {lfn: lumis for each in files for lfn, lumis in made.sources(each).items()}
    there = _sum(made.events(lfn, lumi) for lfn, lumis in held.items() if lumi in lumis)
    written = _sum(each.counts.get(lumi) for each in files)
    if there is None or written is None:
        there, written = _sum(map(made.events, held)), sum(each.events for each in files)
    return there is not None and written > there


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
