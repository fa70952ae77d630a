"""Names are checked against CMS's rules before any becomes a path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.intake import chain, changed, problems, read, reprocessing, with_step

EVIL = [
    "../../etc", "a b", "a\nb", "a\n", "a/b", "..", ".", "-rf", "a;b", "$(x)", "caf\u00e9", "a\u0660", "'", "a\x7f",
    "x" * 300, 5, True, ["a"], {"a": "b"},
]  # fmt: skip


@pytest.mark.parametrize("value", EVIL)
@pytest.mark.parametrize(
    "field",
    [
        "RequestName", "Campaign", "CMSSWVersion", "GlobalTag", "ConfigCacheUrl", "CouchDBName", "MergedLFNBase",
        "UnmergedLFNBase", "AcquisitionEra", "ProcessingString",
    ],
)  # fmt: skip
def test_no_evil_name_at_the_top_is_accepted(field: str, value: Any) -> None:
    assert field in problems(chain(**{field: value}))


@pytest.mark.parametrize("value", EVIL)
@pytest.mark.parametrize(
    "field", ["StepName", "ConfigCacheID", "PrimaryDataset", "CMSSWVersion", "AcquisitionEra", "ProcessingString"]
)
def test_no_evil_name_in_a_step_is_accepted(field: str, value: Any) -> None:
    document = chain(AcquisitionEra="Era", ProcessingString="string")
    assert f"Step1.{field}" in problems(with_step(1, document, **{field: value}))


@pytest.mark.parametrize("value", EVIL)
def test_no_evil_input_module_is_accepted(value: Any) -> None:
    assert "Step2.InputFromOutputModule" in problems(with_step(2, InputFromOutputModule=value))


@pytest.mark.parametrize(
    "dataset",
    [
        "/a b/c/RAW", "//c/RAW", "/a/b", "/a/b/raw", "/a/../RAW", "/a/b/RAW/", "/a/b/RAW#1", "a/b/RAW",
        "/" + "x" * 100 + "/b/RAW", 7,
    ],
)  # fmt: skip
def test_an_illegal_input_dataset_is_refused(dataset: Any) -> None:
    assert "InputDataset" in problems(reprocessing(InputDataset=dataset))


@pytest.mark.parametrize(
    "base", ["/store/mc", "/store/data", "/store/backfill/1", "/store/hidata", "/store/relval", "/store/test/wms2"]
)
def test_legal_lfn_bases_are_accepted(base: str) -> None:
    assert read(chain(MergedLFNBase=base)).merged_lfn_base == base


@pytest.mark.parametrize(
    "base",
    [
        "/store", "/store/", "/store/mc/", "/store/unmerged", "/store/temp/x", "/store/user/me", "/store/../mc",
        "/eos/store/mc", "store/mc", "/store/mc/1/2",
    ],
)  # fmt: skip
def test_merged_files_go_to_production_areas_only(base: str) -> None:
    assert "MergedLFNBase" in problems(chain(MergedLFNBase=base))


def test_unmerged_files_stay_below_unmerged() -> None:
    assert "UnmergedLFNBase" in problems(chain(UnmergedLFNBase="/store/mc"))


def test_an_era_with_a_dash_is_refused_since_dbs_would_refuse_the_dataset() -> None:
    assert "no '-'" in problems(chain(AcquisitionEra="Run-2024"))["AcquisitionEra"]


def test_one_bad_value_at_the_top_is_told_once_under_its_own_name() -> None:
    assert list(problems(chain(ProcessingString="a-b"))) == ["ProcessingString"]


def test_era_and_string_that_are_too_long_together_are_refused() -> None:
    found = problems(chain(AcquisitionEra="E" * 100, ProcessingString="s" * 100))

    assert "no legal processed dataset" in found["ProcessingString"]


@pytest.mark.parametrize("version", [0, -1, 2**31, "v1", 1.5, True])
def test_an_illegal_processing_version_is_refused(version: Any) -> None:
    assert "ProcessingVersion" in problems(chain(ProcessingVersion=version))


def test_a_document_without_any_name_is_refused() -> None:
    assert problems(chain(RequestName=...)) == {"RequestName": "is missing"}


def test_every_problem_is_told_at_once() -> None:
    document = chain(Campaign="a b", Memory=-1, SiteWhitelist=["T2_XX_Nowhere"], RequestPriority=10**6, Multicore="many")
    changed(document["Step1"], {"RequestNumEvents": 0, "ConfigCacheID": "../x"})
    changed(document["Step3"], {"MCPileup": "no dataset", "Multicore": True})

    assert set(problems(document)) == {
        "Campaign", "Memory", "SiteWhitelist", "RequestPriority", "Multicore", "Step1.RequestNumEvents", "Step1.ConfigCacheID",
        "Step3.MCPileup", "Step3.Multicore",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["site_jobs", "canaries", "Canaries", "SITE_JOBS"])
def test_a_request_may_not_have_the_name_of_a_directory_of_wms2(value: str) -> None:
    assert "canaries, site_jobs" in problems(reprocessing(RequestName=value))["RequestName"]


def test_names_that_only_begin_so_are_legal() -> None:
    assert read(reprocessing(RequestName="site_jobs_v2")).spec.request_name == "site_jobs_v2"
