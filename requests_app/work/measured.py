"""What all rounds of a request have measured, those of its former versions too (spec 5.6; docs/adr/0071)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from dags_app import histogram
from dags_app.models import StepMeasurement
from dags_app.planning.measured import Spread, StepMeasured
from requests_app.models import Request, Workflow
from requests_app.work.spec import spec_of
from wms2.conf import conf


def measured_of(workflow: Workflow) -> list[StepMeasured]:
    """Each step by how it ran, all rounds added up; of a former version only steps that are configured as this one's.

    ``round_index`` is that of the newest round among them, of a former version's its own.
    """
    found: dict[tuple[str, int, int], list[StepMeasurement]] = defaultdict(list)
    own = _configured(workflow)
    for version in _versions(workflow):
        same = {step for step, configured in _configured(version).items() if own.get(step) == configured}
        rows = StepMeasurement.objects.filter(round__workflow=version, step__in=same).select_related("round")
        for row in rows.order_by("-round__index"):
            found[row.step, row.processes, row.threads].append(row)
    return [measured(rows) for _, rows in sorted(found.items())]


def measured(rows: Iterable[StepMeasurement]) -> StepMeasured:
    """Rows of one step that ran alike as one; the first is the newest."""
    rows = tuple(rows)
    first, written = rows[0], Counter[str]()
    for row in rows:
        written.update(row.bytes_written)
    return StepMeasured(
        step=first.step,
        round_index=first.round.index,
        processes=first.processes,
        threads=first.threads,
        jobs=sum(row.jobs for row in rows),
        events_read=sum(row.events_read for row in rows),
        events_written=sum(row.events_written for row in rows),
        lumis_read=sum(row.lumis_read for row in rows),
        files_read=sum(row.files_read for row in rows),
        wall_seconds=sum(row.wall_seconds for row in rows),
        cpu_seconds=sum(row.cpu_seconds for row in rows),
        bytes_written=dict(written),
        **{name: spread(name, *rows) for name in ("job_seconds", "seconds_per_event", "rss_mb", "slot_rss_mb")},
    )


def spread(name: str, *rows: StepMeasurement) -> Spread:
    """How a quantity is spread over the jobs of some rows; 0 where none told it."""
    all_jobs = histogram.added(*(row.histograms.get(name, {}) for row in rows))
    return Spread(*(histogram.quantile(all_jobs, share) or 0.0 for share in (0.5, 0.95)))


def _versions(workflow: Workflow) -> Iterable[Workflow]:
    """This workflow, then those of the versions before it, newest first."""
    yield workflow
    name = workflow.request.previous_version_request_id
    for _ in range(conf().max_versions):
        before = Request.objects.filter(request_name=name).select_related("workflow").defer("request_data", "workflow__psets")
        request = before.first()
        if request is None:
            return
        if hasattr(request, "workflow"):
            yield request.workflow
        name = request.previous_version_request_id


def _configured(workflow: Workflow) -> dict[str, tuple[str, str]]:
    return {step.name: (step.config_cache_id, step.cmssw_version) for step in spec_of(workflow).steps}
