"""Import and plan of large inputs on the running stack: CPU seconds of the process and of its database session together, and the
peak memory of the process, for 10,000 and 100,000 files of 10 lumis, 2 files a job, and of the account of such a request.

DBS's simulator makes the dataset, the real Rucio holds its replicas; each size is imported and planned in a process of its own,
so that peak memories can be compared. Flat means: ten times the files, the same memory beyond what the plan itself holds. The
database runs on this machine: its CPU time is read from ``/proc``. ``BENCH_FILES`` names other sizes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
import zlib
from pathlib import Path
from typing import Any

from bench.costs import Cost, costs

ROOT = Path(__file__).resolve().parents[1]
SIZES = (10_000, 100_000)
SCOPE = "cms"
RSES = ("T1_US_FNAL_Disk", "T2_CH_CERN", "T2_US_Purdue")


def main() -> None:
    """Print a table and the ratios."""
    sizes = tuple(int(n) for n in os.environ.get("BENCH_FILES", "").split(",") if n) or SIZES
    columns = ["files", "seed s", "import s", "of db", "files/s", "jobs", "plan s", "of db", "jobs/s", "account s"]
    columns += ["import MB", "peak MB"]
    print("".join(f"{name:>10}" for name in columns))
    results = [_measure(size) for size in sizes]
    if len(results) > 1:
        small, large = results[0], results[-1]
        for name in ("import_seconds", "plan_seconds", "import_peak_mb", "peak_mb"):
            print(f"{name}: {sizes[-1]:,} over {sizes[0]:,} files: {large[name] / small[name]:.2f}")


def _measure(size: int) -> dict[str, float]:
    dataset = f"/Bench{uuid.uuid4().hex[:8]}/Era{size}-v1/RAW"
    begun = time.perf_counter()
    _seed(dataset, size)
    seeded = time.perf_counter() - begun
    child = subprocess.run(
        [sys.executable, "-m", "bench.input_scale", dataset], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise SystemExit(child.stderr[-3000:])
    result: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    print(
        f"{size:10,}{seeded:10.1f}"
        f"{result['import_seconds']:10.2f}{result['import_database']:10.2f}{size / result['import_seconds']:10,.0f}"
        f"{result['jobs']:10,.0f}"
        f"{result['plan_seconds']:10.2f}{result['plan_database']:10.2f}{result['jobs'] / result['plan_seconds']:10,.0f}"
        f"{result['account_seconds']:10.2f}"
        f"{result['import_peak_mb']:10.0f}{result['peak_mb']:10.0f}",
        flush=True,
    )
    return result


def _seed(dataset: str, size: int) -> None:
    """DBS by rule, Rucio block by block."""
    from rucio.client import Client

    from deploy.simulators.client import Caller
    from wms2.adapters import factory

    base = os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data")
    spec = {"files": size, "files_per_block": 1000, "events_per_file": 1000, "lumis_per_file": 10, "sites": list(RSES)}
    record = {"dataset": dataset, "generate": spec}
    Caller(base, login="bench").json("POST", "/admin/seed", {"dbs": {"datasets": [record]}})
    rucio, dbs = factory.rucio(), factory.dbs()
    rucio.ensure_container(dataset)
    os.environ["RUCIO_HOME"] = os.environ["WMS2_RUCIO_HOME"]
    client = Client()
    for block in dbs.blocks(dataset):
        rucio.ensure_block(dataset, block.block_name)
        files = [
            {"scope": SCOPE, "name": f.lfn, "bytes": f.size_bytes, "adler32": f"{zlib.adler32(f.lfn.encode()):08x}"}
            for f in dbs.files(block.block_name)
        ]
        client.attach_dids(SCOPE, block.block_name, files, rse=block.origin_site)  # quicker than the adapter, which may repeat
        rucio.close_block(block.block_name)


def child(dataset: str) -> None:
    """Import and plan in this process; prints one JSON line."""
    import django

    django.setup()
    from requests_app.lease import evaluating
    from requests_app.lifecycle.planning import handle_submitted
    from requests_app.models import Request, RequestStatus
    from requests_app.services import request_import
    from requests_app.work.ledger import ledger_of
    from requests_app.work.planner import round_plan

    request = request_import(document=_document(dataset), request_name=None, actor="bench")
    result: dict[str, float] = {}
    with evaluating(request.pk, owner="bench") as evaluation:
        if evaluation is None:
            raise SystemExit("the request is being evaluated by another process")
        with costs() as cost:
            handle_submitted(evaluation)
        _note(result, "import", cost)
        if evaluation.request.status != RequestStatus.QUEUED:
            raise SystemExit(f"{evaluation.request.status}: {evaluation.request.hold_reason} {evaluation.request.last_error}")
        result["import_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        evaluation.transition(RequestStatus.PLANNING, "bench")
        with costs() as cost:
            dag = round_plan(evaluation)
        _note(result, "plan", cost)
        with costs() as cost:
            ledger_of(evaluation.request.workflow)
        _note(result, "account", cost)
    if dag is None:
        raise SystemExit("nothing was planned")
    result["jobs"] = dag.node_counts["Processing"]
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.NEW)  # nobody runs it
    print(json.dumps(result))


def _note(result: dict[str, float], what: str, cost: Cost) -> None:
    result |= {f"{what}_seconds": cost.seconds, f"{what}_database": cost.backend_seconds}


def _document(dataset: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "deploy/demo/requests/rereco_input.json").read_text())
    tag = uuid.uuid4().hex[:8]
    # the dataset has no parents: were they wanted, each block would be read twice, as an answer may lack them
    asked = {"InputDataset": dataset, "RequestString": f"bench_{tag}", "FilesPerJob": 2, "IncludeParents": False}
    document["createRequest"] |= asked
    document["assignRequest"] |= {"ProcessingString": f"Bench{tag}"}
    return document


if __name__ == "__main__":
    child(sys.argv[1])
