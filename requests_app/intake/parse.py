"""A ReqMgr2 document to a :class:`Draft`, or :class:`DocumentRefused` with everything wrong in it. Pure: no service, no clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dags_app.planning.specs import SplittingAlgo, SplittingSpec, WorkflowSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import CHAINS, StepView, chain_steps, reprocessing_step
from requests_app.intake.documents import merge_document
from requests_app.intake.draft import Draft, MemoryWindow, Work
from requests_app.intake.features import (
    check_lhe_input,
    check_valid_status,
    refuse_plan_only,
    sweep_all_features,
    sweep_fields,
    warn_of_generation_fields,
)
from requests_app.intake.findings import Findings
from requests_app.intake.known import OTHER_TYPES
from requests_app.intake.pileup import read_trust, refuse_pileup_above_steps
from requests_app.intake.primaries import read_primaries
from requests_app.intake.requirements import requirements
from requests_app.intake.resources import (
    check_sites,
    fit_memory,
    read_block_closing,
    read_merge_limits,
    read_resources,
    read_sites,
)
from requests_app.intake.steps import read_campaign, read_dropped, read_identity, read_request_name, read_steps
from requests_app.intake.tasks import read_tasks
from requests_app.intake.values import is_set, name, names, shown
from requests_app.intake.wanted import refuse_lists_of_later_parts
from requests_app.intake.work import read_generation, read_input
from wms2.errors import DocumentRefused

REPROCESSING = "ReReco"
SUPPORTED_TYPES = (*CHAINS, REPROCESSING)
DEFAULT_CONFIG_URL = "https://cmsweb.cern.ch/couchdb"
DEFAULT_CONFIG_DATABASE = "reqmgr_config_cache"
DEFAULT_UNMERGED_BASE = "/store/unmerged"


def parse(raw: object, *, request_name: str | None, window: MemoryWindow, known_sites: Collection[str] | None) -> Draft:
    """Read and check a request document in any accepted form (see :func:`merge_document`).

    Args:
        raw: the document as JSON gave it; it is not changed.
        request_name: the name to import it under; None takes the document's own (``RequestName``, else ``RequestString``).
        window: memory per core that jobs may ask for.
        known_sites: CMS sites that WMS2 knows; None skips that check.

    Raises:
        DocumentRefused: with every problem that can be seen without a service, by field.
    """
    findings = Findings()
    document = merge_document(raw)
    named = read_request_name(document, request_name, findings)
    request_type = read_type(document, findings)
    sweep_all_features(document, findings)
    refuse_plan_only(document, findings)
    check_sites(document, *read_sites(document, lexicon.SITE, findings), known_sites, findings)
    if request_type not in SUPPORTED_TYPES:
        read_identity(document, request_type, findings)
        raise DocumentRefused(findings.problems)
    views = read_views(document, request_type, findings)
    sweep_fields(document, views, findings)
    return _draft(document, named, request_type, views, window, findings)


def read_type(document: Mapping[str, object], findings: Findings) -> str:
    """The request type; whatever is not supported is a problem and comes back as text all the same."""
    value = document.get("RequestType")
    if value is None or value == "":
        findings.problem("RequestType", f"is missing; {_supported()} are supported")
    elif isinstance(value, str) and value in OTHER_TYPES:
        findings.problem("RequestType", f"WMS2 does not run {value}: {OTHER_TYPES[value]}")
    elif value not in SUPPORTED_TYPES:
        findings.problem("RequestType", f"unknown request type {shown(value)}; {_supported()} are supported")
    return value if isinstance(value, str) else ""


def _supported() -> str:
    return f"{', '.join(SUPPORTED_TYPES[:-1])} and {SUPPORTED_TYPES[-1]}"


def read_views(document: Mapping[str, object], request_type: str, findings: Findings) -> tuple[StepView, ...]:
    """The steps or tasks, as views."""
    kind = CHAINS.get(request_type)
    return reprocessing_step(document, findings) if kind is None else chain_steps(document, kind, findings)


def has_input(views: tuple[StepView, ...]) -> bool:
    """Whether the first step reads a dataset; a ReReco always does."""
    return bool(views) and (not views[0].prefix or is_set(views[0].own.get("InputDataset")))


def read_work(
    document: Mapping[str, object], views: tuple[StepView, ...], time_per_event_seconds: float, findings: Findings
) -> Work:
    """What the first step does; without a first step (a problem already) a value nobody sees."""
    if not views or views[0].number != 1:
        return Work(splitting=SplittingSpec(algorithm=SplittingAlgo.EVENT_BASED), generation=None, input=None)
    refuse_lists_of_later_parts(views[1:], findings)
    if has_input(views):
        warn_of_generation_fields(document, views[0], findings)
        return _checked(read_input(document, views[0], time_per_event_seconds, findings), findings)
    return read_generation(document, views[0], time_per_event_seconds, findings)


def _checked(work: Work, findings: Findings) -> Work:
    """Refuse now what no planner can do later."""
    if work.input is not None and work.input.lumi_list and work.splitting.algorithm is SplittingAlgo.EVENT_BASED:
        findings.problem("LumiList", "EventBased splitting cannot keep a mask inside a file; use LumiBased or FileBased")
    return work


def _draft(
    document: Mapping[str, object],
    named: str,
    request_type: str,
    views: tuple[StepView, ...],
    window: MemoryWindow,
    findings: Findings,
) -> Draft:
    reads_input = has_input(views)
    first_job = views[:1] if views and views[0].is_task else views
    asked = read_resources(document, first_job, findings)
    steps = read_steps(views, read_primaries(document, views, findings), findings)
    tasks = read_tasks(document, views, steps, window, findings)
    refuse_pileup_above_steps(document, views, findings)
    check_lhe_input(document, views, reads_input=reads_input, findings=findings)
    check_valid_status(document, findings)
    trusted, pileup_trusted = read_trust(
        document, reads_input=reads_input, reads_pileup=any(step.spec.pileup for step in steps), findings=findings
    )
    work = read_work(document, views, asked.time_per_event_seconds, findings)
    white, black = read_sites(document, lexicon.SITE, findings)
    min_bytes, max_bytes, max_events = read_merge_limits(document, findings)
    spec = WorkflowSpec(
        request_name=named,
        campaign=read_campaign(document, steps, findings),
        steps=tuple(step.spec for step in steps),
        outputs=(),
        resources=tasks[0].resources if tasks else fit_memory(asked, window, findings),
        splitting=work.splitting,
        generation=work.generation,
        input=work.input,
        site_whitelist=white,
        site_blacklist=black,
        trust_sitelists=trusted,
        trust_pileup_sitelists=pileup_trusted,
        extra_requirements=findings.read(
            "JobExtraMatchRequirements", document.get("JobExtraMatchRequirements"), requirements, ""
        ),
        tasks=tasks,
        min_merge_bytes=min_bytes,
        max_merge_bytes=max_bytes,
        max_merge_events=max_events,
        block_closing=read_block_closing(document, findings),
    )
    draft = Draft(
        spec=spec,
        identity=read_identity(document, request_type, findings),
        steps=steps,
        dropped=read_dropped(document, "", findings) if views and views[0].prefix else (),
        merged_lfn_base=_merged_base(document, reads_input, findings),
        unmerged_lfn_base=findings.read(
            "UnmergedLFNBase", document.get("UnmergedLFNBase"), name(lexicon.UNMERGED_BASE), DEFAULT_UNMERGED_BASE
        ),
        declared_outputs=findings.read("OutputDatasets", document.get("OutputDatasets"), names(lexicon.DATASET), ()),
        config_url=findings.read("ConfigCacheUrl", document.get("ConfigCacheUrl"), name(lexicon.URL), DEFAULT_CONFIG_URL).rstrip(
            "/"
        ),
        config_database=findings.read(
            "CouchDBName", document.get("CouchDBName"), name(lexicon.COUCH_DB), DEFAULT_CONFIG_DATABASE
        ),
    )
    findings.refuse_if_any()
    return replace(draft, spec=replace(spec, warnings=findings.warnings))


def _merged_base(document: Mapping[str, object], reads_input: bool, findings: Findings) -> str:
    default = "/store/data" if reads_input else "/store/mc"
    return findings.read("MergedLFNBase", document.get("MergedLFNBase"), name(lexicon.MERGED_BASE), default)
