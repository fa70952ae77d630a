"""Planning values for tests: small, complete, and changed only where a test says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dags_app.planning import lumis
from dags_app.planning.levels import level_plans
from dags_app.planning.sizing import bytes_per_event
from dags_app.planning.specs import (
    DagLimits,
    DagSpec,
    GenerationSpec,
    InputFileSpec,
    InputSpec,
    JobSpec,
    LumiRanges,
    OutputSpec,
    ResourceSpec,
    SplittingAlgo,
    SplittingSpec,
    StepSpec,
    TaskSpec,
    WorkflowSpec,
)
from dags_app.planning.splitters import split
from dags_app.planning.work_units import group_jobs

FNAL, CERN, PURDUE = "T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"
ALL_SITES = (FNAL, CERN, PURDUE)


def output(step: str, module: str, tier: str) -> OutputSpec:
    return OutputSpec(
        step=step,
        module=module,
        tier=tier,
        dataset=f"/RelValPsi/CMSSW_12_0_0-Test-v1/{tier}",
        merged_lfn_base=f"/store/backfill/1/CMSSW_12_0_0/RelValPsi/{tier}/Test-v1",
        unmerged_lfn_base=f"/store/unmerged/CMSSW_12_0_0/RelValPsi/{tier}/Test-v1",
        primary_dataset="RelValPsi",
        processed_dataset="CMSSW_12_0_0-Test-v1",
        acquisition_era="CMSSW_12_0_0",
        processing_string="Test",
        processing_version=1,
    )


def step(number: int, name: str, modules: tuple[str, ...], **changes: Any) -> StepSpec:
    made = StepSpec(
        number=number,
        name=name,
        config_cache_id=f"{number:032x}",
        cmssw_version="CMSSW_12_0_0",
        scram_arch=("slc7_amd64_gcc900",),
        global_tag="120X_mcRun3_2021_realistic_v4",
        threads=4,
        event_streams=0,
        output_modules=modules,
    )
    return replace(made, **changes)


def generation_workflow(**changes: Any) -> WorkflowSpec:
    """A two-step chain from scratch: 1000 events, 100 a job, 50 a lumi."""
    made = WorkflowSpec(
        request_name="amaltaro_SC_Test_250101_000000_1234",
        campaign="Campaign",
        steps=(
            step(1, "GenSim", ("FEVTDEBUGoutput",)),
            step(2, "Digi", ("FEVTDEBUGHLToutput",), input_step="GenSim", input_module="FEVTDEBUGoutput"),
        ),
        outputs=(output("GenSim", "FEVTDEBUGoutput", "GEN-SIM"), output("Digi", "FEVTDEBUGHLToutput", "GEN-SIM-DIGI-RAW")),
        resources=ResourceSpec(cores=4, memory_mb=8000, time_per_event_seconds=40.0, size_per_event_kb=1024.0),
        splitting=SplittingSpec(SplittingAlgo.EVENT_BASED, events_per_job=100),
        generation=GenerationSpec(run=1, first_event=1, first_lumi=1, events=1000, events_per_job=100, events_per_lumi=50),
        input=None,
        site_whitelist=ALL_SITES,
    )
    return replace(made, **changes)


def input_workflow(
    algorithm: SplittingAlgo = SplittingAlgo.FILE_BASED, *, wanted: dict[str, Any] | None = None, **changes: Any
) -> WorkflowSpec:
    """A one-step request over a dataset; ``wanted``: fields of its ``InputSpec``; ``changes``: of its splitting or its own."""
    splitting = {name: changes.pop(name) for name in list(changes) if name in SplittingSpec.__slots__}
    made = generation_workflow(
        steps=(step(1, "DataProcessing", ("RECOoutput",)),),
        outputs=(output("DataProcessing", "RECOoutput", "RECO"),),
        generation=None,
        input=InputSpec(dataset="/RelValPsi/Run2021-v1/RAW", **(wanted or {})),
        splitting=SplittingSpec(algorithm, **splitting),
    )
    return replace(made, **changes)


def task_tree(**changes: Any) -> WorkflowSpec:
    """A tree of four tasks from scratch: GenSim is read by Digi, whose output nobody keeps, and by Nano; Reco reads Digi."""
    digi, nano = ("GenSim", "RAWSIMoutput"), ("GenSim", "RAWSIMoutput")
    reco = ("Digi", "DIGIoutput")
    made = generation_workflow(
        steps=(
            step(1, "GenSim", ("RAWSIMoutput",), filter_efficiency=0.3),
            step(2, "Digi", ("DIGIoutput",), input_step=digi[0], input_module=digi[1], keep_output=False),
            step(3, "Nano", ("NANOoutput",), input_step=nano[0], input_module=nano[1]),
            step(4, "Reco", ("AODoutput",), input_step=reco[0], input_module=reco[1]),
        ),
        outputs=(
            output("GenSim", "RAWSIMoutput", "GEN-SIM"),
            output("Nano", "NANOoutput", "NANOAODSIM"),
            output("Reco", "AODoutput", "AODSIM"),
        ),
        tasks=(
            TaskSpec(1, "GenSim", ("GenSim",), ResourceSpec(4, 8000, 40.0, 1024.0)),
            TaskSpec(2, "Digi", ("Digi",), ResourceSpec(8, 16_000, 20.0, 2048.0), "GenSim", *digi, 90),
            TaskSpec(3, "Nano", ("Nano",), ResourceSpec(1, 3000, 1.0, 10.0), "GenSim", *nano),
            TaskSpec(4, "Reco", ("Reco",), ResourceSpec(8, 16_000, 600.0, 512.0), "Digi", *reco, 30),
        ),
    )
    return replace(made, **changes)


def input_file(
    number: int, *, events: int = 100, ranges: LumiRanges | None = None, locations: tuple[str, ...] = ALL_SITES, **more: Any
) -> InputFileSpec:
    if ranges is None:
        ranges = lumis.from_intervals([(1, number * 10 + 1, number * 10 + 5)])
    return InputFileSpec(f"/store/data/{number:04d}.root", events * 1000, events, ranges, frozenset(locations), **more)


def dag_spec(
    workflow: WorkflowSpec | None = None, files: tuple[InputFileSpec, ...] = (), *, jobs_per_work_unit: int = 8, **changes: Any
) -> DagSpec:
    workflow = workflow or generation_workflow()
    jobs = [item for item in split(workflow, files) if isinstance(item, JobSpec)]
    units = group_jobs(
        jobs,
        jobs_per_work_unit=jobs_per_work_unit,
        bytes_per_event=bytes_per_event(workflow),
        levels=level_plans(workflow),
    )
    made = DagSpec(
        dag_id="3f0f5c1e-0000-4000-8000-000000000001",
        workflow_id="550e8400-e29b-41d4-a716-446655440000",
        instance="test-1",
        round_index=0,
        workflow=workflow,
        units=tuple(units),
        limits=DagLimits(),
    )
    return replace(made, **changes)
