"""A draft and its ConfigCache documents to a :class:`WorkflowSpec`. Owns dataset names and LFN bases, and their rules.

Names as CMS makes them: ``/Primary/Era-[Filter-]ProcessingString-vN/TIER``, files below
``<base>/Era/Primary/TIER/[Filter-]ProcessingString-vN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dags_app.planning.specs import MERGEABLE, MergeKind, OutputSpec, WorkflowSpec
from requests_app.harvesting.intake import harvested
from requests_app.intake import lexicon
from requests_app.intake.draft import Draft, StepDraft
from requests_app.intake.findings import Findings
from requests_app.intake.values import shown
from wms2.adapters.types import ConfigDocument, OutputModule

#: What a merged file's name adds to its LFN base: /NNNNN/<GUID>.root, and 18 digits where it is staged out as it is
_FILE_NAME_LENGTH = 68
_MAX_MODULES = 50


def config_ids(draft: Draft) -> tuple[tuple[str, str, str], ...]:
    """What to fetch: (ConfigCache URL, CouchDB name, document id), each once, in step order, harvesting's last."""
    ids = dict.fromkeys(step.spec.config_cache_id for step in draft.steps)
    if draft.spec.harvest is not None:
        ids[draft.spec.harvest.config_cache_id] = None
    return tuple((draft.config_url, draft.config_database, config_id) for config_id in ids)


def complete(draft: Draft, configs: Mapping[str, ConfigDocument], *, tier: lexicon.NameRule = lexicon.TIER) -> WorkflowSpec:
    """Make the specification that planning works on.

    Args:
        draft: from :func:`parse`.
        configs: ConfigCache documents by id, for every id of :func:`config_ids`.
        tier: the rule of DBS for data tiers.

    Raises:
        DocumentRefused: a configuration is missing, empty or names outputs that CMS or the chain does not allow, two outputs are
            the same, or ``OutputDatasets`` declares others.
    """
    findings = Findings()
    modules = {step.spec.name: _modules(step, configs, tier, findings) for step in draft.steps}
    for step in draft.steps:
        _check_input_module(draft, step, modules, findings)
    _check_dropped(draft, modules, findings)
    outputs = tuple(
        output
        for step in draft.steps
        if step.spec.keep_output
        for output in _outputs(draft, step, modules[step.spec.name], configs, findings)
    )
    if not outputs and not findings.problems:
        findings.problem("KeepOutput", "no output of any step is kept")
    _check_distinct(draft, outputs, findings)
    _check_declared(draft, outputs, findings)
    harvest = draft.spec.harvest
    if harvest is not None and harvest.config_cache_id not in configs:
        findings.problem("DQMConfigCacheID", f"ConfigCache has no document {harvest.config_cache_id}")
    if harvest is not None and not harvested(outputs):
        findings.warn("EnableHarvesting", "no output that is kept is DQMIO: there is nothing to harvest")
    findings.refuse_if_any()
    steps = tuple(
        replace(
            step.spec,
            output_modules=tuple(module.label for module in modules[step.spec.name]),
            unmerged_lfn_bases=tuple(f"{draft.unmerged_lfn_base}/{_folder(step, each)}" for each in modules[step.spec.name]),
            pset_hash=configs[step.spec.config_cache_id].pset_hash,
        )
        for step in draft.steps
    )
    warnings = (*draft.spec.warnings, *findings.warnings)
    return replace(draft.spec, steps=steps, outputs=outputs, warnings=warnings)


def outputs_of_next(draft: Draft, former: WorkflowSpec) -> tuple[str, ...]:
    """The datasets of a next version, made of the former's without asking ConfigCache; empty if its configurations are others.

    Module, tier and filter are the configurations' and stay; era, processing string and version are the draft's.
    """
    steps = {step.spec.name: step for step in draft.steps}
    if {name: step.spec.config_cache_id for name, step in steps.items()} != {s.name: s.config_cache_id for s in former.steps}:
        return ()
    names = []
    for output in former.outputs:
        step = steps[output.step]
        head, tail = f"{output.acquisition_era}-", f"{output.processing_string}-v{output.processing_version}"
        filtered = output.processed_dataset.removeprefix(head).removesuffix(tail)
        version = f"{filtered}{step.processing_string}-v{step.processing_version}"
        names.append(f"/{step.primary_dataset}/{step.acquisition_era}-{version}/{output.tier}")
    return tuple(names)


def _version(step: StepDraft, module: OutputModule) -> str:
    filtered = f"{module.filter_name}-" if module.filter_name else ""
    return f"{filtered}{step.processing_string}-v{step.processing_version}"


def _folder(step: StepDraft, module: OutputModule) -> str:
    return f"{step.acquisition_era}/{step.primary_dataset}/{module.data_tier}/{_version(step, module)}"


def _modules(
    step: StepDraft, configs: Mapping[str, ConfigDocument], tier: lexicon.NameRule, findings: Findings
) -> tuple[OutputModule, ...]:
    """The step's output modules in the order of their labels."""
    field, config_id = f"{step.prefix}ConfigCacheID", step.spec.config_cache_id
    config = configs.get(config_id)
    if config is None:
        findings.problem(field, f"ConfigCache has no document {config_id}")
        return ()
    if not config.pset:
        findings.problem(field, f"the ConfigCache document {config_id} holds no configuration")
    modules = tuple(sorted(config.output_modules, key=lambda module: module.label))
    if not 1 <= len(modules) <= _MAX_MODULES:
        why = f"the configuration {config_id} has {len(modules)} output modules; 1 to {_MAX_MODULES} are possible"
        findings.problem(field, why)
    for module in modules:
        values = ((lexicon.MODULE, module.label), (tier, module.data_tier), (lexicon.FILTER, module.filter_name))
        for rule, value in values:
            if not rule.allows(value) and not (rule is lexicon.FILTER and value == ""):
                why = f"output module {shown(module.label)}: {shown(value)} is not a legal {rule.what}: {rule.says}"
                findings.problem(field, why)
    return modules


def _check_input_module(draft: Draft, step: StepDraft, modules: Mapping[str, Sequence[OutputModule]], findings: Findings) -> None:
    source = step.spec.input_step
    if source is None or not modules.get(source):
        return
    field, labels = f"{step.prefix}InputFromOutputModule", [module.label for module in modules[source]]
    if step.spec.input_module not in labels:
        why = f"{step.spec.input_module} is no output module of {source} (it has: {', '.join(map(str, labels))})"
        findings.problem(field, why)
    for dropped in (*next(one for one in draft.steps if one.spec.name == source).dropped, *draft.dropped):
        if dropped.ignored and step.spec.input_module in dropped.labels:
            findings.problem(field, f"{step.spec.input_module} of {source} is in {dropped.field}, so it is not there to be read")


def _check_dropped(draft: Draft, modules: Mapping[str, Sequence[OutputModule]], findings: Findings) -> None:
    """An unknown module is a typing error: its files would be merged although the requester asks for the opposite."""
    labels = {name: {module.label for module in found} for name, found in modules.items()}
    named = [(one, labels[step.spec.name], f"of {step.spec.name}") for step in draft.steps for one in step.dropped]
    named += [(one, set().union(*labels.values()), "of any step") for one in draft.dropped]
    for dropped, known, whose in named:
        unknown = ", ".join(label for label in dropped.labels if label not in known)
        if unknown and known:
            findings.problem(dropped.field, f"{unknown} is no output module {whose} (there are: {', '.join(sorted(known))})")


def _merge_kind(step: StepDraft, module: OutputModule, configs: Mapping[str, ConfigDocument], findings: Findings) -> MergeKind:
    """How the module's files are merged: by its class in the configuration, by its tier where that is written in another way."""
    text = configs[step.spec.config_cache_id].pset
    found = re.search(rf"""^process\.{re.escape(module.label)}\s*=\s*cms\.OutputModule\(\s*["'](\w+)["']""", text, re.MULTILINE)
    name = found.group(1) if found else ""
    if name and name not in MERGEABLE:
        why = f"output module {module.label} is a {name}, whose files cannot be merged (only {', '.join(MERGEABLE)})"
        findings.problem(f"{step.prefix}ConfigCacheID", why)
        name = ""
    return MergeKind.of(module.data_tier, name)


def _outputs(
    draft: Draft,
    step: StepDraft,
    modules: Sequence[OutputModule],
    configs: Mapping[str, ConfigDocument],
    findings: Findings,
) -> Iterator[OutputSpec]:
    dropped = {label for one in (*step.dropped, *draft.dropped) for label in one.labels}  # neither merged nor registered
    for module in (module for module in modules if module.label not in dropped):
        processed, folder = f"{step.acquisition_era}-{_version(step, module)}", _folder(step, module)
        output = OutputSpec(
            step=step.spec.name,
            module=module.label,
            tier=module.data_tier,
            dataset=f"/{step.primary_dataset}/{processed}/{module.data_tier}",
            merged_lfn_base=f"{draft.merged_lfn_base}/{folder}",
            unmerged_lfn_base=f"{draft.unmerged_lfn_base}/{folder}",
            primary_dataset=step.primary_dataset,
            processed_dataset=processed,
            acquisition_era=step.acquisition_era,
            processing_string=step.processing_string,
            processing_version=step.processing_version,
            merge=_merge_kind(step, module, configs, findings),
        )
        field = f"{step.prefix}ProcessingString"
        if not lexicon.PROCESSED.allows(processed):
            findings.problem(field, f"makes {shown(processed)}, no legal processed dataset: {lexicon.PROCESSED.says}")
        if max(len(output.merged_lfn_base), len(output.unmerged_lfn_base)) + _FILE_NAME_LENGTH > lexicon.LFN_MAX_LENGTH:
            why = f"makes LFNs of more than {lexicon.LFN_MAX_LENGTH} characters below {shown(output.merged_lfn_base)}"
            findings.problem(field, why)
        yield output


def _check_distinct(draft: Draft, outputs: Sequence[OutputSpec], findings: Findings) -> None:
    """No two kept outputs may go to one dataset; in one job they may not have the same module and tier either, as in ReqMgr2."""
    prefixes = {step.spec.name: step.prefix for step in draft.steps}
    seen: dict[str, OutputSpec] = {}
    for output in outputs:
        field = f"{prefixes[output.step]}KeepOutput"
        distinct = [output.dataset]
        if not draft.spec.tasks:
            distinct.append(f"{output.module} with {output.tier}")
        for says in distinct:
            other = seen.setdefault(says, output)
            if other is not output:
                findings.problem(field, f"{output.step} ({output.module}) and {other.step} ({other.module}) both write {says}")


def _check_declared(draft: Draft, outputs: Sequence[OutputSpec], findings: Findings) -> None:
    written = sorted({output.dataset for output in outputs})
    if draft.declared_outputs and sorted(draft.declared_outputs) != written and not findings.problems:
        why = f"declares {', '.join(sorted(draft.declared_outputs))}, but the steps write {', '.join(written) or 'nothing'}"
        findings.problem("OutputDatasets", why)
