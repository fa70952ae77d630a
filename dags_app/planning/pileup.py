"""Pileup in planning: which sites may mix it, and ``pileup.json``. Pure; finding the files is ``requests_app.pileup``.

A job mixes what lies on disk at its own site, so it may only go where every pileup dataset of the request has enough; with
``TrustPUSitelists`` the request's own sites count and files are read from wherever they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dags_app.planning.specs import JobSpec, PileupDataset, WorkflowSpec
from wms2.errors import PlanningRefused

PILEUP_SCHEMA = "wms2.pileup/1"


def pileup_document(datasets: Sequence[PileupDataset]) -> str:
    """``pileup.json``: the files of every dataset by block, one block to a line."""
    parts = []
    for dataset in datasets:
        blocks = ",\n".join(
            f"{json.dumps(block.name)}: "
            + json.dumps({"sites": list(block.sites), "events": block.events, "files": list(block.files)})
            for block in dataset.blocks
        )
        parts.append(f'{json.dumps(dataset.dataset)}: {{"kind": {json.dumps(dataset.kind)}, "blocks": {{\n{blocks}\n}}}}')
    listed = ",\n".join(parts)
    return f'{{"schema": "{PILEUP_SCHEMA}", "datasets": {{\n{listed}\n}}}}\n'


def sites_holding(dataset: PileupDataset, *, least_fraction: float) -> dict[str, float]:
    """Sites with at least ``least_fraction`` of the dataset's files on disk, and the fraction each has."""
    total = sum(len(block.files) for block in dataset.blocks)
    held: Counter[str] = Counter()
    for block in dataset.blocks:
        for site in block.sites:
            held[site] += len(block.files)
    return {site: count / total for site, count in sorted(held.items()) if count >= least_fraction * total}


def pileup_sites(workflow: WorkflowSpec, datasets: Sequence[PileupDataset], *, least_fraction: float) -> frozenset[str] | None:
    """Sites where every dataset of the request can be mixed; None when that restricts nothing.

    Raises:
        PlanningRefused: a dataset is on no disk, or no site that the request admits has enough of it.
    """
    for dataset in datasets:
        if not any(block.files and block.sites for block in dataset.blocks):
            raise PlanningRefused(
                f"pileup {dataset.dataset}: no file is on disk at any site; have Rucio place it on disk, then release the request"
            )
    if not datasets or workflow.trust_pileup_sitelists:
        return None
    admitted = frozenset(workflow.site_whitelist) - frozenset(workflow.site_blacklist)
    common: frozenset[str] | None = None
    for dataset in datasets:
        held = frozenset(sites_holding(dataset, least_fraction=least_fraction))
        here = held & admitted if workflow.site_whitelist else held - frozenset(workflow.site_blacklist)
        if not here:
            raise PlanningRefused(
                f"pileup {dataset.dataset}: none of the request's sites has {least_fraction:.0%} of it on disk "
                f"(on disk at: {', '.join(sorted(held)) or _where(dataset)}); place it with Rucio, change SiteWhitelist, or "
                "assign the request with TrustPUSitelists"
            )
        common = here if common is None else common & here
    if not common:
        raise PlanningRefused(
            f"no site of the request has all its pileup on disk: {', '.join(dataset.dataset for dataset in datasets)}; place "
            "them together with Rucio, or assign the request with TrustPUSitelists"
        )
    return common


def jobs_at(jobs: Iterable[JobSpec], sites: frozenset[str] | None) -> Iterator[JobSpec]:
    """``jobs`` with their sites cut to ``sites``, lazily.

    Raises:
        PlanningRefused: a job's input is at no site that has the pileup.
    """
    for job in jobs:
        if sites is None:
            yield job
        elif job.sites & sites:
            yield job._replace(sites=job.sites & sites)
        else:
            raise PlanningRefused(_apart(job, sites))


def _apart(job: JobSpec, sites: frozenset[str]) -> str:
    first = job.files[0].lfn if job.files else "a job"
    return (
        f"input and pileup are at different sites: {first} can be read at {', '.join(sorted(job.sites)) or 'no site'}, the "
        f"pileup is on disk at {', '.join(sorted(sites))}; place one of them with Rucio, or assign the request "
        "with TrustPUSitelists or TrustSitelists"
    )


def _where(dataset: PileupDataset) -> str:
    """The best three sites, when none has enough."""
    best = sorted(sites_holding(dataset, least_fraction=0.0).items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{site} {fraction:.0%}" for site, fraction in best)
