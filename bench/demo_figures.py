"""How a running demo gets on: life-cycle cycles, and how long what has ended on the pool waits for its account.

Not part of ``make bench``, which has no engine. In the shell of a demo (``eval "$(make -s shell-env)"``), as often as wanted:
``.venv/bin/python -m bench.demo_figures``. Ends of units and DAGs are those of DAGMan's ``.metrics`` files.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

_CYCLE = re.compile(r"run_lifecycle_cycle\[[^]]+\] succeeded in ([0-9.e-]+)s")
METRICS = "{}.dag.metrics"


def main() -> None:
    """Print the figures."""
    import django

    django.setup()
    logs = sorted(Path(os.environ["WMS2_STATE_DIR"]).glob("logs/ticker.log*"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    cycles = [(float(found.group(1)), json.loads(line)["timestamp"]) for line in lines if (found := _CYCLE.search(line))]
    _report("cycles, seconds", [seconds for seconds, _ in cycles])
    begun, units, dags, requests = rows()
    ends = sorted(datetime.fromisoformat(at) for _, at in cycles)
    _report("from one cycle's end to the next one's", [(b - a).total_seconds() for a, b in pairwise(ends)])
    _report("unit's end to its account, seconds", [done - ended for ended, done in units])
    _report("DAG's end to its account, seconds", [done - ended for ended, done in dags])
    _list("units accounted, seconds after the first request", sorted(done - begun for _, done in units))
    _list("requests completed", sorted(done - begun for done in requests))


def rows() -> tuple[float, list[tuple[float, float]], list[tuple[float, float]], list[float]]:
    """When the first request came; (end on the pool, account) of each unit and each DAG; when requests were completed."""
    from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitState
    from requests_app.models import Request

    requests = list(Request.objects.values_list("created_at", "completed_at"))
    begun = min((created.timestamp() for created, _ in requests), default=0.0)
    done = WorkUnit.objects.filter(state=WorkUnitState.DONE).values_list("dag__submit_dir", "name", "done_at")
    units = [(Path(directory) / name / METRICS.format("group"), at) for directory, name, at in done]
    ended = DAG.objects.filter(status=DAGStatus.COMPLETED).values_list("submit_dir", "completed_at")
    dags = [(Path(directory) / METRICS.format("workflow"), at) for directory, at in ended]
    return begun, list(_ends(units)), list(_ends(dags)), [at.timestamp() for _, at in requests if at]


def _ends(found: Iterable[tuple[Path, datetime | None]]) -> Iterator[tuple[float, float]]:
    from dags_app.dagman import read_metrics

    for path, at in found:
        if at is not None and (metrics := read_metrics(path)) is not None:
            yield metrics.ended_at, at.timestamp()


def _report(what: str, values: Sequence[float]) -> None:
    if not values:
        print(f"{what}: none")
        return
    print(f"{what}: {len(values)}, median {statistics.median(values):.1f}, longest {max(values):.1f}")


def _list(what: str, values: Sequence[float]) -> None:
    print(f"{what}: {' '.join(f'{value:.0f}' for value in values) or 'none'}")


if __name__ == "__main__":
    main()
