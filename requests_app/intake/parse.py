"""A ReqMgr2 document to a :class:`Draft`, or :class:`DocumentRefused` with everything wrong in it. Pure: no service, no clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dags_app.planning.specs import SplittingAlgo, SplittingSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import StepView, chain_steps, reprocessing_step
from requests_app.intake.documents import merge_document
from requests_app.intake.draft import Draft, MemoryWindow, Work
from requests_app.intake.features import (
    check_trusted_sites,
    refuse_plan_only,
    sweep_all_features,
    sweep_fields,
    warn_of_generation_fields,
)
from requests_app.intake.findings import Findings
from requests_app.intake.known import LATER_TYPES
from requests_app.intake.resources import check_sites, fit_memory, read_merge_limits, read_resources, read_sites
from requests_app.intake.steps import read_campaign, read_identity, read_request_name, read_steps
from requests_app.intake.values import is_set, name, names, shown
from requests_app.intake.work import SUPPORTED_WITH_INPUT, read_generation, read_input
from wms2.errors import DocumentRefused

STEP_CHAIN, REPROCESSING = "StepChain", "ReReco"
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
    check_sites(document, read_sites(document, lexicon.SITE, findings), known_sites, findings)
    if request_type not in (STEP_CHAIN, REPROCESSING):
        read_identity(document, request_type, findings)
        raise DocumentRefused(findings.problems)
    views = read_views(document, request_type, findings)
    sweep_fields(document, views, findings)
    return _draft(document, named, request_type, views, window, findings)


def read_type(document: Mapping[str, object], findings: Findings) -> str:
    """The request type; whatever is not supported is a problem and comes back as text all the same."""
    value = document.get("RequestType")
    if value is None or value == "":
        findings.problem("RequestType", f"is missing; {STEP_CHAIN} and {REPROCESSING} are supported")
    elif value in LATER_TYPES:
        findings.later("RequestType", str(value))
    elif value not in (STEP_CHAIN, REPROCESSING):
        findings.problem("RequestType", f"unknown request type {shown(value)}; {STEP_CHAIN} and {REPROCESSING} are supported")
    return value if isinstance(value, str) else ""


def read_views(document: Mapping[str, object], request_type: str, findings: Findings) -> tuple[StepView, ...]:
    """The steps, as views."""
    return chain_steps(document, findings) if request_type == STEP_CHAIN else reprocessing_step(document, findings)


def has_input(views: tuple[StepView, ...]) -> bool:
    """Whether the first step reads a dataset; a ReReco always does."""
    return bool(views) and (not views[0].prefix or is_set(views[0].own.get("InputDataset")))


def read_work(
    document: Mapping[str, object], views: tuple[StepView, ...], time_per_event_seconds: float, findings: Findings
) -> Work:
    """What the first step does; without a first step (a problem already) a value nobody sees."""
    if not views or views[0].number != 1:
        return Work(splitting=SplittingSpec(algorithm=SplittingAlgo.EVENT_BASED), generation=None, input=None)
    if has_input(views):
        warn_of_generation_fields(document, views[0], findings)
        return read_input(views[0], time_per_event_seconds, SUPPORTED_WITH_INPUT, findings)
    return read_generation(document, views[0], time_per_event_seconds, findings)


def _draft(
    document: Mapping[str, object],
    named: str,
    request_type: str,
    views: tuple[StepView, ...],
    window: MemoryWindow,
    findings: Findings,
) -> Draft:
    reads_input = has_input(views)
    if reads_input and request_type == STEP_CHAIN:
        findings.later("Step1.InputDataset", "a StepChain with an input dataset")
    asked = read_resources(document, views, findings)
    steps = read_steps(views, findings)
    draft = Draft(
        request_name=named,
        campaign=read_campaign(document, steps, findings),
        identity=read_identity(document, request_type, findings),
        steps=steps,
        primary_dataset=_read_primary(document, views, findings),
        merged_lfn_base=_merged_base(document, reads_input, findings),
        unmerged_lfn_base=findings.read(
            "UnmergedLFNBase", document.get("UnmergedLFNBase"), name(lexicon.UNMERGED_BASE), DEFAULT_UNMERGED_BASE
        ),
        resources=fit_memory(asked, window, findings),
        work=read_work(document, views, asked.time_per_event_seconds, findings),
        sites=read_sites(document, lexicon.SITE, findings),
        merge=read_merge_limits(document, findings),
        declared_outputs=findings.read("OutputDatasets", document.get("OutputDatasets"), names(lexicon.DATASET), ()),
        config_url=findings.read("ConfigCacheUrl", document.get("ConfigCacheUrl"), name(lexicon.URL), DEFAULT_CONFIG_URL).rstrip(
            "/"
        ),
        config_database=findings.read(
            "CouchDBName", document.get("CouchDBName"), name(lexicon.COUCH_DB), DEFAULT_CONFIG_DATABASE
        ),
        warnings=(),
    )
    check_trusted_sites(document, reads_input, findings)
    findings.refuse_if_any()
    return replace(draft, warnings=findings.warnings)


def _merged_base(document: Mapping[str, object], reads_input: bool, findings: Findings) -> str:
    default = "/store/data" if reads_input else "/store/mc"
    return findings.read("MergedLFNBase", document.get("MergedLFNBase"), name(lexicon.MERGED_BASE), default)


def _read_primary(document: Mapping[str, object], views: tuple[StepView, ...], findings: Findings) -> str:
    """The one primary dataset of all outputs: a ReReco has its input's; a chain may name one in its first step or at the top."""
    if not views or views[0].number != 1:
        return ""
    primary = ""
    if has_input(views):
        dataset = views[0].own.get("InputDataset")
        primary = dataset.split("/")[1] if isinstance(dataset, str) and lexicon.DATASET.allows(dataset) else ""
    if views[0].prefix:
        own = [
            (field, value)
            for field, value in (views[0].value("PrimaryDataset"), ("PrimaryDataset", document.get("PrimaryDataset")))
            if value
        ]
        field, value = own[0] if own else (f"{views[0].prefix}PrimaryDataset", primary)
        primary = findings.require(field, value, name(lexicon.PRIMARY), "")
    for view in views:
        field, value = view.value("PrimaryDataset")
        if is_set(value) and primary and value != primary:
            findings.problem(field, f"{shown(value)} differs from {primary}: all outputs of a request have one primary dataset")
    return primary
