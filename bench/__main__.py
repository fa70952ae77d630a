"""``make bench``: every measurement in turn; ``python -m bench NAME [...]`` runs some. Needs a running stack's environment.

``adaptive`` needs an engine and a pool, too, which others must not have: it runs only where it is named.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from bench import (
    accounting,
    adaptive,
    api_load,
    arrivals,
    dag_shapes,
    engine,
    input_scale,
    job_counts,
    list_plans,
    outputs,
    pages,
    parts,
    readers,
    reconcile,
    samples,
    sizing,
    splitters,
    validate,
)

#: What judges its figures says whether they are good enough.
BENCHES: dict[str, Callable[[], bool | None]] = {
    "accounting": accounting.main,
    "outputs": outputs.main,
    "validate": validate.main,
    "splitters": splitters.main,
    "input_scale": input_scale.main,
    "list_plans": list_plans.main,
    "samples": samples.main,
    "api_load": api_load.main,
    "readers": readers.main,
    "pages": pages.main,
    "dag_shapes": dag_shapes.main,
    "engine": engine.main,
    "sizing": sizing.main,
    "adaptive": adaptive.main,
    "job_counts": job_counts.main,
    "reconcile": reconcile.main,
    "arrivals": arrivals.main,
    "parts": parts.main,
}


ON_A_POOL = "adaptive"


def main(arguments: list[str]) -> int:
    """Run the named measurements, or all; 1 if one of them is not good enough."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--profile", help="JSON file of adaptive's requests")
    parser.add_argument("--file", help="CSV or JSON lines of arrivals")
    options = parser.parse_args(arguments)
    if options.file:
        os.environ["BENCH_FILE"] = options.file
    if options.profile:
        os.environ["BENCH_PROFILE"] = options.profile
    names = options.names
    unknown = set(names) - BENCHES.keys()
    if unknown:
        print(f"no measurement {', '.join(sorted(unknown))}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    bad = []
    for name in names or [name for name in BENCHES if name != ON_A_POOL]:
        print(f"== {name}", flush=True)
        if BENCHES[name]() is False:
            bad.append(name)
    if bad:
        print(f"not good enough: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
