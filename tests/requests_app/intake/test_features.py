"""What later versions will do is refused by name, and nothing of a document is passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.planning.specs import HarvestSpec
from requests_app.intake import known
from tests.support.intake import chain, problems, read, reprocessing, with_step

ASKED: dict[str, Any] = {
    "SecondaryInputDataset": "/MinBias/PU-v1/RAW", "OverrideCatalog": "trivialcatalog_file:/x", "RunNumber": 3,
    "ValidStatus": "DEPRECATED",
}  # fmt: skip
HARMLESS: dict[str, Any] = {
    "DeterministicPileup": False, "RequiresGPU": "forbidden", "JobExtraMatchRequirements": "", "LumiList": {}, "RunWhitelist": [],
    "RunBlacklist": [], "BlockWhitelist": [], "BlockBlacklist": [], "IncludeParents": "False", "TransientOutputModules": [],
    "IgnoredOutputModules": [], "LheInputFiles": False, "OverrideCatalog": None, "OpenRunningTimeout": 0, "RunNumber": 0,
    "ValidStatus": "PRODUCTION", "MCPileup": None, "DataPileup": "", "GPUParams": "null", "TaskChain": None,
}  # fmt: skip


def test_the_list_of_features_is_the_whole_table() -> None:
    assert ASKED.keys() == known.FEATURES.keys()


@pytest.mark.parametrize("field", ASKED)
def test_a_feature_to_come_is_refused_at_the_top_and_in_a_step(field: str) -> None:
    for found in (problems(chain(**{field: ASKED[field]})), problems(with_step(2, **{field: ASKED[field]}))):
        ((name, problem),) = found.items()
        assert name.removeprefix("Step2.") == field
        assert problem.startswith("not yet supported: ")


def test_lhe_files_are_read_by_the_first_part_of_a_generation() -> None:
    assert read(with_step(1, LheInputFiles=True)).spec.warnings == read(chain(LheInputFiles="True")).spec.warnings == ()
    assert set(problems(with_step(2, LheInputFiles=True))) == {"Step2.LheInputFiles"}
    assert read(reprocessing(LheInputFiles=True)).spec.warnings == (
        "LheInputFiles: not used: the request reads an input dataset",
    )
    assert set(problems(chain(LheInputFiles="perhaps"))) == {"LheInputFiles"}


def test_lhe_events_whose_number_no_source_can_skip_to_are_refused() -> None:
    asked = with_step(1, LheInputFiles=True, RequestNumEvents=1000)
    assert set(problems(asked | {"FirstEvent": 2**32 - 998})) == {"FirstEvent"}
    assert read(asked | {"FirstEvent": 2**32 - 999}).spec.generation is not None
    assert read(with_step(1, RequestNumEvents=1000) | {"FirstEvent": 2**32 - 998}).spec.generation is not None, "others may"


def test_what_is_accepted_and_not_used_is_named() -> None:
    document = chain(
        CustodialSites=["T1_US_FNAL"], NonCustodialSites=["T2_CH_CERN"], DatasetLifetime=3600, DeleteFromSource=True,
        AllowOpportunistic=True, ValidStatus="VALID",
    )  # fmt: skip
    reported = {warning.partition(":")[0] for warning in read(document).spec.warnings}
    assert reported == {*known.WARNED.keys() - {"SandboxUrl", "PayloadConfig"}, "ValidStatus"}


def test_values_that_ask_for_nothing_are_accepted_in_silence() -> None:
    assert read(chain(**HARMLESS)).spec.warnings == ()
    assert read(reprocessing(**HARMLESS)).spec.warnings == ()


@pytest.mark.parametrize("request_type", known.OTHER_TYPES)
def test_request_types_that_are_not_run_are_refused_by_name_with_what_to_do_instead(request_type: str) -> None:
    ((field, problem),) = problems(chain(RequestType=request_type)).items()
    assert field == "RequestType"
    assert problem == f"WMS2 does not run {request_type}: {known.OTHER_TYPES[request_type]}"
    assert ("OriginalRequestName" if request_type == "Resubmission" else "WMAgent") in problem


@pytest.mark.parametrize("request_type", ["MonteCarlo", "stepchain", 7, ["StepChain"]])
def test_other_request_types_are_unknown(request_type: Any) -> None:
    assert "unknown request type" in problems(chain(RequestType=request_type))["RequestType"]


def test_a_document_of_no_type_is_refused() -> None:
    assert "is missing" in problems(chain(RequestType=...))["RequestType"]


def test_features_inside_tasks_are_told_although_the_type_is_refused() -> None:
    found = problems({"RequestType": "StoreResults", "RequestString": "x", "Task1": {"RunNumber": 5}})
    assert set(found) == {"RequestType", "Task1.RunNumber", "SiteWhitelist"}


def test_site_lists_per_step_are_refused() -> None:
    assert problems(with_step(3, SiteWhitelist=["T2_CH_CERN"])) == {
        "Step3.SiteWhitelist": "not yet supported: site lists per step"
    }


def test_skims_are_refused() -> None:
    assert problems(reprocessing(SkimName1="DIMUON", SkimInput1="RECOoutput")) == {
        "SkimName1": "not yet supported: skims",
        "SkimInput1": "not yet supported: skims",
    }


def test_a_later_step_with_an_input_dataset_is_refused() -> None:
    assert "Step2.InputDataset" in problems(with_step(2, InputDataset="/a/b/RAW"))


@pytest.mark.parametrize("field", ["OpenRunningTimeout", "JobExtraMatchRequirements"])
def test_what_concerns_the_whole_request_is_refused_in_a_step(field: str) -> None:
    found = problems(with_step(2, **{field: 7200 if field == "OpenRunningTimeout" else "HasCVMFS"}))
    assert found[f"Step2.{field}"].startswith("not yet supported: ")


def test_site_lists_are_trusted_where_that_changes_something() -> None:
    assert read(reprocessing(TrustSitelists=True)).spec.trust_sitelists
    mixing = read(with_step(2, chain(TrustPUSitelists=True), MCPileup="/a/b/RAW"))
    assert (mixing.spec.trust_sitelists, mixing.spec.trust_pileup_sitelists, mixing.spec.warnings) == (False, True, ())
    idle = read(chain(TrustSitelists=True, TrustPUSitelists="true"))
    assert (idle.spec.trust_sitelists, idle.spec.trust_pileup_sitelists) == (False, False)
    assert idle.spec.warnings == (
        "TrustSitelists: has no effect: the request reads no such files",
        "TrustPUSitelists: has no effect: the request reads no such files",
    )


HARVEST: dict[str, Any] = {"EnableHarvesting": True, "DQMConfigCacheID": "e" * 32}


def test_harvesting_is_read_with_what_reqmgr2_means_by_default() -> None:
    assert read(chain(EnableHarvesting=False, DQMConfigCacheID="e" * 32, DQMHarvestUnit="byMoon")).spec.harvest is None
    assert read(chain(**HARVEST)).spec.harvest == HarvestSpec("e" * 32, ("https://cmsweb.cern.ch/dqm/dev",))
    urls = "https://cmsweb-testbed.cern.ch/dqm/dev/; https://cmsweb.cern.ch/dqm/relval-test"
    asked = chain(**HARVEST, DQMHarvestUnit="multiRun", DQMUploadUrl=urls, HarvestingMemory="4000.5", DQMSequences=["@common"])
    assert read(asked).spec.warnings == ()
    assert read(asked).spec.harvest == HarvestSpec(
        "e" * 32,
        ("https://cmsweb-testbed.cern.ch/dqm/dev", "https://cmsweb.cern.ch/dqm/relval-test"),
        together=True,
        memory_mb=4001,
    )


def test_what_harvesting_does_otherwise_is_told() -> None:
    warnings = read(chain(**HARVEST, PeriodicHarvestInterval=3600, DQMUploadProxy="/agent/proxy")).spec.warnings
    assert warnings == (
        "PeriodicHarvestInterval: not used: WMS2 harvests once, when the request completes",
        "DQMUploadProxy: not used: uploads carry the credential of WMS2's jobs",
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("EnableHarvesting", "perhaps", "must be true or false"),
        ("DQMConfigCacheID", None, "is missing: EnableHarvesting needs the configuration that harvests"),
        ("DQMConfigCacheID", "../x", "is not a legal ConfigCache id"),
        ("DQMHarvestUnit", "byMoon", "must be byRun or multiRun, not 'byMoon'"),
        ("DQMUploadUrl", "https://me:secret@cmsweb.cern.ch/dqm", "is not a legal URL"),
        ("DQMUploadUrl", "https://cmsweb.cern.ch/dqm/dev;", "is not a legal URL"),
        ("HarvestingMemory", 0, "must be above 0"),
        ("PeriodicHarvestInterval", -1, "must be between 0"),
    ],
)
def test_what_cannot_be_harvested_is_refused_by_its_field(field: str, value: object, says: str) -> None:
    ((name, problem),) = problems(chain(**{**HARVEST, field: value})).items()
    assert name == field
    assert says in problem


@pytest.mark.parametrize("field", ["CustodialSites", "NonCustodialSites"])
def test_wishes_for_copies_are_warned_of(field: str) -> None:
    assert [warning.split(":")[0] for warning in read(chain(**{field: ["T1_US_FNAL_Disk"]})).spec.warnings] == [field]
    assert read(chain(**{field: []})).spec.warnings == ()


def test_a_request_that_is_over_in_reqmgr2_is_warned_of() -> None:
    assert "aborted-completed" in read(chain(RequestStatus="aborted-completed")).spec.warnings[0]
    assert read(chain(RequestStatus="staged")).spec.warnings == ()


def test_an_unknown_field_is_warned_of_with_the_likely_one() -> None:
    warnings = read(with_step(1, chain(Priority=5, Flavour="vanilla"), EventPerJob=5)).spec.warnings
    assert warnings == (
        "Priority: unknown field, not used",
        "Flavour: unknown field, not used",
        "Step1.EventPerJob: unknown field, not used (did you mean EventsPerJob?)",
    )


def test_a_flood_of_unknown_fields_is_told_in_short() -> None:
    warnings = read(chain(**{f"Zz{number}" * 50: 1 for number in range(200)})).spec.warnings
    assert len(warnings) == 31
    assert warnings[-1] == "document: 170 more unknown fields, not used"
    assert max(map(len, warnings)) < 200


def test_planner_arguments_have_no_place_in_a_request() -> None:
    assert "only plan_request" in problems(reprocessing(SplittingParams={"job_time_limit": 5}))["SplittingParams"]
    assert "Step1.SplittingParams" in problems(with_step(1, SplittingParams={"job_time_limit": 5}))


def test_every_field_left_alone_has_its_reason() -> None:
    assert all(reason for reason in [*known.IRRELEVANT.values(), *known.IRRELEVANT_STEP.values(), *known.WARNED.values()])
    tables = [known.USED_TOP, set(known.IRRELEVANT), set(known.WARNED), set(known.FEATURES)]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_a_field_of_any_name_is_told_in_plain_letters() -> None:
    warnings = read(chain(**{"evil\n\u202e": 1, "x" * 10_000: 1})).spec.warnings
    assert warnings[0] == r"evil\n\u202e: unknown field, not used"
    assert len(warnings[1]) < 200
    assert all(warning.isascii() and warning.isprintable() for warning in warnings)
