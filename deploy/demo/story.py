"""Why a request does not go on, from rows, logs and the files of its DAG directory. Import only after ``django.setup()``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dags_app.models import DAG, WorkUnit, WorkUnitState
from outputs_app.models import Effect, EffectState
from requests_app.models import Request

_TRANSITIONS, _LINES, _FILES = 12, 12, 3
_LOGS = ("worker.log", "beat.log")


def story(name: str, state_dir: Path) -> Iterator[str]:
    """Lines for a person who has to find out what went wrong."""
    request = Request.objects.get(request_name=name)
    yield f"--- {name} is {request.get_status_display()} since {request.status_since:%H:%M:%S} UTC"
    for label, value in (
        ("hold code", request.hold_code),
        ("hold reason", request.hold_reason),
        ("last error", request.last_error),
        ("waits for", request.waiting_for),
        ("alert", request.alert_code),
    ):
        if value:
            yield f"    {label:<12} {value}"
    yield "    how it came there:"
    for row in list(request.transitions.order_by("-id")[:_TRANSITIONS])[::-1]:
        yield f"      {row.at:%H:%M:%S} {row.from_status or '-'} -> {row.to_status} by {row.actor}: {row.reason[:300]}"
    yield from _effects(request)
    for dag in DAG.objects.filter(workflow__request=request).order_by("created_at"):
        yield from _dag(dag)
    for log in _LOGS:
        yield from _tail(state_dir / "logs" / log, mentioning=("error", "warning", name))


def _effects(request: Request) -> Iterator[str]:
    for effect in Effect.objects.filter(request=request).exclude(state=EffectState.DONE).order_by("id"):
        error = f": {effect.last_error[:400]}" if effect.last_error else ""
        yield f"    registration {effect.get_kind_display()} is {effect.state} after {effect.attempts} attempts{error}"


def _dag(dag: DAG) -> Iterator[str]:
    directory = Path(dag.submit_dir)
    yield f"    DAG {dag.pk} ({dag.kind}) is {dag.status}, DAGMan job {dag.dagman_cluster_id or '-'}, in {directory}"
    if dag.submit_error or dag.outcome:
        yield f"      {dag.submit_error} {dag.outcome.get('why', '')}".rstrip()
    for unit in WorkUnit.objects.filter(dag=dag).exclude(state=WorkUnitState.DONE).order_by("index")[:_FILES]:
        yield f"      {unit.name} is {unit.get_state_display()} {unit.problem}".rstrip()
        where = directory / unit.name
        for pattern in ("*.post.json", "*.err", "*.out", "group.dag.dagman.out"):
            for path in sorted(where.glob(pattern), key=lambda p: p.stat().st_mtime)[-_FILES:]:
                yield from _tail(path)
    yield from _tail(directory / "workflow.dag.dagman.out")


def _tail(path: Path, mentioning: tuple[str, ...] = ()) -> Iterator[str]:
    """The last lines of a file, or of those lines that hold one of the words; nothing for a missing or empty file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    if mentioning:
        lines = [line for line in lines if any(word in line for word in mentioning)]
    if lines:
        yield f"      {path}:"
        yield from (f"        {line[:500]}" for line in lines[-_LINES:])
