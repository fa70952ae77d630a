"""What ``plan_request`` needs of a document: splitting, input or generation, sites, resources.

No service is asked and no name becomes a path, so names, outputs and configurations are not checked here, and what does not
change how work is cut (pileup, GPUs) is left alone; :func:`parse` judges a document that is to be run. Formats: ``splitting.md``,
"The planner's formats".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from dags_app.planning import lumis
from dags_app.planning.specs import InputSpec, LumiRanges, SplittingSpec, WorkflowSpec
from dags_app.planning.splitters import SPLITTERS
from requests_app.intake.chain import RERECO_STEP, StepView
from requests_app.intake.documents import merge_document
from requests_app.intake.draft import Work
from requests_app.intake.features import sweep_features
from requests_app.intake.findings import Findings
from requests_app.intake.known import BLOCK_FEATURES, PLAN_ONLY
from requests_app.intake.lexicon import NameRule
from requests_app.intake.parse import REPROCESSING, STEP_CHAIN, read_type
from requests_app.intake.resources import read_resources, read_sites
from requests_app.intake.values import BIGINT_MAX, Unreadable, flag, is_set, mapping, shown, whole
from requests_app.intake.work import read_generation, read_input
from wms2.errors import DocumentRefused

#: Planning compares site names and does no more with them.
_ANY_SITE = NameRule("site", r"[A-Za-z0-9_.-]+", 100, "letters, digits, '.', '_' and '-'")
_HALT, _TIME_LIMIT = "halt_job_on_file_boundaries", "job_time_limit"
_MAX_RUNS = 10**6
_RUN, _LUMI = whole(1, 2**32 - 1), whole(0, 2**32 - 1)


def prepare_plan_spec(raw: object, *, files_given: bool) -> WorkflowSpec:
    """The part of a ``WorkflowSpec`` that splitting reads; it has no steps and no outputs.

    Args:
        raw: a document in any accepted form; without ``RequestType`` it is a StepChain if it has a ``Step1``, else a ReReco.
        files_given: whether there are input files; generation reads none.

    Raises:
        DocumentRefused: with every problem, by field. ``SplittingParams`` may hold ``halt_job_on_file_boundaries`` and
            ``job_time_limit``.
    """
    findings = Findings()
    document = merge_document(raw)
    sweep_features(document, BLOCK_FEATURES, findings)
    first = _first_step(document, findings)
    resources = read_resources(document, (first,), findings)
    if first.prefix and not is_set(first.own.get("InputDataset")):
        work = read_generation(document, first, resources.time_per_event_seconds, findings)
        if files_given:
            findings.problem("files", "the request generates its events and reads no files; give an empty list")
    else:
        work = _with_lists(
            read_input(first, resources.time_per_event_seconds, tuple(SPLITTERS), findings), document, first, findings
        )
    sites = read_sites(document, _ANY_SITE, findings)
    trusted = findings.read("TrustSitelists", document.get("TrustSitelists"), flag, fallback=False)
    splitting = _with_params(work.splitting, document, first, findings)
    findings.refuse_if_any()
    return WorkflowSpec(
        request_name=str(document.get("RequestName") or document.get("RequestString") or ""),
        campaign="",
        steps=(),
        outputs=(),
        resources=resources,
        splitting=splitting,
        generation=work.generation,
        input=work.input,
        site_whitelist=sites.whitelist,
        site_blacklist=sites.blacklist,
        trust_sitelists=trusted,
        warnings=findings.warnings,
    )


def _first_step(document: Mapping[str, object], findings: Findings) -> StepView:
    typed = is_set(document.get("RequestType"))
    request_type = read_type(document, findings) if typed else (STEP_CHAIN if "Step1" in document else REPROCESSING)
    if request_type not in (STEP_CHAIN, REPROCESSING):
        raise DocumentRefused(findings.problems)  # nobody knows where such a document keeps the rest
    if request_type != STEP_CHAIN:
        return StepView(number=1, name=RERECO_STEP, prefix="", own=document, top=document)
    own: Mapping[str, object] = findings.require("Step1", document.get("Step1"), mapping, {})
    return StepView(number=1, name=str(own.get("StepName") or ""), prefix="Step1.", own=own, top=document)


def _with_lists(work: Work, document: Mapping[str, object], first: StepView, findings: Findings) -> Work:
    """Adds what is wanted of the input: run lists stand in the first step, LumiList at the top (ReqMgr2 allows the step, too)."""
    if work.input is None:
        return work
    lumi_field, lumi_list = first.value("LumiList")
    if not is_set(lumi_list):
        lumi_field, lumi_list = "LumiList", document.get("LumiList")
    wanted = InputSpec(
        dataset=work.input.dataset,
        include_parents=findings.read(*first.value("IncludeParents"), flag, fallback=False),
        run_whitelist=findings.read(*first.value("RunWhitelist"), _runs, ()),
        run_blacklist=findings.read(*first.value("RunBlacklist"), _runs, ()),
        lumi_list=findings.read(lumi_field, lumi_list, _lumi_ranges, {}),
    )
    return replace(work, input=wanted)


def _with_params(splitting: SplittingSpec, document: Mapping[str, object], first: StepView, findings: Findings) -> SplittingSpec:
    field, value = first.value(PLAN_ONLY)
    if not is_set(value):
        field, value = PLAN_ONLY, document.get(PLAN_ONLY)
    params: Mapping[str, object] = findings.read(field, value, mapping, {})
    for key in params:
        if key not in (_HALT, _TIME_LIMIT):
            findings.problem(f"{field}.{key}", f"is not known; {_HALT} and {_TIME_LIMIT} are, the rest has fields of its own")
    return replace(
        splitting,
        halt_job_on_file_boundaries=findings.read(
            f"{field}.{_HALT}", params.get(_HALT), flag, splitting.halt_job_on_file_boundaries
        ),
        job_time_limit_seconds=findings.read(
            f"{field}.{_TIME_LIMIT}", params.get(_TIME_LIMIT), whole(1, BIGINT_MAX), splitting.job_time_limit_seconds
        ),
    )


def _runs(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MAX_RUNS:
        raise Unreadable(f"must be a list of run numbers, not {shown(value)}")
    return tuple(sorted({_RUN(run) for run in value}))


def _lumi_ranges(value: object) -> LumiRanges:
    """``{run: [[first, last], ...]}``, also as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise Unreadable(f"must be a map {{run: [[first, last], ...]}}, not {shown(value)}") from error
    intervals = []
    for run, pairs in mapping(value).items():
        if not isinstance(pairs, list):
            raise Unreadable(f"run {shown(run)}: must be a list of [first, last], not {shown(pairs)}")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise Unreadable(f"run {shown(run)}: must hold [first, last], not {shown(pair)}")
            first, last = _LUMI(pair[0]), _LUMI(pair[1])
            if first > last:
                raise Unreadable(f"run {shown(run)}: lumis {first} to {last} end before they begin")
            intervals.append((_RUN(run), first, last))
    return lumis.from_intervals(intervals)
