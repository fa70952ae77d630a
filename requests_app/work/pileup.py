"""Pileup resolved to files on disk: DBS says which files, Rucio where each block lies, CRIC which sites read it there.

Owns the cache that all requests share. Reading is streamed block by block; a reading counts only when it is whole, so a planner
that dies in the middle leaves what was known before. Spec 4.5; docs/design/services.md, Locations.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from dags_app.payload.contract.files import read_text
from dags_app.payload.contract.layout import PILEUP_FILE
from dags_app.planning import specs
from dags_app.planning.pileup import pileup_document, pileup_of, pileup_sites
from requests_app.models import PileupBlock, PileupDataset
from requests_app.work.input_validity import blocks_short, read_steadily
from sites_app.selectors import sites_by_rse
from wms2.adapters import factory
from wms2.adapters.types import DbsFileInfo
from wms2.errors import NotFoundInService, PlanningRefused, ServiceUnavailable

#: For how long the files and places of a pileup dataset count before DBS and Rucio are read again; shared by all requests.
PILEUP_CACHE_SECONDS = 6 * 3600

log = structlog.get_logger(__name__)
#: Of containers with the part of a pileup that MSPileup keeps.
CUSTOM_SCOPE = "group.wmcore"


def pileup_resolve(spec: specs.WorkflowSpec) -> tuple[specs.PileupDataset, ...]:
    """Every pileup dataset that the steps mix, each once, with its blocks on disk; nothing for a request without pileup.

    Raises:
        PlanningRefused: DBS does not have the dataset, or no valid file of it.
        ServiceUnavailable: DBS or Rucio did not answer, and what is known is too old.
    """
    kinds = {pileup.dataset: pileup.kind for step in spec.steps for pileup in step.pileup}
    if not kinds:
        return ()
    sites = sites_by_rse()
    return tuple(_resolved(name, kinds[name], sites) for name in sorted(kinds))


def pileup_now(spec: specs.WorkflowSpec, directory: Path) -> tuple[str, frozenset[str] | None] | None:
    """For a DAG that is submitted again: its ``pileup.json``, and the sites that have enough of all of it (None: any). As it lies
    now, or, while a service does not answer, as the DAG's directory has it; None for a request without pileup.

    Raises:
        PlanningRefused: as ``pileup_resolve``; no site has it.
    """
    try:
        found = pileup_resolve(spec)
    except ServiceUnavailable as error:  # what is submitted again needs no service outside
        if not (written := read_text(directory / PILEUP_FILE)):
            raise
        log.warning("pileup stays as it was written", directory=str(directory), error=str(error))
        found = pileup_of(written)
    if not found:
        return None
    return pileup_document(found), pileup_sites(spec, found)


def _resolved(name: str, kind: str, sites: dict[str, tuple[str, ...]]) -> specs.PileupDataset:
    blocks = []
    for row in _current(name).order_by("name").iterator(chunk_size=200):
        held = tuple(sorted({site for rse in row.rses for site in sites.get(rse, ())}))
        if held:  # a block on tape only is of no use to a job
            blocks.append(specs.PileupBlock(row.name, held, row.events, tuple(row.files)))
    return specs.PileupDataset(dataset=name, kind=kind, blocks=tuple(blocks))


def _current(name: str) -> QuerySet[PileupBlock]:
    """The blocks that count, read again when they are too old, or a file of them is not valid any more."""
    oldest = timezone.now() - timedelta(seconds=PILEUP_CACHE_SECONDS)
    known = PileupDataset.objects.filter(pk=name, resolved_at__gte=oldest).first()
    if known is None or not _still_valid(known):
        known = _read(name)
    return _blocks(known)


def _blocks(known: PileupDataset) -> QuerySet[PileupBlock]:
    return PileupBlock.objects.filter(dataset=known, reading=F("dataset__reading"))


def _still_valid(known: PileupDataset) -> bool:
    """Whether DBS has every file as valid that is to be mixed: asked before each round, by one call."""
    _refuse_unusable(known.name)
    _kept(known.name)  # refuses it too
    valid = set(factory.dbs().valid_lfns(known.name))
    return all(valid.issuperset(files) for files in _blocks(known).values_list("files", flat=True).iterator(chunk_size=200))


def _kept(name: str) -> tuple[frozenset[str], frozenset[str] | None] | None:
    """RSEs at which MSPileup keeps it, and the blocks, None for all; None without MSPileup. Others only wait to be removed."""
    mspileup = factory.mspileup()
    if mspileup is None:
        return None
    found, then = mspileup.placement(name), "have it activated in MSPileup, then release the request"
    if found is None or not found.is_active:
        raise PlanningRefused(f"pileup {name}: {'MSPileup does not know it' if found is None else 'it is not active'}; {then}")
    try:
        custom = factory.rucio().blocks_in(found.custom_name, CUSTOM_SCOPE) if found.custom_name else None
    except NotFoundInService as error:  # MSPileup makes it within hours
        what = f"{name}: Rucio does not have {found.custom_name} yet, the part that is kept"
        raise ServiceUnavailable("mspileup", "placement", what) from error
    return frozenset(found.rses), None if custom is None else frozenset(custom)


def _ruled(name: str, blocks: list[str]) -> dict[str, set[str]] | None:
    """RSEs on disk at which rules (of any account) keep the blocks: other copies wait to be removed. None where no block has such
    a rule (one that keeps it on tape says nothing of its copies on disk)."""
    rucio = factory.rucio()
    tapes = rucio.tapes()
    ruled = {block: {lock.rse for lock in locks} - tapes for block, locks in rucio.blocks_kept(blocks).items()}
    if not any(ruled.values()):
        log.warning("no rule keeps this pileup: every copy on disk counts, and may be removed at any time", dataset=name)
        return None
    return ruled


def _refuse_unusable(name: str) -> None:
    dataset = factory.dbs().dataset(name)
    if dataset is None:
        raise PlanningRefused(f"pileup {name}: DBS has no such dataset; correct MCPileup or DataPileup in a new request")
    if not dataset.is_live:
        what = f"pileup {name}: it is {dataset.access_type} in DBS"
        raise PlanningRefused(f"{what}; make it VALID there and release, or correct MCPileup or DataPileup in a new request")


def _refuse_unkept(name: str, counted: set[str], unkept: set[str]) -> None:
    """When no copy on disk counts, and there are some that do not. Without any copy, planning says so."""
    sites = sites_by_rse()
    where = sorted({site for rse in unkept for site in sites.get(rse, ())})
    if where and not any(sites.get(rse) for rse in counted):
        why = "no rule keeps it there; have one made in Rucio"
        if factory.mspileup() is not None:
            why = "MSPileup does not keep it there; have its sites changed in MSPileup"
        raise PlanningRefused(f"pileup {name}: on disk at {', '.join(where)}, but {why}, then release the request")


def _read(name: str) -> PileupDataset:
    """Read a dataset from DBS and Rucio into the cache; the reading counts once all its blocks are there."""
    reading = uuid.uuid4()
    _refuse_unusable(name)
    kept = _kept(name)
    dataset, _ = PileupDataset.objects.get_or_create(pk=name)
    files, blocks = 0, 0
    valid, counts, counted, unkept = dict[str, int](), dict[str, int](), set[str](), set[str]()
    listing = [block for block in factory.dbs().blocks(name) if kept is None or kept[1] is None or block.block_name in kept[1]]
    ruled = _ruled(name, [block.block_name for block in listing]) if kept is None else None
    for block in listing:
        listed, locations = read_steadily(block.block_name, partial(_read_block, block.block_name))
        valid[block.block_name], counts[block.block_name] = len(listed), block.file_count
        if not listed:
            continue
        whole = {rse for rse, complete in locations.items() if complete}
        rses = whole & (kept[0] if kept is not None else ruled[block.block_name] if ruled is not None else whole)
        counted, unkept = counted | rses, unkept | whole - rses
        PileupBlock.objects.create(
            dataset=dataset,
            reading=reading,
            name=block.block_name,
            events=sum(events for _, events in listed),
            files=[lfn for lfn, _ in listed],
            rses=sorted(rses),
        )
        files, blocks = files + len(listed), blocks + 1
    _refuse_unusable(name)
    if not files:
        raise PlanningRefused(f"pileup {name}: DBS has no valid file of it; correct MCPileup or DataPileup in a new request")
    _refuse_unkept(name, counted, unkept)
    _make_current(dataset, reading, blocks)
    log.info("pileup read", dataset=name, files=files)
    if short := blocks_short(valid, counts):
        log.warning("pileup not whole", dataset=name, why=short)
    return PileupDataset.objects.get(pk=name)


def _read_block(block_name: str, files: list[DbsFileInfo]) -> tuple[list[tuple[str, int]], dict[str, bool]]:
    """Names and events of its valid files, and where it lies; a block without any lies nowhere."""
    listed = sorted((file.lfn, file.events) for file in files)
    return listed, factory.rucio().block_locations([block_name]).get(block_name, {}) if listed else {}


def _make_current(dataset: PileupDataset, reading: uuid.UUID, blocks: int) -> None:
    """The newest whole reading counts; another's that ended meanwhile has removed blocks of this one; then that counts."""
    with transaction.atomic():
        PileupDataset.objects.select_for_update().get(pk=dataset.pk)
        if PileupBlock.objects.filter(dataset=dataset, reading=reading).count() != blocks:
            return
        PileupDataset.objects.filter(pk=dataset.pk).update(reading=reading, resolved_at=timezone.now())
        PileupBlock.objects.filter(dataset=dataset).exclude(reading=reading).delete()
