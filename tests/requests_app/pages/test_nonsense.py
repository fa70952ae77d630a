"""Whatever stands in the address of a page is answered with the page or with what is wrong, never with an error of WMS2's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from tests.support.rows import request_row, schedd_row

pytestmark = pytest.mark.django_db
#: Page -> parameters that it takes.
TAKEN = {
    "/?": "range",
    "/requests/?": "status search campaign needs mine failed_code failed_site hold_code ordering cursor",
    "/bulk/new/?operation=hold&which=filter&": "which id status campaign failed_code cursor",
    "/alerts/?": "code cause severity request schedd owner owned open",
    "/campaigns/?": "search owner",
    "/cases/?": "state open site request",
    "/failures/?": "range code site category campaign",
    "/outputs/?": "status rse tape dataset search request as",
    "/outputs/datasets/?": "name",
    "/operations/activity/?": "since actor action target people as",
    "/operations/schedds/schedd9@wms2.example/?": "pool",
    "/sites/?": "status rse search",
    "/search/?": "q",
    "/api/v1/events?": "request",
    "/api/v1/events/stream?": "request",
}
NONSENSE = ("a%00b", "9" * 40)
MOMENTS = (
    "/operations/activity/?since", "/alerts/?since_from", "/requests/?failed_since", "/api/v1/series?measure=events&until",
)  # fmt: skip
OUTSIDE = ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00%2B14:00", "2026-01-01T00:00:00%2B23:59", "99999-01-01")


def _answered_with_an_error(client: Client, addresses: Iterator[str], **headers: str) -> list[str]:
    client.raise_request_exception = False
    return [address for address in addresses if client.get(address, headers=headers).status_code >= 500]


def test_no_value_of_a_parameter_breaks_a_page(operator: Client) -> None:
    row = request_row()
    schedd_row("schedd9@wms2.example")
    lumis = f"/api/v1/requests/{row.request_name}/missing-lumis?dataset=a%00b"
    assert _answered_with_an_error(operator, iter([lumis])) == []
    addresses = (f"{page}{name}={value}" for page, names in TAKEN.items() for name in names.split() for value in NONSENSE)
    assert _answered_with_an_error(operator, addresses) == []
    moments = (f"{begin}={value}" for begin in MOMENTS for value in OUTSIDE)
    assert _answered_with_an_error(operator, moments) == []


def test_no_name_in_an_address_breaks_a_page(operator: Client) -> None:
    name = "a%00b"
    paths = ("/requests", "/campaigns", "/groups", "/sites", "/operations/schedds")
    assert _answered_with_an_error(operator, (f"{path}/{name}/" for path in paths)) == []


def test_a_page_without_a_live_part_is_answered_whole(operator: Client) -> None:
    request_row()
    pages = ("/cases/", "/cases/lost-files/", "/bulk/new/?operation=hold&which=filter&status=new")
    assert _answered_with_an_error(operator, iter(pages), **{"X-Wms2-Part": "live"}) == []


def test_a_moment_of_any_zone_is_one_in_the_list_of_what_was_done(operator: Client) -> None:
    for moment in ("2026-01-01 08:00", "2026-01-01T08:00:00Z", "2026-01-01T00:00:00%2B23:59"):
        assert operator.get(f"/operations/activity/?since={moment}").status_code == 200, moment
