"""``make bench``: every measurement in turn; ``python -m bench NAME [...]`` runs some. Needs a running stack's environment."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import accounting, api_load, dag_shapes, engine, input_scale, job_counts, list_plans, splitters

BENCHES: dict[str, Callable[[], None]] = {
    "accounting": accounting.main,
    "splitters": splitters.main,
    "input_scale": input_scale.main,
    "list_plans": list_plans.main,
    "api_load": api_load.main,
    "dag_shapes": dag_shapes.main,
    "engine": engine.main,
    "job_counts": job_counts.main,
}


def main(names: list[str]) -> int:
    """Run the named measurements, or all."""
    unknown = set(names) - BENCHES.keys()
    if unknown:
        print(f"no measurement {', '.join(sorted(unknown))}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"== {name}", flush=True)
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
