"""The fourteen real documents: each is refused with exactly these fields, and what is supported of them is accepted."""

from __future__ import annotations

import re

import pytest

from requests_app.intake import complete, known, merge_document
from tests.intake.factory import Config, Document, Module, filled, problems, read, real_document

_NAMES = ("AcquisitionEra", "ProcessingString")


def _steps(count: int, *fields: str) -> set[str]:
    return {f"Step{number}.{field}" for number in range(1, count + 1) for field in fields}


#: As they come, with their placeholders.
AS_THEY_COME = {
    "DQMHarvesting.json": {"RequestType", "SiteWhitelist"},
    "ReRecoRequestDump.json": {"RunWhitelist", "SplittingAlgo", "SiteWhitelist"},
    "ReReco_LumiMask.json": {"LumiList", "OpenRunningTimeout", "SplittingAlgo", "ProcessingString", "SiteWhitelist"},
    "ReReco_RunBlocklists_Parents.json": {
        "RunWhitelist", "BlockWhitelist", "IncludeParents", "TrustSitelists", "SplittingAlgo", "SiteWhitelist", *_NAMES,
    },
    "ReReco_failCase.json": {"RunWhitelist", "BlockWhitelist", "TrustSitelists", "SplittingAlgo", "SiteWhitelist", *_NAMES},
    "SC_6Tasks_PU.json": {"Step3.MCPileup", "SiteWhitelist", *_steps(6, *_NAMES)},
    "SC_GPU.json": {"JobExtraMatchRequirements", "SiteWhitelist", *_steps(3, "RequiresGPU", *_NAMES)},
    "SC_MCRecyc.json": {"Step1.InputDataset", "Step1.SplittingAlgo", "SiteWhitelist", *_steps(2, "ProcessingVersion", *_NAMES)},
    "SC_Nano.json": {"Step1.InputDataset", "Step1.SplittingAlgo", "SiteWhitelist", *_steps(1, *_NAMES)},
    "SC_ProdPsi.json": {"SiteWhitelist", *_steps(3, *_NAMES)},
    "StepChainRequestDump.json": {"Step2.MCPileup"},
    "StepChain_MCStatic.json": {"Step2.MCPileup", "TrustPUSitelists", "SiteWhitelist"},
    "TC_Nano.json": {"RequestType", "SiteWhitelist"},
    "TaskChainRequestDump.json": {"RequestType", "Task1.LumiList", "Task1.TransientOutputModules"},
}  # fmt: skip

#: Fields that only a placeholder spoils.
_PLACEHOLDERS = re.compile(r"((Step\d\.)?(AcquisitionEra|ProcessingString|ProcessingVersion))|SiteWhitelist")


@pytest.mark.parametrize("name", AS_THEY_COME)
def test_a_real_document_is_refused_for_exactly_these_fields(name: str) -> None:
    assert set(problems(real_document(name))) == AS_THEY_COME[name]


@pytest.mark.parametrize("name", [name for name in AS_THEY_COME if "Dump" not in name and name != "SC_ProdPsi.json"])
def test_a_filled_template_is_refused_only_for_what_is_not_yet_supported(name: str) -> None:
    found = problems(filled(real_document(name)))

    assert set(found) == {field for field in AS_THEY_COME[name] if not _PLACEHOLDERS.fullmatch(field)}
    assert all(problem.startswith("not yet supported: ") for problem in found.values())


def test_a_placeholder_is_called_one() -> None:
    found = problems(real_document("SC_ProdPsi.json"))

    assert "'SiteWhitelist-OVERRIDE-ME' is a template's placeholder" in found["SiteWhitelist"]
    assert "'AcquisitionEra-OVERRIDE-ME' is a template's placeholder" in found["Step1.AcquisitionEra"]


def test_every_field_of_the_real_documents_is_in_a_table() -> None:
    top = known.USED_TOP | set(known.IRRELEVANT) | set(known.WARNED) | set(known.FEATURES) | set(known.TRUST) | {"TaskChain"}
    step = (
        known.USED_STEP
        | set(known.IRRELEVANT_STEP)
        | set(known.FEATURES)
        | {"TaskName", "InputTask", "TimePerEvent", "SizePerEvent"}
    )
    for name in AS_THEY_COME:
        document = merge_document(real_document(name))
        parts = {key for key in document if re.fullmatch(r"(Step|Task)\d", key)}
        assert document.keys() - parts <= top
        for part in parts:
            inner = document[part]
            assert isinstance(inner, dict)
            assert inner.keys() <= step


def test_the_production_chain_is_accepted_with_its_own_numbers() -> None:
    draft = read(filled(real_document("SC_ProdPsi.json")))

    made = draft.work.generation
    assert made is not None
    assert (made.first_event, made.first_lumi, made.events, made.run) == (10_001, 101, 10_000, 1)
    assert (made.events_per_job, made.events_per_lumi) == (1_100, 100)  # 43200 s / 40 s = 1080, to whole lumis
    assert (draft.resources.cores, draft.resources.memory_mb) == (8, 16_000)
    assert [step.spec.keep_output for step in draft.steps] == [True, False, True]
    assert [step.spec.input_step for step in draft.steps] == [None, "GenSimFull", "Digi_2021noPU"]
    assert draft.request_name == "Integ"
    assert [warning.split(":")[0] for warning in draft.warnings] == ["EnableHarvesting", "CustodialSites", "NonCustodialSites"]


def test_the_production_chain_means_the_same_as_one_document() -> None:
    pair = filled(real_document("SC_ProdPsi.json"))
    merged = merge_document(pair)

    assert read(merged) == read(pair)
    assert read({"result": [{"Integ": merged}]}) == read(pair)


def test_output_names_of_a_chain_are_those_that_reqmgr2_made() -> None:
    document = real_document("StepChainRequestDump.json")
    del document["Step2"]["MCPileup"]
    ids = [document[f"Step{number}"]["ConfigCacheID"] for number in (1, 2, 3)]
    configs = {
        ids[0]: Config((Module("RAWSIMoutput", "GEN-SIM"), Module("LHEoutput", "LHE"))),
        ids[1]: Config((Module("PREMIXRAWoutput", "GEN-SIM-RAW"),)),
        ids[2]: Config((Module("AODSIMoutput", "AODSIM"),)),
    }

    _outputs_match(document, configs)


def test_output_names_of_a_reprocessing_are_those_that_reqmgr2_made() -> None:
    document = real_document("ReRecoRequestDump.json")
    document.update(RunWhitelist=[], SplittingAlgo="FileBased", SiteWhitelist=["T1_US_FNAL"])
    skims = ("EcalUncalWElectron", "EcalUncalZElectron", "EcalESAlign", "HcalCalIterativePhiSym")
    plain = tuple(Module(f"{tier}output", tier) for tier in ("MINIAOD", "AOD", "DQMIO"))
    configs = {
        document["ConfigCacheID"]: Config((*plain, *(Module(f"ALCARECOStream{skim}", "ALCARECO", skim) for skim in skims))),
    }

    _outputs_match(document, configs)


def _outputs_match(document: Document, configs: dict[str, Config]) -> None:
    spec = complete(read(document), configs)
    assert sorted(output.dataset for output in spec.outputs) == sorted(document["OutputDatasets"])
    assert sorted(output.unmerged_lfn_base for output in spec.outputs) == sorted(document["OutputModulesLFNBases"])
    assert {output.merged_lfn_base.split("/Integ")[0].split("/Run2017F")[0] for output in spec.outputs} == {
        document["MergedLFNBase"]
    }
