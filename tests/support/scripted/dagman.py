"""What DAGMan and the payload leave in a DAG directory, written as they write it: status, metrics and rescue files, manifests."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from dags_app.dagman import NodeState
from dags_app.payload.contract import layout
from dags_app.planning import lumis
from tests.support.scripted.catalogues import Source

Nodes = Mapping[str, NodeState]
BYTES_PER_EVENT = 8 * 1024
#: Input datasets of the present world, which payloads read.
sources: dict[str, Source] = {}


class Account(Enum):
    """What the manifest of a finished unit says, compared with what was asked."""

    RIGHT = "exactly the claim"
    SHORT = "less than the claim"
    EXTRA = "more than the claim"
    MISSING = "there is no manifest"
    TORN = "half of it"
    STRANGER = "of an unknown fence"


def units_in(directory: Path) -> list[str]:
    """The outer DAG's nodes."""
    return sorted(path.name for path in directory.glob("mg_*") if path.is_dir())


def write_status(directory: Path, nodes: Nodes, *, final: bool, written_at: int = 1795187247, retries: int = 0) -> None:
    """The outer status file."""
    states = list(nodes.values())
    counts = {
        "NodesTotal": len(states),
        "NodesDone": states.count(NodeState.DONE),
        "NodesPre": 0,
        "NodesQueued": states.count(NodeState.SUBMITTED),
        "NodesPost": 0,
        "NodesReady": states.count(NodeState.READY),
        "NodesUnready": 0,
        "NodesFutile": 0,
        "NodesFailed": states.count(NodeState.ERROR),
        "JobProcsHeld": 0,
        "JobProcsIdle": 0,
    }
    lines = ['[\n  Type = "DagStatus";', f"  Timestamp = {written_at};", *(f"  {k} = {v};" for k, v in counts.items()), "]"]
    for name, state in nodes.items():
        lines += ['[\n  Type = "NodeStatus";', f'  Node = "{name}";', f"  NodeStatus = {int(state)};", '  StatusDetails = "";']
        lines += [f"  RetryCount = {retries};", "  JobProcsQueued = 0;", "  JobProcsHeld = 0;\n]"]
    lines += ['[\n  Type = "StatusEnd";', "  EndTime = 1795187247;", f"  NextUpdate = {0 if final else 1795187248};", "]"]
    (directory / layout.OUTER_STATUS).write_text("\n".join(lines) + "\n")


def write_metrics(directory: Path, nodes: Nodes, *, cluster: int, exit_code: int, dag_status: int) -> None:
    """The outer metrics file, as 25.x writes it; its DAGMan began after the one of the file before."""
    path, states = directory / f"{layout.OUTER_DAG}.metrics", list(nodes.values())
    start = json.loads(path.read_text())["start_time"] + 0.001 if path.exists() else 1.0
    metrics = {
        "version": "25.14.1", "metrics_version": 2, "dagman_id": str(cluster), "exitcode": exit_code, "DagStatus": dag_status,
        "rescue_dag_number": 0, "start_time": start, "end_time": 2.0, "total_nodes": len(states), "nodes_succeeded": 0,
        "nodes_failed": 0, "dag_nodes_succeeded": states.count(NodeState.DONE), "dag_nodes_failed": states.count(NodeState.ERROR),
    }  # fmt: skip
    path.write_text(json.dumps(metrics))


def write_unit_metrics(directory: Path, unit: str, *, ended_at: float) -> None:
    """What a unit's own DAGMan leaves, as 23.9 writes it."""
    metrics = {
        "version": "23.9.6", "dagman_id": "9", "exitcode": 0, "DagStatus": 0, "rescue_dag_number": 0, "start_time": 1.0,
        "end_time": ended_at, "total_jobs": 4, "jobs_succeeded": 4, "jobs_failed": 0, "dag_jobs_succeeded": 0,
        "dag_jobs_failed": 0,
    }  # fmt: skip
    (directory / unit / f"{layout.INNER_DAG}.metrics").write_text(json.dumps(metrics))


def write_rescue(directory: Path, nodes: Nodes) -> None:
    """The next outer rescue file."""
    number = len(list(directory.glob(layout.rescue_glob(layout.OUTER_DAG)))) + 1
    failed = [name for name, state in nodes.items() if state is NodeState.ERROR]
    done = [f"DONE {name}" for name, state in nodes.items() if state is NodeState.DONE]
    head = [f"# Total number of Nodes: {len(nodes)}", f"# Nodes that failed: {len(failed)}"]
    text = "\n".join([*head, f"#   {','.join([*failed, '<ENDLIST>'])}", *done]) + "\n"
    (directory / f"{layout.OUTER_DAG}.rescue{number:03d}").write_text(text)


def write_manifest(directory: Path, unit: str, fence: int, account: Account) -> None:
    """``merge_output.json`` of a unit that DAGMan says is done."""
    path = directory / unit / layout.MANIFEST_FILE
    if account is Account.MISSING:
        path.unlink(missing_ok=True)
        return
    job = json.loads((directory / layout.JOB_FILE).read_text())
    asked = json.loads((directory / unit / layout.UNIT_FILE).read_text())
    jobs = [{"node": each["node"], "processed": _processed(each)} for each in asked["jobs"]]
    _bend(jobs, account)
    manifest = {
        "schema": "wms2.manifest/1",
        "request_name": job["request_name"],
        "workflow_id": job["workflow_id"],
        "dag_id": job["dag_id"],
        "unit": unit,
        "fence": fence + 1000 if account is Account.STRANGER else fence,
        "site": "T2_CH_CERN",
        "rse": "T2_CH_CERN",
        "jobs": jobs,
        "outputs": [_output(job, output, unit, jobs) for output in job["outputs"]],
        "metrics": {},
    }
    text = json.dumps(manifest)
    path.write_text(text[: len(text) // 2] if account is Account.TORN else text)


def _processed(asked: dict[str, Any]) -> dict[str, Any]:
    """Exactly what a job was asked for."""
    made = asked["generate"]
    if made is not None:
        spans = {str(made["run"]): [[made["first_lumi"], made["last_lumi"]]]}
        return {"events": made["last_event"] - made["first_event"] + 1, "lumis": spans, "files": []}
    if asked["mask"] is not None:
        return _masked(asked)
    files = []
    for file in asked["files"]:
        first = file["first_event"] or 0
        last = file["events"] - 1 if file["last_event"] is None else file["last_event"]
        events = max(0, last - first + 1)
        files.append({"lfn": file["lfn"], "events": events, "first_event": first, "last_event": last})
    return {"events": sum(f["events"] for f in files), "lumis": {}, "files": files}


def _lumis_read(read: dict[str, Any]) -> list[tuple[int, int]]:
    """The (run, lumi) that a job without a mask finds in the part of a file it reads: those of the events, or all of a file of
    which nobody says how many events its lumis have."""
    for file in (file for source in sources.values() for file in source.files() if file.lfn == read["lfn"]):
        counts = [each for each in file.counts or () if each is not None] or ([] if file.held else [10] * len(file.pairs))
        if len(counts) != len(file.pairs) or read["last_event"] < read["first_event"]:
            return file.pairs
        spans = zip(file.pairs, counts, itertools.accumulate(counts), strict=True)
        return [pair for pair, count, end in spans if end > read["first_event"] and end - count <= read["last_event"]]
    return []


def _masked(asked: dict[str, Any]) -> dict[str, Any]:
    """All files opened, exactly the mask read; the first file stands for the events of all."""
    files = [{"lfn": file["lfn"], "events": 0 if n else asked["events"]} for n, file in enumerate(asked["files"])]
    return {"events": asked["events"], "lumis": asked["mask"], "files": files}


def _bend(jobs: list[dict[str, Any]], account: Account) -> None:
    if account not in (Account.SHORT, Account.EXTRA):
        return
    processed = jobs[0]["processed"]
    more = 1 if account is Account.EXTRA else -1
    processed["events"] = max(0, processed["events"] + more)
    if processed["files"] and processed["lumis"]:
        run = next(iter(processed["lumis"]))
        kept = processed["lumis"][run][1:] if account is Account.SHORT else [*processed["lumis"][run], [10**6, 10**6]]
        processed["lumis"] = {**processed["lumis"], run: kept}
        return
    if processed["files"] and account is Account.SHORT:
        processed["files"].pop(0)
    elif processed["files"]:
        processed["files"][0]["events"] += 1


def _output(job: dict[str, Any], output: dict[str, Any], unit: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """One merged file of all the unit's events."""
    events = sum(each["processed"]["events"] for each in jobs)
    name = uuid.uuid5(uuid.UUID(job["workflow_id"]), f"{job['round']}/{unit}/{output['step']}/{output['module']}/0")
    spans = [(int(run), a, b) for each in jobs for run, pairs in each["processed"]["lumis"].items() for a, b in pairs]
    whole = [read for each in jobs if not each["processed"]["lumis"] for read in each["processed"]["files"]]
    held = lumis.from_intervals([*spans, *((run, lumi, lumi) for read in whole for run, lumi in _lumis_read(read))])
    file = {
        "lfn": f"{output['merged_lfn_base']}/00000/{name}.root",
        "size_bytes": max(1, events * BYTES_PER_EVENT),
        "adler32": f"{name.int % 2**32:08x}",
        "events": events,
        "lumis": {str(run): [[lumi, 10] for a, b in pairs for lumi in range(a, b + 1)] for run, pairs in held.items()},
        "parents": sorted({read["lfn"] for each in jobs for read in each["processed"]["files"]}),
    }
    return {"dataset": output["dataset"], "module": output["module"], "step": output["step"], "files": [file]}
