"""A ReqMgr2 document to a :class:`Draft`, or :class:`DocumentRefused` with everything wrong in it. Pure: no service, no clock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dags_app.planning.specs import SplittingAlgo, SplittingSpec, WorkflowSpec
from requests_app.harvesting.intake import read_harvest
from requests_app.intake import lexicon
from requests_app.intake.chain import CHAINS, Part, chain_steps, reprocessing_step
from requests_app.intake.documents import merge_document
from requests_app.intake.draft import Draft, Work
from requests_app.intake.features import (
    check_lhe_input,
    read_trust,
    refuse_pileup_above_steps,
    sweep_all_features,
    sweep_fields,
    warn_of_generation_fields,
)
from requests_app.intake.findings import Findings
from requests_app.intake.known import OTHER_TYPES
from requests_app.intake.requirements import requirements
from requests_app.intake.resources import (
    check_sites,
    fit_memory,
    read_block_closing,
    read_merge_limits,
    read_resources,
    read_sites,
)
from requests_app.intake.steps import read_dropped, read_identity, read_request_name, read_steps
from requests_app.intake.tasks import read_tasks
from requests_app.intake.values import is_set, name, names, shown
from requests_app.intake.wanted import refuse_lists_of_later_parts
from requests_app.intake.work import read_generation, read_input
from wms2.conf import Limits
from wms2.errors import DocumentRefused

REPROCESSING = "ReReco"
SUPPORTED_TYPES = (*CHAINS, REPROCESSING)
DEFAULT_CONFIG_URL = "https://cmsweb.cern.ch/couchdb"
DEFAULT_CONFIG_DATABASE = "reqmgr_config_cache"
DEFAULT_UNMERGED_BASE = "/store/unmerged"


def parse(raw: object, *, request_name: str | None, limits: Limits, known_sites: Collection[str] | None) -> Draft:
    """Read and check a request document in any accepted form (see :func:`merge_document`).

    Args:
        raw: the document as JSON gave it; it is not changed.
        request_name: the name to import it under; None takes the document's own (``RequestName``, else ``RequestString``).
        limits: in force; of them count those of memory.
        known_sites: CMS sites that WMS2 knows; None skips that check.

    Raises:
        DocumentRefused: with every problem that can be seen without a service, by field.
    """
    document = whole_document(raw)
    named = read_request_name(document, request_name)
    request_type = read_type(document)
    sweep_all_features(document)
    check_sites(document, *read_sites(document, lexicon.SITE), known_sites)
    if request_type not in SUPPORTED_TYPES:
        read_identity(document, request_type)
        raise DocumentRefused(document.findings.problems)
    kind = CHAINS.get(request_type)
    parts = reprocessing_step(document) if kind is None else chain_steps(document, kind)
    sweep_fields(document, parts)
    return _draft(document, named, request_type, parts, limits)


def whole_document(raw: object) -> Part:
    """A document in any accepted form, with nothing found in it yet."""
    document = merge_document(raw)
    return Part(document, document, Findings())


def read_type(document: Part) -> str:
    """The request type; one that is not supported is a problem and is returned all the same."""
    value, supported = document.own.get("RequestType"), f"{', '.join(SUPPORTED_TYPES[:-1])} and {SUPPORTED_TYPES[-1]}"
    if value is None or value == "":
        document.problem("RequestType", f"is missing; {supported} are supported")
    elif isinstance(value, str) and value in OTHER_TYPES:
        document.problem("RequestType", f"WMS2 does not run {value}: {OTHER_TYPES[value]}")
    elif value not in SUPPORTED_TYPES:
        document.problem("RequestType", f"unknown request type {shown(value)}; {supported} are supported")
    return value if isinstance(value, str) else ""


def has_input(parts: tuple[Part, ...]) -> bool:
    """Whether the first step reads a dataset; a ReReco always does."""
    return bool(parts) and (not parts[0].prefix or is_set(parts[0].own.get("InputDataset")))


def read_work(parts: tuple[Part, ...], time_per_event_seconds: float) -> Work:
    """What the first step does; without a first step (a problem already) a harmless value."""
    if not parts or parts[0].number != 1:
        return Work(splitting=SplittingSpec(algorithm=SplittingAlgo.EVENT_BASED), generation=None, input=None)
    first = parts[0]
    refuse_lists_of_later_parts(parts[1:])
    if not has_input(parts):
        return read_generation(first, time_per_event_seconds)
    warn_of_generation_fields(first)
    work = read_input(first, time_per_event_seconds)
    if work.input is not None and work.input.lumi_list and work.splitting.algorithm is SplittingAlgo.EVENT_BASED:
        # the planner cannot do it either
        first.document.problem("LumiList", "EventBased splitting cannot keep a mask inside a file; use LumiBased or FileBased")
    return work


def _draft(document: Part, named: str, request_type: str, parts: tuple[Part, ...], limits: Limits) -> Draft:
    reads_input = has_input(parts)
    asked = read_resources(document, parts[:1] if parts and parts[0].is_task else parts)
    steps = read_steps(parts)
    tasks = read_tasks(parts, steps, limits)
    refuse_pileup_above_steps(document, parts)
    check_lhe_input(document, parts, reads_input=reads_input)
    if document.own.get("ValidStatus") == "VALID":
        document.warn("ValidStatus", "datasets are PRODUCTION while they grow; they become VALID when the request completes")
    reads_pileup = any(step.spec.pileup for step in steps)
    trusted, pileup_trusted = read_trust(document, reads_input=reads_input, reads_pileup=reads_pileup)
    work = read_work(parts, asked.time_per_event_seconds)
    white, black = read_sites(document, lexicon.SITE)
    min_bytes, max_bytes, max_events = read_merge_limits(document)
    spec = WorkflowSpec(
        request_name=named,
        campaign=document.read("Campaign", name(lexicon.CAMPAIGN), steps[0].acquisition_era if steps else ""),
        steps=tuple(step.spec for step in steps),
        outputs=(),
        resources=tasks[0].resources if tasks else fit_memory(asked, limits, document.findings),
        splitting=work.splitting,
        generation=work.generation,
        input=work.input,
        site_whitelist=white,
        site_blacklist=black,
        trust_sitelists=trusted,
        trust_pileup_sitelists=pileup_trusted,
        extra_requirements=document.read("JobExtraMatchRequirements", requirements, ""),
        tasks=tasks,
        min_merge_bytes=min_bytes,
        max_merge_bytes=max_bytes,
        max_merge_events=max_events,
        block_closing=read_block_closing(document),
        harvest=read_harvest(document),
        request_type=request_type,
    )
    draft = Draft(
        spec=spec,
        identity=read_identity(document, request_type),
        steps=steps,
        dropped=read_dropped(document) if parts and parts[0].prefix else (),
        merged_lfn_base=document.read("MergedLFNBase", name(lexicon.MERGED_BASE), "/store/data" if reads_input else "/store/mc"),
        unmerged_lfn_base=document.read("UnmergedLFNBase", name(lexicon.UNMERGED_BASE), DEFAULT_UNMERGED_BASE),
        declared_outputs=document.read("OutputDatasets", names(lexicon.DATASET), ()),
        config_url=document.read("ConfigCacheUrl", name(lexicon.URL), DEFAULT_CONFIG_URL).rstrip("/"),
        config_database=document.read("CouchDBName", name(lexicon.COUCH_DB), DEFAULT_CONFIG_DATABASE),
    )
    document.findings.refuse_if_any()
    return replace(draft, spec=replace(spec, warnings=document.findings.warnings))
