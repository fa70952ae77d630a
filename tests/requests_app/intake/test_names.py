"""Names are checked against CMS's rules before any becomes a path."""

from __future__ import annotations

import pytest

from tests.support.intake import chain, changed, problems, read, reprocessing


@pytest.mark.parametrize(
    "base", ["/store/mc", "/store/data", "/store/backfill/1", "/store/hidata", "/store/relval", "/store/test/wms2"]
)
def test_legal_lfn_bases_are_accepted(base: str) -> None:
    assert read(chain(MergedLFNBase=base)).merged_lfn_base == base


def test_an_era_with_a_dash_is_refused_since_dbs_would_refuse_the_dataset() -> None:
    assert "no '-'" in problems(chain(AcquisitionEra="Run-2024"))["AcquisitionEra"]


def test_one_bad_value_at_the_top_is_told_once_under_its_own_name() -> None:
    assert list(problems(chain(ProcessingString="a-b"))) == ["ProcessingString"]


def test_era_and_string_that_are_too_long_together_are_refused() -> None:
    found = problems(chain(AcquisitionEra="E" * 100, ProcessingString="s" * 100))
    assert "no legal processed dataset" in found["ProcessingString"]


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
