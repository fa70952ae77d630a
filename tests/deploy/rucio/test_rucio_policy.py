"""The demo's Rucio has CMS's rules for names, approval and locks; what an account without ``admin`` may not do."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rucio.client import Client
from rucio.common import exception

from tests.support.rucio import APPROVED_TAPE, SCOPE, Names, did, entries, plain_client, rucio_home, server_url

pytestmark = pytest.mark.rucio

CERN, KIT_TAPE = "T2_CH_CERN", "T1_DE_KIT_Tape"


@pytest.fixture(name="client", scope="module")
def _client() -> Any:
    return plain_client(rucio_home())


@pytest.fixture(name="names")
def _names() -> Names:
    return Names()


@pytest.fixture(name="plain_account", scope="module")
def _plain_account() -> Any:
    """A client of an account of its own that has no attributes."""
    home: Path = rucio_home()
    admin, name, password = plain_client(home.parent / "admin"), f"t{uuid.uuid4().hex[:10]}", secrets.token_hex(16)
    admin.add_account(name, "SERVICE", f"{name}@localhost")
    admin.add_identity(account=name, identity=name, authtype="USERPASS", email=f"{name}@localhost", password=password)
    admin.set_local_account_limit(name, CERN, 10**12)
    admin.set_local_account_limit(name, KIT_TAPE, 10**12)
    url = server_url(home)
    return Client(
        rucio_host=url, auth_host=url, account=name, auth_type="userpass", creds={"username": name, "password": password}
    )


def block_at_cern(client: Any, names: Names) -> tuple[str, list[str]]:
    block, files = names.block(), names.files(2)
    client.add_dataset(SCOPE, block)
    client.add_replicas(CERN, entries(files))
    client.attach_dids(SCOPE, block, entries(files))
    return block, [f.lfn for f in files]


@pytest.mark.parametrize(
    "name",
    [
        "/Primary/Era-Proc-v1/gen-sim",
        "/Primary/Era-Proc-v1",
        "/Primary/Era-Proc-v1/AOD#",
        "/Primary/Era Proc-v1/AOD",
        "/store/",
        "/data/somewhere.root",
        "just_a_name",
    ],
)
def test_names_that_are_neither_dataset_nor_block_nor_lfn_are_refused(client: Any, names: Names, name: str) -> None:
    client.add_container(SCOPE, names.dataset)
    with pytest.raises(exception.InvalidObject):
        client.attach_dids(SCOPE, names.dataset, [did(name)])


@pytest.mark.parametrize("rse", ["CERN-PROD_DATADISK", "T2_CERN", "t2_CH_CERN", "T9-CH_CERN"])
def test_rses_are_named_as_cms_names_sites(client: Any, rse: str) -> None:
    with pytest.raises(exception.InvalidObject):
        client.add_rse(rse)


def test_a_rule_at_an_rse_that_wants_approval_must_ask_for_it(client: Any, names: Names) -> None:
    block, _ = block_at_cern(client, names)
    with pytest.raises(exception.AccessDenied):
        client.add_replication_rule([did(block)], 1, APPROVED_TAPE)
    (rule,) = client.add_replication_rule([did(block)], 1, APPROVED_TAPE, ask_approval=True)
    assert client.get_replication_rule(rule)["state"] == "WAITING_APPROVAL"
    client.approve_replication_rule(rule)
    assert client.get_replication_rule(rule)["state"] != "WAITING_APPROVAL"
    other, _ = block_at_cern(client, names)
    assert client.add_replication_rule([did(other)], 1, KIT_TAPE), "others want none"


def test_an_owner_without_admin_may_delete_its_rules_but_not_unlock_or_hand_them_over(
    client: Any, plain_account: Any, names: Names
) -> None:
    block, (lfn, _) = block_at_cern(client, names)
    (own,) = plain_account.add_replication_rule([did(lfn)], 1, CERN)
    refused: list[Callable[[], object]] = [
        lambda: plain_account.add_replication_rule([did(block)], 1, CERN, locked=True),
        lambda: plain_account.update_replication_rule(own, {"account": "wms2"}),
        lambda: plain_account.update_replication_rule(own, {"priority": 5}),
    ]
    for act in refused:
        with pytest.raises(exception.AccessDenied):
            act()
    assert plain_account.delete_replication_rule(own)
    (taped,) = plain_account.add_replication_rule([did(block)], 1, KIT_TAPE)
    assert client.get_replication_rule(taped)["locked"], "Rucio locks what goes to tape"
    with pytest.raises(exception.AccessDenied):
        plain_account.update_replication_rule(taped, {"locked": False})
    with pytest.raises(exception.UnsupportedOperation):
        plain_account.delete_replication_rule(taped)
    (others,) = client.add_replication_rule([did(lfn)], 1, CERN, account="wms2", comment="another's")
    with pytest.raises(exception.AccessDenied):
        plain_account.delete_replication_rule(others)


def test_what_wms2_does_needs_the_admin_attribute(plain_account: Any, names: Names) -> None:
    (file,) = names.files(1)
    for act in (
        lambda: plain_account.add_container(SCOPE, names.dataset),
        lambda: plain_account.add_dataset(SCOPE, names.block()),
        lambda: plain_account.add_replicas(CERN, entries([file])),
    ):
        with pytest.raises(exception.AccessDenied):
            act()
