"""Completing a request with its ConfigCache documents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from requests_app.intake import complete, config_ids, lexicon
from tests.support.intake import (
    CHAIN_CONFIGS,
    REPROCESSING_CONFIGS,
    Config,
    Document,
    Module,
    chain,
    incomplete,
    problems,
    read,
    reprocessing,
    typed,
    with_step,
)
from wms2.adapters.types import ConfigDocument, OutputModule
from wms2.errors import DocumentRefused


def test_kept_steps_write_their_modules_to_cms_names() -> None:
    spec = typed(chain())
    assert [(output.step, output.module, output.dataset) for output in spec.outputs] == [
        ("Gen", "LHEoutput", "/MinBias_TuneCP5/Run3TestGS-140X_test-v2/LHE"),
        ("Gen", "RAWSIMoutput", "/MinBias_TuneCP5/Run3TestGS-140X_test-v2/GEN-SIM"),
        ("Reco", "ALCARECOoutput", "/MinBias_TuneCP5/Run3TestDR-TkAlMinBias-140X_test-v2/ALCARECO"),
        ("Reco", "AODSIMoutput", "/MinBias_TuneCP5/Run3TestDR-140X_test-v2/AODSIM"),
    ]
    skim = spec.outputs[2]
    assert skim.merged_lfn_base == "/store/mc/Run3TestDR/MinBias_TuneCP5/ALCARECO/TkAlMinBias-140X_test-v2"
    assert skim.unmerged_lfn_base == "/store/unmerged/Run3TestDR/MinBias_TuneCP5/ALCARECO/TkAlMinBias-140X_test-v2"
    assert (skim.primary_dataset, skim.processed_dataset, skim.tier) == (
        "MinBias_TuneCP5",
        "Run3TestDR-TkAlMinBias-140X_test-v2",
        "ALCARECO",
    )
    assert (skim.acquisition_era, skim.processing_string, skim.processing_version) == ("Run3TestDR", "140X_test", 2)


def test_steps_know_all_their_modules_and_their_configurations_hash() -> None:
    gen, digi, _ = typed(chain()).steps
    assert gen.output_modules == ("LHEoutput", "RAWSIMoutput")
    assert digi.output_modules == ("PREMIXRAWoutput",)
    assert not digi.keep_output
    assert gen.pset_hash == CHAIN_CONFIGS["a" * 32].pset_hash


def test_a_reprocessing_takes_the_primary_dataset_of_its_input() -> None:
    assert {output.dataset for output in typed(reprocessing()).outputs} == {
        "/MuonEG/Run2024C-Test_v1-v1/AOD",
        "/MuonEG/Run2024C-Test_v1-v1/MINIAOD",
    }


def test_what_the_adapter_answers_fits() -> None:
    document = ConfigDocument(pset="process", pset_hash="f" * 32, output_modules=(OutputModule("AODoutput", "AOD", ""),))
    assert typed(reprocessing(), {"d" * 32: document}).outputs[0].tier == "AOD"  # type: ignore[dict-item]


def test_the_configurations_to_fetch_are_named_once_each() -> None:
    document = with_step(
        2, chain(ConfigCacheUrl="https://cmsweb-testbed.cern.ch/couchdb/", CouchDBName="my_cache"), ConfigCacheID="a" * 32
    )
    assert config_ids(read(document)) == (
        ("https://cmsweb-testbed.cern.ch/couchdb", "my_cache", "a" * 32),
        ("https://cmsweb-testbed.cern.ch/couchdb", "my_cache", "c" * 32),
    )
    assert config_ids(read(reprocessing())) == (("https://cmsweb.cern.ch/couchdb", "reqmgr_config_cache", "d" * 32),)


def test_a_missing_configuration_is_told_by_step() -> None:
    configs = {key: config for key, config in CHAIN_CONFIGS.items() if key != "b" * 32}
    assert incomplete(chain(), configs) == {"Step2.ConfigCacheID": f"ConfigCache has no document {'b' * 32}"}
    assert set(incomplete(reprocessing(), {})) == {"ConfigCacheID"}


@pytest.mark.parametrize(
    "config",
    [
        Config(()), Config((Module("AODoutput", "AOD"),), pset=""), Config((Module("../x", "AOD"),)),
        Config((Module("AODoutput", "aod"),)), Config((Module("AODoutput", ""),)),
        Config((Module("AODoutput", "AOD/../../x"),)), Config((Module("AODoutput", "AOD", "skim-me"),)),
        Config(tuple(Module(f"out{number}", "AOD") for number in range(60))),
    ],
    ids=["no module", "no configuration", "label", "tier", "no tier", "tier as path", "filter", "too many"],
)  # fmt: skip
def test_a_configuration_that_names_no_legal_output_is_refused(config: Config) -> None:
    assert "ConfigCacheID" in incomplete(reprocessing(), {"d" * 32: config})


def test_a_step_must_read_a_module_that_exists() -> None:
    found = incomplete(with_step(2, InputFromOutputModule="NOSUCHoutput"))
    assert found == {"Step2.InputFromOutputModule": "NOSUCHoutput is no output module of Gen (it has: LHEoutput, RAWSIMoutput)"}


def test_two_steps_may_not_write_one_dataset() -> None:
    configs = {**CHAIN_CONFIGS, "c" * 32: Config((Module("AODSIMoutput", "GEN-SIM"),))}
    document = chain(AcquisitionEra="Era", ProcessingString="same")
    assert "both write /MinBias_TuneCP5/Era-same-v2/GEN-SIM" in incomplete(document, configs)["Step3.KeepOutput"]


def test_two_steps_may_not_write_one_module_and_tier() -> None:
    configs = {**CHAIN_CONFIGS, "c" * 32: Config((Module("RAWSIMoutput", "GEN-SIM"),))}
    assert "both write RAWSIMoutput with GEN-SIM" in incomplete(chain(), configs)["Step3.KeepOutput"]


def test_a_transient_step_may_write_what_another_keeps() -> None:
    configs = {**CHAIN_CONFIGS, "b" * 32: Config((Module("RAWSIMoutput", "GEN-SIM"),))}
    document = with_step(3, InputFromOutputModule="RAWSIMoutput")
    assert len(typed(document, configs).outputs) == 4


def test_declared_outputs_must_be_those_that_are_written() -> None:
    written = [output.dataset for output in typed(chain()).outputs]
    assert typed(chain(OutputDatasets=list(reversed(written)))) == typed(chain())
    found = incomplete(chain(OutputDatasets=written[:1]))
    assert set(found) == {"OutputDatasets"}
    assert all(dataset in found["OutputDatasets"] for dataset in written)


def test_a_step_may_have_a_primary_dataset_of_its_own_and_hands_it_on() -> None:
    assert [step.primary_dataset for step in read(with_step(2, PrimaryDataset="Other")).steps] == [
        "MinBias_TuneCP5",
        "Other",
        "Other",
    ]
    assert set(problems(with_step(3, PrimaryDataset="a b"))) == {"Step3.PrimaryDataset"}
    assert "PrimaryDataset" in problems(reprocessing(PrimaryDataset="Other"))
    assert _primaries(with_step(3, PrimaryDataset="MinBias_TuneCP5")) == {"MinBias_TuneCP5"}
    assert _primaries(with_step(1, chain(PrimaryDataset="FromTop"), PrimaryDataset=...)) == {"FromTop"}
    assert problems(with_step(1, PrimaryDataset=...)) == {"Step1.PrimaryDataset": "is missing"}


@pytest.mark.parametrize("tier", ["L1SCOUT", "L1NANO"])
def test_tiers_with_digits_are_written_where_dbs_takes_them_and_read_anywhere(tier: str) -> None:
    configs = REPROCESSING_CONFIGS | {key: Config((Module("RAWoutput", tier),)) for key in REPROCESSING_CONFIGS}
    draft = read(reprocessing(InputDataset=f"/JetHT/Run2024A-v1/{tier}", TransientOutputModules=...))
    with pytest.raises(DocumentRefused, match="capital letters and '-'"):
        complete(draft, configs)
    (output,) = complete(draft, configs, tier=lexicon.TIER_WITH_DIGITS).outputs
    assert output.dataset.endswith(f"/{tier}")


def _primaries(document: Document) -> set[str]:
    return {step.primary_dataset for step in read(document).steps}


def test_lfns_that_dbs_cannot_hold_are_refused() -> None:
    configs = {"d" * 32: Config((Module("AODoutput", "A" * 50, "f" * 90),))}
    document = reprocessing(AcquisitionEra="E" * 100, ProcessingString="s" * 90, InputDataset=f"/{'P' * 99}/x-v1/RAW")
    found = incomplete(document, configs)["ProcessingString"]
    assert "no legal processed dataset" in found
    assert "more than 500 characters" in found


def test_the_specification_has_everything_planning_needs() -> None:
    spec = typed(
        chain(CustodialSites=["T1_US_FNAL"], SiteBlacklist=["T2_CH_CERN"], MinMergeSize=5, MaxMergeSize=6, MaxMergeEvents=7)
    )
    assert (spec.request_name, spec.campaign) == ("tester_Run3Test_260101_120000_1234", "Run3Test")
    assert (spec.min_merge_bytes, spec.max_merge_bytes, spec.max_merge_events) == (5, 6, 7)
    assert (spec.site_whitelist, spec.site_blacklist) == (("T1_US_FNAL", "T2_CH_CERN"), ("T2_CH_CERN",))
    assert spec.generation is not None
    assert spec.input is None
    assert len(spec.warnings) == 1
    assert replace(spec, warnings=()).warnings == ()


def declared(label: str, class_name: str) -> str:
    """A module as expanded configurations write it."""
    return f'process.{label} = cms.OutputModule("{class_name}",\n    fileName = cms.untracked.string("file:{label}.root")\n)\n'


@pytest.mark.parametrize(
    ("tier", "class_name", "kind"),
    [
        ("AODSIM", "PoolOutputModule", "edm"), ("MINIAODSIM", "", "edm"), ("NANOAODSIM", "PoolOutputModule", "nano"),
        ("NANOAOD", "", "nano"), ("NANOAODSIM", "NanoAODOutputModule", "plain"), ("DQMIO", "DQMRootOutputModule", "dqmio"),
        ("DQMIO", "", "dqmio"),
    ],
)  # fmt: skip
def test_how_files_are_merged_follows_from_tier_and_output_module(tier: str, class_name: str, kind: str) -> None:
    text = "process = cms.Process('X')\n" + (declared("AODoutput", class_name) if class_name else "")
    configs = {"d" * 32: Config((Module("AODoutput", tier),), pset=text + declared("OtherAODoutput", "EventStreamFileWriter"))}
    assert [output.merge for output in typed(reprocessing(), configs).outputs] == [kind]


def test_an_output_whose_files_nothing_merges_is_refused_by_name() -> None:
    configs = {"d" * 32: Config((Module("RAWoutput", "RAW"),), pset=declared("RAWoutput", "EventStreamFileWriter"))}
    assert "RAWoutput is a EventStreamFileWriter" in incomplete(reprocessing(), configs)["ConfigCacheID"]


def test_a_harvesting_needs_its_configuration_and_something_to_harvest() -> None:
    asked = reprocessing(EnableHarvesting=True, DQMConfigCacheID="e" * 32)
    assert config_ids(read(asked))[-1][2] == "e" * 32
    assert incomplete(asked, REPROCESSING_CONFIGS) == {"DQMConfigCacheID": f"ConfigCache has no document {'e' * 32}"}
    with_it = {**REPROCESSING_CONFIGS, "e" * 32: Config(())}
    assert typed(asked, with_it).warnings == ("EnableHarvesting: no output that is kept is DQMIO: there is nothing to harvest",)
    with_it["d" * 32] = Config((Module("DQMoutput", "DQMIO"),))
    assert typed(asked, with_it).warnings == ()
