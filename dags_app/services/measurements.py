"""What jobs measured, out of the manifests of units, added to their round's rows (docs/adr/0009).

In the transaction of the units' account, so that no job counts twice; a unit whose metrics are missing or damaged has none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dags_app import histogram
from dags_app.manifest import JobMetrics, Processed
from dags_app.models import DAG, SizingDecision, StepMeasurement
from dags_app.planning.measured import Decision
from dags_app.services.units import Settled

#: Step, processes, threads.
_Key = tuple[str, int, int]
_Job = tuple[JobMetrics, Processed | None]
_KEY = ("round", "step", "processes", "threads")
_OF_JOBS = ("events_read", "events_written", "wall_seconds", "cpu_seconds")
_SUMS = ("jobs", *_OF_JOBS, "lumis_read", "files_read")


def measurements_add(*, dag: DAG, settled: Sequence[Settled]) -> None:
    """Add the jobs of some units; in the caller's transaction, whose lock of the request keeps others from the round's rows."""
    found: dict[_Key, list[_Job]] = defaultdict(list)
    for row in settled:
        processed = {job.node: job.processed for job in row.manifest.jobs}
        for step, jobs in row.manifest.step_metrics.items():
            for job in jobs:
                found[step[:200], job.processes, job.threads].append((job, processed.get(job.node)))
    if not found:
        return
    known = {(row.step, row.processes, row.threads): row for row in StepMeasurement.objects.filter(round_id=dag.round_id)}
    rows = [_with(known.get(key), _row(dag.round_id, key, jobs)) for key, jobs in sorted(found.items())]
    StepMeasurement.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=_KEY,
        update_fields=(*_SUMS, "bytes_written", "histograms", "updated_at"),
    )


def decisions_record(*, dag: DAG, decisions: Iterable[Decision], profile_version: int) -> None:
    """Why a DAG is sized as it is; in the transaction that records it."""
    rows = {(each.task, each.step, each.what): each for each in decisions}
    SizingDecision.objects.bulk_create(
        SizingDecision(
            dag=dag,
            profile_version=profile_version,
            **{name: getattr(each, name) for name in Decision.__slots__},
        )
        for each in rows.values()
    )


def _row(round_id: int, key: _Key, found: Sequence[_Job]) -> StepMeasurement:
    step, processes, threads = key
    written: Counter[str] = Counter()
    jobs, processed = [job for job, _ in found], [done for _, done in found if done is not None]
    for job in jobs:
        written.update(job.bytes_written)
    return StepMeasurement(
        round_id=round_id,
        step=step,
        processes=processes,
        threads=threads,
        jobs=len(jobs),
        lumis_read=sum(last - first + 1 for done in processed for run in done.lumis.values() for first, last in run),
        files_read=sum(len(done.files) for done in processed),
        bytes_written=dict(written),
        histograms={name: histogram.counted(values) for name, values in _values(jobs)},
        **{name: sum(getattr(job, name) for job in jobs) for name in _OF_JOBS},
    )


def _values(jobs: Sequence[JobMetrics]) -> Iterator[tuple[str, list[float]]]:
    yield "rss_mb", [job.peak_rss_mb for job in jobs if job.peak_rss_mb > 0]
    yield "slot_rss_mb", [job.slot_rss_mb for job in jobs if job.slot_rss_mb > 0]
    yield "cgroup_peak_mb", [job.cgroup_peak_mb for job in jobs if job.cgroup_peak_mb]
    yield "job_seconds", [job.wall_seconds for job in jobs]
    yield "seconds_per_event", [job.wall_seconds / _events(job) for job in jobs if _events(job)]
    yield (
        "cpu_efficiency",
        [job.cpu_seconds / (job.wall_seconds * job.processes * job.threads) for job in jobs if job.wall_seconds > 0],
    )


def _events(job: JobMetrics) -> int:
    """What a job worked on: what it read, or what it generated."""
    return job.events_read or job.events_written


def _with(known: StepMeasurement | None, new: StepMeasurement) -> StepMeasurement:
    if known is None:
        return new
    for name in _SUMS:
        setattr(new, name, getattr(new, name) + getattr(known, name))
    new.bytes_written = dict(Counter(new.bytes_written) + Counter(known.bytes_written))
    names = {**known.histograms, **new.histograms}
    new.histograms = {name: histogram.added(known.histograms.get(name, {}), new.histograms.get(name, {})) for name in names}
    return new
