"""The contract tests themselves: they write to no production server, and only under names of their own."""

from __future__ import annotations

import pytest

from tests.support import contract
from tests.support.contract import ERA, Area, is_production
from wms2.adapters.dbs_payloads import validate_block


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://cmsweb.cern.ch/dbs/prod/global/DBSWriter", True),
        ("https://cmsweb.cern.ch/dbs/int/global/DBSWriter", True),
        ("https://cmsweb-prod.cern.ch:8443/dbs/prod/phys03/DBSWriter", True),
        ("https://cms-rucio.cern.ch", True),
        ("https://contest.cern.ch/dbs", True),
        ("https://10.0.0.1/dbs", True),
        ("https://cmsweb-testbed.cern.ch/dbs/int/global/DBSWriter", False),
        ("https://cmsweb-test12.cern.ch/reqmgr2/data", False),
        ("https://cms-rucio-int.cern.ch", False),
        ("http://127.0.0.1:8080/dbs/prod/global/DBSWriter", False),
        ("http://localhost:8443", False),
    ],
)
def test_what_is_not_plainly_for_tests_is_taken_for_production(url: str, expected: bool) -> None:
    assert is_production(url) is expected


def test_production_is_refused_without_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_CONTRACT_DBS_URL", "https://cmsweb.cern.ch/dbs/prod/global/DBSWriter")
    for said in ("", "yes", "1"):
        monkeypatch.setenv("WMS2_CONTRACT_ON_PRODUCTION", said)
        with pytest.raises(pytest.fail.Exception, match="taken for production"):
            contract.server("DBS_URL", "WMS2_DBS_WRITER_URL")
    monkeypatch.setenv("WMS2_CONTRACT_ON_PRODUCTION", contract.ON_PRODUCTION)
    assert contract.server("DBS_URL", "WMS2_DBS_WRITER_URL").startswith("https://cmsweb")


def test_a_service_that_is_not_named_beside_one_that_is_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in contract.SERVERS:
        monkeypatch.delenv(f"WMS2_CONTRACT_{name}", raising=False)
    monkeypatch.setenv("WMS2_CONTRACT_DBS_URL", "http://localhost/DBSWriter")
    monkeypatch.setenv("WMS2_REQMGR2_URL", "http://localhost/reqmgr2/data")
    with pytest.raises(pytest.skip.Exception):
        contract.server("REQMGR2_URL", "WMS2_REQMGR2_URL")


def test_names_are_of_this_run_below_the_test_area_and_dbs_takes_them() -> None:
    one, other = Area(), Area()
    assert ERA in one.dataset and one.dataset != other.dataset
    assert one.lfn().startswith(f"/store/backfill/1/{ERA}/")
    validate_block(one.block())
