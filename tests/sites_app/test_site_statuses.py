"""Production statuses from the Site Status Board: never over an operator's decision, not believed when they would stop half."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from pytest_httpserver import HTTPServer

from sites_app.models import Site, SiteStatus
from sites_app.services import site_change_status, site_follow, sites_drained
from sites_app.sync import site_statuses_sync
from sites_app.tasks import sync_site_statuses
from tests.support.adapters import adapters_forget
from tests.support.faults import fault
from wms2.conf import conf
from wms2.errors import InvalidTransition, RowsUnread, ServiceRejected
from wms2.models import AuditEntry
from wms2.runtime import clock

pytestmark = pytest.mark.django_db
BY: dict[str, Any] = {"actor": "olga", "reason": "its storage lies"}
NAMES = ("T1_US_FNAL", "T2_CH_CERN", "T2_DE_DESY", "T2_US_Purdue", "T2_US_MIT")
Board = Callable[..., None]


@pytest.fixture(name="board")
def _board(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Board:
    """Says what the board has from now on: all enabled, but for these."""
    monkeypatch.setenv("WMS2_SITE_STATUS_URL", httpserver.url_for("/sts15min.json"))
    Site.objects.bulk_create(Site(name=name) for name in NAMES)

    def answer(**statuses: str) -> None:
        adapters_forget()
        httpserver.clear()
        rows = [{"name": name, "prod_status": statuses.get(name, "enabled"), "crab_status": "enabled"} for name in NAMES]
        httpserver.expect_request("/sts15min.json").respond_with_json([*rows, {"name": "T3_Unknown", "prod_status": "drain"}])

    return answer


def status(name: str) -> tuple[str, str]:
    site = Site.objects.get(pk=name)
    return site.status, site.status_actor


@pytest.mark.parametrize(
    ("reported", "becomes"),
    [("drain", SiteStatus.DRAINING), ("test", SiteStatus.DRAINING), ("disabled", SiteStatus.DISABLED)],
)
def test_a_status_is_taken_and_taken_back(board: Board, reported: str, becomes: SiteStatus) -> None:
    board(T2_DE_DESY=reported)
    assert site_statuses_sync() == 1
    assert status("T2_DE_DESY") == (becomes, "ssb")
    assert AuditEntry.objects.get(action="site_change_status").reason == f"production status {reported} in SSB"
    assert site_statuses_sync() == 0, "it is so"
    board()
    sync_site_statuses()
    assert status("T2_DE_DESY") == (SiteStatus.ENABLED, "ssb")


@pytest.mark.parametrize("decided", [SiteStatus.ENABLED, SiteStatus.DISABLED, SiteStatus.MAINTENANCE])
def test_an_operators_decision_stands_until_the_site_follows_the_board_again(board: Board, decided: SiteStatus) -> None:
    site = Site.objects.get(pk="T2_CH_CERN")
    if decided is SiteStatus.ENABLED:
        site_change_status(site=site, status=SiteStatus.DISABLED, **BY)
    site_change_status(site=site, status=decided, **BY)
    board(T2_CH_CERN="drain")
    assert site_statuses_sync() == 0
    assert status("T2_CH_CERN") == (decided, "olga")
    site_follow(site=Site.objects.get(pk="T2_CH_CERN"), **BY)
    site_statuses_sync()
    assert status("T2_CH_CERN") == (SiteStatus.DRAINING, "ssb")
    with pytest.raises(InvalidTransition, match="follows SSB already"):
        site_follow(site=Site.objects.get(pk="T2_CH_CERN"), **BY)


def test_an_operators_drain_that_came_to_its_end_decides_nothing_any_more(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    until = clock.now() + timedelta(hours=1)
    site_change_status(site=Site.objects.get(pk="T2_CH_CERN"), status=SiteStatus.DRAINING, drain_until=until, **BY)
    Site.objects.update(drain_until=clock.now() - timedelta(seconds=1))
    sites_drained(transaction.atomic)
    board(T2_CH_CERN="disabled")
    site_statuses_sync()
    assert status("T2_CH_CERN") == (SiteStatus.DISABLED, "ssb")


def test_a_list_that_would_stop_half_of_the_sites_is_not_believed(board: Board) -> None:
    board(**dict.fromkeys(NAMES, "disabled"))
    with pytest.raises(ServiceRejected, match="5 of 5 enabled sites would be stopped"):
        site_statuses_sync()
    Site.objects.create(
        name="T2_EARLIER", status=SiteStatus.DISABLED, status_actor="ssb"
    )  # before its first answer all are enabled
    board(**dict.fromkeys(NAMES[:3], "disabled"))
    with pytest.raises(ServiceRejected, match="3 of 5 enabled sites would be stopped"):
        site_statuses_sync()
    assert {status(name)[0] for name in NAMES} == {SiteStatus.ENABLED}
    board(**dict.fromkeys(NAMES[:2], "disabled"))
    assert site_statuses_sync() == 2


def test_a_list_that_is_empty_or_no_list_changes_nothing(board: Board, httpserver: HTTPServer) -> None:
    board(T2_DE_DESY="drain", T2_US_MIT="waiting room")
    assert site_statuses_sync() == 1, "words that are not known change nothing"
    adapters_forget()
    httpserver.clear()
    httpserver.expect_request("/sts15min.json").respond_with_json([])
    with pytest.raises(ServiceRejected, match="empty"):
        site_statuses_sync()
    assert status("T2_DE_DESY") == (SiteStatus.DRAINING, "ssb")


@fault(
    "bad rows in every poll: the Site Status Board",
    done="a row that is null, no object or without its fields",
    spec="issue: One bad row stops all others",
    afterwards="the other sites have their status",
)
@pytest.mark.parametrize("bad", [None, "T2_DE_DESY", {"name": "T2_DE_DESY", "prod_status": None}, {"prod_status": "drain"}, {}])
def test_one_row_that_cannot_be_read_stops_no_other(board: Board, httpserver: HTTPServer, bad: Any) -> None:
    rows = [bad, {"name": "T2_US_MIT", "prod_status": "drain"}]
    httpserver.expect_request("/sts15min.json").respond_with_json(rows)
    with pytest.raises(RowsUnread, match="1 of 2 rows cannot be read"):
        site_statuses_sync()
    assert (status("T2_US_MIT")[0], status("T2_DE_DESY")[0]) == (SiteStatus.DRAINING, SiteStatus.ENABLED)


def test_without_an_address_no_board_is_asked() -> None:
    assert not conf().site_status_url
    Site.objects.create(name="T2_CH_CERN", status_actor="olga")
    sync_site_statuses()
    with pytest.raises(InvalidTransition, match="no board is followed"):
        site_follow(site=Site.objects.get(), **BY)
