"""Making a request's workflow: the typed specification with ConfigCache's facts, output datasets, input files (spec 4.3)."""

from __future__ import annotations

from typing import Any

from dags_app.planning.specs import OutputSpec, WorkflowSpec
from outputs_app.blocks.ownership import names_claim
from outputs_app.services import datasets_ensure
from outputs_app.values import DatasetRecord
from requests_app import intake
from requests_app.harvesting.intake import PSET
from requests_app.intake import lexicon
from requests_app.models import Request, Workflow
from requests_app.work.groups import input_follow, parents_missing
from requests_app.work.input_reading import inputs_import
from requests_app.work.production_steps import of_steps
from requests_app.work.spec import PREPARED, Prepared, spec_to_json
from sites_app.selectors import known_site_names
from wms2.adapters import factory
from wms2.adapters.types import ConfigDocument
from wms2.conf import conf
from wms2.errors import DocumentRefused, NotFoundInService, Problem, StaleState
from wms2.runtime.crash import crash_point
from wms2.runtime.in_force import in_force
from wms2.runtime.locks import Fenced

#: Physics group of output datasets in DBS.
PHYSICS_GROUP = "DataOps"
#: What a dataset's record has of its output as it is.
_OF_OUTPUT = (
    "step", "module", "tier", "primary_dataset", "processed_dataset", "acquisition_era", "processing_version",
)  # fmt: skip


def workflow_import(*, request: Request, fenced: Fenced) -> Workflow:
    """The workflow row with everything planning needs; repeatable, goes on where a crash stopped it.

    Raises:
        DocumentRefused, PlanningRefused, ServiceRejected: the request cannot run as it is; or its output datasets are another's.
        ServiceUnavailable: ConfigCache, DBS or Rucio did not answer.
    """
    workflow = Workflow.objects.filter(request=request).first() or _create(request, fenced)
    inputs_import(workflow=workflow, fenced=fenced)
    return workflow


def draft_of(document: dict[str, Any], request_name: str | None) -> intake.Draft:
    """Parse with this installation's memory window and known sites."""
    sites = known_site_names()
    return intake.parse(document, request_name=request_name, limits=in_force(), known_sites=sites or None)


def draft_prepare(draft: intake.Draft) -> Prepared:
    """What a draft comes to by ConfigCache, each configuration asked for once, and by the rules of the DBS that is written to.

    Raises:
        DocumentRefused: as ``intake.complete``; or the draft names a ConfigCache or a DQM server that is not allowed.
        ServiceUnavailable: ConfigCache did not answer.
    """
    configs: dict[str, ConfigDocument] = {}
    cache = factory.configcache()
    problem = cache.problem(draft.config_url)
    if problem is not None:
        raise DocumentRefused((Problem(field="ConfigCacheUrl", problem=problem),))
    if draft.spec.harvest is not None and (why := conf().dqm_problem(draft.spec.harvest.upload_urls)):
        raise DocumentRefused((Problem(field="DQMUploadUrl", problem=why),))
    for url, database, config_id in intake.config_ids(draft):
        try:
            configs[config_id] = cache.config(url, database, config_id)
        except NotFoundInService:
            continue  # for intake to name
    tier = lexicon.TIER_WITH_DIGITS if conf().dbs_tiers_with_digits else lexicon.TIER
    spec = intake.complete(draft, configs, tier=tier)
    psets = {step.name: configs[step.config_cache_id].pset for step in spec.steps}
    if spec.harvest is not None:
        psets[PSET] = configs[spec.harvest.config_cache_id].pset
    return Prepared(spec, psets)


def _create(request: Request, fenced: Fenced) -> Workflow:
    input_follow(request, fenced)
    if request.prepared is None:
        prepared = draft_prepare(draft_of(request.request_data, request.request_name))
    else:  # what the import has found out
        prepared = PREPARED.validate_python(request.prepared)
    spec, shown = prepared.spec, prepared.spec.splitting.shown(prepared.spec.generation)
    primary_ds_type, released = _primary_ds_type(spec), _other_releases(spec)
    crash_point("import.claimed")
    with fenced():
        if parents_missing(request):
            raise StaleState(f"{request}: what it depends on was changed just now")
        workflow = Workflow.objects.create(request=request, splitting_params=shown, psets=prepared.psets, **_fields(spec))
        workflow.refresh_from_db()
        names = [output.dataset for output in spec.outputs]
        names_claim(request_id=request.pk, family=request.family, names=names)
        records = [_record(request, spec, output, primary_ds_type) for output in spec.outputs]
        datasets_ensure(workflow_id=workflow.pk, records=records)
        warnings = [*spec.warnings, *released, *of_steps(request.warnings)]
        Request.objects.filter(pk=request.pk).update(warnings=warnings, splitting_params=shown)
    return workflow


def _fields(spec: WorkflowSpec) -> dict[str, Any]:
    generation = spec.generation
    return {
        "input_dataset": spec.input.dataset if spec.input else "",
        "splitting_algo": spec.splitting.algorithm.value,
        "config_cache_id": spec.steps[0].config_cache_id,
        "spec": spec_to_json(spec),
        "next_first_event": generation.first_event if generation else 1,
        "next_first_lumi": generation.first_lumi if generation else 1,
        "requested_events": generation.events if generation else 0,
    }


def _primary_ds_type(spec: WorkflowSpec) -> str:
    """What DBS is to call the primary dataset: as its input is called there. One that DBS lacks is refused when it is read."""
    if spec.input is None:
        return "mc"  # generated events
    known = factory.dbs().dataset(spec.input.dataset)
    return known.primary_ds_type if known else "data"


def _other_releases(spec: WorkflowSpec) -> list[str]:
    """Output datasets that have files already, made with another release, in words: a dataset may mix releases, and is to be
    known to."""
    releases = {step.name: step.cmssw_version for step in spec.steps}
    found = []
    for output in spec.outputs:
        mine = releases[output.step]
        others = {config.release_version for config in factory.dbs().configs_of_dataset(output.dataset)} - {mine}
        if others:
            found.append(f"{output.dataset}: DBS has files of it that were made with {', '.join(sorted(others))}, not {mine}")
    return found


def _record(request: Request, spec: WorkflowSpec, output: OutputSpec, primary_ds_type: str) -> DatasetRecord:
    step = next(step for step in spec.steps if step.name == output.step)
    return DatasetRecord(
        name=output.dataset,
        **{field: getattr(output, field) for field in _OF_OUTPUT},
        release=step.cmssw_version,
        pset_hash=step.pset_hash,
        global_tag=step.global_tag,
        prep_id=request.prep_id,
        primary_ds_type=primary_ds_type,
        physics_group=PHYSICS_GROUP,
        parents=_dataset_parents(spec, output),
    )


def _dataset_parents(spec: WorkflowSpec, output: OutputSpec) -> tuple[str, ...]:
    """For a chain of steps in one job: what the step read, or the nearest kept output before it, at last the input dataset.

    No file of such a step names its parents (ADR 0016); tasks and single steps know them by file, and return nothing here.
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
