"""The request's names and its steps, read field by field. Owns nothing of splitting, resources, sites, or output modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dags_app.planning.specs import StepSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import StepView
from requests_app.intake.draft import DroppedModules, Identity, StepDraft
from requests_app.intake.findings import Findings
from requests_app.intake.known import DROPPED, ENDED_STATES
from requests_app.intake.pileup import read_deterministic, read_pileup
from requests_app.intake.values import Unreadable, flag, is_set, name, names, real, shown, text, whole

#: Spec 3.1.1.
DEFAULT_PRIORITY = 100_000
#: Less than one event in a thousand million that is generated would be kept: a typing error.
MIN_FILTER_EFFICIENCY = 1e-9
_MAX_PRIORITY = 999_999
_MAX_CORES = 256
_MAX_ARCHITECTURES = 10
_IGNORED = "IgnoredOutputModules"
_SEEDINGS = ("AutomaticSeeding", "ReproducibleSeeding")


def read_request_name(document: Mapping[str, object], given: str | None, findings: Findings) -> str:
    """The request's name: the one given by the caller, else ``RequestName``, else (a pair has none yet) ``RequestString``."""
    own = document.get("RequestName")
    if given is not None:
        if is_set(own) and own != given:
            findings.warn("RequestName", f"the document's {shown(own)} is not used; imported as {given[:150]}")
        return findings.require("RequestName", given, name(lexicon.REQUEST_NAME), "")
    field = "RequestName" if is_set(own) or not is_set(document.get("RequestString")) else "RequestString"
    return findings.require(field, document.get(field), name(lexicon.REQUEST_NAME), "")


def read_identity(document: Mapping[str, object], request_type: str, findings: Findings) -> Identity:
    """Who asks; also warns when ReqMgr2 says that the request is over."""

    def words(key: str, length: int) -> str:
        return findings.read(key, document.get(key), text(length), "")

    state = words("RequestStatus", 50)
    if state in ENDED_STATES:
        findings.warn("RequestStatus", f"ReqMgr2 has this request as {state}; WMS2 runs it from the start all the same")
    return Identity(
        request_type=request_type,
        priority=findings.read("RequestPriority", document.get("RequestPriority"), whole(0, _MAX_PRIORITY), DEFAULT_PRIORITY),
        requestor=words("Requestor", 100),
        requestor_dn=words("RequestorDN", 500),
        group=words("Group", 100),
        prep_id=words("PrepID", 200),
    )


def read_campaign(document: Mapping[str, object], steps: Sequence[StepDraft], findings: Findings) -> str:
    """The campaign; without one the first step's era, as ReqMgr2 does."""
    default = steps[0].acquisition_era if steps else ""
    return findings.read("Campaign", document.get("Campaign"), name(lexicon.CAMPAIGN), default)


def read_steps(views: Sequence[StepView], primaries: Sequence[str], findings: Findings) -> tuple[StepDraft, ...]:
    """All steps or tasks, each with the names of its outputs; ``primaries`` are their primary datasets."""
    earlier: list[str] = []
    drafts = []
    for view, primary in zip(views, primaries, strict=True):
        spec = _read_step(view, earlier, is_last=view is views[-1], findings=findings)
        era_field, era = view.inherited("AcquisitionEra")
        string_field, string = view.inherited("ProcessingString")
        version_field, version = view.inherited("ProcessingVersion")
        draft = StepDraft(
            prefix=view.prefix,
            spec=spec,
            primary_dataset=primary,
            acquisition_era=findings.require(era_field, era, name(lexicon.ERA), ""),
            processing_string=findings.require(string_field, string, name(lexicon.PROCESSING_STRING), ""),
            processing_version=findings.read(version_field, version, whole(1, 2**31 - 1), 1),
            dropped=read_dropped(view.own, view.prefix, findings),
        )
        processed = f"{draft.acquisition_era}-{draft.processing_string}-v{draft.processing_version}"
        if draft.acquisition_era and draft.processing_string and not lexicon.PROCESSED.allows(processed):
            findings.problem(string_field, f"makes {shown(processed)}, no legal processed dataset: {lexicon.PROCESSED.says}")
        drafts.append(draft)
        earlier.append(view.name)
    return tuple(drafts)


def read_dropped(fields: Mapping[str, object], prefix: str, findings: Findings) -> tuple[DroppedModules, ...]:
    """Output modules that are not to be merged; whether they exist only ConfigCache knows."""
    found = []
    for key in DROPPED:
        labels: tuple[str, ...] = ()
        if is_set(fields.get(key)):
            labels = findings.read(prefix + key, fields.get(key), names(lexicon.MODULE), labels)
        if labels:
            found.append(DroppedModules(field=prefix + key, labels=labels, ignored=key == _IGNORED))
    return tuple(found)


def _read_step(view: StepView, earlier: Sequence[str], is_last: bool, findings: Findings) -> StepSpec:
    keep = findings.read(*view.value("KeepOutput"), flag, True)
    if is_last and not keep and not view.is_task:
        findings.problem(f"{view.prefix}KeepOutput", "the last step's output must be kept")
    input_step, input_module = _read_input(view, earlier, findings)
    return StepSpec(
        number=view.number,
        name=view.name,
        config_cache_id=findings.require(*view.value("ConfigCacheID"), name(lexicon.CONFIG_ID), ""),
        cmssw_version=findings.require(*view.inherited("CMSSWVersion"), name(lexicon.CMSSW), ""),
        scram_arch=findings.require(*view.inherited("ScramArch"), _architectures, ()),
        global_tag=findings.require(*view.inherited("GlobalTag"), name(lexicon.GLOBAL_TAG), ""),
        threads=findings.read(*view.inherited("Multicore"), whole(1, _MAX_CORES), 1),
        event_streams=findings.read(*view.inherited("EventStreams"), whole(0, _MAX_CORES), 0),
        input_step=input_step,
        input_module=input_module,
        keep_output=keep,
        filter_efficiency=findings.read(*view.value("FilterEfficiency"), real(MIN_FILTER_EFFICIENCY, 1.0), 1.0),
        seeding=findings.read(*view.value("Seeding"), _seeding, _SEEDINGS[0]),
        pileup=read_pileup(view, findings),
        deterministic_pileup=read_deterministic(view, findings),
    )


def _read_input(view: StepView, earlier: Sequence[str], findings: Findings) -> tuple[str | None, str | None]:
    """Which earlier step or task, and which of its output modules, one reads; nothing for the first."""
    key, part = (view.kind.input_field, view.kind.part.lower()) if view.kind else ("InputStep", "step")
    if view.number == 1:
        for field in (key, "InputFromOutputModule"):
            if is_set(view.own.get(field)):
                findings.problem(view.prefix + field, f"the first {part} reads no other {part}")
        return None, None
    source = findings.require(*view.value(key), name(lexicon.STEP_NAME), "")
    if source and source not in earlier and len(earlier) == view.number - 1:  # none is missing
        findings.problem(
            f"{view.prefix}{key}", f"{shown(source)} is no earlier {part} (earlier: {', '.join(filter(None, earlier))})"
        )
    module = findings.require(*view.value("InputFromOutputModule"), name(lexicon.MODULE), "")
    return source, module


def _architectures(value: object) -> tuple[str, ...]:
    found = names(lexicon.SCRAM_ARCH)(value)
    if not 1 <= len(found) <= _MAX_ARCHITECTURES:
        raise Unreadable(f"must name 1 to {_MAX_ARCHITECTURES} architectures, not {len(found)}")
    return found


def _seeding(value: object) -> str:
    if value not in _SEEDINGS:
        raise Unreadable(f"must be {' or '.join(_SEEDINGS)}, not {shown(value)}")
    return str(value)
