"""Our account in Rucio: what CMS's policy refuses to one of the wrong type or without the attribute is said beforehand."""

from __future__ import annotations

import configparser
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from outputs_app.checks.rucio_account import account_problems
from outputs_app.models import Placement
from requests_app.lifecycle.rucio_account import rucio_account_check
from requests_app.models import Installation
from tests.support.html import text
from tests.support.rucio import ACCOUNT, APPROVED_TAPE, SCOPE, Names, block_of, plain_client, rucio_home
from wms2.adapters import factory
from wms2.adapters.rucio import RucioAdapter
from wms2.checks import ACCOUNTS_OF_OTHERS, check_configuration
from wms2.conf import conf
from wms2.errors import ServiceRejected, ServiceUnavailable

pytestmark = [pytest.mark.rucio, pytest.mark.django_db]
VISITOR = "visitor"
CERN = "T2_CH_CERN"


@pytest.fixture(scope="module")
def rucio() -> RucioAdapter:
    return RucioAdapter(rucio_home(), ACCOUNT, SCOPE, 60.0)


@pytest.fixture(scope="module")
def visitor() -> RucioAdapter:
    """An account of type USER without any attribute, which our own login may act as."""
    parser = configparser.ConfigParser()
    parser.read(rucio_home() / "etc/rucio.cfg")
    root, login = plain_client(rucio_home().parent / "admin"), parser["client"]
    if VISITOR not in {row["account"] for row in root.list_accounts()}:
        root.add_account(VISITOR, "USER", "visitor@localhost")
        root.add_identity(VISITOR, login["username"], "USERPASS", "visitor@localhost", password=login["password"])
    return RucioAdapter(rucio_home(), VISITOR, SCOPE, 60.0)


def test_what_an_account_lacks_is_said_and_rucio_refuses_it_indeed(rucio: RucioAdapter, visitor: RucioAdapter) -> None:
    assert rucio.account_problems() == []
    kind, attribute = visitor.account_problems()
    assert "type USER" in kind and "SERVICE" in kind
    assert "no attribute admin" in attribute
    names = Names()
    with pytest.raises(ServiceRejected) as refused:
        visitor.ensure_container(names.dataset)
    assert refused.value.code == "AccessDenied"
    files = names.files(1)
    block_of(rucio, names, CERN, files)
    with pytest.raises(ServiceRejected) as refused:
        visitor.protect_files(CERN, [files[0].lfn], "without a lifetime")
    assert refused.value.code == "AccessDenied"


def test_a_disk_rule_at_rses_of_which_one_asks_approval_is_refused(rucio: RucioAdapter) -> None:
    assert rucio.rses_asking_approval("rse_type=DISK") == []
    assert rucio.rses_asking_approval("rse_type=TAPE") == [APPROVED_TAPE]
    names = Names()
    block_of(rucio, names, CERN, names.files(1))
    with pytest.raises(ServiceRejected) as refused:
        rucio.disk_rule(names.dataset, "rse_type=TAPE", "c", "Production Output", copies=1, lifetime_seconds=None)
    assert refused.value.code == "AccessDenied"


@pytest.fixture(name="reported")
def _reported(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Rucio says of the account and of expressions."""
    reported = SimpleNamespace(problems=[], asking=[], silent=False)

    def account() -> list[str]:
        if reported.silent:
            raise ServiceUnavailable("rucio", "account_problems", "no answer")
        return list(reported.problems)

    answers: dict[str, Any] = {"account_problems": account, "rses_asking_approval": lambda _: reported.asking}
    monkeypatch.setattr(factory, "rucio", lambda: SimpleNamespace(**answers))
    return reported


def test_activities_and_placements_that_rucio_would_refuse_are_named(reported) -> None:
    assert account_problems() == []
    Placement.objects.create(tier="NANOAODSIM", disk_expression="T2_X|T2_Y", disk_activity="Nonsense")
    reported.asking = ["T2_Y"]
    nonsense, placement = account_problems()
    assert "'Nonsense'" in nonsense
    assert "NANOAODSIM" in placement and "T2_Y of 'T2_X|T2_Y' need approval" in placement


def test_ready_and_needs_you_say_it_until_it_is_mended(reported, admin_client: Client) -> None:
    Installation.objects.create(instance=conf().instance, environment=conf().environment)
    reported.problems = ["account wms2 has no attribute admin"]
    rucio_account_check()
    reported.silent = True
    rucio_account_check()  # says nothing new
    assert APIClient().get("/readyz").json()["warnings"]["rucio account"] == "account wms2 has no attribute admin"
    assert "account wms2 has no attribute admin" in text(admin_client.get("/").content.decode())
    reported.problems, reported.silent = [], False
    rucio_account_check()
    assert "rucio account" not in APIClient().get("/readyz").json()["warnings"]


@pytest.mark.parametrize("account", [*sorted(ACCOUNTS_OF_OTHERS), "WMA_prod", "wms2"])
def test_an_account_whose_rules_others_end_is_refused(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    monkeypatch.setenv("WMS2_RUCIO_ACCOUNT", account)
    conf.cache_clear()
    found = [str(each.msg) for each in check_configuration() if each.id == "wms2.E003"]
    assert bool(found) is (account != "wms2")
    assert all(account in each and "use one of your own" in each for each in found)
