"""Which merged files of a unit go with lost ones, and which pieces of its claim go back with them (ADR 0021). Pure.

A merged file holds pieces of the claim whole or, where jobs of a later task divided them, in shares; each output of the unit
holds all of them. What is planned again is made again for all outputs, so every valid file that holds some of it has to go first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dags_app.manifest import Manifest, ManifestProblem, Pieces
from dags_app.planning import lumis
from dags_app.planning.specs import LumiRanges

#: Kinds of claims as ``WorkUnitClaim`` stores them.
GENERATED, FILE_EVENTS, RUN_LUMIS, GENERATED_LUMIS = range(4)


class Piece(NamedTuple):
    """A range of a claim, with both ends. ``of``: the input file's LFN, else the run."""

    kind: int
    of: str
    first: int
    last: int


class Closure(NamedTuple):
    """What is taken back. ``files``: LFN -> the file with which it shares pieces, empty for lost ones; ``pieces``: exactly what
    they hold of the claim; ``lumis``: how many they were made from."""

    files: Mapping[str, str]
    pieces: tuple[Piece, ...]
    lumis: int

    @property
    def events(self) -> int:
        """Of the input, or generated; 0 where work is split by lumi."""
        return sum(piece.last - piece.first + 1 for piece in self.pieces if piece.kind in (GENERATED, FILE_EVENTS))


def closure(manifest: Manifest, *, lost: Collection[str], kept: Collection[str], claims: Sequence[Piece]) -> Closure:
    """The smallest set of a unit's merged files, over all its outputs, that holds the pieces of the lost ones whole.

    Args:
        lost: some of ``kept``.
        kept: LFNs of those of its files that nothing has taken back yet.
        claims: what the unit still claims.

    Raises:
        ManifestProblem: these files do not hold just what is claimed, so nothing can be cut.
    """
    outputs = [{file.lfn: file.pieces for file in output.files if file.lfn in kept} for output in manifest.outputs]
    files = {lfn: pieces for output in outputs for lfn, pieces in output.items()}
    if strange := sorted({*lost, *kept} - files.keys()):
        raise ManifestProblem(f"{manifest.unit}: its manifest does not name {strange[0]}")
    if not manifest.tells_pieces:
        everything = (pair for job in manifest.claimants for pair in job.processed.lumis.items())
        drawn = {lfn: "" if lfn in lost else min(lost) for lfn in files}
        return Closure(drawn, tuple(claims), _count(everything))
    keys = sorted({(claim.kind, claim.of) for claim in claims})
    numbers = {key: number for number, key in enumerate(keys)}
    claimed = lumis.from_intervals((numbers[claim.kind, claim.of], claim.first, claim.last) for claim in claims)
    held = {lfn: _ranges(pieces, numbers) for lfn, pieces in files.items() if pieces is not None}
    # of a file that a mask cuts events are counted, not named: one job reads all that is wanted of it, and it is claimed whole
    read = lumis.union(*held.values())
    masked = {n for n, (kind, _) in enumerate(keys) if kind == FILE_EVENTS and n in read and read[n] != claimed[n]}
    held = {lfn: {n: claimed[n] if n in masked else spans for n, spans in each.items()} for lfn, each in held.items()}
    for output in outputs:
        if lumis.union(*(held[lfn] for lfn in output)) != claimed:
            raise ManifestProblem(
                f"{manifest.unit}: the files of an output do not hold what the unit claims, so it cannot be cut"
            )
    drawn = _grow(held, lost)
    given = lumis.union(*(held[lfn] for lfn in drawn))
    pieces = tuple(Piece(*keys[number], first, last) for number, first, last in lumis.iterate(given))
    made_from = [each for lfn in drawn if (each := files[lfn]) is not None]
    return Closure(drawn, pieces, _count(pair for each in made_from for pair in each.lumis.items()))


def _grow(held: Mapping[str, LumiRanges], lost: Collection[str]) -> dict[str, str]:
    drawn = dict.fromkeys(sorted(lost), "")
    waiting = list(drawn)
    while waiting:
        lfn = waiting.pop()
        for other in held.keys() - drawn.keys():
            if lumis.intersect(held[lfn], held[other]):
                drawn[other] = lfn
                waiting.append(other)
    return drawn


def _ranges(pieces: Pieces, numbers: Mapping[tuple[int, str], int]) -> LumiRanges:
    kinds = {kind for kind, _ in numbers}
    found = [piece for piece in _pieces(pieces) if piece.kind in kinds]
    if strange := [piece for piece in found if (piece.kind, piece.of) not in numbers]:
        raise ManifestProblem(f"a merged file holds what its unit does not claim: {strange[0]}")
    return lumis.from_intervals((numbers[piece.kind, piece.of], piece.first, piece.last) for piece in found)


def _pieces(pieces: Pieces) -> Iterator[Piece]:
    for made in pieces.generated:
        yield Piece(GENERATED, str(made.run), made.first_event, made.last_event)
    for file in pieces.files:
        first = file.first_event or 0
        yield Piece(FILE_EVENTS, file.lfn, first, first + max(file.events, 1) - 1)  # a file without events claims 0..0
    for run, spans in pieces.lumis.items():
        for first, last in spans:
            yield Piece(RUN_LUMIS, str(run), first, last)
            yield Piece(GENERATED_LUMIS, str(run), first, last)


def _count(by_run: Iterable[tuple[int, list[tuple[int, int]]]]) -> int:
    return lumis.count(lumis.from_intervals((run, first, last) for run, spans in by_run for first, last in spans))
