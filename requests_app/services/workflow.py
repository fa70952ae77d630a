"""Making a request's workflow: the typed specification with ConfigCache's facts, output datasets, input files (spec 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dags_app.planning.specs import OutputSpec, WorkflowSpec
from outputs_app.owning import names_claim
from outputs_app.services import datasets_ensure
from outputs_app.values import DatasetRecord
from requests_app import intake
from requests_app.intake import lexicon
from requests_app.lease import Fence
from requests_app.models import Request, Workflow
from requests_app.work.input_reading import inputs_import
from requests_app.work.spec import spec_to_json
from sites_app.selectors import known_site_names
from wms2.adapters import factory
from wms2.adapters.types import ConfigDocument
from wms2.conf import conf
from wms2.crash import crash_point
from wms2.errors import DocumentRefused, NotFoundInService, Problem


def workflow_import(*, request: Request, fenced: Fence) -> Workflow:
    """The workflow row with everything planning needs; repeatable, goes on where a crash stopped it.

    Raises:
        DocumentRefused, PlanningRefused, ServiceRejected: the request cannot run as it is; or its output datasets are another's.
        ServiceUnavailable: ConfigCache, DBS or Rucio did not answer.
    """
    workflow = Workflow.objects.filter(request=request).first() or _create(request, fenced)
    inputs_import(workflow=workflow, fenced=fenced)
    return workflow


def configs_of(draft: intake.Draft) -> Mapping[str, ConfigDocument]:
    """The ConfigCache documents that a draft names, by id; one that ConfigCache does not have is left out, for intake to name.

    Raises:
        DocumentRefused: the draft names a ConfigCache that is not allowed.
    """
    found: dict[str, ConfigDocument] = {}
    cache = factory.configcache()
    problem = cache.problem(draft.config_url)
    if problem is not None:
        raise DocumentRefused((Problem(field="ConfigCacheUrl", problem=problem),))
    for url, database, config_id in intake.config_ids(draft):
        try:
            found[config_id] = cache.config(url, database, config_id)
        except NotFoundInService:
            continue
    return found


def spec_complete(draft: intake.Draft, configs: Mapping[str, ConfigDocument]) -> WorkflowSpec:
    """The specification, by the rules of the DBS that is written to; errors as ``intake.complete``."""
    tier = lexicon.TIER_WITH_DIGITS if conf().dbs_tiers_with_digits else lexicon.TIER
    return intake.complete(draft, configs, tier=tier)


def _create(request: Request, fenced: Fence) -> Workflow:
    sites = known_site_names()
    draft = intake.parse(
        request.request_data,
        request_name=request.request_name,
        window=intake.MemoryWindow.from_conf(conf()),
        known_sites=sites or None,
    )
    configs = configs_of(draft)
    spec = spec_complete(draft, configs)
    primary_ds_type = _primary_ds_type(spec)
    crash_point("import.claimed")
    with fenced():
        workflow = Workflow.objects.create(**_fields(request, spec, configs))
        workflow.refresh_from_db()
        names = [output.dataset for output in spec.outputs]
        names_claim(request_id=request.pk, family=request.family, names=names)
        records = [_record(request, spec, output, primary_ds_type) for output in spec.outputs]
        datasets_ensure(workflow_id=workflow.pk, records=records)
        if tuple(request.warnings) != spec.warnings:
            Request.objects.filter(pk=request.pk).update(warnings=list(spec.warnings))
    return workflow


def _fields(request: Request, spec: WorkflowSpec, configs: Mapping[str, ConfigDocument]) -> dict[str, Any]:
    generation = spec.generation
    return {
        "request": request,
        "input_dataset": spec.input.dataset if spec.input else "",
        "splitting_algo": spec.splitting.algorithm.value,
        "splitting_params": request.splitting_params,
        "config_cache_id": spec.steps[0].config_cache_id,
        "spec": spec_to_json(spec),
        "psets": {step.name: configs[step.config_cache_id].pset for step in spec.steps},
        "next_first_event": generation.first_event if generation else 1,
        "next_first_lumi": generation.first_lumi if generation else 1,
        "requested_events": generation.events if generation else 0,
    }


def _primary_ds_type(spec: WorkflowSpec) -> str:
    """What DBS is to call the primary dataset: as its input is called there. One that DBS lacks is refused when it is read."""
    if spec.input is None:
        return conf().primary_ds_type
    known = factory.dbs().dataset(spec.input.dataset)
    return known.primary_ds_type if known else "data"


def _record(request: Request, spec: WorkflowSpec, output: OutputSpec, primary_ds_type: str) -> DatasetRecord:
    step = next(step for step in spec.steps if step.name == output.step)
    return DatasetRecord(
        name=output.dataset,
        step=output.step,
        module=output.module,
        tier=output.tier,
        primary_dataset=output.primary_dataset,
        processed_dataset=output.processed_dataset,
        acquisition_era=output.acquisition_era,
        processing_version=output.processing_version,
        release=step.cmssw_version,
        pset_hash=step.pset_hash,
        global_tag=step.global_tag,
        prep_id=request.prep_id,
        primary_ds_type=primary_ds_type,
        physics_group=conf().physics_group,
        parents=_dataset_parents(spec, output),
    )


def _dataset_parents(spec: WorkflowSpec, output: OutputSpec) -> tuple[str, ...]:
    """For a chain of steps in one job: what the step read, or the nearest kept output before it, at last the input dataset.

    No file of such a step tells its parents (ADR 0036); tasks and single steps know them by file, and answer nothing here.
    """
    if spec.tasks or len(spec.steps) == 1:
        return ()
    steps = {step.name: step for step in spec.steps}
    step = steps[output.step]
    while step.input_step is not None:
        kept = [o.dataset for o in spec.outputs if (o.step, o.module) == (step.input_step, step.input_module)]
        if kept:
            return tuple(kept)
        step = steps[step.input_step]
    return (spec.input.dataset,) if spec.input is not None else ()
