"""Which pileup files a step mixes: those of ``pileup.json`` that lie at the job's site. Owns their choice and order.

Every job opens the files in an order of its own, made from its seed, so that not all jobs of a site read the same file first; a
repeated attempt gets the same order. Deterministic pileup keeps the order of blocks and names, and the job's place in the
workflow says at which event it begins.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from ..contract import codes
from ..contract.codes import PayloadError
from ..contract.documents import JobDocument, Step, UnitJob
from ..contract.layout import PILEUP_FILE, PILEUP_SCHEMA
from ..contract.reading import Value, load_document


class Mixing(NamedTuple):
    """What the mixing modules of one kind read, as ``tweak.json`` says it."""

    kind: str
    files: tuple[str, ...]  # LFNs
    sequential: bool
    skip_events: int


def mixing_of(directory: Path, job: JobDocument, unit_job: UnitJob, step: Step, *, site: str, seed: str) -> tuple[Mixing, ...]:
    """What ``step`` mixes at ``site``; nothing for a step without pileup.

    Args:
        directory: where ``pileup.json`` was transferred to.
        seed: text that no other job of the step has.

    PayloadError: the document is missing or damaged, or the site has no file of a dataset (8020, as cmsRun itself would end).
    """
    if not step.pileup:
        return ()
    datasets = load_document(directory / PILEUP_FILE, PILEUP_SCHEMA)["datasets"]
    found = []
    before = unit_job.mixed_before  # events of the workflow before this job's; else by the number of the first that it generates
    if before is None:
        before = unit_job.generate.first_event - 1 if unit_job.generate is not None else 0
    for pileup in step.pileup:
        files, events = _files_at(datasets[pileup.dataset]["blocks"], None if job.trust_pileup_sitelists else site)
        if not files:
            raise PayloadError(
                codes.FILE_OPEN_FAILED,
                f"step {step.name}: {site} has no file of the pileup {pileup.dataset}; it was planned for sites that had some",
            )
        if not step.deterministic_pileup:
            random.Random(f"{seed}/{pileup.dataset}").shuffle(files)  # noqa: S311  (an order, no secret)
        skip = before % events if step.deterministic_pileup and events else 0
        found.append(Mixing(pileup.kind, tuple(files), step.deterministic_pileup, skip))
    return tuple(found)


def _files_at(blocks: Value, site: str | None) -> tuple[list[str], int]:
    """Files of the blocks that ``site`` reads (None: of all), in the order of block and name; and their events."""
    files: list[str] = []
    events = 0
    for _, block in sorted(blocks.entries()):
        if site is None or site in block["sites"].texts():
            files.extend(sorted(block["files"].texts()))
            events += block["events"].integer()
    return files, events
