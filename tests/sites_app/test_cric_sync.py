"""Sites from CRIC over HTTP: an operator's decision is never undone; an empty answer, or one cut off, takes nothing away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from sites_app.bans import bans_active
from sites_app.models import Site, SiteRse, SiteStatus
from sites_app.services import site_ban_by_operator, site_change_status, site_note
from sites_app.sync import sites_sync
from sites_app.tasks import sync_sites
from tests.support.adapters import adapters_forget
from tests.support.faults import fault
from wms2.conf import conf
from wms2.errors import RowsUnread, ServiceError, ServiceRejected, ServiceUnavailable
from wms2.models import FailingTask

pytestmark = pytest.mark.django_db
NAMES = ("T1_US_FNAL", "T2_CH_CERN", "T2_DE_DESY", "T2_US_Purdue")
SITES = {name: ["T1_US_FNAL_Disk" if name == "T1_US_FNAL" else name] for name in NAMES}
Answer = Callable[..., None]


def table(columns: list[str], rows: list[Any]) -> str:
    return json.dumps({"desc": {"columns": columns}, "result": rows})


def names_of(sites: dict[str, list[str]]) -> str:
    rows = [["psn", name, name] for name in sites] + [["cms", name, name] for name in sites]
    return table(["type", "site_name", "alias"], rows)


def pairs_of(sites: dict[str, list[str]]) -> str:
    return table(["phedex_name", "psn_name"], [[rse, name] for name, rses in sites.items() for rse in rses])


@pytest.fixture(name="cric")
def _cric(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """Says what CRIC answers from now on."""
    for name, value in {"CRIC_URL": httpserver.url_for(""), "SERVICE_TIMEOUT_SECONDS": "2"}.items():
        monkeypatch.setenv(f"WMS2_{name}", value.rstrip("/"))
    conf.cache_clear()

    def answer(names: str, pairs: str, status: int = 200) -> None:
        adapters_forget()  # with its circuit breaker
        httpserver.clear()
        for preset, text in (("site-names", names), ("data-processing", pairs)):
            query = {"json": "", "preset": preset, "rcsite_state": "ANY"}
            request = httpserver.expect_request("/api/cms/site/query/", query_string=query)
            request.respond_with_data(text, status=status, content_type="application/json")

    yield answer
    adapters_forget()


def known() -> tuple[list[str], list[tuple[str, str]]]:
    pairs = SiteRse.objects.order_by("site_id", "rse").values_list("site_id", "rse")
    return sorted(Site.objects.values_list("name", flat=True)), list(pairs)


def test_sites_and_their_storage_are_taken_over_and_repeated_as_they_are(cric: Answer) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    for _ in range(2):
        assert sites_sync() == (4, 4)
    assert known() == (sorted(SITES), sorted((site, rse) for site, rses in SITES.items() for rse in rses))


def test_storage_that_cric_no_longer_names_is_dropped_and_its_site_stays(cric: Answer) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    sites_sync()
    fewer = {name: rses for name, rses in SITES.items() if name != "T2_DE_DESY"}
    cric(names_of(fewer), pairs_of(fewer))
    sites_sync()
    assert Site.objects.filter(pk="T2_DE_DESY").exists()
    assert not SiteRse.objects.filter(site="T2_DE_DESY").exists()


@pytest.mark.parametrize("status", [SiteStatus.DISABLED, SiteStatus.DRAINING, SiteStatus.MAINTENANCE])
def test_a_sync_never_undoes_what_an_operator_has_said_of_a_site(cric: Answer, status: SiteStatus) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    sites_sync()
    site = Site.objects.get(pk="T2_CH_CERN")
    site_change_status(site=site, status=status, actor="olga", reason="downtime")
    site_note(site=site, notes={"contact": "olga"}, actor="olga", reason="asked them")
    site_ban_by_operator(site=site, actor="olga", reason="its storage lies")
    sites_sync()
    site.refresh_from_db()
    assert (site.status, site.status_actor, site.status_reason) == (status, "olga", "downtime")
    assert site.config_data == {"contact": "olga"}
    assert bans_active("T2_CH_CERN").count() == 1


FEW = {"T2_CH_CERN": ["T2_CH_CERN"]}


@pytest.mark.parametrize(
    ("names", "pairs", "error"),
    [
        (names_of({}), pairs_of({}), ServiceRejected),
        (names_of({}), pairs_of(SITES), ServiceRejected),
        (names_of(SITES), pairs_of({}), ServiceRejected),
        (names_of(FEW), pairs_of(FEW), ServiceRejected),
        (names_of(SITES), pairs_of(FEW), ServiceRejected),
        (names_of(SITES), pairs_of(SITES)[:-20], ServiceUnavailable),
        (names_of(SITES)[:40], pairs_of(SITES), ServiceUnavailable),
        ("", pairs_of(SITES), ServiceUnavailable),
        ("<html>maintenance</html>", "<html>maintenance</html>", ServiceUnavailable),
    ],
    ids=["empty", "no-names", "no-pairs", "few", "few-pairs", "cut-off-pairs", "cut-off-names", "nothing", "no-json"],
)
def test_an_answer_that_is_empty_or_cut_off_changes_nothing(
    cric: Answer, names: str, pairs: str, error: type[ServiceError]
) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    sites_sync()
    before = known()
    cric(names, pairs)
    with pytest.raises(error):
        sites_sync()
    assert known() == before
    sync_sites()  # the task tells it and goes on living
    assert known() == before


BAD_PAIRS = (
    ["T2_DE_DESY", None],
    ["", "T2_DE_DESY"],
    [" ", "T2_DE_DESY"],
    ["T2,x", "T2_DE_DESY"],
    ["x" * 101, "T2_DE_DESY"],
    [7, "T2_DE_DESY"],
)


@fault(
    "bad rows in every poll: CRIC",
    done="a storage in one row is null, empty, no name or no pair",
    spec="issue: One bad row stops all others",
    afterwards="it enters nothing; the other rows do",
)
@pytest.mark.parametrize("bad", [*BAD_PAIRS, ["T2_DE_DESY", ["x"]], ["T3_US_UMD"], "T2_CH_CERN", None])
def test_one_storage_that_cannot_be_read_enters_nothing_and_stops_no_other(cric: Answer, bad: Any) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    sites_sync()
    before = known()
    new = SITES | {"T2_US_MIT": ["T2_US_MIT"], "T2_CH_CERN": ["T2_CH_CERN_2"]}
    del new["T2_DE_DESY"]
    rows = [bad, *([rse, name] for name, rses in new.items() for rse in rses)]
    cric(names_of(SITES), table(["phedex_name", "psn_name"], rows))
    with pytest.raises(RowsUnread, match="1 of 5 rows cannot be read"):
        sites_sync()
    sites, pairs = known()
    assert sites == sorted([*SITES, "T2_US_MIT"])
    assert {("T2_US_MIT", "T2_US_MIT"), ("T2_CH_CERN", "T2_CH_CERN_2"), ("T2_DE_DESY", "T2_DE_DESY")} <= set(pairs)
    named = isinstance(bad, list) and bad[1:] == ["T2_DE_DESY"]  # a storage may have the name of a site, and be another's
    assert (("T2_CH_CERN", "T2_CH_CERN") in pairs) is not named, "a row that may be any site's takes no storage away"
    assert set(pairs) <= {*before[1], ("T2_US_MIT", "T2_US_MIT"), ("T2_CH_CERN", "T2_CH_CERN_2")}
    sync_sites()
    assert "1 of 5 rows cannot be read" in FailingTask.objects.get().last_error


def test_a_name_that_cannot_be_one_becomes_no_site(cric: Answer) -> None:
    rows = [["psn", name, name] for name in (*SITES, "", "T2 X", "T2,Y", "é" * 200, ".", "_T2", "-T2")] + [
        ["psn", "x", None],
        ["lcg", "IASA", "HG 02"],
    ]
    cric(table(["type", "site_name", "alias"], rows), pairs_of(SITES))
    with pytest.raises(RowsUnread, match="8 of 13 rows cannot be read"):
        sites_sync()
    assert known()[0] == sorted(SITES)


def test_an_empty_answer_is_not_believed_even_at_the_first_time(cric: Answer) -> None:
    no_site = table(["type", "site_name", "alias"], [["cms", "T2_CH_CERN", "T2_CH_CERN"]])
    for names, pairs in ((names_of({}), pairs_of({})), (no_site, pairs_of(FEW))):
        cric(names, pairs)
        with pytest.raises(ServiceRejected):
            sites_sync()
    assert known() == ([], [])


def test_an_error_of_cric_changes_nothing(cric: Answer) -> None:
    cric(names_of(SITES), pairs_of(SITES))
    sites_sync()
    before = known()
    cric("{}", "{}", status=500)
    with pytest.raises(ServiceUnavailable):
        sites_sync()
    assert known() == before
