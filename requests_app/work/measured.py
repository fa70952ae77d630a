"""What all rounds of a request have measured, those of its former versions too (spec 5.6; docs/adr/0071)."""

from __future__ import annotations

from collections.abc import Iterable

from dags_app.histogram import quantile
from dags_app.models import StepMeasurement
from dags_app.planning.measured import Spread, StepMeasured
from requests_app.models import Request, Workflow
from requests_app.work.spec import spec_of
from wms2.conf import conf

_PLAIN = (
    "step", "processes", "threads", "jobs", "events_read", "events_written", "lumis_read", "files_read", "wall_seconds",
    "cpu_seconds", "bytes_written",
)  # fmt: skip


def measured_of(workflow: Workflow) -> list[StepMeasured]:
    """Each step by round and how it ran; of a former version, whose rounds count below 0, steps configured as this one's."""
    found: list[StepMeasured] = []
    own, shift = _configured(workflow), 0
    for version in _versions(workflow):
        same = {step for step, configured in _configured(version).items() if own.get(step) == configured}
        shift -= 0 if version == workflow else version.rounds.count()
        rows = StepMeasurement.objects.filter(round__workflow=version, step__in=same).select_related("round")
        found += [_measured(row, row.round.index + shift) for row in rows.order_by("round__index", "step", "id")]
    return found


def _measured(row: StepMeasurement, round_index: int) -> StepMeasured:
    plain = {name: getattr(row, name) for name in _PLAIN}
    return StepMeasured(
        round_index=round_index,
        job_seconds=spread(row, "job_seconds"),
        seconds_per_event=spread(row, "seconds_per_event"),
        rss_mb=spread(row, "rss_mb"),
        slot_rss_mb=spread(row, "slot_rss_mb"),
        **plain,
    )


def spread(row: StepMeasurement, name: str) -> Spread:
    """How a quantity is spread over the jobs of a row; 0 where none told it."""
    return Spread(*(quantile(row.histograms.get(name, {}), share) or 0.0 for share in (0.5, 0.95)))


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
