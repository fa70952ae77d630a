"""A typed request as text for people. Owns the rendering only."""

from __future__ import annotations

from collections.abc import Iterator

from dags_app.planning.specs import StepSpec, WorkflowSpec


def as_lines(spec: WorkflowSpec) -> Iterator[str]:
    """What an operator wants to see first: work, steps, outputs, resources, sites, warnings."""
    yield f"Request    {spec.request_name}  (campaign {spec.campaign})"
    yield f"Work       {_work(spec)}"
    for step in spec.steps:
        yield f"Step {step.number}     {_step(step)}"
    for output in spec.outputs:
        yield f"Output     {output.dataset}  ({output.step}, {output.module}; merged below {output.merged_lfn_base})"
    resources = spec.resources
    yield (
        f"Resources  {resources.cores} core(s), {resources.memory_mb} MB, {resources.time_per_event_seconds:g} s and "
        f"{resources.size_per_event_kb:g} KB per event"
    )
    yield f"Sites      {', '.join(spec.site_whitelist)}" + (
        f"; not {', '.join(spec.site_blacklist)}" if spec.site_blacklist else ""
    )
    for warning in spec.warnings:
        yield f"Warning    {warning}"


def _work(spec: WorkflowSpec) -> str:
    made, cut = spec.generation, spec.splitting
    if made is not None:
        return (
            f"generate {made.events} events from event {made.first_event} and lumi {made.first_lumi} on: "
            f"{made.events_per_job} events per job, {made.events_per_lumi} per lumi"
        )
    dataset = spec.input.dataset if spec.input is not None else "nothing"
    return f"read {dataset}: {cut.algorithm}, {cut.files_per_job} file(s) or {cut.events_per_job} events per job"


def _step(step: StepSpec) -> str:
    reads = f" reads {step.input_step}/{step.input_module}" if step.input_step else ""
    kept = "kept" if step.keep_output else "transient"
    return f"{step.name}: {step.cmssw_version} {'|'.join(step.scram_arch)}, {step.threads} thread(s), output {kept}{reads}"
