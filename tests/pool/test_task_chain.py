"""A TaskChain on the real stack: levels of jobs inside its units, every kept output merged and registered."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG
from dags_app.payload.run.chirp import EXIT_CODE
from outputs_app.models import OutputFile
from tests.pool import condor
from tests.support.outcomes import assert_completed_once, ended, imported
from tests.support.stack import ROOT, worker
from wms2.adapters import factory

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
EVENTS, PER_JOB = 60, 20


def task_chain() -> dict[str, Any]:
    """The demo's chain from scratch as a tree of tasks: GenSim is read by Digi (not kept, read by Reco) and by a branch."""
    document: dict[str, Any] = json.loads((ROOT / "deploy/demo/requests/stepchain_scratch.json").read_text())
    tag = uuid.uuid4().hex[:8]
    create, assign = document["createRequest"], document["assignRequest"]
    steps = [create.pop(f"Step{number}") for number in (1, 2, 3)]
    del create["StepChain"]
    tasks = [_task(steps[0]), _task(steps[1], "GenSim"), _task(steps[2], "DigiRaw"), _task(steps[1], "GenSim")]
    tasks[0] |= {"RequestNumEvents": EVENTS, "EventsPerJob": PER_JOB, "PrimaryDataset": f"TestPrimary{tag}"}
    tasks[1] |= {"SplittingAlgo": "EventAwareLumiBased", "EventsPerJob": 2 * PER_JOB}
    tasks[2] |= {"SplittingAlgo": "EventBased", "EventsPerJob": PER_JOB, "Memory": 2500}
    tasks[3] |= {"TaskName": "Branch", "KeepOutput": True, "SplittingAlgo": "LumiBased", "LumisPerJob": 1}
    create |= {"RequestType": "TaskChain", "TaskChain": 4, "RequestString": f"test_{tag}"}
    create |= {f"Task{number}": task for number, task in enumerate(tasks, 1)}
    names = [task["TaskName"] for task in tasks]
    assign["AcquisitionEra"] = dict.fromkeys(names, "DemoWinter26")
    assign["ProcessingString"] = {name: f"Test{tag}{name}" for name in names}
    return document


def _task(step: dict[str, Any], input_task: str | None = None) -> dict[str, Any]:
    task = {name: value for name, value in step.items() if name not in ("StepName", "InputStep", "SplittingAlgo")}
    task["TaskName"] = step["StepName"]
    if input_task is None:
        return task | {"SplittingAlgo": step["SplittingAlgo"]}
    return task | {"InputTask": input_task}


def nodes_done(dag: DAG) -> dict[str, int]:
    """Accepted attempts of each unit by task: the letters before a node's number."""
    found: dict[str, int] = {}
    for post in Path(dag.submit_dir).glob("mg_*/*_*.post.json"):
        record = json.loads(post.read_text())
        assert record["classification"]["category"] == "success", record
        task = record["node_name"].rpartition("_")[0]
        found[task] = found.get(task, 0) + 1
    return found


def unmerged(primary: str) -> list[Path]:
    """Unmerged files of a primary dataset at all sites."""
    return list((Path(os.environ["WMS2_STATE_DIR"]) / "storage").glob(f"*/store/unmerged/*/{primary}/**/*.root"))


def test_a_task_chain_completes_with_every_kept_dataset_registered_and_nothing_left_unmerged(ready: None) -> None:
    request = imported(task_chain())
    with worker() as running:
        running.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request)

    workflow = request.workflow
    assert {dataset.step for dataset in workflow.output_datasets.all()} == {"GenSim", "Reco", "Branch"}
    dag = workflow.dags.get()
    assert nodes_done(dag) == {"proc": 3, "t2": 2, "t3": 3, "t4": 6}, "Reco's first file is read by two, each GenSim file by two"
    assert dag.node_counts["Processing"] == 14

    jobs = condor.history(f'WMS2_DagID == "{dag.directory_id}" && JobUniverse == 5 && WMS2_Role =!= "landing"')
    assert {(ad[EXIT_CODE], ad["JobPrio"]) for ad in jobs} == {(0, request.priority)}, "what monitoring reads, by Chirp"

    names = ("GenSim", "Reco", "Branch")
    files = {name: list(OutputFile.objects.filter(dataset__step=name, dataset__workflow=workflow)) for name in names}
    assert {name: sum(file.events for file in each) for name, each in files.items()} == dict.fromkeys(names, EVENTS)
    parents = {link.lfn: link.parent_lfn for link in factory.dbs().file_parents(files["Reco"][0].block.dbs_block_name)}
    assert set(parents) == {file.lfn for file in files["Reco"]}
    assert set(parents.values()) <= {file.lfn for file in files["GenSim"]}
    assert unmerged(workflow.output_datasets.get(step="GenSim").name.split("/")[1]) == [], "handed-on files are gone too"
