"""The request's names and its steps, read field by field. Owns nothing of splitting, resources, sites, or output modules.

The primary dataset of outputs: a ReReco has its input's. The first part of a chain names its own, or has that of the top or of
its input. A later step or task names its own or has that of the one it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dags_app.payload.contract.documents import Pileup
from dags_app.payload.contract.platforms import ARCHITECTURES, SYSTEMS
from dags_app.planning.specs import StepSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.draft import DroppedModules, Identity, StepDraft
from requests_app.intake.known import DROPPED, ENDED_STATES, PILEUP
from requests_app.intake.resources import MAX_CORES
from requests_app.intake.values import Unreadable, choice, flag, is_set, name, names, real, shown, text, whole

#: Spec 3.1.1.
DEFAULT_PRIORITY = 100_000
#: Less than one event in a thousand million that is generated would be kept: a typing error.
MIN_FILTER_EFFICIENCY = 1e-9
_MAX_PRIORITY = 999_999
_MAX_ARCHITECTURES = 10
_IGNORED = "IgnoredOutputModules"
_SEEDINGS = ("AutomaticSeeding", "ReproducibleSeeding")


def read_request_name(document: Part, given: str | None) -> str:
    """The request's name: the one given by the caller, else ``RequestName``, else (a pair has none yet) ``RequestString``."""
    own = document.own.get("RequestName")
    if given is not None:
        if is_set(own) and own != given:
            document.warn("RequestName", f"the document's {shown(own)} is not used; imported as {given[:150]}")
        return document.findings.require("RequestName", given, name(lexicon.REQUEST_NAME), "")
    field = "RequestName" if is_set(own) or not is_set(document.own.get("RequestString")) else "RequestString"
    return document.require(field, name(lexicon.REQUEST_NAME), "")


def read_identity(document: Part, request_type: str) -> Identity:
    """Who asks; also warns when ReqMgr2 says that the request is over."""
    state = document.read("RequestStatus", text(50), "")
    if state in ENDED_STATES:
        document.warn("RequestStatus", f"ReqMgr2 has this request as {state}; WMS2 runs it from the start all the same")
    return Identity(
        request_type=request_type,
        priority=document.read("RequestPriority", whole(0, _MAX_PRIORITY), DEFAULT_PRIORITY),
        requestor=document.read("Requestor", text(100), ""),
        requestor_dn=document.read("RequestorDN", text(500), ""),
        group=document.read("Group", text(100), ""),
        prep_id=document.read("PrepID", text(200), ""),
        team=document.read("Team", text(100), ""),
    )


def read_steps(parts: Sequence[Part]) -> tuple[StepDraft, ...]:
    """All steps or tasks, each with the names of its outputs."""
    primaries: dict[str, str] = {}  # of the earlier ones, by name
    drafts: list[StepDraft] = []
    for part in parts:
        earlier = [draft.spec.name for draft in drafts]
        first = drafts[0].primary_dataset if drafts else ""
        # where the first part is missing, a problem already, no primary dataset can be known
        primary = _read_primary(part, primaries, first) if parts[0].number == 1 else ""
        primaries[part.name] = primary
        draft = StepDraft(
            prefix=part.prefix,
            spec=_read_step(part, earlier, is_last=part is parts[-1]),
            primary_dataset=primary,
            acquisition_era=part.require_inherited("AcquisitionEra", name(lexicon.ERA), ""),
            processing_string=part.require_inherited("ProcessingString", name(lexicon.PROCESSING_STRING), ""),
            processing_version=part.read_inherited("ProcessingVersion", whole(1, 2**31 - 1), 1),
            dropped=read_dropped(part),
        )
        processed = f"{draft.acquisition_era}-{draft.processing_string}-v{draft.processing_version}"
        if draft.acquisition_era and draft.processing_string and not lexicon.PROCESSED.allows(processed):
            why = f"makes {shown(processed)}, no legal processed dataset: {lexicon.PROCESSED.says}"
            part.findings.problem(part.inherited("ProcessingString")[0], why)
        drafts.append(draft)
        _check_platform(part, [draft.spec.scram_arch for draft in drafts])
    return tuple(drafts)


def _check_platform(part: Part, chosen: Sequence[Sequence[str]]) -> None:
    """A work unit stays at one site, and its merge runs the release that wrote its files: all need one kind of machine.

    Of systems a job has others in containers (``payload/run/cmssw.py``), but not every site can start those.
    """
    kinds: tuple[tuple[int, Mapping[str, str]], ...] = ((1, ARCHITECTURES), (0, SYSTEMS))
    for place, names_of in kinds:
        sets = [
            {names_of[word] for arch in each for word in arch.split("_")[place : place + 1] if word in names_of}
            for each in chosen
        ]
        known = [each for each in sets if each]
        if not sets[-1] or len(known) < 2 or set.intersection(*known) or not set.intersection(*known[:-1]):
            continue  # nothing to say, or said already of an earlier one
        field, before = part.inherited("ScramArch")[0], ", ".join(sorted(set.intersection(*known[:-1])))
        why = f"runs on {', '.join(sorted(sets[-1]))}, what comes before it on {before}"
        if names_of is ARCHITECTURES:
            part.findings.problem(field, f"{why}: no machine runs both, and a work unit is done at one site")
        else:
            part.findings.warn(field, f"{why}: jobs start containers inside their own, and fail (50513) at sites that forbid it")


def _read_primary(part: Part, earlier: Mapping[str, str], first: str) -> str:
    if part.number != 1:
        read = part.own.get(part.kind.input_field) if part.kind else None
        above = earlier.get(read, first) if isinstance(read, str) else first
        return part.read("PrimaryDataset", name(lexicon.PRIMARY), above) if is_set(part.own.get("PrimaryDataset")) else above
    dataset, above_all = part.own.get("InputDataset"), part.top.get("PrimaryDataset")
    primary = dataset.split("/")[1] if isinstance(dataset, str) and lexicon.DATASET.allows(dataset) else ""
    if not part.prefix:
        if is_set(above_all) and primary and above_all != primary:
            part.problem("PrimaryDataset", f"{shown(above_all)} differs from {primary}, the input's")
        return primary
    field, value = part.value("PrimaryDataset")
    if not value:
        field, value = ("PrimaryDataset", above_all) if above_all else (field, primary)
    return part.findings.require(field, value, name(lexicon.PRIMARY), "")


def read_dropped(part: Part) -> tuple[DroppedModules, ...]:
    """Output modules that are not to be merged; whether they exist only ConfigCache knows."""
    found = []
    for key in DROPPED:
        given = is_set(part.own.get(key))
        labels: tuple[str, ...] = part.read(key, names(lexicon.MODULE), ()) if given else ()
        if labels:
            found.append(DroppedModules(field=part.prefix + key, labels=labels, ignored=key == _IGNORED))
    return tuple(found)


def _read_step(part: Part, earlier: Sequence[str], *, is_last: bool) -> StepSpec:
    keep = part.read("KeepOutput", flag, fallback=True)
    if is_last and not keep and not part.is_task:
        part.problem("KeepOutput", "the last step's output must be kept")
    input_step, input_module = _read_input(part, earlier)
    return StepSpec(
        number=part.number,
        name=part.name,
        config_cache_id=part.require("ConfigCacheID", name(lexicon.CONFIG_ID), ""),
        cmssw_version=part.require_inherited("CMSSWVersion", name(lexicon.CMSSW), ""),
        scram_arch=part.require_inherited("ScramArch", _architectures, ()),
        global_tag=part.require_inherited("GlobalTag", name(lexicon.GLOBAL_TAG), ""),
        threads=part.read_inherited("Multicore", whole(1, MAX_CORES), 1),
        event_streams=part.read_inherited("EventStreams", whole(0, MAX_CORES), 0),
        input_step=input_step,
        input_module=input_module,
        keep_output=keep,
        filter_efficiency=part.read("FilterEfficiency", real(MIN_FILTER_EFFICIENCY, 1.0), 1.0),
        seeding=part.read("Seeding", choice(*_SEEDINGS), _SEEDINGS[0]),
        pileup=tuple(
            Pileup(kind=kind, dataset=dataset)
            for key, kind in zip(PILEUP, ("mc", "data"), strict=True)  # as the PSet's mixing modules know them
            if (dataset := part.read(key, name(lexicon.DATASET), ""))
        ),
        deterministic_pileup=part.read_inherited("DeterministicPileup", flag, fallback=False),
    )


def _read_input(part: Part, earlier: Sequence[str]) -> tuple[str | None, str | None]:
    """Which earlier step or task, and which of its output modules, one reads; nothing for the first."""
    key = part.kind.input_field if part.kind else "InputStep"
    if part.number == 1:
        for field in (key, "InputFromOutputModule"):
            if is_set(part.own.get(field)):
                part.problem(field, f"the first {part.word} reads no other {part.word}")
        return None, None
    source = part.require(key, name(lexicon.STEP_NAME), "")
    if source and source not in earlier and len(earlier) == part.number - 1:  # none is missing
        part.problem(key, f"{shown(source)} is no earlier {part.word} (earlier: {', '.join(filter(None, earlier))})")
    return source, part.require("InputFromOutputModule", name(lexicon.MODULE), "")


def _architectures(value: object) -> tuple[str, ...]:
    found = names(lexicon.SCRAM_ARCH)(value)
    if not 1 <= len(found) <= _MAX_ARCHITECTURES:
        raise Unreadable(f"must name 1 to {_MAX_ARCHITECTURES} architectures, not {len(found)}")
    return found
