"""Where a request may run."""

from __future__ import annotations

from typing import Any

import pytest

from requests_app.intake import parse
from tests.support.intake import LIMITS, chain, problems, read


@pytest.mark.parametrize("listed", ["T1_US_FNAL", ["T1_US_FNAL"], ["T1_US_FNAL", "T1_US_FNAL"]])
def test_a_site_list_may_be_one_text_and_holds_each_site_once(listed: Any) -> None:
    assert read(chain(SiteWhitelist=listed)).spec.site_whitelist == ("T1_US_FNAL",)


@pytest.mark.parametrize("listed", [..., [], "", None])
def test_a_request_without_sites_is_not_assigned(listed: Any) -> None:
    assert problems(chain(SiteWhitelist=listed)) == {"SiteWhitelist": "is missing: the request is not assigned to any site"}


def test_unknown_sites_are_named() -> None:
    found = problems(chain(SiteWhitelist=["T1_US_FNAL", "T2_XX_Nowhere", "T3_YY_Else"], SiteBlacklist=["T2_ZZ_Gone"]))
    assert found == {
        "SiteWhitelist": "unknown site(s): T2_XX_Nowhere, T3_YY_Else",
        "SiteBlacklist": "unknown site(s): T2_ZZ_Gone",
    }


def test_sites_are_not_compared_when_none_are_known() -> None:
    draft = parse(chain(SiteWhitelist=["T2_XX_Nowhere"]), request_name=None, limits=LIMITS, known_sites=None)
    assert draft.spec.site_whitelist == ("T2_XX_Nowhere",)


def test_a_white_list_that_is_all_banned_is_refused() -> None:
    assert "every site" in problems(chain(SiteBlacklist=["T2_CH_CERN", "T1_US_FNAL"]))["SiteWhitelist"]
    assert read(chain(SiteBlacklist=["T2_CH_CERN"])).spec.site_blacklist == ("T2_CH_CERN",)


@pytest.mark.parametrize("site", ["T2_CH", "T5_CH_CERN", "t2_ch_cern", "T2_CH_CERN/../x", "T2_CH_CERN ", 7, None, ["T2_CH_CERN"]])
def test_a_name_that_no_site_has_is_refused(site: Any) -> None:
    assert "SiteWhitelist" in problems(chain(SiteWhitelist=[site]))
