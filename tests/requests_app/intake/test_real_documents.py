"""The fourteen real documents: the verdict on each with its numbers or every reason, and the names of what they write."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dags_app.planning.documents import job_document
from dags_app.planning.specs import InputFileSpec, JobSpec, WorkflowSpec
from dags_app.planning.splitters import split
from requests_app.intake import Draft, complete, known, merge_document, parse
from requests_app.intake.parse import SUPPORTED_TYPES
from tests.support.intake import LIMITS, SITES, Config, Document, Module, filled, problems, read, real_document
from tests.support.places import ROOT
from tests.support.planning import dag_spec
from wms2.errors import DocumentRefused

_GOLDEN = Path(__file__).parent / "golden" / "real_requests.json"
NAMES = (
    "DQMHarvesting.json", "ReRecoRequestDump.json", "ReReco_LumiMask.json", "ReReco_RunBlocklists_Parents.json",
    "ReReco_failCase.json", "SC_6Tasks_PU.json", "SC_GPU.json", "SC_MCRecyc.json", "SC_Nano.json", "SC_ProdPsi.json",
    "StepChainRequestDump.json", "StepChain_MCStatic.json", "TC_Nano.json", "TaskChainRequestDump.json",
)  # fmt: skip
#: What only a placeholder spoils in a template as it comes.
_PLACEHOLDERS = re.compile(r"(((Step|Task)\d\.)?(AcquisitionEra|ProcessingString|ProcessingVersion))|SiteWhitelist")


def _verdict(name: str) -> dict[str, Any]:
    """What intake says of a document with its placeholders filled in, at sites that all exist."""
    try:
        draft = parse(filled(real_document(name)), request_name=None, limits=LIMITS, known_sites=None)
    except DocumentRefused as refused:
        return {"refused": {problem.field: problem.problem for problem in refused.problems}}
    return {
        "accepted": _numbers(draft),
        "planned": _planned(draft),
        "warnings": [warning.partition(":")[0] for warning in draft.spec.warnings],
    }


def _harvesting(draft: Draft) -> dict[str, Config]:
    return {draft.spec.harvest.config_cache_id: Config(())} if draft.spec.harvest is not None else {}


def _planned(draft: Draft) -> dict[str, Any]:
    """The jobs of the first task: of the whole generation, or of twelve files of 25 lumis at every site."""
    read_later = {(step.spec.input_step, step.spec.input_module) for step in draft.steps}
    configs = {}
    for number, step in enumerate(draft.steps):
        dropped = {label for one in step.dropped for label in one.labels}
        labels = {"output", *dropped, *(module for source, module in read_later if source == step.spec.name and module)}
        tier = f"TIER-{chr(ord('A') + number)}"
        configs[step.spec.config_cache_id] = Config(tuple(Module(label, tier, label) for label in sorted(labels)))
    spec = complete(replace(draft, declared_outputs=()), {**configs, **_harvesting(draft)})  # type: ignore[arg-type]
    jobs = [item for item in split(spec, _files(spec)) if isinstance(item, JobSpec)]
    return {
        "jobs": len(jobs), "events": sum(job.events for job in jobs), "files_of_first": len(jobs[0].files),
        "lumis_of_first": sum(b - a + 1 for spans in (jobs[0].mask or {}).values() for a, b in spans),
        "outputs": len(spec.outputs),
    }  # fmt: skip


def _files(spec: WorkflowSpec) -> list[InputFileSpec]:
    wanted = spec.input
    if wanted is None:
        return []
    runs = sorted(wanted.lumi_list) or list(wanted.run_whitelist) or [1]
    return [
        InputFileSpec(
            lfn=f"/store/f{n:02d}.root",
            size_bytes=10**9,
            events=2500,
            lumis={runs[n % len(runs)]: ((25 * n + 1, 25 * n + 25),)},
            locations=frozenset(spec.site_whitelist),
        )
        for n in range(12)
    ]


def _numbers(draft: Draft) -> dict[str, Any]:
    made, wanted, splitting, resources = draft.spec.generation, draft.spec.input, draft.spec.splitting, draft.spec.resources
    numbers: dict[str, Any] = {
        "steps": [[step.spec.name, step.spec.keep_output, step.spec.threads, step.processing_version] for step in draft.steps],
        "job": [resources.cores, resources.memory_mb, resources.time_per_event_seconds, resources.size_per_event_kb],
        "pileup": {
            step.spec.name: [[one.kind, one.dataset] for one in step.spec.pileup] for step in draft.steps if step.spec.pileup
        },
        "gpu": None
        if resources.gpu is None
        else [resources.gpu.required, resources.gpu.memory_mb, list(resources.gpu.capabilities)],
        "tasks": {
            task.name: [task.input_task, task.events_per_job, task.resources.cores, task.resources.memory_mb]
            for task in draft.spec.tasks
        },
    }
    if made is not None:
        numbers["generation"] = [made.first_event, made.first_lumi, made.events, made.events_per_job, made.events_per_lumi]
    if wanted is not None:
        numbers["input"] = {
            "dataset": wanted.dataset,
            "splitting": [splitting.algorithm, splitting.files_per_job, splitting.events_per_job, splitting.lumis_per_job],
            "lumis": sum(last - first + 1 for spans in wanted.lumi_list.values() for first, last in spans),
            "runs": len(wanted.run_whitelist),
            "blocks": len(wanted.block_whitelist),
            "parents": wanted.include_parents,
            "trusted": draft.spec.trust_sitelists,
            "open_seconds": wanted.open_seconds,
        }
    return numbers


@pytest.mark.parametrize("name", NAMES)
def test_a_real_document_has_its_verdict_and_numbers(name: str) -> None:
    """``WMS2_WRITE_GOLDEN=1`` writes the file anew; read the difference before it is committed."""
    found = _verdict(name)
    golden = json.loads(_GOLDEN.read_text()) if _GOLDEN.is_file() else {}
    if os.environ.get("WMS2_WRITE_GOLDEN") == "1":
        golden[name] = found
        _GOLDEN.parent.mkdir(exist_ok=True)
        _GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert found == golden[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_refused_for_its_placeholders_beside_its_verdict(name: str) -> None:
    refused = set(problems(real_document(name))) if _spoiled(name) else set()
    verdict = set(_verdict(name).get("refused", {}))
    assert {field for field in refused if not _PLACEHOLDERS.fullmatch(field)} == verdict
    if "Dump" not in name:
        assert "SiteWhitelist" in refused


def _spoiled(name: str) -> bool:
    """Whether the document names placeholders or sites that the three of the tests are not."""
    text = json.dumps(real_document(name))
    return "-OVERRIDE-ME" in text or not set(real_document(name).get("SiteWhitelist", [])) <= set(SITES)


def test_every_real_document_is_judged() -> None:
    assert set(json.loads(_GOLDEN.read_text())) == set(NAMES)


def test_a_placeholder_is_called_one() -> None:
    found = problems(real_document("SC_ProdPsi.json"))
    assert "'SiteWhitelist-OVERRIDE-ME' is a template's placeholder" in found["SiteWhitelist"]
    assert "'AcquisitionEra-OVERRIDE-ME' is a template's placeholder" in found["Step1.AcquisitionEra"]


def test_every_field_of_the_real_documents_is_in_a_table() -> None:
    top = known.USED_TOP | set(known.IRRELEVANT) | set(known.WARNED) | set(known.FEATURES)
    part = known.USED_STEP | known.USED_TASK | set(known.IRRELEVANT_STEP) | set(known.FEATURES)
    for name in NAMES:
        document = merge_document(real_document(name))
        parts = {key for key in document if re.fullmatch(r"(Step|Task)\d", key)}
        assert document.keys() - parts <= top
        for key in parts:
            inner = document[key]
            assert isinstance(inner, dict)
            assert inner.keys() <= part


def test_the_production_chain_is_accepted_with_its_own_numbers() -> None:
    draft = read(filled(real_document("SC_ProdPsi.json")))
    made = draft.spec.generation
    assert made is not None
    assert (made.first_event, made.first_lumi, made.events, made.run) == (10_001, 101, 10_000, 1)
    assert (made.events_per_job, made.events_per_lumi) == (1_100, 100)  # 43200 s / 40 s = 1080, to whole lumis
    assert (draft.spec.resources.cores, draft.spec.resources.memory_mb) == (8, 16_000)
    assert [step.spec.keep_output for step in draft.steps] == [True, False, True]
    assert [step.spec.input_step for step in draft.steps] == [None, "GenSimFull", "Digi_2021noPU"]
    assert draft.spec.request_name == "Integ"
    assert [warning.split(":")[0] for warning in draft.spec.warnings] == ["CustodialSites", "NonCustodialSites"]


def test_the_production_chain_means_the_same_as_one_document() -> None:
    pair = filled(real_document("SC_ProdPsi.json"))
    merged = merge_document(pair)
    assert read(merged) == read(pair)
    assert read({"result": [{"Integ": merged}]}) == read(pair)


def test_output_names_of_a_chain_are_those_that_reqmgr2_made() -> None:
    document = real_document("StepChainRequestDump.json")
    ids = [document[f"Step{number}"]["ConfigCacheID"] for number in (1, 2, 3)]
    configs = {
        ids[0]: Config((Module("RAWSIMoutput", "GEN-SIM"), Module("LHEoutput", "LHE"))),
        ids[1]: Config((Module("PREMIXRAWoutput", "GEN-SIM-RAW"),)),
        ids[2]: Config((Module("AODSIMoutput", "AODSIM"),)),
    }
    _outputs_match(document, configs)


def test_output_names_of_a_reprocessing_are_those_that_reqmgr2_made() -> None:
    document = real_document("ReRecoRequestDump.json")
    document.update(SiteWhitelist=["T1_US_FNAL"])
    skims = ("EcalUncalWElectron", "EcalUncalZElectron", "EcalESAlign", "HcalCalIterativePhiSym")
    plain = tuple(Module(f"{tier}output", tier) for tier in ("MINIAOD", "AOD", "DQMIO"))
    configs = {
        document["ConfigCacheID"]: Config((*plain, *(Module(f"ALCARECOStream{skim}", "ALCARECO", skim) for skim in skims)))
    }
    _outputs_match(document, configs)


def test_output_names_of_tasks_are_those_that_reqmgr2_made() -> None:
    document = real_document("TaskChainRequestDump.json")
    skims = ("SiStripCalMinBias", "SiStripCalZeroBias", "TkAlMinBias")
    configs = {
        document["Task1"]["ConfigCacheID"]: Config((Module("RAWoutput", "RAW"),)),
        document["Task2"]["ConfigCacheID"]: Config(
            (
                Module("RECOoutput", "RECO"), Module("DQMoutput", "DQMIO"),
                *(Module(f"ALCARECOStream{skim}", "ALCARECO", skim) for skim in skims),
            )
        ),
    }  # fmt: skip
    draft = read(document)
    spec = complete(draft, {**configs, **_harvesting(draft)})  # type: ignore[arg-type]
    assert sorted(output.dataset for output in spec.outputs) == sorted(document["OutputDatasets"])
    (transient,) = json.loads(job_document(dag_spec(workflow=spec)))["transient"]
    handed_on = {transient["unmerged_lfn_base"]}
    bases = {output.unmerged_lfn_base for output in spec.outputs} | handed_on
    assert bases == set(document["OutputModulesLFNBases"])
    assert {output.merged_lfn_base.partition("/CMSSW")[0] for output in spec.outputs} == {document["MergedLFNBase"]}
    assert [(task.name, task.input_module) for task in spec.tasks] == [("HLTD", None), ("RECODreHLT", "RAWoutput")]


def test_every_document_that_lists_output_datasets_is_compared_with_its_list() -> None:
    listing = {name for name in NAMES if merge_document(real_document(name)).get("OutputDatasets")}
    assert listing == {"StepChainRequestDump.json", "ReRecoRequestDump.json", "TaskChainRequestDump.json"}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("StepChain_MCStatic.json", ["Static_Test-StepChain_MCStatic_TEST_WMCore-v33"]),
        ("SC_6Tasks_PU.json", ["Integ_Test-Test_WMS2-v19"]),
    ],
    ids=["a version for each step", "maps of the assignment"],
)
def test_eras_strings_and_versions_are_each_steps_own(name: str, names: list[str]) -> None:
    draft = parse(filled(real_document(name)), request_name=None, limits=LIMITS, known_sites=None)
    last = draft.steps[-1]
    configs = {}
    for number, step in enumerate(draft.steps):
        read_later = {each.spec.input_module for each in draft.steps if each.spec.input_step == step.spec.name}
        (label,) = read_later or {"output"}
        configs[step.spec.config_cache_id] = Config((Module(str(label), f"TIER-{'ABCDEF'[number]}"),))
    spec = complete(draft, configs)  # type: ignore[arg-type]
    assert {each.processed_dataset for each in spec.outputs if each.step == last.spec.name} == set(names)
    assert all(each.merged_lfn_base.startswith("/store/backfill/1/") for each in spec.outputs)


def _outputs_match(document: Document, configs: dict[str, Config]) -> None:
    spec = complete(read(document), configs)
    assert sorted(output.dataset for output in spec.outputs) == sorted(document["OutputDatasets"])
    assert sorted(output.unmerged_lfn_base for output in spec.outputs) == sorted(document["OutputModulesLFNBases"])
    assert {output.merged_lfn_base.split("/Integ")[0].split("/Run2017F")[0] for output in spec.outputs} == {
        document["MergedLFNBase"]
    }


def test_the_table_of_documents_in_the_docs_says_what_intake_says() -> None:
    rows = re.findall(
        r"^\| (\S+\.json) \| (\w+) \| ([a-z, ]+) \| (.*?) ?\|$", (ROOT / "docs/requests.md").read_text(), re.MULTILINE
    )
    reported = {name: (kind, answer, sorted(filter(None, reasons.split(", ")))) for name, kind, answer, reasons in rows}
    assert reported.keys() == set(NAMES)
    for name in NAMES:
        found = _verdict(name)
        kind = merge_document(filled(real_document(name)))["RequestType"]
        reasons = sorted(found.get("refused") or found["warnings"])
        answer = "refused" if "refused" in found else "accepted, warned" if reasons else "accepted"
        assert reported[name] == (kind, answer, reasons)
        assert (answer == "refused") == (kind not in SUPPORTED_TYPES), "every kind that WMS2 runs is accepted"
    explained = re.findall(r"^- (`.*?): ", (ROOT / "docs/requests.md").read_text(), re.MULTILINE)
    words = {word for line in explained for word in re.findall(r"`(\w+)`", line)}
    assert {reason for _, _, reasons in reported.values() for reason in reasons} <= words
