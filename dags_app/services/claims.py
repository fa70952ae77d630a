"""Whether a manifest equals its unit's claims (docs/design/model.md, A unit is done), and its merged files hold just that; and
cutting the claims of a unit that is done.

Comparing only raises: ``LedgerViolation`` for work that was not claimed or done twice, ``ManifestProblem`` for what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

from dags_app.manifest import Manifest, ManifestOutput, ManifestProblem, ProcessedFile
from dags_app.models import WorkUnit, WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.closure import Piece
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import LumiRanges
from dags_app.services.plan import ClaimRow, claims_record
from wms2.errors import LedgerViolation

Intervals = tuple[tuple[int, int], ...]


def claims_of(unit_ids: Collection[int]) -> dict[int, list[WorkUnitClaim]]:
    """The live claims of each of the units, with their input files, in the order in which they were planned; one statement."""
    found: dict[int, list[WorkUnitClaim]] = {unit_id: [] for unit_id in unit_ids}
    for claim in WorkUnitClaim.objects.filter(unit_id__in=unit_ids, live=True).select_related("input_file").order_by("id"):
        found[claim.unit_id].append(claim)
    return found


def pieces_of(claims: Iterable[WorkUnitClaim]) -> list[Piece]:
    """The claims as ``planning.closure`` has them."""
    return [Piece(claim.kind, _claims_of_what(claim), claim.first, claim.last) for claim in claims]


def _claims_of_what(claim: WorkUnitClaim) -> str:
    return claim.input_file.lfn if claim.input_file is not None else str(claim.run)


def claims_cut(*, unit: WorkUnit, pieces: Collection[Piece]) -> None:
    """Give back exactly these pieces of what a unit claims; it keeps the rest. Rows that hold some of both are split.

    In the caller's transaction, which holds the request's row.

    Raises:
        LedgerViolation: it does not claim all of them; nothing may be written then.
    """
    claims = claims_of([unit.pk])[unit.pk]
    back = {
        (kind, of): lumis.merged((p.first, p.last) for p in some) for (kind, of), some in groupby(sorted(pieces), _KIND_AND_OF)
    }
    before, changed, new, given = _weight(claims), list[WorkUnitClaim](), list[ClaimRow](), 0
    for claim in claims:
        whole: LumiRanges = {0: ((claim.first, claim.last),)}
        lost = lumis.intersect(whole, {0: back.get((claim.kind, _claims_of_what(claim)), ())})
        if not lost:
            continue
        given += lumis.count(lost)
        parts = [(*part, False) for part in lost[0]] + [(*part, True) for part in lumis.subtract(whole, lost).get(0, ())]
        same = (claim.unit_id, claim.input_file_id, claim.kind, claim.scope, claim.run)
        # a file without events claims 0..0, and lumis have none
        rows = [ClaimRow(*same, first, last, claim.events and last - first + 1, live) for first, last, live in parts]
        claim.first, claim.last, claim.events, claim.live = rows[0].first, rows[0].last, rows[0].events, rows[0].live
        changed.append(claim)
        new += rows[1:]
    if given != sum(piece.last - piece.first + 1 for piece in pieces):
        raise LedgerViolation(f"{unit.name} does not claim all that is to be given back: {given} of {sorted(pieces)[:3]}...")
    WorkUnitClaim.objects.bulk_update(changed, ("first", "last", "events", "live"))  # before others are live in their place
    claims_record(new)
    after = _weight(claims_of([unit.pk])[unit.pk])
    WorkUnit.objects.filter(pk=unit.pk).update(events=unit.events * after // before if before else 0)


_KIND_AND_OF = itemgetter(0, 1)


def _weight(claims: Iterable[WorkUnitClaim]) -> int:
    """By which the unit's events are shared out: events; lumis where work is split by them."""
    by_lumi = WorkUnitClaim.KIND_RUN_LUMIS
    return sum(claim.last - claim.first + 1 if claim.kind == by_lumi else claim.events for claim in claims)


def manifest_compare(*, unit: WorkUnit, claims: Sequence[WorkUnitClaim], manifest: Manifest, wanted: WantedLumis | None) -> None:
    """Compare all that the unit's jobs processed with its live claims, and the merged files of each output with that.

    Args:
        claims: the unit's, see ``claims_of``.
        wanted: which lumis of its input the request wants; None without input.
    """
    kinds = {claim.kind for claim in claims}
    if kinds <= {WorkUnitClaim.KIND_GENERATED, WorkUnitClaim.KIND_GENERATED_LUMIS}:
        _compare_generated(unit, claims, manifest)
    elif kinds == {WorkUnitClaim.KIND_FILE_EVENTS}:
        _compare_files(unit, claims, manifest, wanted)
    else:
        _lumis_equal(unit, _claimed(claims, WorkUnitClaim.KIND_RUN_LUMIS), manifest)
    for output in manifest.outputs if manifest.tells_pieces else ():
        _compare_pieces(unit, claims, manifest, output)


def _compare_generated(unit: WorkUnit, claims: Sequence[WorkUnitClaim], manifest: Manifest) -> None:
    wanted = sum(c.events for c in claims)
    got = sum(job.processed.events for job in manifest.claimants)
    if got > wanted:
        raise LedgerViolation(f"{unit.name} generated {got} events, {wanted} were claimed")
    if got < wanted:
        raise ManifestProblem(f"{unit.name} generated {got} of {wanted} claimed events")
    _lumis_equal(unit, _claimed(claims, WorkUnitClaim.KIND_GENERATED_LUMIS), manifest)


def _compare_files(unit: WorkUnit, claims: Sequence[WorkUnitClaim], manifest: Manifest, selection: WantedLumis | None) -> None:
    """Of files of which everything is wanted exactly the claimed events; of those that a mask cuts exactly the wanted lumis."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    chosen: dict[str, LumiRanges] = {}
    cut: set[str] = set()
    for claim in claims:
        file = claim.input_file
        if file is None:
            raise LedgerViolation(f"{unit.name}: a claim on file events has no file")
        wanted.setdefault(file.lfn, [])
        if claim.events:
            wanted[file.lfn].append((claim.first, claim.first + claim.events - 1))
        if selection is not None and not selection.everything:
            held = lumis.from_json(file.lumis)
            chosen[file.lfn] = selection.among(held)
            if chosen[file.lfn] != held:
                cut.add(file.lfn)
    read = _read_events(unit, (file for job in manifest.claimants for file in job.processed.files))
    claimed = {lfn: lumis.merged(sorted(spans)) for lfn, spans in wanted.items()}
    too_much = [lfn for lfn, spans in read.items() if _beyond(spans, claimed.get(lfn)) or (_twice(spans) and lfn not in cut)]
    if too_much:
        raise LedgerViolation(f"{unit.name} read what it did not claim: {sorted(too_much)[:3]}")
    if cut:
        _lumis_equal(unit, lumis.union(*chosen.values()), manifest)
    short = [lfn for lfn, spans in claimed.items() if lfn not in read or (lfn not in cut and _beyond(spans, read[lfn]))]
    if short:
        raise ManifestProblem(f"{unit.name}: {len(short)} claimed files not read whole, e.g. {sorted(short)[0]}")


def _read_events(unit: WorkUnit, files: Iterable[ProcessedFile]) -> dict[str, Intervals]:
    """Events read of each file, from 0; a whole file begins at its first. Intervals that overlap stay as they are."""
    found: dict[str, list[tuple[int, int]]] = {}
    for file in files:
        spans = found.setdefault(file.lfn, [])
        first = file.first_event or 0
        if file.last_event is not None and file.last_event - first + 1 != file.events:
            raise ManifestProblem(f"{unit.name}: {file.events} events of {file.lfn} are not {first} to {file.last_event}")
        if file.events:
            spans.append((first, first + file.events - 1))
    return {lfn: tuple(sorted(spans)) for lfn, spans in found.items()}


def _twice(spans: Sequence[tuple[int, int]]) -> bool:
    return any(before[1] >= after[0] for before, after in pairwise(spans))


def _beyond(spans: Intervals, limits: Intervals | None) -> bool:
    """Whether something of ``spans`` is not in ``limits``; None: nothing may be there, not even a file without events."""
    return limits is None or bool(lumis.subtract({0: lumis.merged(sorted(spans))}, {0: lumis.merged(sorted(limits))}))


def _compare_pieces(unit: WorkUnit, claims: Sequence[WorkUnitClaim], manifest: Manifest, output: ManifestOutput) -> None:
    """The merged files of an output together hold each piece of the unit's work: once, or in shares."""
    held = [file.pieces for file in output.files if file.pieces is not None]
    shared = any(pieces.shared for pieces in held)
    whose = f"{unit.name}: the merged files of {output.dataset}"
    generated = [(made.run, made.first_event, made.last_event) for pieces in held for made in pieces.generated]
    made, claimed = set(generated) if shared else generated, _claimed(claims, WorkUnitClaim.KIND_GENERATED)
    _hold(whose, "generated events", claimed, made, once=True)
    inputs = [file for pieces in held for file in pieces.files]
    read = [file for job in manifest.claimants for file in job.processed.files]
    files, jobs = (_read_events(unit, set(each) if shared else each) for each in (inputs, read))
    if files != jobs:
        strange = sorted(lfn for lfn in files.keys() | jobs.keys() if files.get(lfn) != jobs.get(lfn))
        raise ManifestProblem(f"{whose} hold other events of {strange[0]} than the unit's jobs read")
    spans = [(run, a, b) for pieces in held for run, pairs in pieces.lumis.items() for a, b in pairs]
    by_lumi = any(claim.kind == WorkUnitClaim.KIND_RUN_LUMIS for claim in claims)
    _hold(whose, "lumis", _processed_lumis(manifest), spans, once=by_lumi and not shared)


def _hold(whose: str, what: str, wanted: LumiRanges, got: Collection[tuple[int, int, int]], *, once: bool) -> None:
    """That intervals by run are together what is wanted, and no two of them overlap where each is to be there once."""
    held = lumis.from_intervals(got)
    if held != wanted:
        raise ManifestProblem(f"{whose} do not hold the {what} of the unit's work: {held} instead of {wanted}")
    if once and sum(last - first + 1 for _, first, last in got) != lumis.count(held):
        raise ManifestProblem(f"{whose} hold the same {what} twice: {sorted(got)}")


def _lumis_equal(unit: WorkUnit, wanted: LumiRanges, manifest: Manifest) -> None:
    got = _processed_lumis(manifest)
    extra, missing = lumis.subtract(got, wanted), lumis.subtract(wanted, got)
    if extra:
        raise LedgerViolation(f"{unit.name} processed lumis that it did not claim: {dict(extra)}")
    if missing:
        raise ManifestProblem(f"{unit.name}: claimed lumis are missing: {dict(missing)}")


def _claimed(claims: Sequence[WorkUnitClaim], kind: int) -> LumiRanges:
    return lumis.from_intervals((claim.run, claim.first, claim.last) for claim in claims if claim.kind == kind)


def _processed_lumis(manifest: Manifest) -> LumiRanges:
    return lumis.from_intervals(
        (run, a, b) for job in manifest.claimants for run, spans in job.processed.lumis.items() for a, b in spans
    )
