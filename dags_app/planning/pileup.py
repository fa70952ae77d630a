"""Pileup in planning: which sites may mix it, ``pileup.json``, and where in deterministic pileup each job begins.

Pure; finding the files is ``requests_app.work.pileup``.

A job mixes what lies on disk at its own site, so it may only go where every pileup dataset of the request has enough; with
``TrustPUSitelists`` the request's own sites count and files are read from wherever they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dags_app.payload.contract.layout import PILEUP_SCHEMA
from dags_app.planning.levels import FIRST_TASK, all_tasks, node_name
from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.specs import DagSpec, JobSpec, LevelNode, PileupBlock, PileupDataset, WorkflowSpec, WorkUnitSpec
from wms2.errors import PlanningRefused

#: The part of a pileup dataset's files that a site must have on disk for jobs that mix it to go there.
PILEUP_MIN_FRACTION = 0.1


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


def pileup_of(text: str) -> tuple[PileupDataset, ...]:
    """What ``pileup_document`` was made of."""
    return tuple(
        PileupDataset(
            name,
            found["kind"],
            tuple(
                PileupBlock(block, tuple(held["sites"]), held["events"], tuple(held["files"]))
                for block, held in found["blocks"].items()
            ),
        )
        for name, found in json.loads(text)["datasets"].items()
    )


def sites_holding(dataset: PileupDataset, *, least_fraction: float) -> dict[str, float]:
    """Sites with at least ``least_fraction`` of the dataset's files on disk, and the fraction each has."""
    total = sum(len(block.files) for block in dataset.blocks)
    held: Counter[str] = Counter()
    for block in dataset.blocks:
        for site in block.sites:
            held[site] += len(block.files)
    return {site: count / total for site, count in sorted(held.items()) if count >= least_fraction * total}


def pileup_sites(workflow: WorkflowSpec, datasets: Sequence[PileupDataset]) -> frozenset[str] | None:
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
        held = frozenset(sites_holding(dataset, least_fraction=PILEUP_MIN_FRACTION))
        here = held & admitted if workflow.site_whitelist else held - frozenset(workflow.site_blacklist)
        if not here:
            raise PlanningRefused(
                f"pileup {dataset.dataset}: none of the request's sites has {PILEUP_MIN_FRACTION:.0%} of it on disk "
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


class MixedEvents:
    """How many events the jobs of each deterministic task mixed before: a job begins where the job before it ended.

    As WMCore counts them: the place of a job in the workflow times the events of a job. With EventBased that is ``EventsPerJob``,
    also for the shorter last job of a file; with whole files or lumis the events that the jobs have.
    """

    def __init__(self, spec: DagSpec) -> None:
        steps = {step.name for step in spec.workflow.steps if step.deterministic_pileup and step.pileup}
        tasks = [task.number for task in all_tasks(spec.workflow) if steps & set(task.steps)]
        self._next = {task: spec.mixed_before.get(task, 0) for task in tasks}
        cut = spec.workflow.splitting
        self._least = round_to_lumis(cut.events_per_job, cut.events_per_lumi) if cut.algorithm.by_event else 1

    @property
    def ends(self) -> dict[int, int]:
        """By task: where a later round goes on."""
        return dict(self._next)

    def before(self, unit: WorkUnitSpec) -> dict[str, int]:
        """For each node of the next unit that mixes so, the events before it; units have to come in order.

        Jobs that generate are not in it: the number of their first event says the same, in every round.
        """
        found: dict[str, int] = {}
        if FIRST_TASK in self._next and not any(job.generate for job in unit.jobs):
            self._take(found, FIRST_TASK, unit.jobs, self._least)
        for level in unit.levels:
            if level.task in self._next:
                self._take(found, level.task, level.nodes, 1)
        return found

    def _take(self, found: dict[str, int], task: int, jobs: Sequence[JobSpec | LevelNode], least: int) -> None:
        for index, job in enumerate(jobs):
            found[node_name(index, task)] = self._next[task]
            self._next[task] += max(job.events, least)


def mixed_after(spec: DagSpec) -> dict[int, int]:
    """By task: the events that all jobs have mixed when those of this DAG have, too; empty without deterministic pileup."""
    mixed = MixedEvents(spec)
    if mixed.ends:
        for unit in spec.units:
            mixed.before(unit)
    return mixed.ends


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
